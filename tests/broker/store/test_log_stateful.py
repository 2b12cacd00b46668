"""The partition log against a list of batches, over any sequence of appends, reads, cuts, restarts and crashes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.store import open_log
from raftlog.broker.store.log_storage import FULL_DISK_RETRY_MS
from raftlog.wire.batch import decode_batch, iterate_batches
from raftlog.wire.errors import ErrorCode
from tests.broker.store.log_world import LogWorld, batch_of
from tests.effort import examples

PRODUCERS = (1, 2)
TRANSACTIONAL = (11, 12)
WINDOW = 5


class Batch(NamedTuple):
    """What the model remembers of one batch."""

    base_offset: int
    count: int
    values: tuple[bytes, ...]
    producer_id: int = -1
    sequence: int = -1
    marker: bool | None = None
    """True for a commit, False for an abort, None for data."""

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count


class PartitionLogMachine(RuleBasedStateMachine):
    """`batches` is the truth; `safe` is how much of it a crash of the machine may not take."""

    @initialize(
        segment_bytes=st.sampled_from([600, 1500, 5000]),
        interval=st.sampled_from([0, 100, 1000]),
        preallocate=st.booleans(),
        snapshot_interval=st.sampled_from([300, open_log.SNAPSHOT_INTERVAL_BYTES]),
    )
    def begin(self, segment_bytes: int, interval: int, preallocate: bool, snapshot_interval: int) -> None:
        self.restore = open_log.SNAPSHOT_INTERVAL_BYTES
        open_log.SNAPSHOT_INTERVAL_BYTES = snapshot_interval  # type: ignore[misc]
        self.world = LogWorld(
            LogConfig(
                segment_bytes=segment_bytes,
                index_interval_bytes=interval,
                preallocate=preallocate,
                retention_bytes=2 * segment_bytes,
                retention_ms=-1,
                file_delete_delay_ms=0,
            )
        )
        self.batches: list[Batch] = []
        self.start = 0
        self.safe = 0
        self.high_watermark = 0
        self.numbers = 0

    def teardown(self) -> None:
        if hasattr(self, "restore"):
            open_log.SNAPSHOT_INTERVAL_BYTES = self.restore  # type: ignore[misc]

    # What the model knows ----------------------------------------------------------------------------

    @property
    def log(self):  # type: ignore[no-untyped-def]
        return self.world.log

    @property
    def end(self) -> int:
        return max(self.batches[-1].end_offset, self.start) if self.batches else self.start

    def sequence_of(self, producer_id: int) -> int:
        sent = [batch for batch in self.batches if batch.producer_id == producer_id and batch.marker is None]
        return sent[-1].sequence + sent[-1].count if sent else 0

    def transactions(self) -> list[tuple[int, int, int | None, bool]]:
        """(producer, first offset, offset of the marker or None, aborted), in order of the first offsets."""
        found: list[tuple[int, int, int | None, bool]] = []
        opened: dict[int, int] = {}
        for batch in self.batches:
            if batch.producer_id not in TRANSACTIONAL:
                continue
            if batch.marker is None:
                opened.setdefault(batch.producer_id, batch.base_offset)
            elif batch.producer_id in opened:
                first = opened.pop(batch.producer_id)
                found.append((batch.producer_id, first, batch.base_offset, not batch.marker))
        found += [(producer_id, first, None, False) for producer_id, first in opened.items()]
        return sorted(found, key=lambda transaction: transaction[1])

    def last_stable(self, *, forgetful: bool) -> int:
        """Where the last stable offset is. A `forgetful` log was opened from records of which the log start has taken
        some.
        """
        marks = [self.high_watermark]
        for producer_id, first, marker, _ in self.transactions():
            if marker is not None and marker < self.high_watermark:
                continue
            records = [b.base_offset for b in self.batches if b.producer_id == producer_id and b.base_offset >= first]
            kept = [offset for offset in records if offset >= self.start]
            marks += kept[:1] if forgetful else [max(first, self.start)]
        return min(marks)

    def values(self, count: int) -> tuple[bytes, ...]:
        self.numbers += 1
        return tuple(b"%d/%d" % (self.numbers, number) * (1 + self.numbers % 7) for number in range(count))

    def took(self, count: int, values: tuple[bytes, ...], **extra: int | bool) -> None:
        self.batches.append(Batch(self.end, count, values, **extra))  # type: ignore[arg-type]
        self.world.clock.ms += 10

    # Appending ---------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), epoch_step=st.booleans())
    def append(self, count: int, epoch_step: bool) -> None:
        values = self.values(count)
        epoch = max(self.log.latest_epoch, 0) + epoch_step
        result = self.log.append_as_leader(batch_of(values, self.world.clock.ms), epoch, self.world.clock.ms)
        assert (result.error, result.base_offset) == (ErrorCode.NONE, self.end), result
        self.took(count, values)
        assert result.last_offset == self.end - 1

    @rule(count=st.integers(1, 3), producer_id=st.sampled_from(PRODUCERS + TRANSACTIONAL))
    def append_of_a_producer(self, count: int, producer_id: int) -> None:
        values = self.values(count)
        sequence = self.sequence_of(producer_id)
        sent = [batch for batch in self.batches if batch.producer_id == producer_id]
        data = [batch for batch in sent if batch.marker is None and batch.base_offset >= self.start]
        if sent and sent[-1].marker is not None and not data:
            # Of a producer of which only a marker is left Kafka knows the epoch and not the sequence.
            return
        batch = batch_of(
            values,
            self.world.clock.ms,
            producer_id=producer_id,
            base_sequence=sequence,
            transactional=producer_id in TRANSACTIONAL,
        )
        result = self.log.append_as_leader(batch, max(self.log.latest_epoch, 0), self.world.clock.ms)
        assert (result.error, result.base_offset, result.duplicate) == (ErrorCode.NONE, self.end, False), result
        self.took(count, values, producer_id=producer_id, sequence=sequence)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        if producer_id not in [transaction[0] for transaction in self.transactions() if transaction[2] is None]:
            return
        high_watermark = self.log.high_watermark
        result = self.world.end_transaction(producer_id, commit=commit)
        assert (result.error, result.base_offset) == (ErrorCode.NONE, self.end), result
        self.took(1, (), producer_id=producer_id, marker=commit)
        self.high_watermark = self.end
        assert high_watermark <= self.log.high_watermark == self.end

    @rule(producer_id=st.sampled_from(PRODUCERS), back=st.integers(1, WINDOW))
    def retry(self, producer_id: int, back: int) -> None:
        sent = [batch for batch in self.batches if batch.producer_id == producer_id]
        if len(sent) < back or sent[-back].base_offset < self.start:
            return
        wanted = sent[-back]
        batch = batch_of(wanted.values, self.world.clock.ms, producer_id=producer_id, base_sequence=wanted.sequence)
        result = self.log.append_as_leader(batch, max(self.log.latest_epoch, 0), self.world.clock.ms)
        assert (result.error, result.base_offset, result.duplicate) == (
            ErrorCode.NONE,
            wanted.base_offset,
            True,
        )

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def skip_a_sequence(self, producer_id: int) -> None:
        if any(batch.producer_id == producer_id and batch.base_offset >= self.start for batch in self.batches):
            sequence = self.sequence_of(producer_id) + 1
            batch = batch_of((b"x",), self.world.clock.ms, producer_id=producer_id, base_sequence=sequence)
            result = self.log.append_as_leader(batch, 0, self.world.clock.ms)
            assert result.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(count=st.integers(1, 3), gap=st.integers(0, 3))
    def append_as_follower(self, count: int, gap: int) -> None:
        values = self.values(count)
        batch = bytearray(batch_of(values, self.world.clock.ms))
        base_offset = self.end + gap
        batch[:8] = base_offset.to_bytes(8, "big")
        batch[12:16] = max(self.log.latest_epoch, 0).to_bytes(4, "big")
        result = self.log.append_as_follower(bytes(batch) + b"a cut off batch")
        assert (result.error, result.base_offset) == (ErrorCode.NONE, base_offset), result
        self.batches.append(Batch(base_offset, count, values))
        self.world.clock.ms += 10

    @rule(share=st.floats(0, 1))
    def move_high_watermark(self, share: float) -> None:
        self.high_watermark = max(self.high_watermark, int(self.end * share))
        self.log.update_high_watermark(self.high_watermark)

    # Reading -----------------------------------------------------------------------------------------

    @rule(at=st.floats(0, 1), until=st.floats(0, 1), max_bytes=st.sampled_from([1, 100, 700, 100_000]))
    def read(self, at: float, until: float, max_bytes: int) -> None:
        offset = self.start + int((self.end - self.start) * at)
        bounds = [self.high_watermark, *(batch.base_offset for batch in self.batches), self.end]
        end_offset = bounds[int((len(bounds) - 1) * until)]
        found = self.log.read_bytes(offset, max_bytes, end_offset, min_one=True)
        expected = [b for b in self.batches if b.end_offset > offset and b.end_offset <= end_offset]
        whole = list(iterate_batches(found))
        assert len(found) <= max_bytes or len(whole) == 1
        if offset < end_offset and expected and expected[0].base_offset < end_offset:
            assert whole
        for (position, header), batch in zip(whole, expected, strict=False):
            assert header.base_offset == batch.base_offset
            if batch.marker is None:
                read = tuple(record.value for record in decode_batch(memoryview(found)[position:]))
                assert read == batch.values
        assert len(whole) <= len(expected)

    @rule(at=st.floats(0, 1))
    def look_up_a_time(self, at: float) -> None:
        kept = [batch for batch in self.batches if batch.base_offset >= self.start and batch.marker is None]
        if not kept:
            return
        newest = self.log.offset_of_max_timestamp()
        assert newest is not None
        first = self.log.offset_for_timestamp(0)
        assert first is not None and first.offset >= self.start
        middle = first.timestamp + int((newest.timestamp - first.timestamp) * at)
        found = self.log.offset_for_timestamp(middle)
        assert found is not None and found.timestamp >= middle
        assert self.log.offset_for_timestamp(newest.timestamp + 1) is None

    # Shrinking ---------------------------------------------------------------------------------------

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + int((self.high_watermark - self.start) * share)
        self.log.delete_records_before(offset)
        self.start = max(self.start, offset)

    @rule()
    def apply_retention(self) -> None:
        self.log.apply_retention(self.world.clock.ms)
        assert self.start <= self.log.log_start_offset <= self.high_watermark or not self.batches
        self.start = self.log.log_start_offset
        # Where DeleteRecords has put the start within a segment is safe with the next checkpoint only.
        self.safe = max(self.safe, self.log.opened.segments[0].base_offset)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        ends = [batch.base_offset for batch in self.batches if batch.base_offset >= self.start]
        if not ends:
            return
        end_offset = ends[int((len(ends) - 1) * share)]
        self.log.truncate_to(end_offset)
        self.cut_model(end_offset)
        end_offset = self.end
        self.safe = min(self.safe, end_offset)

    @rule(gap=st.integers(1, 50))
    def begin_anew(self, gap: int) -> None:
        """As a follower whose leader's log begins behind its end."""
        offset = self.end + gap
        self.log.truncate_fully_and_start_at(offset)
        self.batches = []
        self.start = self.safe = self.high_watermark = offset

    def cut_model(self, end_offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end_offset <= end_offset]
        self.high_watermark = max(min(self.high_watermark, self.end), self.start)

    # Living and dying --------------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        self.log.storage.flush()
        self.safe = self.end

    @rule()
    def checkpoint(self) -> None:
        self.world.checkpoint()

    @rule()
    def restart_clean(self) -> None:
        self.world.restart_clean()
        self.safe = self.end
        assert self.log.opened.producers.end_offset == self.end

    @rule()
    def killed(self) -> None:
        self.world.restart_killed()
        self.reopened(lost=False)

    @rule(random=st.randoms(use_true_random=False))
    def crashed(self, random: Random) -> None:
        self.log.storage.abandon()
        self.world.disk.crash(random)
        self.world.load()
        self.reopened(lost=True)

    @precondition(lambda self: self.batches)
    @rule(random=st.randoms(use_true_random=False))
    def sync_fails(self, random: Random) -> None:
        self.log.storage.flush()
        self.safe = self.end
        self.append(2, False)
        self.world.disk.failing = {"sync": ".log"}
        try:
            self.log.storage.flush()
            raise AssertionError("the failed sync was not noticed")
        except LogUnavailable:
            assert self.log.offline_reason is not None
        refused = self.log.append_as_leader(batch_of((b"x",), self.world.clock.ms), 0, self.world.clock.ms)
        assert refused.error is ErrorCode.KAFKA_STORAGE_ERROR
        self.world.disk.failing = {}
        self.crashed(random)

    @rule()
    def disk_is_full(self) -> None:
        self.world.disk.full = True
        batch = batch_of(self.values(2), self.world.clock.ms)
        result = self.log.append_as_leader(batch, max(self.log.latest_epoch, 0), self.world.clock.ms)
        self.world.disk.full = False
        if result.error is ErrorCode.NONE:
            # There was room that had been reserved.
            assert self.world.config.preallocate
            self.took(2, tuple(record.value or b"" for record in decode_batch(batch)))
            return
        assert result.error is ErrorCode.KAFKA_STORAGE_ERROR and self.log.log_end_offset == self.end
        self.world.clock.ms += FULL_DISK_RETRY_MS

    def reopened(self, *, lost: bool) -> None:
        log = self.log
        log.open()
        assert log.offline_reason is None
        assert self.world.checkpoints[0] <= log.log_start_offset <= self.start
        if not lost:
            assert log.log_end_offset == self.end
        assert self.safe <= log.log_end_offset <= self.end
        self.start = log.log_start_offset
        self.cut_model(log.log_end_offset)
        self.high_watermark = log.high_watermark
        assert self.end == log.log_end_offset
        # What is served after a start must not vanish any more.
        assert log.recovery_point == self.end or lost or self.safe <= self.end
        self.safe = max(self.safe, log.recovery_point)

    @invariant()
    def the_log_is_what_the_model_says(self) -> None:
        if not hasattr(self, "world"):
            return
        log = self.log
        log.check_invariants()
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.high_watermark == self.high_watermark
        assert self.last_stable(forgetful=False) <= log.last_stable_offset <= self.last_stable(forgetful=True)
        kept = {
            (producer, first, marker)
            for producer, first, marker, aborted in self.transactions()
            if aborted and marker is not None and first >= self.start
        }
        found = {(a.producer_id, a.first_offset, a.last_offset) for a in log.aborted_transactions(self.start, self.end)}
        assert kept <= found
        self.a_piece_comes_with_the_aborted_transactions_in_it({each for each in kept if each[2] < self.high_watermark})

    def a_piece_comes_with_the_aborted_transactions_in_it(self, aborted: set[tuple[int, int, int]]) -> None:
        log, bound = self.log, self.log.last_stable_offset
        middle = (self.start + bound) // 2
        piece = log.read(middle, 300, bound, min_one=True)
        if piece is None:
            return
        end = [header.next_offset for _, header in iterate_batches(piece.read())][-1]
        overlapping = {each for each in aborted if each[1] < end and each[2] >= middle}
        found = {(a.producer_id, a.first_offset, a.last_offset) for a in log.aborted_transactions(middle, bound, piece)}
        assert overlapping <= found


PartitionLogMachine.TestCase.settings = settings(
    max_examples=examples(150),
    stateful_step_count=40,
    report_multiple_bugs=False,
)


@pytest.fixture(autouse=True, scope="module")
def _without_the_log_lines_of_a_thousand_crashes() -> Iterator[None]:
    logger = logging.getLogger("raftlog")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


TestPartitionLog = PartitionLogMachine.TestCase
