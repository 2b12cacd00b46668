"""Who is in a group: how members leave, and who is not let in."""

from __future__ import annotations

from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.member import MEMBER_BYTES
from raftlog.broker.core.group.state import GroupState
from raftlog.wire.errors import ErrorCode
from tests.broker.core.group.group_world import GROUP, World, subscription

DELAYED = GroupConfig(initial_rebalance_delay_ms=3_000)


def test_the_last_member_leaves_and_the_group_is_stored_as_empty() -> None:
    world = World()
    (a,) = world.stable_group(1)
    answer = world.leave(a)
    assert answer is not None and answer.members[0].error_code == ErrorCode.NONE
    assert world.state() is GroupState.EMPTY
    other = world.restarted().shard.groups[GROUP]
    assert (other.state, other.generation, other.protocol_type) == (GroupState.EMPTY, 2, "consumer")


def test_leaving_is_answered_when_the_emptiness_is_stored() -> None:
    world = World(hold_commits=True)
    a, _ = world.new_member()
    world.sync(a, 1, {a: b"x"})
    world.commit()
    assert world.leave(a) is None
    world.commit()
    assert world.answers[world.tickets].members[0].error_code == ErrorCode.NONE


def test_one_of_two_leaves_and_the_other_rebalances() -> None:
    world = World()
    a, b = world.stable_group(2)
    world.leave(a)
    assert world.heartbeat(b, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = world.answers[world.join(b)]
    assert (joined.generation_id, joined.leader) == (3, b)


def test_a_member_that_leaves_while_it_waits_is_answered_too() -> None:
    world = World()
    a, b = world.stable_group(2)
    ticket = world.join(a)
    world.leave(a)
    assert world.answers[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    world.join(b)
    waiting = world.new_member()[1]
    world.join(b)
    assert waiting in world.answers
    follower = world.sync(world.answers[waiting].member_id, 4)
    world.leave(world.answers[waiting].member_id)
    assert world.answers[follower].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_with_an_unknown_id_or_group_is_told_per_member() -> None:
    world = World()
    (a,) = world.stable_group(1)
    answer = world.leave("nobody", a)
    assert answer is not None
    assert [m.error_code for m in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    answer = world.leave("nobody", group_id="nowhere")
    assert answer is not None and answer.error_code == ErrorCode.NONE
    assert [m.error_code for m in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_given_out_id_can_leave_without_a_rebalance() -> None:
    world = World()
    world.stable_group(1)
    pending = world.answers[world.join()].member_id
    answer = world.leave(pending)
    assert answer is not None and answer.members[0].error_code == ErrorCode.NONE
    assert world.state() is GroupState.STABLE


def test_the_protocol_with_most_votes_among_the_common_ones_is_chosen() -> None:
    world = World(DELAYED)
    for order in (("roundrobin", "range"), ("range", "roundrobin"), ("range", "sticky", "roundrobin")):
        _, ticket = world.new_member(protocols={name: subscription("t") for name in order})
    world.advance(20_000)
    assert world.answers[ticket].protocol_name == "range"


def test_a_member_without_a_common_protocol_or_of_another_type_is_refused() -> None:
    world = World()
    world.stable_group(1)
    refused = world.answers[world.join(protocols={"sticky": b""})]
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = world.answers[world.join(protocol_type="connect")]
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for ticket in (world.join(group_id="new", protocol_type=""), world.join(group_id="new", protocols={})):
        refused = world.answers[ticket]
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.state("new") is GroupState.DEAD


def test_groups_of_another_protocol_type_work_like_those_of_consumers() -> None:
    world = World()
    a, ticket = world.new_member(protocol_type="connect", protocols={"sessioned": b"\xff\xfe"})
    assert world.answers[ticket].protocol_type == "connect"
    done = world.sync(a, 1, {a: b"tasks"}, protocol="sessioned", protocol_type="connect")
    assert world.answers[done].assignment == b"tasks"
    assert world.shard.groups[GROUP].subscribed is None


def test_the_size_of_a_group_is_limited() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    a, b = world.stable_group(2)
    assert world.answers[world.join()].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.join(a)
    ticket = world.join(b)
    assert world.answers[ticket].generation_id == 3


def test_a_group_that_is_too_big_after_the_limit_was_lowered_lets_the_last_to_join_go() -> None:
    world = World()
    members = world.stable_group(3)
    world.shard.config = GroupConfig(initial_rebalance_delay_ms=0, max_size=2)
    tickets = [world.join(member) for member in members]
    assert world.answers[tickets[2]].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {world.answers[t].generation_id for t in tickets[:2]} == {4}


def test_what_the_members_of_all_groups_bring_is_limited_and_a_client_comes_again_when_there_is_room() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0, members_max_bytes=2 * MEMBER_BYTES + 10_000))
    large = {"range": b"x" * 9_000}
    a, _ = world.new_member(protocols=large)
    b = world.answers[world.join(group_id="small", instance="one")].member_id
    for _ in range(3):
        assert world.answers[world.join(protocols=large, group_id="other")].error_code == (
            ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
    assert world.answers[world.join(b, group_id="small", instance="one", protocols=large)].error_code == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    assert sum("takes no member" in note for note in world.notes) == 1
    assert set(world.shard.groups) == {GROUP, "small"}
    # Who brings no more than it has is not in the way of its own group.
    assert world.answers[world.join(a, protocols=large)].error_code == ErrorCode.NONE
    assert world.answers[world.join(group_id="small", instance="one")].error_code == ErrorCode.NONE
    world.leave(a)
    world.new_member(protocols=large, group_id="other")
    assert world.restarted().shard.memory.used <= world.shard.memory.used
    world.unload()
    assert world.shard.memory.used == 0


def test_all_that_a_client_calls_itself_counts_among_what_members_bring() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0, members_max_bytes=2 * MEMBER_BYTES + 10_000))
    for said in ({"client_id": "x" * 20_000, "version": 3}, {"instance": "x" * 20_000}):
        assert world.answers[world.join(**said)].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.answers[world.join(instance="x" * 9_000)].error_code == ErrorCode.NONE
    assert world.answers[world.join(instance="y" * 9_000)].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.unload()
    assert world.shard.memory.used == 0


def test_assignments_count_too_and_a_leader_whose_plan_does_not_fit_comes_again() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0, members_max_bytes=MEMBER_BYTES + 10_000))
    member, joining = world.new_member()
    generation = world.answers[joining].generation_id
    refused = world.sync(member, generation, {member: b"x" * 20_000})
    assert world.answers[refused].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert any("takes no member" in note for note in world.notes)
    taken = world.sync(member, generation, {member: b"x" * 9_000})
    assert world.answers[taken].assignment == b"x" * 9_000
    assert 9_000 < world.shard.memory.used <= MEMBER_BYTES + 10_000
    assert world.restarted().shard.memory.used == world.shard.memory.used
    world.leave(member)
    assert world.shard.memory.used == 0


