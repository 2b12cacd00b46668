"""Committed offsets: who may commit, what is told back, and when an offset goes."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.broker.core.group.admin import delete_group, describe_group, list_groups
from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.offsets import (
    FetchedOffset,
    TopicQuery,
    commit_offsets,
    delete_offsets,
    expire_group,
    fetch_all_offsets,
    fetch_offsets,
    forget_missing_topics,
    forget_topics,
)
from raftlog.broker.core.group.state import GroupState
from raftlog.metadata.image import MetadataImage, PartitionState, TopicImage
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from raftlog.wire.schema import ZERO_UUID
from tests.broker.core.group.group_world import GROUP, World, subscription

MINUTE = 60_000
RETENTION_MS = 10 * MINUTE


def image(**topics: int) -> MetadataImage:
    """An image with these topics, each with so many partitions; the id is the name sixteen bytes wide."""
    found = {name: topic(name, count) for name, count in topics.items()}
    base = MetadataImage()
    return MetadataImage(
        topics=base.topics.with_changes(found),
        topics_by_id=base.topics_by_id.with_changes({t.topic_id: t for t in found.values()}),
    )


def topic(name: str, count: int) -> TopicImage:
    partitions = tuple(
        PartitionState(partition_id=i, leader=1, leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
        for i in range(count)
    )
    return TopicImage(name, topic_id(name), partitions)


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\x01")


IMAGE = image(t=3, u=1)


def commit(
    world: World,
    offsets: dict[tuple[str, int], int],
    *,
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    version: int = 9,
    metadata: str | None = "",
    retention_ms: int = -1,
    group_id: str = GROUP,
    known: MetadataImage = IMAGE,
) -> dict[tuple[str, int], ErrorCode]:
    """Commit, and what was answered per partition."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), offset in offsets.items():
        by_id = version >= 10
        entry = topics.setdefault(
            name,
            OffsetCommitRequestTopic(name="" if by_id else name, topic_id=topic_id(name) if by_id else ZERO_UUID),
        )
        entry.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=7 if version >= 6 else -1,
                committed_metadata=metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        topics=list(topics.values()),
    )
    decision = commit_offsets(world.shard, request, version, known, world.now)
    world.append(decision.records)
    world.shard.check_invariants()
    answers = {}
    for name, answer in zip(topics, decision.response.topics, strict=True):
        for partition in answer.partitions:
            answers[name, partition.partition_index] = ErrorCode.of(partition.error_code)
    return answers


def committed(world: World, name: str = "t", *indexes: int, group_id: str = GROUP) -> list[int]:
    query = TopicQuery(name, topic_id(name), list(indexes or (0,)))
    (fetched,) = fetch_offsets(world.shard, group_id, [query])
    return [partition.offset for partition in fetched.partitions]


def expire_all(world: World) -> None:
    for group in list(world.shard.groups.values()):
        world.append(expire_group(world.config, group, world.now))
    world.shard.check_invariants()


def remove_offsets(world: World, name: str, *indexes: int, group_id: str = GROUP, known: MetadataImage = IMAGE) -> Any:
    partitions = [OffsetDeleteRequestPartition(partition_index=i) for i in indexes]
    request = OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=name, partitions=partitions)]
    )
    decision = delete_offsets(world.shard, request, known)
    world.append(decision.records)
    if decision.response.error_code:
        return ErrorCode.of(decision.response.error_code)
    return [ErrorCode.of(p.error_code) for p in decision.response.topics[0].partitions]


# --- commit and fetch


def test_a_consumer_that_is_no_member_commits_and_reads_back() -> None:
    world = World()
    assert commit(world, {("t", 0): 5, ("t", 2): 6, ("u", 0): 7}) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 2): ErrorCode.NONE,
        ("u", 0): ErrorCode.NONE,
    }
    assert committed(world, "t", 0, 1, 2) == [5, -1, 6]
    (fetched,) = fetch_offsets(world.shard, GROUP, [TopicQuery("u", topic_id("u"), [0])])
    assert fetched.partitions == [FetchedOffset(0, 7, 7, "", ErrorCode.NONE)]
    assert world.state() is GroupState.EMPTY
    assert world.shard.groups[GROUP].protocol_type is None


