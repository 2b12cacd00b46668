"""TxnOffsetCommit: who may commit in a transaction, and what pending offsets mean to all else about a group."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.broker.core.group.admin import delete_group
from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.offsets import (
    TopicQuery,
    expire_group,
    fetch_all_offsets,
    fetch_offsets,
    forget_missing_topics,
    forget_topics,
)
from raftlog.broker.core.group.state import GroupState
from raftlog.broker.core.group.transactional_offsets import (
    commit_in_transaction,
    commits_nothing,
    refuse_in_transaction,
)
from raftlog.metadata.image import MetadataImage, TopicImage
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerId
from raftlog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.core.group.group_world import GROUP, World
from tests.broker.core.group.test_group_offsets import IMAGE, MINUTE, RETENTION_MS, commit, remove_offsets, topic_id

VERSION = 5
ONE, TWO = ProducerId(1), ProducerId(2)


def request(
    offsets: dict[tuple[str, int], int],
    *,
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    group_id: str = GROUP,
    metadata: str = "",
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id=group_id,
        producer_id=1,
        producer_epoch=0,
        member_id=member_id,
        generation_id=generation,
        group_instance_id=instance,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for (name, index), offset in offsets.items()
        ],
    )


def txn_commit(
    world: World,
    offsets: dict[tuple[str, int], int],
    *,
    producer: ProducerId = ONE,
    topics: MetadataImage = IMAGE,
    **who: Any,
) -> list[ErrorCode]:
    """Commit in the transaction of `producer`; the errors in order."""
    decision = commit_in_transaction(world.shard, request(offsets, **who), VERSION, topics, world.now)
    assert world.append(decision.records, producer) is ErrorCode.NONE
    world.shard.check_invariants()
    return [ErrorCode(p.error_code) for topic in decision.response.topics for p in topic.partitions]


def end(world: World, producer: ProducerId = ONE, *, committed: bool = True) -> None:
    world.shard.end_transaction(producer, committed=committed)
    world.shard.check_invariants()


def fetched(world: World, *partitions: int, require_stable: bool = False) -> list[int | ErrorCode]:
    """Offsets of topic t, or the errors instead."""
    query = TopicQuery("t", topic_id("t"), partitions)
    (topic,) = fetch_offsets(world.shard, GROUP, [query], require_stable=require_stable)
    return [p.offset if p.error is ErrorCode.NONE else p.error for p in topic.partitions]


# --- who may


def test_anybody_may_commit_in_a_transaction_to_a_group_that_is_not_there_or_has_no_members() -> None:
    world = World()
    assert txn_commit(world, {("t", 0): 5}) == [ErrorCode.NONE]
    assert txn_commit(world, {("t", 0): 6}) == [ErrorCode.NONE]
    assert txn_commit(world, {("t", 0): 6}, generation=3, member_id="m", group_id="none") == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert "none" not in world.shard.groups
    end(world)
    assert fetched(world, 0) == [6]


def test_a_producer_from_before_kip_447_says_nothing_of_itself_and_is_not_fenced() -> None:
    world = World()
    world.stable_group(1)
    assert txn_commit(world, {("t", 0): 5}) == [ErrorCode.NONE]


def test_members_are_fenced_by_their_id_generation_and_instance() -> None:
    world = World()
    a = world.answers[world.join(instance="i")].member_id
    world.sync(a, 1, {a: b""}, instance="i")
    cases = {
        ErrorCode.NONE: {"member_id": a, "generation": 1, "instance": "i"},
        ErrorCode.UNKNOWN_MEMBER_ID: {"member_id": "other", "generation": 1},
        ErrorCode.ILLEGAL_GENERATION: {"member_id": a, "generation": 0, "instance": "i"},
        ErrorCode.FENCED_INSTANCE_ID: {"member_id": "other", "generation": 1, "instance": "i"},
    }
    for error, who in cases.items():
        assert txn_commit(world, {("t", 0): 5}, **who) == [error], who  # type: ignore[arg-type]
    assert txn_commit(world, {("t", 0): 5}, member_id=a) == [ErrorCode.ILLEGAL_GENERATION]
    assert txn_commit(world, {("t", 0): 5}, generation=1) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_while_partitions_are_being_assigned_a_transaction_may_still_commit() -> None:
    world = World()
    a, _ = world.new_member()
    assert world.state() is GroupState.COMPLETING_REBALANCE
    assert commit(world, {("t", 0): 1}, member_id=a, generation=1) == {("t", 0): ErrorCode.REBALANCE_IN_PROGRESS}
    assert txn_commit(world, {("t", 0): 5}, member_id=a, generation=1) == [ErrorCode.NONE]


def test_a_transactional_commit_is_no_heartbeat() -> None:
    world = World()
    (a,) = world.stable_group(1)
    for _ in range(3):
        world.advance(4_000)
        txn_commit(world, {("t", 0): 5}, member_id=a, generation=1)
    assert world.state() is GroupState.EMPTY


def test_partitions_that_are_not_there_and_long_metadata_are_refused_one_by_one() -> None:
    world = World(GroupConfig(offset_metadata_max_bytes=3))
    offsets = {("t", 0): 1, ("t", 9): 1, ("none", 0): 1}
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert txn_commit(world, offsets, metadata="abc") == [ErrorCode.NONE, *unknown]
    assert txn_commit(world, offsets, metadata="abcd") == [ErrorCode.OFFSET_METADATA_TOO_LARGE, *unknown]
    # Who is refused as a whole hears of those all the same.
    refused = txn_commit(world, offsets, generation=1, member_id="m")
    assert refused == [ErrorCode.UNKNOWN_MEMBER_ID, *unknown]
    assert commits_nothing(request({("t", 9): 1, ("none", 0): 1}), IMAGE)
    assert not commits_nothing(request(offsets), IMAGE)


@pytest.mark.parametrize(
    ("version", "told"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_the_oldest_clients_are_not_told_that_the_coordinator_loads(version: int, told: ErrorCode) -> None:
    refused = refuse_in_transaction(request({("t", 0): 1}), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, version, IMAGE)
    assert refused.topics[0].partitions[0].error_code == told


# --- what is pending


def test_who_needs_stable_offsets_is_told_to_wait_for_the_transaction() -> None:
    world = World()
    commit(world, {("t", 0): 1, ("t", 1): 2})
    txn_commit(world, {("t", 0): 5, ("t", 2): 7})
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert fetched(world, 0, 1, 2) == [1, 2, -1]
    assert fetched(world, 0, 1, 2, require_stable=True) == [unstable, 2, unstable]
    everything = fetch_all_offsets(world.shard, GROUP, IMAGE, require_stable=True)
    assert {p.partition: p.error for t in everything for p in t.partitions} == {0: unstable, 1: ErrorCode.NONE}
    # A commit of somebody else does not make it stable: the transaction is still open.
    commit(world, {("t", 0): 3})
    assert fetched(world, 0, require_stable=True) == [unstable]
    end(world)
    assert fetched(world, 0, 1, 2, require_stable=True) == [3, 2, 7]


def test_two_transactions_on_one_partition_make_it_stable_when_both_have_ended() -> None:
    world = World()
    txn_commit(world, {("t", 0): 5}, producer=ONE)
    txn_commit(world, {("t", 0): 6}, producer=TWO)
    end(world, ONE)
    assert fetched(world, 0, require_stable=True) == [ErrorCode.UNSTABLE_OFFSET_COMMIT]
    end(world, TWO, committed=False)
    assert fetched(world, 0, require_stable=True) == [5]


def test_offset_delete_takes_what_is_pending() -> None:
    world = World()
    txn_commit(world, {("t", 0): 5})
    assert remove_offsets(world, "t", 0) == [ErrorCode.NONE]
    assert fetched(world, 0, require_stable=True) == [-1]
    end(world)
    assert fetched(world, 0) == [-1]


def test_an_offset_that_a_transaction_is_about_to_change_does_not_expire_nor_does_its_group() -> None:
    world = World(GroupConfig(offsets_retention_ms=RETENTION_MS))
    commit(world, {("t", 0): 1, ("t", 1): 2})
    txn_commit(world, {("t", 0): 5})
    world.advance(RETENTION_MS + MINUTE)
    expired = expire_group(world.config, world.shard.groups[GROUP], world.now)
    assert [record[:3] for record in expired] == [(GROUP, "t", 1)]
    world.append(expired)
    end(world, committed=False)
    expired = expire_group(world.config, world.shard.groups[GROUP], world.now)
    assert len(expired) == 2
    world.append(expired)
    assert not world.shard.groups


def test_a_group_with_nothing_but_pending_offsets_does_not_expire_and_can_be_deleted() -> None:
    world = World(GroupConfig(offsets_retention_ms=RETENTION_MS))
    txn_commit(world, {("t", 0): 5})
    world.advance(2 * RETENTION_MS)
    assert expire_group(world.config, world.shard.groups[GROUP], world.now) == []
    decision = delete_group(world.shard, GROUP)
    assert decision.response is ErrorCode.NONE
    world.append(decision.records)
    assert not world.shard.groups
    end(world)
    assert not world.shard.groups


def test_a_deleted_topic_takes_pending_offsets_with_it() -> None:
    world = World()
    commit(world, {("t", 0): 1})
    txn_commit(world, {("t", 0): 5, ("t", 1): 6, ("u", 0): 7})
    world.append(forget_topics(world.shard, ["t"]))
    end(world)
    assert fetched(world, 0, 1) == [-1, -1]
    assert world.shard.groups[GROUP].offsets.of_topic("u")[0].offset == 7


def test_what_is_pending_for_a_topic_that_was_created_again_outlives_the_offset_of_the_one_before() -> None:
    world = World()
    again = TopicImage("t", b"another topic id", IMAGE.topics["t"].partitions)
    topics, by_id = IMAGE.topics.with_changes({"t": again}), MetadataImage().topics_by_id
    recreated = MetadataImage(topics=topics, topics_by_id=by_id.with_changes({again.topic_id: again}))
    commit(world, {("t", 0): 5, ("t", 1): 5})
    txn_commit(world, {("t", 0): 7}, topics=recreated)
    world.append(forget_missing_topics(world.shard.groups[GROUP], recreated))
    end(world)
    offsets = world.shard.groups[GROUP].offsets.of_topic("t")
    assert {index: known.offset for index, known in offsets.items()} == {0: 7}


def test_an_aborted_first_commit_leaves_a_group_that_expires() -> None:
    world = World()
    txn_commit(world, {("t", 0): 5})
    end(world, committed=False)
    assert world.state() is GroupState.EMPTY
    world.append(expire_group(world.config, world.shard.groups[GROUP], world.now))
    assert not world.shard.groups
