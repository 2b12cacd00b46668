"""ConsumerGroupHeartbeat: joining, staying, moving on, leaving, and how each is refused."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.consumer.describe import describe_consumer_group
from raftlog.broker.core.group.events import expire
from raftlog.broker.core.group.group import Committer
from raftlog.wire.errors import ErrorCode
from tests.broker.core.group.consumer.consumer_world import Consumer, ConsumerWorld, settle, target, topic_id
from tests.broker.core.group.group_world import GROUP

T = topic_id("t")
JOINS: dict[str, Any] = {"owned": {}, "topics": ["t"], "rebalance_timeout_ms": 1_000}


@pytest.fixture
def world() -> ConsumerWorld:
    made = ConsumerWorld()
    made.set_topics(t=4)
    return made


@pytest.mark.parametrize(
    "member_id, epoch, fields",
    [
        ("", 0, JOINS),
        (" ", 1, {}),
        ("", -1, {}),
        ("m", 0, {**JOINS, "group_id": ""}),
        ("m", 0, {**JOINS, "instance_id": ""}),
        ("m", 0, {**JOINS, "rack_id": " "}),
        ("m", 0, {**JOINS, "rebalance_timeout_ms": -1}),
        ("m", 0, {**JOINS, "owned": None}),
        ("m", 0, {**JOINS, "owned": {T: {0}}}),
        ("m", 0, {**JOINS, "topics": None}),
        ("m", -2, {}),
        ("m", -3, {}),
    ],
)
def test_a_request_that_contradicts_itself_is_invalid(
    world: ConsumerWorld, member_id: str, epoch: int, fields: dict[str, Any]
) -> None:
    answer = world.beat(member_id, epoch, **fields)
    assert answer.error_code == ErrorCode.INVALID_REQUEST and answer.error_message
    assert not world.shard.groups and not world.log


def test_before_version_1_the_broker_makes_the_member_id(world: ConsumerWorld) -> None:
    answer = world.beat("", 0, version=0, **JOINS)
    assert answer.error_code == ErrorCode.NONE and answer.member_id in world.group.members


def test_a_member_gets_an_assignment_with_its_first_heartbeat(world: ConsumerWorld) -> None:
    answer = world.join_consumer("m", "t")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m", 2, 5_000)
    assert answer.assignment is not None
    assert [(each.topic_id, each.partitions) for each in answer.assignment.topic_partitions] == [(T, [0, 1, 2, 3])]
    # Without news there is no assignment in the answer, but for a member that says all of itself.
    assert world.beat("m", 2).assignment is None
    full = world.beat("m", 2, topics=["t"], rebalance_timeout_ms=30_000, owned={T: {0, 1, 2, 3}})
    assert full.assignment == answer.assignment


def test_a_partition_changes_hands_only_after_it_was_given_up(world: ConsumerWorld) -> None:
    one, two = Consumer(world, "one", ["t"]), Consumer(world, "two", ["t"])
    one.beat()
    world.advance(1_100)
    two.beat()
    assert two.owned == {} and world.group.state_name == "Reconciling"
    before = dict(one.owned)
    answer = world.beat("one", one.epoch, owned=one.owned)
    assert answer.member_epoch == one.epoch, "it stays in its epoch while it has partitions to give up"
    two.beat()
    assert two.owned == {}
    one.take(answer)
    assert one.owned != before
    one.beat()
    two.beat()
    assert one.owned == target(world, one) and two.owned == target(world, two)
    assert world.group.state_name == "Stable"


def test_members_that_come_within_the_interval_share_one_new_assignment(world: ConsumerWorld) -> None:
    world.join_consumer("one", "t")
    world.advance(100)
    late = world.join_consumer("two", "t")
    assert (late.member_epoch, late.assignment and late.assignment.topic_partitions) == (2, [])
    assert world.group.state_name == "Assigning"
    world.advance(1_000)
    assert world.beat("two", 2).member_epoch == 3


def test_an_assignment_of_a_clock_that_was_ahead_does_not_put_off_the_next_one(world: ConsumerWorld) -> None:
    world.join_consumer("one", "t")
    world.wall_ahead_ms -= 3_600_000
    assert world.join_consumer("two", "t").member_epoch == 3


def test_only_the_epoch_before_is_forgiven_and_only_to_who_has_nothing_of_others(world: ConsumerWorld) -> None:
    consumer = Consumer(world, "m", ["t"])
    consumer.beat()
    world.set_topics(t=5)
    world.advance(1_100)
    lost = consumer.send()
    assert world.answers[lost].member_epoch == 3
    assert world.beat("m", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("m", 2, owned={T: {0, 9}}).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("m", 1, owned={T: {0}}).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("m", 4, owned={T: {0}}).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("m", 2, owned={T: {0, 1, 2, 3}}).member_epoch == 3


@pytest.mark.parametrize("epoch", [1, -1])
def test_who_is_not_a_member_is_unknown(world: ConsumerWorld, epoch: int) -> None:
    assert world.beat("m", epoch).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    world.join_consumer("other", "t")
    assert world.beat("m", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_assignor_that_is_not_there_and_a_bad_pattern_are_refused(world: ConsumerWorld) -> None:
    refused = world.join_consumer("m", "t", server_assignor="mine")
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    refused = world.beat("m", 0, owned={}, rebalance_timeout_ms=9, subscribed_topic_regex="(")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not world.log


def test_a_group_that_is_full_takes_nobody_but_its_own() -> None:
    world = ConsumerWorld(GroupConfig(consumer_max_size=1))
    world.set_topics(t=1)
    world.join_consumer("m", "t")
    assert world.join_consumer("n", "t").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join_consumer("m", "t").error_code == ErrorCode.NONE


def test_a_static_member_that_is_away_keeps_its_place_and_another_process_cannot_have_it_before(
    world: ConsumerWorld,
) -> None:
    first = Consumer(world, "first", ["t"], "instance")
    first.beat()
    had = first.owned
    assert world.join_consumer("second", "t", instance_id="instance").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert world.beat("second", 2, instance_id="instance").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.beat("first", 2, instance_id="other").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.leave(-2) is ErrorCode.NONE
    epoch = world.group.epoch
    second = Consumer(world, "second", ["t"], "instance")
    second.beat()
    assert (second.owned, world.group.epoch, list(world.group.members)) == (had, epoch, ["second"])


def test_a_static_member_that_does_not_come_back_is_out_when_its_session_ends(world: ConsumerWorld) -> None:
    first = Consumer(world, "first", ["t"], "instance")
    first.beat()
    first.leave(-2)
    world.advance(44_999)
    assert world.group.members
    world.advance(1)
    assert world.group.state_name == "Empty"


def test_a_static_member_that_comes_back_under_its_own_id_is_out_when_it_is_not_heard_of_again(
    world: ConsumerWorld,
) -> None:
    member = Consumer(world, "first", ["t"], "instance")
    member.beat()
    had, epoch = member.owned, world.group.epoch
    member.leave(-2)
    member.beat()
    assert (member.owned, world.group.epoch, list(world.group.members)) == (had, epoch, ["first"])
    world.advance(44_999)
    assert world.group.members
    world.advance(1)
    assert world.group.state_name == "Empty"


def test_a_static_member_that_missed_an_answer_joins_again_under_its_own_id(world: ConsumerWorld) -> None:
    other, member = Consumer(world, "other", ["t"]), Consumer(world, "first", ["t"], "instance")
    settle(world, other)
    member.send()
    member.beat()
    assert member.error is ErrorCode.NONE
    settle(world, other, member)
    had, epoch = member.owned, member.epoch
    member.forget()
    member.beat()
    assert member.error is ErrorCode.NONE and member.owned == had
    assert world.group.check_commit(Committer("first", "instance", epoch + 1, 9)) is ErrorCode.NONE
    # What it has read before must not be committed.
    check = world.group.partition_check(Committer("first", "instance", epoch, 9))
    assert check is not None and check(T, min(had[T])) is ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize("joins_classic", [False, True])
def test_members_of_either_protocol_have_to_fit_into_the_memory_for_members(joins_classic: bool) -> None:
    world = ConsumerWorld(GroupConfig(initial_rebalance_delay_ms=0, members_max_bytes=3_500))
    world.set_topics(t=4)
    world.join_consumer("first", "t")

    def join(number: int) -> int:
        if joins_classic:
            return int(world.answers[world.join(version=3)].error_code)
        return int(world.join_consumer(f"member-{number}", "t").error_code)

    errors = [join(number) for number in range(4)]
    assert set(errors) == {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE} and errors == sorted(errors)
    assert world.shard.memory.used <= 3_500
    assert len([note for note in world.notes if "takes no member" in note]) == 1


def test_all_that_a_member_calls_itself_has_to_fit_into_the_memory_for_members() -> None:
    world = ConsumerWorld(GroupConfig(initial_rebalance_delay_ms=0, members_max_bytes=10_000))
    long = "x" * 20_000
    for name, fields in ((long, {}), ("member", {"instance_id": long}), ("member", {"rack_id": long})):
        assert world.join_consumer(name, "t", **fields).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.join_consumer("member", "t").error_code == ErrorCode.NONE


def test_who_does_not_give_up_partitions_in_time_is_out(world: ConsumerWorld) -> None:
    one, two = Consumer(world, "one", ["t"]), Consumer(world, "two", ["t"])
    one.beat()
    world.advance(1_100)
    two.beat()
    keeps = dict(one.owned)
    for _ in range(31):
        world.beat("one", 2, owned=keeps)
        two.beat()
        world.advance(1_000)
    assert "one" not in world.group.members and "did not give up partitions in time" in world.notes[-1]
    settle(world, two)
    assert two.owned == {T: {0, 1, 2, 3}}


def test_a_member_that_could_not_be_taken_out_is_taken_out_later(world: ConsumerWorld) -> None:
    world.join_consumer("m", "t")
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.advance(45_000)
    assert world.group.members
    world.append_error = ErrorCode.NONE
    world.advance(500)
    assert not world.group.members


def test_a_member_with_two_time_outs_at_once_that_could_not_be_taken_out_expires_yet(world: ConsumerWorld) -> None:
    one, two = Consumer(world, "one", ["t"], "i"), Consumer(world, "two", ["t"])
    one.beat()
    world.advance(1_100)
    two.beat()
    # It is told to give up partitions, and hears nothing for so long that its session is over, too.
    one.beat()
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.monotonic_ms += 46_000
    world.execute(expire(world.shard, world.now))
    world.append_error = ErrorCode.NONE
    assert one.leave(-2) is ErrorCode.NONE
    world.advance(1_000)
    assert not world.group.members


def test_what_cannot_be_written_is_not_done(world: ConsumerWorld) -> None:
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.join_consumer("m", "t").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not world.shard.groups
    world.append_error = ErrorCode.NONE
    assert world.join_consumer("m", "t").error_code == ErrorCode.NONE


def test_an_answer_waits_until_its_records_are_committed() -> None:
    world = ConsumerWorld(hold_commits=True)
    world.set_topics(t=1)
    ticket = world.send_beat("m", 0, **JOINS)
    assert ticket not in world.answers
    world.commit()
    assert world.answers[ticket].member_epoch == 2


def test_topics_that_grow_come_or_go_are_noticed_with_the_next_heartbeat(world: ConsumerWorld) -> None:
    consumer = Consumer(world, "m", ["t", "later"])
    settle(world, consumer)
    world.set_topics(t=6)
    settle(world, consumer)
    assert consumer.owned == {T: set(range(6))}
    world.set_topics(t=6, later=2)
    settle(world, consumer)
    assert consumer.owned == {T: set(range(6)), topic_id("later"): {0, 1}}
    world.set_topics(later=2)
    settle(world, consumer)
    assert consumer.owned == {topic_id("later"): {0, 1}}
    epoch = world.group.epoch
    world.set_topics(later=2, unrelated=9)
    settle(world, consumer)
    assert world.group.epoch == epoch


def test_a_pattern_is_resolved_beside_the_heartbeats_and_again_when_topics_are_created(world: ConsumerWorld) -> None:
    consumer = Consumer(world, "m", [])
    consumer.regex = "t.*"
    consumer.beat()
    assert consumer.owned == {} and world.resolutions
    settle(world, consumer)
    assert consumer.owned == {T: {0, 1, 2, 3}}
    world.set_topics(t=4, two=1, other=1)
    world.advance(10_000)
    settle(world, consumer)
    world.resolve_regexes()
    settle(world, consumer)
    assert consumer.owned == {T: {0, 1, 2, 3}, topic_id("two"): {0}}
    assert consumer.leave() is ErrorCode.NONE
    assert not world.group.resolved and not world.group.topic_subscribers


def test_offsets_may_be_committed_in_an_older_epoch_for_partitions_that_the_member_has_had_since(
    world: ConsumerWorld,
) -> None:
    one, two = Consumer(world, "one", ["t"]), Consumer(world, "two", ["t"])
    settle(world, one)
    settle(world, one, two)
    epoch = world.group.members["one"].epoch

    def check(generation: int, partition: int, member_id: str = "one", version: int = 9) -> ErrorCode:
        committer = Committer(member_id, None, generation, version)
        error = world.group.check_commit(committer)
        by_partition = world.group.partition_check(committer)
        return error if by_partition is None or error is not ErrorCode.NONE else by_partition(T, partition)

    kept = min(one.owned[T])
    given = min(two.owned[T])
    assert check(epoch, kept) is check(epoch - 1, kept) is ErrorCode.NONE
    assert check(epoch - 1, given) is check(epoch + 1, kept) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(epoch - 1, given, "two") is ErrorCode.STALE_MEMBER_EPOCH
    assert check(epoch, kept, "stranger") is check(-1, kept, "") is ErrorCode.UNKNOWN_MEMBER_ID
    assert check(epoch, kept, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert world.group.check_fetch("one", epoch) is world.group.check_fetch(None, -1) is ErrorCode.NONE
    assert world.group.check_fetch("one", epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.group.check_fetch("stranger", epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_described_with_what_members_have_and_are_to_have(world: ConsumerWorld) -> None:
    one, two = Consumer(world, "one", ["t"]), Consumer(world, "two", ["t"])
    settle(world, one)
    world.advance(1_100)
    two.beat()
    one.beat()
    described = describe_consumer_group(world.shard, GROUP)
    assert (described.group_state, described.assignor_name) == ("Reconciling", "uniform")
    assert (described.group_epoch, described.assignment_epoch) == (3, 3)
    (member,) = (each for each in described.members if each.member_id == "one")
    assert [each.partitions for each in member.assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert [each.topic_name for each in member.target_assignment.topic_partitions] == ["t"]
    assert len(member.target_assignment.topic_partitions[0].partitions) == 2
    assert describe_consumer_group(world.shard, "nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("others_come", [True, False])
def test_what_a_member_read_before_it_joined_again_is_not_committed(world: ConsumerWorld, others_come: bool) -> None:
    """It was told that it is no member, by a coordinator that was none any more, and begins where its group stands. A
    transaction that it had under way then must not move the group over what it reads again.
    """
    before = world.join_consumer("m", "t").member_epoch
    if others_come:
        world.join_consumer("n", "t")

    after = world.join_consumer("m", "t").member_epoch

    assert after > before
    late, now = (Committer("m", None, epoch, 5, is_transactional=True) for epoch in (before, after))
    check = world.group.partition_check(late)
    assert check is not None and check(T, 0) == ErrorCode.ILLEGAL_GENERATION
    assert world.group.check_commit(now) == ErrorCode.NONE and world.group.partition_check(now) is None
