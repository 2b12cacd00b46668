"""Static members (KIP-345, KIP-814): a restart that nobody else notices."""

from __future__ import annotations

import pytest

from raftlog.broker.core.group.state import GroupState
from raftlog.wire.errors import ErrorCode
from tests.broker.core.group.group_world import GROUP, World, subscription


def static_pair(world: World, rebalance_timeout_ms: int = 30_000) -> tuple[str, str]:
    """A stable group of the instances "one", which leads, and "two"."""
    one = world.answers[world.join(instance="one", rebalance_timeout_ms=rebalance_timeout_ms)].member_id
    waiting = world.join(instance="two", rebalance_timeout_ms=rebalance_timeout_ms)
    world.join(one, instance="one", rebalance_timeout_ms=rebalance_timeout_ms)
    two = world.answers[waiting].member_id
    world.sync(one, 2, {one: b"for one", two: b"for two"}, instance="one")
    world.sync(two, 2, instance="two")
    assert world.state() is GroupState.STABLE
    return one, two


def test_a_static_member_needs_no_second_join_to_come_in() -> None:
    world = World()
    joined = world.answers[world.join(instance="one")]
    assert joined.error_code == ErrorCode.NONE
    assert joined.member_id.startswith("one-")
    assert joined.members[0].group_instance_id == "one"


def test_a_restarted_follower_gets_its_old_assignment_without_a_rebalance() -> None:
    world = World()
    one, old = static_pair(world)
    joined = world.answers[world.join(instance="two")]
    assert joined.member_id not in ("", old)
    assert (joined.generation_id, joined.leader, joined.skip_assignment) == (2, one, False)
    assert world.state() is GroupState.STABLE
    assert world.heartbeat(one, 2, "one") is ErrorCode.NONE
    synced = world.answers[world.sync(joined.member_id, 2, instance="two")]
    assert synced.assignment == b"for two"


def test_a_restarted_leader_is_told_to_assign_nothing() -> None:
    world = World()
    _, two = static_pair(world)
    joined = world.answers[world.join(instance="one")]
    assert joined.leader == joined.member_id and joined.skip_assignment
    assert {m.member_id for m in joined.members} == {joined.member_id, two}
    assert world.answers[world.sync(joined.member_id, 2, instance="one")].assignment == b"for one"


def test_an_old_client_that_restarts_as_leader_does_not_learn_that_it_leads() -> None:
    world = World()
    one, _ = static_pair(world)
    joined = world.answers[world.join(instance="one", version=8)]
    assert joined.leader == one != joined.member_id
    assert joined.members == [] and not joined.skip_assignment


