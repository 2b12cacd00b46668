"""One index file of a segment: sparse entries that rise in key and value, searched by key.

Entries are written in blocks, when the log is flushed or rolled, and not one by one: after a crash they are made anew
from the batches above the recovery point, so nothing is lost and an append costs no second system call.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct

from raftlog.broker.core.log.index import OFFSET_ENTRY, TIME_ENTRY, Entry, floor_entry, valid_prefix
from raftlog.broker.ports import Disk
from raftlog.broker.store.files import OpenFiles, read_exactly, write_all
from raftlog.wire.errors import InvariantViolation

WAITING_ENTRIES = 512
"""So many entries wait in memory at most: a page of offsets. The same number of times waits, or a time index would have
its file before the offset index, without which Kafka's tools do not read it."""
SEARCH_BLOCK = 256
"""Once this many entries are left to search they are read at once."""


class IndexFile:
    """Entries, oldest first, of which `written` are in the file and the others in `_waiting`.

    `last` is the last entry, None if there is none; it is read from the file by `load`, which is called before
    anything else is asked of an index that is not new. A log may have thousands of indexes that nobody asks.
    """

    __slots__ = ("_disk", "_loaded", "_size", "_waiting", "_written", "file", "last", "layout")

    def __init__(self, disk: Disk, files: OpenFiles, path: str, layout: Struct, *, new: bool) -> None:
        self._disk = disk
        self.file = files.file(path)
        self.layout = layout
        self._written = 0
        self._waiting = bytearray()
        self.last: Entry | None = None
        self._loaded = new
        # Bytes of all entries, written or not.
        self._size = 0

    def load(self) -> IndexFile:
        """Learn from the file how many entries there are. Raises OSError."""
        if not self._loaded:
            try:
                length, _ = self._disk.stat(self.file.path)
            except FileNotFoundError:
                length = 0
            self._written = length // self.layout.size
            self._recount()
            self._loaded = True
        return self

    def _recount(self) -> None:
        self._size = self._written * self.layout.size + len(self._waiting)
        self.last = self.entry(self._size // self.layout.size - 1) if self._size else None

    @property
    def size(self) -> int:
        """Bytes of all entries. Raises OSError."""
        return self.load()._size

    @property
    def count(self) -> int:
        """How many entries there are. Raises OSError."""
        return self.size // self.layout.size

    def is_full(self, size_max: int) -> bool:
        """Whether one entry more would make it larger than `size_max` (hot path: of a loaded index)."""
        return self._size + self.layout.size > size_max

    def append(self, key: int, value: int) -> None:
        """Add an entry; the caller keeps keys and values rising. Never fails: entries that cannot be written wait."""
        waiting = self._waiting
        waiting += self.layout.pack(key, value)
        self.last = (key, value)
        self._size += self.layout.size
        if len(waiting) % (WAITING_ENTRIES * self.layout.size) == 0:
            try:
                self.write_out()
            except OSError:
                # The batch is in the log already. A disk that is full or broken is reported by the next flush.
                pass

    def write_out(self) -> None:
        """Bring the waiting entries into the file, made if it is absent. Raises OSError and keeps them waiting."""
        if self._waiting:
            fd = self.file.open(create=True).fd
            write_all(self._disk, fd, self._waiting, self._written * self.layout.size)
            self._written = self.count
            self._waiting.clear()

    def complete(self) -> None:
        """Bring everything into the file, and make it if there was nothing. Raises OSError."""
        self.write_out()
        self.file.open(create=True)

    def sync(self) -> None:
        """Return when all entries are on stable storage. Raises OSError."""
        self.write_out()
        self._disk.sync(self.file.open(create=True).fd)

    def entry(self, number: int) -> Entry:
        """Entry by number, from 0. Raises OSError."""
        size = self.layout.size
        if number >= self._written:
            key, value = self.layout.unpack_from(self._waiting, (number - self._written) * size)
        else:
            key, value = self.layout.unpack(self._read(number, 1))
        return key, value

    def floor(self, key: int) -> Entry | None:
        """The last entry whose key is `key` or less; None if there is none. Raises OSError."""
        number = self.count_up_to(key)
        return self.entry(number - 1) if number else None

    def count_up_to(self, key: int) -> int:
        """How many entries have a key of `key` or less. Raises OSError."""
        layout, written = self.layout, self.load()._written
        number = floor_entry(self._waiting, layout, key)
        if number >= 0:
            return written + number + 1
        low, high = 0, written
        while high - low > SEARCH_BLOCK:
            middle = (low + high) >> 1
            if self.entry(middle)[0] <= key:
                low = middle
            else:
                high = middle
        block = self._read(low, high - low) if high > low else b""
        return low + floor_entry(block, layout, key) + 1

    def first_reaching(self, value: int) -> Entry | None:
        """The first entry whose value is `value` or more, where values rise; None if there is none. Raises OSError."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) >> 1
            if self.entry(middle)[1] < value:
                low = middle + 1
            else:
                high = middle
        return self.entry(low) if low < self.count else None

    def keep(self, count: int) -> None:
        """Drop all entries behind the first `count`; in the file at once. Raises OSError."""
        self.load()
        self.write_out()
        if count < self._written:
            self._disk.truncate(self.file.open().fd, count * self.layout.size)
            self._written = count
            self._recount()

    def keep_trusted(self, *, key_end: int, value_end: int) -> int:
        """Drop what cannot be right after a crash and what is not below the ends; how many entries are left."""
        kept = valid_prefix(self.read_all(), self.layout, key_end=key_end, value_end=value_end)
        self.keep(kept)
        return kept

    def read_all(self) -> bytes:
        """All entries as bytes. Raises OSError."""
        return self._read(0, self.load()._written) + bytes(self._waiting)

    def _read(self, number: int, count: int) -> bytes:
        if not count:
            return b""
        size = self.layout.size
        return read_exactly(self._disk, self.file.open().fd, count * size, number * size)

    def check_invariants(self) -> None:
        """Raises InvariantViolation unless what is in memory is counted rightly, and rises. Reads no file."""
        if not self._loaded:
            return
        if self._size != self._written * self.layout.size + len(self._waiting):
            raise InvariantViolation(f"{self.file.path}: {self._size} bytes, of which {len(self._waiting)} wait")
        waiting = list(self.layout.iter_unpack(self._waiting))
        for (key, value), (next_key, next_value) in pairwise(waiting):
            if next_key <= key or next_value < value:
                raise InvariantViolation(f"{self.file.path}: {next_key, next_value} comes after {key, value}")
        if waiting and waiting[-1] != self.last:
            raise InvariantViolation(f"{self.file.path}: the last entry is {waiting[-1]}, not {self.last}")

    def close(self) -> None:
        self.file.close()


def offset_index(disk: Disk, files: OpenFiles, path: str, *, new: bool) -> IndexFile:
    """Key: relative last offset of a batch; value: its position."""
    return IndexFile(disk, files, path, OFFSET_ENTRY, new=new)


def time_index(disk: Disk, files: OpenFiles, path: str, *, new: bool) -> IndexFile:
    """Key: a timestamp; value: relative last offset of the batch that brought it."""
    return IndexFile(disk, files, path, TIME_ENTRY, new=new)