def test_member_ids_that_nobody_joins_with_count_too() -> None:
    world = World(GroupConfig(members_max_bytes=10 * MEMBER_BYTES))
    answers = [world.answers[world.join(group_id=f"group {number}")].error_code for number in range(20)]
    given = answers.count(ErrorCode.MEMBER_ID_REQUIRED)
    assert 5 <= given <= 10 and set(answers[given:]) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    world.advance(10_000)
    assert world.shard.memory.used == 0 and not world.shard.groups
    assert world.answers[world.join()].error_code == ErrorCode.MEMBER_ID_REQUIRED
    world.unload()
    assert world.shard.memory.used == 0


def test_session_time_outs_out_of_bounds_and_empty_group_ids_are_refused() -> None:
    world = World()
    assert world.answers[world.join(session_timeout_ms=5_999)].error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert world.answers[world.join(session_timeout_ms=1_800_001)].error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert world.answers[world.join(group_id="")].error_code == ErrorCode.INVALID_GROUP_ID
    assert world.answers[world.sync("m", 1, group_id="")].error_code == ErrorCode.INVALID_GROUP_ID
    assert world.heartbeat("m", 1, group_id="") is ErrorCode.INVALID_GROUP_ID


def test_strangers_and_members_of_other_generations_are_told_so() -> None:
    world = World()
    (a,) = world.stable_group(1)
    assert world.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(a, 7) is ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat(a, 1, group_id="nowhere") is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.answers[world.sync("stranger", 1)].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.answers[world.sync(a, 7)].error_code == ErrorCode.ILLEGAL_GENERATION
    assert world.answers[world.sync(a, 1, group_id="nowhere")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.answers[world.sync(a, 1, protocol="sticky")].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.answers[world.sync(a, 1, protocol=None)].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.answers[world.sync(a, 1, protocol=None, version=4)].error_code == ErrorCode.NONE
    assert world.answers[world.join("stranger")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.answers[world.join("stranger", group_id="nowhere")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.state("nowhere") is GroupState.DEAD