def test_a_member_commits_in_its_generation_only() -> None:
    world = World()
    (a,) = world.stable_group(1)
    assert commit(world, {("t", 0): 5}, member_id=a, generation=1) == {("t", 0): ErrorCode.NONE}
    assert commit(world, {("t", 0): 6}, member_id=a, generation=0) == {("t", 0): ErrorCode.ILLEGAL_GENERATION}
    assert commit(world, {("t", 0): 6}, member_id="x", generation=1) == {("t", 0): ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit(world, {("t", 0): 6}) == {("t", 0): ErrorCode.UNKNOWN_MEMBER_ID}
    assert committed(world) == [5]


def test_members_may_still_commit_while_they_are_asked_to_join_again() -> None:
    world = World()
    a, b = world.stable_group(2)
    world.join(a)
    assert commit(world, {("t", 0): 5}, member_id=b, generation=2) == {("t", 0): ErrorCode.NONE}
    world.join(b)
    assert commit(world, {("t", 0): 6}, member_id=b, generation=3) == {("t", 0): ErrorCode.REBALANCE_IN_PROGRESS}
    assert commit(world, {("t", 0): 6}, member_id=b, generation=2) == {("t", 0): ErrorCode.ILLEGAL_GENERATION}


def test_a_commit_counts_as_a_heartbeat() -> None:
    world = World()
    (a,) = world.stable_group(1, session_timeout_ms=10_000)
    for _ in range(4):
        world.advance(9_000)
        commit(world, {("t", 0): 5}, member_id=a, generation=1)
    assert world.state() is GroupState.STABLE


def test_the_process_that_was_replaced_cannot_commit() -> None:
    world = World()
    old = world.answers[world.join(instance="one")].member_id
    world.sync(old, 1, {old: b""}, instance="one")
    new = world.answers[world.join(instance="one")].member_id
    fenced = commit(world, {("t", 0): 1}, member_id=old, generation=1, instance="one")
    assert fenced == {("t", 0): ErrorCode.FENCED_INSTANCE_ID}
    assert commit(world, {("t", 0): 1}, member_id=new, generation=1, instance="one") == {("t", 0): ErrorCode.NONE}


def test_a_member_of_a_group_that_is_not_there_is_told_in_the_words_of_its_version() -> None:
    world = World()
    for version, error in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
        told = commit(world, {("t", 0): 1, ("t", 3): 1}, member_id="m", generation=3, version=version)
        assert told == {("t", 0): error, ("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not world.shard.groups


def test_each_partition_that_is_not_there_or_says_too_much_has_its_own_error() -> None:
    world = World(GroupConfig(offset_metadata_max_bytes=10))
    assert commit(world, {("t", 0): 1, ("t", 3): 1, ("nope", 0): 1}) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert commit(world, {("t", 0): 2}, metadata="x" * 11) == {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert commit(world, {("t", 1): 2}, metadata="x" * 10) == {("t", 1): ErrorCode.NONE}
    assert commit(world, {("t", 2): 2}, metadata=None) == {("t", 2): ErrorCode.NONE}
    assert committed(world, "t", 0, 1, 2) == [1, 2, 2]


def test_topics_are_named_by_id_in_the_newest_version() -> None:
    world = World()
    assert commit(world, {("t", 0): 4, ("nope", 0): 1}, version=10) == {
        ("t", 0): ErrorCode.NONE,
        ("nope", 0): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    assert committed(world) == [4]
    (unknown,) = fetch_offsets(world.shard, GROUP, [TopicQuery(None, topic_id("nope"), [0])])
    assert unknown.partitions == [FetchedOffset(0, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)]
    assert unknown.topic_id == topic_id("nope")


def test_all_offsets_of_a_group_are_told_when_no_topic_is_named() -> None:
    world = World()
    commit(world, {("t", 1): 5, ("u", 0): 6})
    fetched = fetch_all_offsets(world.shard, GROUP, IMAGE)
    assert {(f.name, p.partition): p.offset for f in fetched for p in f.partitions} == {("t", 1): 5, ("u", 0): 6}
    assert fetch_all_offsets(world.shard, "nowhere", IMAGE) == []


def test_an_offset_of_a_deleted_topic_means_nothing_to_a_new_one_of_that_name() -> None:
    world = World()
    commit(world, {("t", 0): 5})
    (fetched,) = fetch_offsets(world.shard, GROUP, [TopicQuery("t", b"a new topic's id", [0])])
    assert fetched.partitions[0].offset == -1


def test_commits_and_groups_are_the_same_after_a_reload() -> None:
    world = World()
    commit(world, {("t", 0): 5, ("t", 1): 6}, group_id="simple")
    commit(world, {("t", 0): 9, ("u", 0): 1}, group_id="simple", metadata="m", retention_ms=MINUTE, version=4)
    (a,) = world.stable_group(1)
    commit(world, {("t", 2): 3}, member_id=a, generation=1)
    remove_offsets(world, "u", 0, group_id="simple")
    other = world.restarted()
    assert {g: group.offsets for g, group in other.shard.groups.items()} == {
        g: group.offsets for g, group in world.shard.groups.items()
    }
    assert other.shard.groups[GROUP].stored == world.shard.groups[GROUP].stored
    assert other.shard.groups[GROUP].subscribed == frozenset({"t"})


# --- OffsetDelete


def test_offsets_are_deleted_unless_members_may_want_them() -> None:
    world = World()
    (a,) = world.stable_group(1)
    commit(world, {("t", 0): 5, ("u", 0): 6}, member_id=a, generation=1)
    assert remove_offsets(world, "t", 0, 9) == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert remove_offsets(world, "u", 0, 0) == [ErrorCode.NONE, ErrorCode.NONE]
    assert remove_offsets(world, "nope", 0) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (committed(world, "t"), committed(world, "u")) == ([5], [-1])
    world.leave(a)
    assert remove_offsets(world, "t", 0) == [ErrorCode.NONE]
    assert committed(world, "t") == [-1]


def test_deleting_offsets_needs_a_group_of_consumers_or_an_empty_one() -> None:
    world = World()
    assert remove_offsets(world, "t", 0) is ErrorCode.GROUP_ID_NOT_FOUND
    assert remove_offsets(world, "t", 0, group_id="") is ErrorCode.INVALID_GROUP_ID
    world.new_member(protocol_type="connect", protocols={"x": b""})
    assert remove_offsets(world, "t", 0) is ErrorCode.NON_EMPTY_GROUP


def test_members_with_an_unreadable_subscription_may_want_any_topic() -> None:
    world = World()
    world.stable_group(1, protocols={"range": b"\x00"})
    assert world.shard.groups[GROUP].subscribed is None
    assert remove_offsets(world, "t", 0) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_a_group_whose_offsets_were_all_deleted_is_still_there_to_be_deleted() -> None:
    world = World()
    commit(world, {("t", 0): 1})
    assert remove_offsets(world, "t", 0) == remove_offsets(world, "t", 0) == [ErrorCode.NONE]
    assert delete_group(world.shard, GROUP).response is ErrorCode.NONE
    assert not world.restarted().shard.groups


# --- expiry


def test_offsets_of_a_consumer_without_membership_expire_by_their_commit() -> None:
    world = World(GroupConfig(offsets_retention_ms=RETENTION_MS))
    commit(world, {("t", 0): 1})
    world.advance(5 * MINUTE)
    commit(world, {("t", 1): 1})
    world.advance(5 * MINUTE)
    expire_all(world)
    assert committed(world, "t", 0, 1) == [-1, 1]
    world.advance(5 * MINUTE)
    expire_all(world)
    assert not world.shard.groups
    assert not world.restarted().shard.groups


def test_offsets_of_an_empty_group_expire_together_counted_from_when_it_became_empty() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0, offsets_retention_ms=RETENTION_MS))
    (a,) = world.stable_group(1)
    commit(world, {("t", 0): 1, ("u", 0): 1}, member_id=a, generation=1)
    for _ in range(60):
        world.advance(5_000)
        world.heartbeat(a, 1)
    world.leave(a)
    world.advance(9 * MINUTE)
    expire_all(world)
    assert committed(world, "t", 0) == [1]
    restarted = world.restarted()
    for one in (world, restarted):
        one.advance(MINUTE)
        expire_all(one)
        assert not one.shard.groups
    assert world.log[-1] == (b"\x00\x02\x00\x05group", None)


def test_an_offset_that_was_set_while_the_group_was_empty_has_a_whole_retention_time() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0, offsets_retention_ms=RETENTION_MS))
    (a,) = world.stable_group(1)
    commit(world, {("t", 0): 1, ("t", 1): 1}, member_id=a, generation=1)
    world.leave(a)
    world.advance(9 * MINUTE)
    commit(world, {("t", 0): 7})
    for one in (world.restarted(), world):
        one.advance(2 * MINUTE)
        expire_all(one)
        assert committed(one, "t", 0, 1) == [7, -1]


def test_topics_that_live_members_consume_do_not_expire_and_others_do() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0, offsets_retention_ms=RETENTION_MS))
    (a,) = world.stable_group(1)
    commit(world, {("t", 0): 1, ("u", 0): 1}, member_id=a, generation=1)
    for _ in range(121):
        world.advance(5_000)
        world.heartbeat(a, 1)
    expire_all(world)
    assert (committed(world, "t"), committed(world, "u")) == ([1], [-1])
    world.join(a, protocols={"range": subscription("u")})
    expire_all(world)
    assert committed(world, "t") == [1], "nothing expires while the subscription is being settled"


