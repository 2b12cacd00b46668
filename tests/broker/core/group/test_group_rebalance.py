"""The classic rebalance protocol, told as stories on one group."""

from __future__ import annotations

from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.group import REASON_LENGTH_MAX
from raftlog.broker.core.group.member import MemoryBudget
from raftlog.broker.core.group.state import GroupState
from raftlog.wire.errors import ErrorCode
from tests.broker.core.group.group_world import GROUP, World, subscription

DELAYED = GroupConfig(initial_rebalance_delay_ms=3_000)


def test_the_first_member_asks_for_an_id_and_joins_with_it() -> None:
    world = World()
    first = world.answers[world.join(client_id="app")]
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("app-")
    joined = world.answers[world.join(first.member_id)]
    assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.NONE, 1, first.member_id)
    assert [member.member_id for member in joined.members] == [first.member_id]
    assert world.state() is GroupState.COMPLETING_REBALANCE


def test_names_as_long_as_the_protocol_allows_do_no_harm() -> None:
    world = World()
    long = "x" * 32_767
    a, _ = world.new_member(client_id=long, group_id=long)
    world.sync(a, 1, {a: b""}, group_id=long)
    static = world.join(instance=long, client_id=long, group_id=long)
    world.join(a, client_id=long, group_id=long)
    assert world.answers[static].error_code == ErrorCode.NONE
    assert world.restarted().state(long) is GroupState.STABLE


def test_an_old_client_is_taken_in_without_asking_for_an_id_first() -> None:
    world = World()
    joined = world.answers[world.join(version=3)]
    assert joined.error_code == ErrorCode.NONE
    assert joined.member_id == joined.leader


def test_the_first_rebalance_waits_for_more_members_and_answers_them_together() -> None:
    world = World(DELAYED)
    a, ticket_a = world.new_member()
    world.advance(2_900)
    b, ticket_b = world.new_member()
    assert not {ticket_a, ticket_b} & world.answers.keys()
    # The delay is over, but somebody came during it, so it is prolonged once more.
    world.advance(200)
    assert world.state() is GroupState.PREPARING_REBALANCE
    world.advance(2_900)
    assert world.answers[ticket_a].generation_id == world.answers[ticket_b].generation_id == 1
    assert {m.member_id for m in world.answers[ticket_a].members} == {a, b}
    assert world.answers[ticket_b].members == []


def test_the_first_rebalance_is_not_put_off_for_longer_than_the_rebalance_time_out() -> None:
    world = World(DELAYED)
    tickets = []
    for _ in range(10):
        tickets.append(world.new_member(rebalance_timeout_ms=10_000)[1])
        world.advance(1_500)
        if world.state() is not GroupState.PREPARING_REBALANCE:
            break
    assert world.monotonic_ms <= 12_000
    assert all(ticket in world.answers for ticket in tickets[:-1])


def test_members_get_what_the_leader_assigned_once_it_is_stored() -> None:
    world = World(hold_commits=True)
    a, ticket_a = world.new_member()
    b, ticket_b = world.new_member()
    ticket_a = world.join(a)
    waiting_b = world.sync(b, 2)
    waiting_a = world.sync(a, 2, {a: b"for a", b: b"for b"})
    assert not {waiting_a, waiting_b} & world.answers.keys()
    assert world.state() is GroupState.COMPLETING_REBALANCE
    world.commit()
    assert world.answers[waiting_a].assignment == b"for a"
    assert world.answers[waiting_b].assignment == b"for b"
    assert world.state() is GroupState.STABLE
    assert ticket_b in world.answers and ticket_a in world.answers


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment() -> None:
    world = World()
    a, _ = world.new_member()
    world.new_member()
    world.join(a)
    b = next(m for m in world.shard.groups[GROUP].members if m != a)
    waiting = world.sync(b, 2)
    world.sync(a, 2, {a: b"all of it"})
    assert world.answers[waiting].error_code == ErrorCode.NONE
    assert world.answers[waiting].assignment == b""