def test_the_process_that_was_replaced_is_fenced() -> None:
    world = World()
    _, old = static_pair(world)
    new = world.answers[world.join(instance="two")].member_id
    assert world.heartbeat(old, 2, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(new, 2, "two") is ErrorCode.NONE
    assert world.answers[world.sync(old, 2, instance="two")].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.answers[world.join(old, instance="two")].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(new, 2, "three") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_parked_join_of_the_replaced_process_is_answered_with_the_fence() -> None:
    world = World()
    one, two = static_pair(world)
    world.join(one, instance="one")
    world.answers[world.join(two, instance="two")]
    world.sync(one, 3, {}, instance="one")
    world.sync(two, 3, instance="two")
    # A new dynamic member opens the join phase; "two" joins twice under two ids.
    world.new_member()
    first = world.join(two, instance="two")
    later = world.join(instance="two")
    assert world.answers[first].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert later not in world.answers
    world.join(one, instance="one")
    assert world.answers[later].generation_id == 4


def test_a_restart_with_another_preferred_protocol_makes_a_rebalance() -> None:
    world = World()
    both = {"range": subscription("t"), "sticky": subscription("t")}
    world.join(instance="one", protocols=both)
    one = next(iter(world.shard.groups[GROUP].members))
    world.sync(one, 1, {one: b"x"}, instance="one")
    ticket = world.join(instance="one", protocols={"sticky": subscription("t"), "range": subscription("t")})
    assert world.answers[ticket].generation_id == 2
    assert world.answers[ticket].protocol_name == "sticky"


def test_a_restart_while_the_leader_assigns_makes_another_generation() -> None:
    world = World()
    one = world.answers[world.join(instance="one")].member_id
    waiting = world.join(instance="two")
    world.join(one, instance="one")
    assert world.answers[waiting].generation_id == 2
    restarted = world.join(instance="two")
    assert restarted not in world.answers
    assert world.heartbeat(one, 2, "one") is ErrorCode.REBALANCE_IN_PROGRESS
    world.join(one, instance="one")
    assert world.answers[restarted].generation_id == 3


def test_the_new_id_is_told_only_when_it_is_stored() -> None:
    world = World()
    static_pair(world)
    world.hold_commits = True
    ticket = world.join(instance="two")
    assert ticket not in world.answers
    world.commit()
    assert world.answers[ticket].error_code == ErrorCode.NONE
    member_id = world.answers[ticket].member_id
    assert member_id in world.restarted().shard.groups[GROUP].members


def test_if_the_new_id_cannot_be_stored_the_old_one_stays() -> None:
    world = World()
    _, old = static_pair(world)
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    ticket = world.join(instance="two", session_timeout_ms=20_000)
    assert world.answers[ticket].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat(old, 2, "two") is ErrorCode.NONE
    assert world.shard.groups[GROUP].members[old].session_timeout_ms == 10_000


def test_if_it_is_not_known_whether_the_new_id_is_stored_the_new_one_stands() -> None:
    world = World()
    _, old = static_pair(world)
    world.hold_commits = True
    ticket = world.join(instance="two")
    world.commit(ErrorCode.REQUEST_TIMED_OUT)
    assert world.answers[ticket].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat(old, 2, "two") is ErrorCode.FENCED_INSTANCE_ID
    # The client tries again and gets in.
    world.hold_commits = False
    assert world.answers[world.join(instance="two")].error_code == ErrorCode.NONE


def test_a_member_whose_new_id_took_longer_than_its_session_to_fail_is_out_when_it_does_not_come_again() -> None:
    world = World()
    static_pair(world)
    world.hold_commits = True
    ticket = world.join(instance="two")
    world.advance(9_999)
    assert world.heartbeat(world.shard.groups[GROUP].leader, 2, "one") is ErrorCode.NONE
    world.advance(1)
    world.commit(ErrorCode.REQUEST_TIMED_OUT)
    assert world.answers[ticket].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.check()
    world.advance(10_000)
    assert not world.shard.groups[GROUP].static_members.get("two")


def test_a_rebalance_that_overtakes_the_storing_answers_the_member() -> None:
    world = World()
    one, _ = static_pair(world)
    world.hold_commits = True
    ticket = world.join(instance="two")
    world.join(one, instance="one")
    assert world.answers[ticket].generation_id == 3
    world.commit()
    assert world.state() is GroupState.COMPLETING_REBALANCE


def test_a_static_member_that_does_not_join_again_keeps_its_place_until_its_session_ends() -> None:
    world = World()
    one, two = static_pair(world, rebalance_timeout_ms=8_000)
    ticket = world.join(one, instance="one", rebalance_timeout_ms=8_000)
    world.advance(7_999)
    assert ticket not in world.answers
    world.advance(1)
    assert {m.member_id for m in world.answers[ticket].members} == {one, two}
    world.sync(one, 3, {one: b"1", two: b"2"}, instance="one")
    world.advance(5_000)
    world.heartbeat(one, 3, "one")
    world.advance(5_000)
    assert world.heartbeat(two, 3, "two") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_whose_static_members_are_all_away_waits_for_them() -> None:
    world = World()
    one, two = static_pair(world)
    # A dynamic member opens the join phase and leaves; neither static member comes for a while.
    dynamic, _ = world.new_member()
    world.leave(dynamic)
    assert world.state() is GroupState.PREPARING_REBALANCE
    for _ in range(8):
        world.advance(5_000)
        world.heartbeat(one, 2, "one")
        world.heartbeat(two, 2, "two")
    assert world.state() is GroupState.PREPARING_REBALANCE
    world.join(two, instance="two")
    joined = world.join(one, instance="one")
    assert world.answers[joined].generation_id == 3


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    world = World()
    static_pair(world)
    answer = world.leave("", instance="two")
    assert answer is not None
    assert (answer.members[0].error_code, answer.members[0].member_id) == (ErrorCode.NONE, "")
    assert "two" not in world.shard.groups[GROUP].static_members
    answer = world.leave("", instance="two")
    assert answer is not None and answer.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("instance", ["two", "nobody"])
def test_a_leave_with_the_wrong_pair_of_ids_is_refused(instance: str) -> None:
    world = World()
    one, _ = static_pair(world)
    answer = world.leave(one, instance=instance)
    expected = ErrorCode.FENCED_INSTANCE_ID if instance == "two" else ErrorCode.UNKNOWN_MEMBER_ID
    assert answer is not None and answer.members[0].error_code == expected


def test_static_members_survive_a_restart_of_the_coordinator() -> None:
    world = World()
    one, old = static_pair(world)
    other = world.restarted()
    new = other.answers[other.join(instance="two")]
    assert (new.error_code, new.generation_id, new.leader) == (ErrorCode.NONE, 2, one)
    assert other.heartbeat(old, 2, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert other.answers[other.sync(new.member_id, 2, instance="two")].assignment == b"for two"


def test_members_without_a_rebalance_time_out_that_do_not_come_do_not_stop_the_clock() -> None:
    """Who is static is waited for again and again, but not more often than time goes on."""
    world = World()
    one = world.answers[world.join(instance="one", rebalance_timeout_ms=0)].member_id
    world.sync(one, 1, instance="one")
    world.join(instance="two", rebalance_timeout_ms=0)
    two = world.shard.make_classic(GROUP).static_members["two"]
    world.leave(two, instance="two")
    world.advance(9_000)
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(one, 1, "one") is ErrorCode.REBALANCE_IN_PROGRESS
    world.advance(10_000)
    assert world.state() is GroupState.EMPTY