def test_a_retention_time_in_the_commit_counts_as_given() -> None:
    world = World(GroupConfig(offsets_retention_ms=RETENTION_MS))
    commit(world, {("t", 0): 1}, retention_ms=30 * MINUTE, version=4)
    commit(world, {("t", 1): 1}, retention_ms=MINUTE, version=4)
    world.advance(2 * MINUTE)
    expire_all(world)
    assert committed(world, "t", 0, 1) == [1, -1]
    world.advance(27 * MINUTE)
    expire_all(world)
    assert committed(world) == [1]
    world.advance(MINUTE)
    expire_all(world)
    assert not world.shard.groups


def test_a_retention_time_without_end_is_taken_for_very_long() -> None:
    world = World()
    assert commit(world, {("t", 0): 1}, retention_ms=(1 << 63) - 1, version=4) == {("t", 0): ErrorCode.NONE}
    assert commit(world, {("t", 1): 1}, retention_ms=-(1 << 63), version=4) == {("t", 1): ErrorCode.NONE}
    expire_all(world)
    assert committed(world, "t", 0, 1) == [1, -1]


def test_an_empty_group_without_offsets_dies_but_not_while_a_client_is_coming() -> None:
    world = World()
    (a,) = world.stable_group(1)
    expire_all(world)
    assert world.state() is GroupState.STABLE
    world.leave(a)
    pending = world.answers[world.join()].member_id
    expire_all(world)
    assert world.state() is GroupState.EMPTY
    world.leave(pending)
    expire_all(world)
    assert world.state() is GroupState.DEAD


