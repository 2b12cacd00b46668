"""A compacted log on a disk that can crash, and what a reader finds in it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress

from raftlog.broker.core.log.cleaned_batches import Step
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import AppendOrigin
from raftlog.broker.store.cleaner import LogCleaner
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.store import Store
from raftlog.linearizability.simulator.machine.disk import FaultyDisk, MemoryFile, PowerCut
from raftlog.wire.batch import BatchHeader, Record, decode_batch, encode_batch, iterate_batches
from raftlog.wire.compression import Compression
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.errors import ErrorCode
from tests.broker.store.log_world import FakeClock, unlimited

DIRECTORY = "/data/topic-0"
CONFIG = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=400,
    index_interval_bytes=100,
    delete_retention_ms=10_000,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
    message_timestamp_after_max_ms=10**12,
)


def copy_of(disk: FaultyDisk) -> FaultyDisk:
    """The same files, in cache and on the platter, for a broker of its own; without the faults."""
    copies: dict[int, MemoryFile] = {}

    def copied(file: MemoryFile) -> MemoryFile:
        if id(file) not in copies:
            copies[id(file)] = MemoryFile(
                bytearray(file.content), bytearray(file.durable), list(file.pending), file.changed_ms
            )
        return copies[id(file)]

    twin = FaultyDisk()
    twin.directories = set(disk.directories)
    twin.names = {name: copied(file) for name, file in disk.names.items()}
    twin._durable_names = {name: copied(file) for name, file in disk._durable_names.items()}
    twin._name_changes = [
        change._replace(files={name: file and copied(file) for name, file in change.files.items()})
        for change in disk._name_changes
    ]
    return twin


def run_steps(steps: Generator[Step, None, None]) -> None:
    """Carry out a generator of steps at once. After a power cut it is not asked to tidy up."""
    try:
        for step in steps:
            if step is not None:
                step()
    except PowerCut:
        with suppress(PowerCut):
            steps.close()
        raise


def power_cuts(base: CompactedLog) -> Iterator[tuple[int, CompactedLog]]:
    """The number of each step of a compaction at which the machine stops, and the log as it is then."""
    for countdown in range(1000):
        world = base.reopened(copy_of(base.disk))
        world.disk.countdown = countdown
        try:
            run_steps(world.steps())
        except PowerCut:
            yield countdown, world
            continue
        break
    assert 40 < countdown < 999


class CompactedLog:
    """One log, its store and its cleaner. The high watermark follows the log end."""

    def __init__(
        self,
        disk: FaultyDisk | None = None,
        clock: FakeClock | None = None,
        config: LogConfig = CONFIG,
        *,
        recovery_point: int = 0,
        cleaned_offset: int = 0,
        high_watermark: int = 0,
    ) -> None:
        self.disk = disk or FaultyDisk()
        self.disk.make_directory(DIRECTORY)
        self.clock = clock or FakeClock()
        self.store = Store(self.disk, self.clock)
        self.log = PartitionLog(
            self.store,
            "topic",
            0,
            DIRECTORY,
            config,
            recovery_point=recovery_point,
            cleaned_offset=cleaned_offset,
            high_watermark=high_watermark,
        )
        self.cleaner = LogCleaner(self.store, b"secret", unlimited(self.clock))
        self.sequences: dict[int, int] = {}

    def append(self, *pairs: tuple[str, str | None], codec: Compression = Compression.NONE, **options: int) -> int:
        """One batch of keys and values (None: a tombstone); its base offset."""
        now = self.clock.now_ms()
        records = [
            Record(index, now, key.encode(), None if value is None else value.encode())
            for index, (key, value) in enumerate(pairs)
        ]
        if "producer_id" in options:
            producer = options["producer_id"]
            options.setdefault("producer_epoch", 0)
            options["base_sequence"] = self.sequences.get(producer, 0)
            self.sequences[producer] = options["base_sequence"] + len(records)
        return self._append(encode_batch(records, compression=codec, **options), AppendOrigin.CLIENT)  # type: ignore[arg-type]

    def end_transaction(self, producer: int, *, committed: bool) -> int:
        marker = encode_transaction_marker(
            TransactionMarker(committed, 0), producer_id=producer, producer_epoch=0, timestamp=self.clock.now_ms()
        )
        return self._append(marker, AppendOrigin.COORDINATOR)

    def _append(self, batch: bytes, origin: AppendOrigin) -> int:
        result = self.log.append_as_leader(batch, 0, self.clock.now_ms(), origin=origin)
        assert result.error is ErrorCode.NONE, result
        self.log.update_high_watermark(self.log.log_end_offset)
        return result.base_offset

    def compact(self) -> bool:
        """Flush, and one run if the log is due; whether it was."""
        self.log.storage.flush()
        if self.cleaner.choose([self.log], self.clock.now_ms()) is None:
            return False
        run_steps(self.steps())
        return True

    def steps(self) -> Generator[Step, None, None]:
        """The steps of one run, up to what is on stable storage now."""
        return self.cleaner.clean(self.log, self.log.recovery_point)

    def reopened(self, disk: FaultyDisk | None = None, *, recovery_point: int | None = None) -> CompactedLog:
        """The log as a new broker finds it after this one was killed, or on `disk`."""
        world = CompactedLog(
            disk or copy_of(self.disk),
            self.clock,
            self.log.config,
            recovery_point=self.log.recovery_point if recovery_point is None else recovery_point,
            cleaned_offset=self.log.cleaned_offset,
            high_watermark=self.log.high_watermark,
        )
        world.sequences = dict(self.sequences)
        world.log.open()
        world.log.update_high_watermark(world.log.log_end_offset)
        return world

    # What a reader finds ----------------------------------------------------------------------------------------

    def batches(self, start: int = 0, end: int = 1 << 60) -> list[tuple[BatchHeader, bytes]]:
        """All batches from the one that holds `start` on, read as a consumer does: fetch after fetch."""
        found: list[tuple[BatchHeader, bytes]] = []
        offset = start
        while data := self.log.read_bytes(offset, 500, end, min_one=True):
            for position, header in iterate_batches(data):
                found.append((header, data[position : position + header.size]))
                offset = header.next_offset
        return found

    def records(self, start: int = 0) -> list[Record]:
        return [r for h, b in self.batches(start) if not h.is_control for r in decode_batch(b) if r.offset >= start]

    def committed(self) -> list[Record]:
        """The records that a reader of committed data gets: none of aborted transactions."""
        end = self.log.last_stable_offset
        waiting = sorted(self.log.aborted_transactions(0, end), key=lambda transaction: transaction.first_offset)
        aborted: set[int] = set()
        found = []
        for header, batch in self.batches(self.log.log_start_offset, end):
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborted.add(waiting.pop(0).producer_id)
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += decode_batch(batch)
        return found

    def values(self) -> dict[bytes, bytes]:
        """The newest committed value of each key that is not deleted."""
        newest = {record.key: record.value for record in self.committed() if record.key is not None}
        return {key: value for key, value in newest.items() if value is not None}
