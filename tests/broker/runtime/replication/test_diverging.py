"""What a follower makes of an answer that says where its log parts from its leader's."""

from __future__ import annotations

from typing import cast

from raftlog.broker.core.replica.following import Backoff, ReplicaState
from raftlog.broker.runtime.partition import Partition, PartitionOwner
from raftlog.broker.runtime.replication.partition_fetch_state import PartitionFetchState
from raftlog.wire.ids import BrokerId, LeaderEpoch
from raftlog.wire.messages.fetch import EpochEndOffset, PartitionData
from tests.broker.store.log_world import LogWorld, batch_of


def test_a_cut_that_is_only_a_step_commits_nothing_of_what_is_left() -> None:
    world = LogWorld()
    for epoch, count in ((1, 12), (3, 8)):
        for _ in range(count):
            world.log.append_as_leader(bytearray(batch_of((b"x",), world.clock.ms)), LeaderEpoch(epoch), world.clock.ms)
    world.log.update_high_watermark(9)
    partition = Partition("t", bytes(16), 0, world.log, cast(PartitionOwner, None))
    followed = PartitionFetchState(partition, BrokerId(2), LeaderEpoch(4), Backoff(5, 100))
    # The leader has epochs 1, 2 and 4, up to 10, 15 and 30: it does not know of our epoch 3, nor we of its 2.
    for epoch, end_offset, cut in ((2, 15, 12), (1, 10, 10)):
        followed.position(1000)
        answer = PartitionData(
            high_watermark=30,
            last_stable_offset=30,
            log_start_offset=0,
            diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
        )
        assert followed.process(answer) is ReplicaState.FETCHING
        assert world.log.log_end_offset == cut
        assert world.log.high_watermark == 9
    followed.position(1000)
    assert followed.process(PartitionData(high_watermark=30, log_start_offset=0)) is ReplicaState.FETCHING
    assert world.log.high_watermark == 10


def test_a_follower_whose_end_is_within_its_leaders_log_does_not_ask_again_at_once() -> None:
    """The leader refuses it all the same while it does not know the epoch of the follower's last record."""
    world = LogWorld()
    world.log.append_as_leader(bytearray(batch_of((b"x",), world.clock.ms)), LeaderEpoch(7), world.clock.ms)
    partition = Partition("t", bytes(16), 0, world.log, cast(PartitionOwner, None))
    followed = PartitionFetchState(partition, BrokerId(2), LeaderEpoch(4), Backoff(5, 100))
    assert followed.located(0, 30) is ReplicaState.WAITING
    assert followed.located(20, 30) is ReplicaState.FETCHING
    assert world.log.log_end_offset == 20