def test_a_group_that_could_not_be_stored_as_empty_is_forgotten_all_the_same() -> None:
    world = World()
    member, _ = world.new_member()
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.leave(member)
    assert world.state() is GroupState.EMPTY
    world.append_error = ErrorCode.NONE
    expire_all(world)
    assert not world.shard.groups


def test_offsets_of_deleted_topics_are_removed() -> None:
    world = World()
    commit(world, {("t", 0): 1, ("u", 0): 1})
    commit(world, {("t", 1): 1}, group_id="other")
    world.append(forget_topics(world.shard, ["t", "never there"]))
    assert (committed(world, "t", 0), committed(world, "u", 0)) == ([-1], [1])
    assert world.state("other") is GroupState.EMPTY
    expire_all(world)
    assert world.state("other") is GroupState.DEAD


def test_offsets_of_topics_that_were_deleted_while_nobody_looked_are_removed_too() -> None:
    world = World()
    commit(world, {("t", 0): 1, ("u", 0): 1})
    recreated = MetadataImage(
        topics=IMAGE.topics.with_changes({"t": TopicImage("t", b"another topic id", topic("t", 1).partitions)}),
        topics_by_id=MetadataImage().topics_by_id.with_changes({topic_id("u"): topic("u", 1)}),
    )
    records = forget_missing_topics(world.shard.groups[GROUP], recreated)
    assert [(r.topic, r.value) for r in records] == [("t", None)]  # type: ignore[union-attr]