def test_a_slow_member_holds_up_the_rebalance_until_it_joins() -> None:
    world = World()
    a, b = world.stable_group(2, session_timeout_ms=10_000, rebalance_timeout_ms=30_000)
    _, ticket_c = world.new_member()
    assert world.heartbeat(a, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    ticket_a = world.join(a)
    for _ in range(5):
        world.advance(5_000)
        assert world.heartbeat(b, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert not {ticket_a, ticket_c} & world.answers.keys()
    ticket_b = world.join(b)
    assert {world.answers[t].generation_id for t in (ticket_a, ticket_b, ticket_c)} == {3}


def test_a_member_too_slow_for_the_rebalance_time_out_is_out() -> None:
    world = World()
    a, b = world.stable_group(2, session_timeout_ms=10_000, rebalance_timeout_ms=30_000)
    ticket_a = world.join(a)
    for _ in range(7):
        world.advance(5_000)
        world.heartbeat(b, 2)
    assert world.answers[ticket_a].generation_id == 3
    assert [m.member_id for m in world.answers[ticket_a].members] == [a]
    assert world.heartbeat(b, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.answers[world.join(b)].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_join_in_time_is_replaced() -> None:
    world = World()
    a, b = world.stable_group(2, rebalance_timeout_ms=30_000, session_timeout_ms=10_000)
    _, ticket_c = world.new_member(rebalance_timeout_ms=30_000)
    ticket_b = world.join(b)
    for _ in range(7):
        world.advance(5_000)
        world.heartbeat(a, 2)
    assert world.answers[ticket_b].leader == b == world.answers[ticket_c].leader
    assert len(world.answers[ticket_b].members) == 2
    assert world.answers[ticket_c].members == []


def test_a_silent_member_is_kicked_out_when_its_session_ends() -> None:
    world = World()
    a, b = world.stable_group(2, session_timeout_ms=10_000)
    world.advance(6_000)
    assert world.heartbeat(a, 2) is ErrorCode.NONE
    world.advance(5_000)
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(b, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    joined = world.answers[world.join(a)]
    assert (joined.generation_id, [m.member_id for m in joined.members]) == (3, [a])


def test_members_that_wait_for_an_answer_need_no_heartbeat() -> None:
    world = World()
    a, b = world.stable_group(2, session_timeout_ms=10_000, rebalance_timeout_ms=60_000)
    ticket_a = world.join(a)
    for _ in range(9):
        world.advance(5_000)
        world.heartbeat(b, 2)
    assert ticket_a not in world.answers and a in world.shard.groups[GROUP].members
    world.join(b)
    waiting = world.sync(b, 3)
    for _ in range(3):
        world.advance(5_000)
        assert world.heartbeat(a, 3) is ErrorCode.NONE
    world.sync(a, 3, {b: b"b"})
    assert world.answers[waiting].assignment == b"b"
    world.advance(9_000)
    assert world.heartbeat(b, 3) is ErrorCode.NONE


def test_a_new_member_that_waits_too_long_in_the_join_phase_is_told_to_come_again() -> None:
    world = World()
    a = world.stable_group(1, session_timeout_ms=10_000, rebalance_timeout_ms=1_000_000)[0]
    _, ticket = world.new_member(rebalance_timeout_ms=1_000_000)
    for _ in range(61):
        world.advance(5_000)
        world.heartbeat(a, 1)
    assert world.answers[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.state() is GroupState.PREPARING_REBALANCE


def test_an_id_that_was_given_out_is_waited_for_until_its_session_time_out() -> None:
    world = World()
    a = world.stable_group(1, session_timeout_ms=60_000)[0]
    pending = world.answers[world.join(session_timeout_ms=6_000)].member_id
    assert world.state() is GroupState.STABLE
    ticket = world.join(a, session_timeout_ms=60_000)
    assert ticket not in world.answers
    world.advance(6_000)
    assert world.answers[ticket].generation_id == 2
    assert world.answers[world.join(pending)].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_of_nothing_but_given_out_ids_is_forgotten_with_them() -> None:
    world = World()
    world.join(session_timeout_ms=6_000)
    assert world.state() is GroupState.EMPTY
    world.advance(6_000)
    assert not world.shard.groups
    assert world.log == []


def test_joining_again_without_anything_new_only_repeats_the_answer() -> None:
    world = World()
    a, b = world.stable_group(2)
    again = world.answers[world.join(b)]
    assert (again.generation_id, again.leader, again.members) == (2, a, [])
    assert world.state() is GroupState.STABLE


def test_a_leader_joining_again_makes_a_rebalance() -> None:
    world = World()
    a, b = world.stable_group(2)
    ticket = world.join(a)
    assert world.state() is GroupState.PREPARING_REBALANCE
    world.join(b)
    assert world.answers[ticket].generation_id == 3


def test_a_follower_with_another_subscription_makes_a_rebalance() -> None:
    world = World()
    _, b = world.stable_group(2)
    world.join(b, protocols={"range": subscription("other")})
    assert world.state() is GroupState.PREPARING_REBALANCE


def test_a_member_that_joins_while_others_wait_for_their_assignment_sends_them_back() -> None:
    world = World()
    a, _ = world.new_member()
    b, _ = world.new_member()
    world.join(a)
    waiting = world.sync(b, 2)
    world.new_member()
    assert world.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.answers[world.sync(a, 2, {a: b"late"})].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.log == []


def test_members_that_do_not_sync_in_time_are_out() -> None:
    world = World()
    a, _ = world.new_member(rebalance_timeout_ms=20_000)
    b, _ = world.new_member(rebalance_timeout_ms=20_000)
    world.join(a, rebalance_timeout_ms=20_000)
    world.sync(a, 2, {a: b"x", b: b"y"})
    assert world.state() is GroupState.STABLE
    for _ in range(4):
        world.advance(5_000)
        world.heartbeat(a, 2)
        world.heartbeat(b, 2)
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(b, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_if_the_assignment_cannot_be_stored_everybody_has_to_join_again() -> None:
    world = World()
    a, _ = world.new_member()
    b, _ = world.new_member()
    world.join(a)
    waiting = world.sync(b, 2)
    world.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    refused = world.answers[world.sync(a, 2, {a: b"x"})]
    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    assert world.answers[waiting].error_code == ErrorCode.NOT_COORDINATOR
    assert world.state() is GroupState.PREPARING_REBALANCE


def test_an_assignment_that_is_committed_after_a_new_rebalance_has_begun_reaches_nobody() -> None:
    world = World(hold_commits=True)
    a, _ = world.new_member()
    waiting = world.sync(a, 1, {a: b"old"})
    world.new_member()
    assert world.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.commit()
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.shard.groups[GROUP].members[a].assignment == b""


def test_an_assignment_of_an_older_generation_does_not_settle_the_next_one() -> None:
    world = World(hold_commits=True)
    a, _ = world.new_member()
    world.sync(a, 1, {a: b"old"})
    world.join(a, protocols={"range": subscription("other")})
    assert world.shard.groups[GROUP].generation == 2
    world.commit()
    assert world.state() is GroupState.COMPLETING_REBALANCE


def test_a_request_that_a_client_sends_again_takes_the_place_of_the_parked_one() -> None:
    world = World()
    a, b = world.stable_group(2)
    first, second = world.join(a), world.join(a)
    assert world.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.join(b)
    assert world.answers[second].generation_id == 3
    first, second = world.sync(b, 3), world.sync(b, 3)
    assert world.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.sync(a, 3, {b: b"b"})
    assert world.answers[second].assignment == b"b"


def test_a_cooperative_rebalance_takes_two_rounds_and_interrupts_nobody() -> None:
    """KIP-429 is the members' business; the group has only to let them go round once more."""
    world = World()
    protocols = {"cooperative-sticky": subscription("t", version=1)}
    (a,) = world.stable_group(1, protocols=protocols)
    b, ticket_b = world.new_member(protocols=protocols)
    # First round: a gives up what b is to get, so b gets nothing yet.
    ticket_a = world.join(a, protocols=protocols)
    assert world.answers[ticket_a].generation_id == world.answers[ticket_b].generation_id == 2
    waiting = world.sync(b, 2, protocol="cooperative-sticky")
    world.sync(a, 2, {a: b"t-0", b: b""}, protocol="cooperative-sticky")
    assert world.answers[waiting].assignment == b""
    # Second round: a has revoked t-1 and says so by joining with what it owns now.
    owning = {"cooperative-sticky": subscription("t", version=1) + b"t-0"}
    ticket_a = world.join(a, protocols=owning)
    assert world.heartbeat(b, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    world.join(b, protocols=protocols)
    waiting = world.sync(b, 3, protocol="cooperative-sticky")
    world.sync(a, 3, {a: b"t-0", b: b"t-1"}, protocol="cooperative-sticky")
    assert world.answers[waiting].assignment == b"t-1"
    assert world.state() is GroupState.STABLE


def test_an_operator_is_told_what_a_group_goes_through_and_why() -> None:
    world = World()
    a, _ = world.new_member(session_timeout_ms=60_000)
    b, _ = world.new_member(session_timeout_ms=10_000, reason="because\nI can")
    world.join(a, session_timeout_ms=60_000)
    world.sync(a, 2, {})
    world.advance(10_000)
    world.join(a, session_timeout_ms=60_000)
    world.leave(a)
    assert world.notes == [
        f"rebalance after generation 0: member {a} is new",
        f"rebalance after generation 1: member {b} is new, says 'because\\nI can'",
        "generation 2 is stable with 2 members",
        f"rebalance after generation 2: member {b} was not heard of in time",
        f"rebalance after generation 3: members left: {a}",
        "generation 4 is empty",
    ]


def test_who_waits_when_the_broker_loses_the_group_is_sent_to_the_new_coordinator() -> None:
    world = World(hold_commits=True)
    a, _ = world.new_member()
    syncing = world.sync(a, 1, {a: b"x"})
    world.join(group_id="other", version=3)
    waiting = [world.join(group_id="other", version=3) for _ in range(3)]
    world.unload()
    assert world.answers[syncing].error_code == ErrorCode.NOT_COORDINATOR
    assert {world.answers[t].error_code for t in waiting} == {ErrorCode.NOT_COORDINATOR}
    world.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not world.shard.groups


def test_a_member_goes_on_after_a_restart_of_the_coordinator() -> None:
    world = World()
    a, b = world.stable_group(2)
    other = world.restarted()
    assert other.state() is GroupState.STABLE
    assert other.heartbeat(a, 2) is other.heartbeat(b, 2) is ErrorCode.NONE
    assert other.answers[other.sync(b, 2)].assignment == b.encode()
    other.advance(9_999)
    assert other.heartbeat(a, 2) is ErrorCode.NONE
    other.advance(1)
    assert other.heartbeat(b, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_thousand_members_join_in_time_proportional_to_their_number() -> None:
    """Counted in lines of Python, not in seconds: ten times the members may cost little more than ten times."""
    import sys

    def cost(count: int) -> int:
        world = World(DELAYED)
        calls = 0

        def count_calls(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count_calls)
        try:
            tickets = [_quiet_join(world) for _ in range(count)]
        finally:
            sys.setprofile(None)
        world.advance(30_000)
        assert len({world.answers[ticket].generation_id for ticket in tickets}) == 1
        return calls

    assert cost(1_000) < 15 * cost(100)


def _quiet_join(world: World) -> int:
    """A join without the invariant check, which looks at every member."""
    check, type(world.shard).check_invariants = type(world.shard).check_invariants, lambda self: None  # type: ignore[method-assign]
    try:
        return world.join(version=3)
    finally:
        type(world.shard).check_invariants = check  # type: ignore[method-assign]


def test_of_a_member_that_gives_an_endless_reason_the_beginning_is_kept() -> None:
    group = ClassicGroup("g", MemoryBudget())
    group.remember_rebalance(1, 2, "why " * 10_000)
    assert len(group.rebalances[0].reason) == REASON_LENGTH_MAX
