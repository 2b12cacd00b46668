"""One partition's queue against a broker that remembers five batches of a producer, on a connection that breaks."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.client.core.errors import TimedOut
from raftlog.client.core.partition_queue import IN_FLIGHT_MAX, PartitionQueue, Verdict
from raftlog.client.core.producer_batch import ProducerBatch, ProducerIdentity
from raftlog.client.core.producer_id import EPOCH_MAX, ProducerIds
from raftlog.wire.batch import decode_batch, parse_header
from raftlog.wire.compression import Compression
from raftlog.wire.errors import ErrorCode
from tests.effort import examples

PARTITION = ("orders", 0)


class Stored(NamedTuple):
    sequence: int
    count: int
    offset: int


class LeaderModel:
    """The rules of Kafka's brokers for one producer: next in order, one of the last five, or refused."""

    def __init__(self) -> None:
        self.log: list[bytes | None] = []
        self._epoch = -1
        self._recent: deque[Stored] = deque(maxlen=IN_FLIGHT_MAX)

    def append(self, wire: bytes) -> tuple[ErrorCode, int]:
        header = parse_header(wire)
        if header.producer_epoch < self._epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > self._epoch:
            if self._epoch >= 0 and header.base_sequence:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self._recent.clear()
        for each in self._recent:
            if each[:2] == (header.base_sequence, header.records_count):
                return ErrorCode.NONE, each.offset
        last = self._recent[-1] if self._recent else None
        if last is not None and header.base_sequence != last.sequence + last.count:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self._epoch = header.producer_epoch
        offset = len(self.log)
        self.log += [record.value for record in decode_batch(wire)]
        self._recent.append(Stored(header.base_sequence, header.records_count, offset))
        return ErrorCode.NONE, offset


class World:
    """A producer of one partition. Each step is one of the letters of a history."""

    def __init__(self) -> None:
        self.queue = PartitionQueue(PARTITION, idempotent=True)
        self.ids = ProducerIds()
        self.ids.given(7, 0)
        self.leader = LeaderModel()
        self.connection: deque[ProducerBatch] = deque()
        self.all: list[ProducerBatch] = []
        self.now = 0.0

    def add(self) -> None:
        self.now += 1
        batch = ProducerBatch(PARTITION, self.now)
        for index in range(1 + len(self.all) % 3):
            batch.append(None, b"%d.%d" % (len(self.all), index), (), 0)
        batch.is_full = True
        self.queue.add(batch)
        self.all.append(batch)

    def send(self) -> None:
        if self.queue.due(self.now, 0.0, self.ids.identity) is not None:
            self.connection.append(self.queue.take(self.ids.identity))

    def answer(self, refusal: ErrorCode | None = None) -> None:
        if not self.connection:
            return
        batch = self.connection.popleft()
        code, offset = (refusal, -1) if refusal else self.leader.append(batch.encode(Compression.NONE))
        if self.queue.answered(batch, code, offset, -1) is Verdict.FAILED:
            self.give_up(batch)

    def break_connection(self, stored: int) -> None:
        """The first `stored` of what was sent have been stored; nobody hears of it."""
        while self.connection:
            batch = self.connection.popleft()
            if stored > 0:
                self.leader.append(batch.encode(Compression.NONE))
            stored -= 1
            self.queue.unanswered(batch)

    def expire(self) -> None:
        if self.queue.waiting:
            self.give_up(self.queue.waiting[0])

    def give_up(self, batch: ProducerBatch) -> None:
        if self.queue.give_up(batch, TimedOut("too late")):
            self.ids.next_epoch()

    def finish(self) -> None:
        for _ in range(20 * len(self.all) + 20):
            self.send()
            self.answer()
            self.queue.check_invariants()


@settings(max_examples=examples(150))
@given(st.lists(st.sampled_from("aaasssssrrrrnbBx"), max_size=60))
def test_whatever_happens_each_record_is_stored_once_and_in_order(history: list[str]) -> None:
    world = World()
    for step in history:
        match step:
            case "a":
                world.add()
            case "s":
                world.send()
            case "r":
                world.answer()
            case "n":
                world.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            case "b":
                world.break_connection(0)
            case "B":
                world.break_connection(2)
            case "x":
                world.expire()
        world.queue.check_invariants()
    world.finish()
    assert world.queue.is_idle and all(batch.is_done for batch in world.all)
    log = world.leader.log
    assert len(set(log)) == len(log), "a record is stored twice"
    assert log == sorted(log, key=lambda value: [int(part) for part in (value or b"").split(b".")])
    for number, batch in enumerate(world.all):
        if batch.failure is None:
            assert batch.base_offset >= 0
            assert log[batch.base_offset : batch.base_offset + batch.count] == [
                b"%d.%d" % (number, index) for index in range(batch.count)
            ]


def test_a_batch_that_may_be_stored_is_sent_again_as_the_same_bytes() -> None:
    world = World()
    world.add()
    world.send()
    first = world.connection[0].encode(Compression.NONE)
    world.break_connection(1)
    world.send()
    assert world.connection[0].encode(Compression.NONE) == first
    world.answer()
    assert world.all[0].base_offset == 0 and len(world.leader.log) == 1


def test_until_one_is_stored_only_one_batch_is_under_way() -> None:
    world = World()
    for _ in range(8):
        world.add()
    world.send()
    world.send()
    assert len(world.connection) == 1
    world.answer()
    for _ in range(8):
        world.send()
    assert len(world.connection) == IN_FLIGHT_MAX


def test_a_batch_that_is_too_large_goes_as_two_with_its_numbers() -> None:
    world = World()
    for _ in range(2):
        world.add()
    world.send()
    world.answer()
    world.send()
    whole = world.connection[0]
    world.answer(ErrorCode.MESSAGE_TOO_LARGE)
    world.finish()
    assert world.leader.log == [b"0.0", b"1.0", b"1.1"]
    assert [whole.outcome(index) for index in range(2)] == [1, 2] and whole.is_done


def test_one_record_that_is_too_large_fails_and_the_next_is_stored_under_another_epoch() -> None:
    world = World()
    world.add()
    world.add()
    world.send()
    world.answer(ErrorCode.MESSAGE_TOO_LARGE)
    world.finish()
    assert world.all[0].failure is not None and world.all[1].base_offset == 0
    assert world.ids.identity == ProducerIdentity(7, 1)


def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    ids = ProducerIds()
    ids.given(3, EPOCH_MAX)
    ids.next_epoch()
    assert ids.identity is None
