"""Whose end is committed has its markers committed: what counts as one, and when that is asked."""

from __future__ import annotations

from raftlog.broker.core.coordinator.shared import TRANSACTION_TOPIC
from raftlog.broker.core.transaction.records import TransactionRecord, encode_record
from raftlog.broker.core.transaction.state import NO_PARTITIONS, TransactionMetadata, TransactionState
from raftlog.linearizability.simulator.cluster.state import Key
from raftlog.linearizability.simulator.cluster.transaction_ends import TransactionEnds
from raftlog.metadata.records import PartitionState
from raftlog.wire.batch import encode_batch, parse_header
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.ids import BrokerId, LeaderEpoch, PartitionEpoch, ProducerEpoch, ProducerId
from raftlog.wire.records import Record

HERE, THERE, STATES = ("t", 0, b"t" * 16), ("t", 1, b"t" * 16), (TRANSACTION_TOPIC, 0, b"s" * 16)


class World:
    def __init__(self) -> None:
        self.newest: dict[Key, PartitionState] = {}
        for key in (HERE, THERE):
            self.newest[key] = PartitionState(key[1], BrokerId(1), LeaderEpoch(0), PartitionEpoch(0), (), ())
        self.deleted: set[Key] = set()
        self.ends = TransactionEnds(self.newest, self.deleted)
        self.offsets: dict[Key, int] = {}
        self.failures: list[str] = []

    def commit(self, key: Key, batch: bytes) -> None:
        header = parse_header(batch)
        self.offsets[key] = header.next_offset
        self.ends.reached(key, header.next_offset)
        self.ends.commit(key, header, batch)

    def state(self, state: TransactionState) -> None:
        partitions = frozenset({("t", 0), ("t", 1)}) if state.name.startswith("PREPARE") else NO_PARTITIONS
        value = TransactionMetadata(
            state, ProducerId(7), ProducerId(-1), ProducerId(-1), ProducerEpoch(3), ProducerEpoch(-1), 1000, partitions,
            start_ms=1, last_update_ms=1, client_version=1,
        )  # fmt: skip
        key, value_bytes = encode_record(TransactionRecord("id", value), 2)
        at = self.offsets.get(STATES, 0)
        self.commit(STATES, encode_batch([Record(at, 0, key, value_bytes)], base_offset=at))
        self.check()

    def mark(self, key: Key, *, commits: bool = True, epoch: int = 3) -> None:
        marker = TransactionMarker(commits, 1)
        at = self.offsets.get(key, 0)
        batch = encode_transaction_marker(marker, producer_id=7, producer_epoch=epoch, timestamp=0, base_offset=at)
        self.commit(key, batch)

    def check(self) -> None:
        self.ends.check(lambda invariant, text: self.failures.append(invariant))


def test_a_marker_in_each_partition_is_enough_once() -> None:
    world = World()
    for _ in range(2):
        world.state(TransactionState.PREPARE_COMMIT)
        world.mark(HERE)
        world.mark(THERE)
        world.state(TransactionState.COMPLETE_COMMIT)
    assert not world.failures and world.ends.checked == 4
    # Another transaction of the same epoch needs markers of its own.
    world.state(TransactionState.PREPARE_COMMIT)
    world.mark(HERE)
    world.state(TransactionState.COMPLETE_COMMIT)
    assert world.failures == ["transaction markers"]


def test_a_marker_of_another_kind_or_epoch_does_not_count() -> None:
    world = World()
    world.state(TransactionState.PREPARE_ABORT)
    world.mark(HERE, commits=True)
    world.mark(THERE, commits=False, epoch=2)
    world.state(TransactionState.COMPLETE_ABORT)
    assert world.failures == ["transaction markers"] * 2


def test_what_is_not_known_yet_is_waited_for() -> None:
    """A leader told of its marker and died in the same turn: up to there it may be committed."""
    world = World()
    world.state(TransactionState.PREPARE_COMMIT)
    world.mark(HERE)
    world.ends.reached(THERE, 1)
    world.state(TransactionState.COMPLETE_COMMIT)
    world.check()
    assert not world.failures and world.ends.checked == 1
    world.mark(THERE)
    world.check()
    assert not world.failures and world.ends.checked == 2


def test_a_topic_that_was_deleted_needs_no_marker() -> None:
    world = World()
    world.state(TransactionState.PREPARE_COMMIT)
    world.mark(HERE)
    del world.newest[THERE]
    world.deleted.add(THERE)
    world.state(TransactionState.COMPLETE_COMMIT)
    assert not world.failures
