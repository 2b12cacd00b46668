"""One partition's offsets as its role changes."""

from __future__ import annotations

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.producers import TransactionEnd
from raftlog.broker.core.log.verification import NOT_REQUIRED
from raftlog.broker.core.replica.following import Backoff, ReplicaState
from raftlog.broker.core.replica.leadership import Leadership, LeaderTerms
from raftlog.broker.runtime.partition import Partition
from raftlog.broker.runtime.replication.partition_fetch_state import PartitionFetchState
from raftlog.metadata.cluster_commands import IsrProposal
from raftlog.metadata.records import PartitionState
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from raftlog.wire.messages.fetch import PartitionData
from tests.broker.store.log_world import START_MS, LogWorld, batch_of

TOPIC_ID = bytes(range(16))


class Owner:
    """Its syncs go on until the test ends them."""

    def flush(self, partition: Partition) -> None:
        partition.flushing = True

    def monotonic_ms(self) -> int:
        return 0

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        raise AssertionError(proposal)

    def is_in_contact(self) -> bool:
        return True


def end_flush(partition: Partition) -> None:
    partition.log.storage.flush()
    partition.flushed(partition.log.recovery_point)
    partition.flushing = False
    partition.flushed(0)


def state(leader: int, epoch: int) -> PartitionState:
    return PartitionState(0, BrokerId(leader), LeaderEpoch(epoch), PartitionEpoch(epoch), (1, 2), (BrokerId(leader),))


def lead(partition: Partition, epoch: int) -> None:
    terms = LeaderTerms(BrokerId(1), 1000, lambda *_: True, lambda _: BrokerEpoch(1))
    leadership = Leadership(terms, TOPIC_ID, state(1, epoch), partition.log.log_end_offset, 0)
    partition.become_leader(state(1, epoch), leadership)


def test_a_new_leader_commits_nothing_that_is_still_on_its_way_to_the_disk() -> None:
    """flush.messages=1; what was safe when it led before is gone, and other records are in its place."""
    log = LogWorld(LogConfig(flush_messages=1)).log
    log.open()
    partition = Partition("t", TOPIC_ID, 0, log, Owner())
    lead(partition, 0)
    for value in (b"1", b"2", b"3"):
        partition.append_from_client(memoryview(bytearray(batch_of([value], START_MS))), START_MS)
    end_flush(partition)
    assert log.high_watermark == 3
    partition.become_follower(state(2, 1))
    log.truncate_to(1)
    assert log.append_as_follower(others_from(1)).last_offset == 2
    partition._owner.flush(partition)
    lead(partition, 2)
    assert (log.recovery_point, log.high_watermark) == (1, 1)
    end_flush(partition)
    assert (log.recovery_point, log.high_watermark) == (3, 3)


def others_from(offset: int) -> bytes:
    batch = bytearray(batch_of([b"other", b"others"], START_MS))
    batch[:8] = offset.to_bytes(8, "big")
    batch[12:16] = (1).to_bytes(4, "big")
    return bytes(batch)


def test_a_leader_whose_log_fails_behind_a_marker_commits_nothing_that_its_followers_lack() -> None:
    """Once there is room the log is used again, and its high watermark with it."""
    world = LogWorld()
    world.log.open()
    partition = Partition("t", TOPIC_ID, 0, world.log, Owner())
    both = PartitionState(0, BrokerId(1), LeaderEpoch(1), PartitionEpoch(1), (1, 2), (BrokerId(1), BrokerId(2)))
    terms = LeaderTerms(BrokerId(1), 1000, lambda *_: True, lambda _: BrokerEpoch(1))
    partition.become_leader(both, Leadership(terms, TOPIC_ID, both, 0, 0))
    world.log._store.on_failure = lambda _, reason: partition.fail(ErrorCode.KAFKA_STORAGE_ERROR, reason)
    batch = batch_of([b"x"], START_MS, producer_id=7, base_sequence=0, transactional=True)
    partition.append_from_client(memoryview(bytearray(batch)), START_MS, NOT_REQUIRED)
    world.disk.failing["open"] = ".txnindex"
    partition.append_marker(TransactionEnd(7, 0, False, 0), START_MS)
    assert partition.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.log.high_watermark == 0


def test_a_follower_whose_log_fails_behind_a_marker_fails_alone() -> None:
    """What its leader says of the log's start comes with the marker, and finds no log."""
    world = LogWorld()
    world.log.open()
    partition = Partition("t", TOPIC_ID, 0, world.log, Owner())
    partition.become_follower(state(2, 0))
    data = batch_of([b"x"], START_MS, producer_id=7, base_sequence=0, transactional=True)
    marker = encode_transaction_marker(
        TransactionMarker(False, 0),
        producer_id=7,
        producer_epoch=0,
        timestamp=START_MS,
        base_offset=1,
        partition_leader_epoch=0,
    )
    followed = PartitionFetchState(partition, BrokerId(2), LeaderEpoch(0), Backoff(5, 100))
    followed.position(1000)
    world.disk.failing["open"] = ".txnindex"
    answer = PartitionData(records=data + marker, high_watermark=2, last_stable_offset=2, log_start_offset=1)
    assert followed.process(answer) is ReplicaState.FAILED
    assert world.log.offline_reason is not None
