"""One segment of a partition log: a file of batches and the indexes beside it.

A segment starts at `base_offset`, which names its files: `%020d.log`, `.index`, `.timeindex`, `.txnindex`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from raftlog.broker.core.log.results import LogDamaged
from raftlog.broker.ports import Buffer
from raftlog.broker.store.files import Descriptor, OpenFiles, read_exactly, write_all
from raftlog.broker.store.index_file import offset_index, time_index
from raftlog.broker.store.transaction_index import TRANSACTION_INDEX_SUFFIX, TransactionIndex
from raftlog.wire.batch import HEADER_SIZE, LENGTH_END, MAGIC, BatchHeader, CorruptRecord, check_crc, parse_header
from raftlog.wire.errors import InvariantViolation

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

SCAN_BYTES: Final = 8192
"""Read at once while looking for an offset. An index interval (4096 bytes) and the header behind it fit."""

UNKNOWN: Final = -2
"""A timestamp that has not been read from the disk yet; -1 is "none"."""

# base offset, batch length, leader epoch, magic, checksum, attributes, last offset delta
_WHERE: Final = Struct(">qiibIhi")


@dataclass(slots=True)
class VerifiedRange:
    """Bytes [start, end) that have been compared, both where a batch begins; and what the next batch may not be below.
    """

    start: int
    end: int
    next_offset: int


class Segment:
    """Batches from `base_offset` on. `size` is the end of the last whole batch, in bytes; the file may be longer
    while room is preallocated.

    What lies below `verified_from` was there before this process and may have rotted: it is compared with its checksums
    when it is first read (`checksums.py`). The rest was written, or checked in recovery, by this one.

    Invariants: offsets of batches rise and lie within int32 of `base_offset`; index entries point to batches.
    """

    __slots__ = (
        "_disk",
        "base_offset",
        "bytes_since_index",
        "changed_ms",
        "created_ms",
        "first_timestamp",
        "largest_timestamp",
        "largest_timestamp_offset",
        "log",
        "offsets",
        "path",
        "size",
        "suffix",
        "times",
        "transactions",
        "verified_from",
        "verified_ranges",
    )

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        *,
        suffix: str = "",
        size: int = 0,
        new: bool,
    ) -> None:
        disk = self._disk = files.disk
        self.base_offset = base_offset
        self.suffix = suffix
        path = self.path = f"{directory}/{base_offset:020d}"
        self.log = files.file(path + LOG_SUFFIX + suffix)
        self.offsets = offset_index(disk, files, path + OFFSET_INDEX_SUFFIX + suffix, new=new)
        self.times = time_index(disk, files, path + TIME_INDEX_SUFFIX + suffix, new=new)
        self.transactions = TransactionIndex(disk, path, suffix, new=new)
        self.size = size
        self.verified_from = 0
        self.verified_ranges: list[VerifiedRange] = []
        self.bytes_since_index = 0
        self.created_ms = self.changed_ms = 0
        # The timestamp of the first batch decides segment.ms, the largest one retention.ms.
        self.first_timestamp = -1 if new else UNKNOWN
        self.largest_timestamp = -1 if new else UNKNOWN
        self.largest_timestamp_offset = base_offset

    @classmethod
    def create(
        cls,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        preallocate: int = 0,
        suffix: str = "",
        replacing: bool = True,
    ) -> Segment:
        """A new, empty segment, replacing what lies under its names if there may be something.

        Raises OSError and leaves nothing then: a segment that its log does not know of would lie in the middle of it
        after a restart.

        Its indexes get their files with their first entries, or when it is finished: making a file costs as much as
        a hundred appends.
        """
        segment = cls(files, directory, base_offset, suffix=suffix, new=True)
        disk = files.disk
        try:
            fd = segment.log.open(create=True).fd
            if replacing:
                disk.truncate(fd, 0)
                for kind in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
                    disk.remove(segment.path + kind + suffix)
            if preallocate:
                disk.allocate(fd, preallocate)
        except OSError:
            segment.remove()
            raise
        segment.created_ms = segment.changed_ms = now_ms
        return segment

    @classmethod
    def load(cls, files: OpenFiles, directory: str, base_offset: int, *, suffix: str = "") -> Segment:
        """A segment that is on disk. Only its size is read. Raises OSError."""
        segment = cls(files, directory, base_offset, suffix=suffix, new=False)
        segment.size, segment.changed_ms = files.disk.stat(segment.log.path)
        segment.verified_from = segment.size
        segment.created_ms = segment.changed_ms
        return segment

    @property
    def paths(self) -> tuple[str, ...]:
        """All its files, whether they are there or not."""
        return self.log.path, self.offsets.file.path, self.times.file.path, self.transactions.path

    def descriptor(self) -> Descriptor:
        """The log file, open. Raises OSError."""
        return self.log.descriptor or self.log.open()

    # Appending -------------------------------------------------------------------------------------------------

    def append(self, records: Buffer, size: int, last_offset: int, max_timestamp: int, interval: int) -> None:
        """Append one batch (hot path). `interval` is index.interval.bytes.

        Raises OSError; the segment is as before then, but the file may hold a piece of the batch behind `size`.
        """
        position = self.size
        log = self.log
        fd = (log.descriptor or log.open()).fd
        log.used = True
        written = self._disk.write_at(fd, records, position)
        if written != size:
            write_all(self._disk, fd, memoryview(records)[written:], position + written)
        if position == 0:
            self.first_timestamp = max_timestamp
        self.size = position + size
        if max_timestamp > self.largest_timestamp:
            self.largest_timestamp = max_timestamp
            self.largest_timestamp_offset = last_offset
        if self.bytes_since_index > interval:
            self.offsets.append(last_offset - self.base_offset, position)
            self.add_time_entry()
            self.bytes_since_index = size
        else:
            self.bytes_since_index += size

    def append_run(self, records: Buffer, batches: Sequence[tuple[int, BatchHeader]], interval: int) -> None:
        """Append neighbouring batches, (position in `records`, header) each, in one write. Raises OSError."""
        start = self.size
        write_all(self._disk, self.descriptor().fd, records, start)
        if start == 0:
            self.first_timestamp = batches[0][1].max_timestamp
        self.size = start + len(records)
        for at, header in batches:
            self.note(start + at, header.size, header.last_offset, header.max_timestamp, interval)

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int, interval: int) -> None:
        """Take up a batch that is in the file already: its time, and an index entry if one is due."""
        if max_timestamp > self.largest_timestamp:
            self.largest_timestamp = max_timestamp
            self.largest_timestamp_offset = last_offset
        if self.bytes_since_index > interval:
            self.offsets.append(last_offset - self.base_offset, position)
            self.add_time_entry()
            self.bytes_since_index = 0
        self.bytes_since_index += size

    def add_time_entry(self) -> None:
        """Bring the largest timestamp into the time index, if it is not there."""
        last = self.times.last
        timestamp = self.largest_timestamp
        if timestamp < 0 or (last is not None and timestamp <= last[0]):
            return
        relative = self.largest_timestamp_offset - self.base_offset
        if last is None or relative > last[1]:
            self.times.append(timestamp, relative)

    def is_full(self, index_bytes: int) -> bool:
        """Whether an index has no room for one entry more (segment.index.bytes)."""
        return self.offsets.is_full(index_bytes) or self.times.is_full(index_bytes)

    # Finding ---------------------------------------------------------------------------------------------------

    def position_of(self, offset: int) -> int:
        """Position of the first batch that ends at `offset` or later; `size` when there is none.

        Raises OSError, and LogDamaged if the search meets bytes that are no batch.
        """
        entry = self.offsets.floor(offset - self.base_offset)
        return self._scan(entry[1] if entry else 0, offset)

    def _scan(self, position: int, offset: int) -> int:
        fd = self.descriptor().fd
        read_at, unpack, end = self._disk.read_at, _WHERE.unpack_from, self.size
        while position < end:
            chunk = read_at(fd, min(SCAN_BYTES, end - position), position)
            last = len(chunk) - HEADER_SIZE
            at = 0
            while at <= last:
                base, length, _, magic, _, _, delta = unpack(chunk, at)
                if magic != MAGIC or length < HEADER_SIZE - LENGTH_END or base < self.base_offset:
                    raise self.damaged(position + at, "there is no batch")
                if base + delta >= offset:
                    return position + at
                at += length + LENGTH_END
            if at == 0:
                raise self.damaged(position, "the file ends within a batch header")
            position += at
        return end

    def batch_size_at(self, position: int) -> int:
        """Bytes of the batch at `position`, read from its header. Raises OSError, LogDamaged."""
        head = self._disk.read_at(self.descriptor().fd, LENGTH_END, position)
        length = int.from_bytes(head[8:LENGTH_END], "big", signed=True)
        if len(head) < LENGTH_END or length < HEADER_SIZE - LENGTH_END:
            raise self.damaged(position, "there is no batch")
        return length + LENGTH_END

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from `position` up to `end`. Raises OSError, LogDamaged."""
        fd = self.descriptor().fd
        end = self.size if end is None else end
        while position < end:
            chunk = self._disk.read_at(fd, min(SCAN_BYTES, end - position), position)
            at = 0
            while at + HEADER_SIZE <= len(chunk):
                try:
                    header = parse_header(chunk, at)
                except CorruptRecord as error:
                    raise self.damaged(position + at, str(error)) from None
                yield position + at, header
                at += header.batch_length + LENGTH_END
            if at == 0:
                raise self.damaged(position, "the file ends within a batch header")
            position += at

    def read(self, position: int, size: int) -> bytes:
        """`size` bytes, or fewer if the file ends. Raises OSError."""
        return read_exactly(self._disk, self.descriptor().fd, size, position)

    def read_batch(self, position: int, size: int) -> bytes:
        """One whole batch. Raises OSError, LogDamaged."""
        data = self.read(position, size)
        if len(data) < size:
            raise self.damaged(position, "the file ends within a batch")
        return data

    def read_sound_batch(self, position: int, size: int) -> bytes:
        """One whole batch with the right checksum. Raises OSError, LogDamaged."""
        data = self.read_batch(position, size)
        if not check_crc(data, 0, size):
            raise self.damaged(position, "the checksum of a batch does not match")
        return data

    def next_offset(self) -> int:
        """The offset behind the last batch, read from the last index entry on. Raises OSError, LogDamaged."""
        entry = self.offsets.load().last
        following = self.base_offset
        for _, header in self.headers(entry[1] if entry else 0):
            following = header.base_offset + header.last_offset_delta + 1
        return following

    def load_first_timestamp(self) -> int:
        """Largest timestamp of the first batch; -1 if it has none or there is no batch. Raises OSError."""
        if self.first_timestamp == UNKNOWN:
            self.first_timestamp = -1
            for _, header in self.headers():
                self.first_timestamp = header.max_timestamp
                break
        return self.first_timestamp

    def load_largest_timestamp(self) -> int:
        """Largest timestamp of all batches; -1 if there is none. Raises OSError, LogDamaged."""
        if self.largest_timestamp != UNKNOWN:
            return self.largest_timestamp
        last_time, last_offset = self.times.load().last, self.offsets.load().last
        self.largest_timestamp, self.largest_timestamp_offset = -1, self.base_offset
        if last_time is not None:
            self.largest_timestamp = last_time[0]
            self.largest_timestamp_offset = self.base_offset + last_time[1]
        # The time index is one entry behind at most: what follows the last offset entry is read.
        for _, header in self.headers(last_offset[1] if last_offset else 0):
            if header.max_timestamp > self.largest_timestamp:
                self.largest_timestamp = header.max_timestamp
                self.largest_timestamp_offset = header.base_offset + header.last_offset_delta
        return self.largest_timestamp

    # Whole files -----------------------------------------------------------------------------------------------

    def truncate(self, position: int, end_offset: int) -> None:
        """Drop everything from `position` on, where the batch with `end_offset` begins. Raises OSError.

        The indexes are truncated and synced first: an entry must never outlive the batch it points to, since a crash
        could otherwise leave it pointing into other batches.
        """
        relative = end_offset - self.base_offset
        self.offsets.keep(self.offsets.count_up_to(relative - 1))
        times = self.times.load().count
        while times and self.times.entry(times - 1)[1] >= relative:
            times -= 1
        self.times.keep(times)
        self.offsets.sync()
        self.times.sync()
        self.transactions.truncate_to(end_offset)
        fd = self.descriptor().fd
        self._disk.truncate(fd, position)
        self.size = position
        self.verified_from = min(self.verified_from, position)
        self.bytes_since_index = position - (self.offsets.last[1] if self.offsets.last else 0)
        self.first_timestamp = -1 if position == 0 else UNKNOWN
        self.largest_timestamp = UNKNOWN
        self.load_largest_timestamp()

    def finish(self) -> None:
        """The segment takes no more batches: its last time entry is written and unused room given back."""
        self._add_last_time_entry()
        self.offsets.complete()
        self.times.complete()
        self._give_room_back()

    def write_out(self) -> None:
        """Bring everything into the files; an index without entries stays without a file. Raises OSError.

        The last time is left out when no offset has an entry: Kafka's tools read no time index that stands alone, and
        the few batches before a first entry tell their times themselves.
        """
        if self.offsets.count:
            self._add_last_time_entry()
        self.offsets.write_out()
        self.times.write_out()
        self._give_room_back()

    def _add_last_time_entry(self) -> None:
        if self.size:
            self.load_largest_timestamp()
            self.add_time_entry()

    def _give_room_back(self) -> None:
        fd = self.descriptor().fd
        if self._disk.size(fd) != self.size:
            self._disk.truncate(fd, self.size)

    def sync(self) -> None:
        """Return when log and indexes are on stable storage. Raises OSError."""
        self._disk.sync(self.descriptor().fd)
        self.offsets.sync()
        self.times.sync()
        self.transactions.sync()

    def rename(self, suffix: str) -> None:
        """Change what follows the names of all its files, e.g. to ".deleted". Raises OSError.

        The log file is renamed behind its indexes when the segment comes to life and first when it goes, so that no log
        file is ever without them. The transaction index is always the last: while the log is `.swap` still, a start
        takes one that has its name already for the old segment's, and it cannot be made again.
        """
        files = [(self.log, LOG_SUFFIX), (self.offsets.file, OFFSET_INDEX_SUFFIX), (self.times.file, TIME_INDEX_SUFFIX)]
        for file, kind in files if suffix else reversed(files):
            file.rename(self.path + kind + suffix)
        self.transactions.rename(suffix)
        self.suffix = suffix

    def remove(self) -> None:
        """Remove all files. Slices that are being sent stay readable. Raises OSError."""
        self.close()
        for path in self.paths:
            self._disk.remove(path)

    def close(self) -> None:
        """Let go of the descriptors; the segment can be used again."""
        self.log.close()
        self.offsets.close()
        self.times.close()

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what is in memory contradicts itself."""
        self.offsets.check_invariants()
        self.times.check_invariants()
        last = self.offsets.last
        if last is not None and last[1] >= max(self.size, 1):
            raise InvariantViolation(f"{self.log.path}: an index entry points to byte {last[1]} of {self.size}")
        if self.verified_from > self.size:
            raise InvariantViolation(f"{self.log.path}: verified from byte {self.verified_from} of {self.size} on")

    def damaged(self, position: int, what: str) -> LogDamaged:
        """The error that takes the partition offline, for a place where a batch should be."""
        return LogDamaged(
            f"{self.log.path}: at byte {position} (offsets from {self.base_offset} on) {what}. Records that were "
            "known to be safe are damaged, and nothing behind them is dropped. Restore the file from a replica or a "
            "backup, or stop the broker and move the partition's directory away to go on without its records."
        )