# --- operators


def test_groups_are_listed_by_state_and_type() -> None:
    world = World()
    world.stable_group(1)
    commit(world, {("t", 0): 1}, group_id="simple")

    def listed(states: list[str], types: list[str]) -> list[tuple[str, str, str, str]]:
        found = list_groups(world.shard, states, types)
        return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in found]

    both = [(GROUP, "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")]
    assert listed([], []) == both
    assert listed(["stable"], []) == both[:1]
    assert listed([" EMPTY ", "Dead"], ["Classic"]) == both[1:]
    assert listed(["nonsense"], []) == listed([], ["share"]) == []


def test_a_group_is_described_in_each_state() -> None:
    world = World()
    member, _ = world.new_member()

    def described() -> tuple[str, str, str, list[tuple[bytes, bytes]]]:
        found = describe_group(world.shard, GROUP, 6)
        assert found.error_code == ErrorCode.NONE
        members = [(bytes(m.member_metadata), bytes(m.member_assignment)) for m in found.members]
        return found.group_state, found.protocol_type, found.protocol_data, members

    assert described() == ("CompletingRebalance", "consumer", "", [(b"", b"")])
    world.sync(member, 1, {member: b"plan"})
    assert described() == ("Stable", "consumer", "range", [(subscription("t"), b"plan")])
    pending = world.answers[world.join()].member_id
    world.join(member)
    assert described() == ("PreparingRebalance", "consumer", "", [(b"", b"plan")])
    world.leave(pending)
    world.leave(member)
    assert described() == ("Empty", "consumer", "", [])


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_is_not_there_is_dead(version: int, error: ErrorCode) -> None:
    found = describe_group(World().shard, "nowhere", version)
    assert (found.group_state, found.error_code) == ("Dead", error)


def test_only_groups_without_members_are_deleted_and_all_that_was_theirs_goes() -> None:
    world = World()
    (a,) = world.stable_group(1)
    commit(world, {("t", 0): 1, ("u", 0): 2}, member_id=a, generation=1)
    assert delete_group(world.shard, GROUP).response is ErrorCode.NON_EMPTY_GROUP
    assert delete_group(world.shard, "nowhere").response is ErrorCode.GROUP_ID_NOT_FOUND
    world.leave(a)
    decision = delete_group(world.shard, GROUP)
    assert decision.response is ErrorCode.NONE
    world.append(decision.records)
    assert world.state() is GroupState.DEAD
    assert not world.restarted().shard.groups
    assert world.stable_group(1) and world.shard.groups[GROUP].generation == 1


def test_a_client_that_was_given_an_id_joins_although_the_group_was_deleted_meanwhile() -> None:
    world = World()
    (a,) = world.stable_group(1)
    world.leave(a)
    pending = world.answers[world.join()].member_id
    world.append(delete_group(world.shard, GROUP).records)
    joined = world.answers[world.join(pending)]
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
