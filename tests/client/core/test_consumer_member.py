"""A member of the consumer protocol (KIP-848) without I/O."""

from __future__ import annotations

import pytest

from raftlog.client.core.consumer_member import ConsumerMember
from raftlog.client.core.errors import TimedOut
from raftlog.client.core.membership import Assign, Lose, Revoke, Send
from raftlog.client.core.settings import ConsumerSettings
from raftlog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from raftlog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponseTopicPartitions as AssignmentTopicPartitions,
)


def test_a_member_that_hears_nothing_for_a_session_keeps_what_it_has() -> None:
    """It is the coordinator's to fence it, with another epoch."""
    settings = ConsumerSettings(session_timeout=1.0)
    member = ConsumerMember("g", settings, frozenset({"t"}), member_id="m", names={}, ids={})
    member.owned = frozenset({("t", 0)})
    member.answered(ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=4, heartbeat_interval_ms=100), 0.0)
    member.unanswered(TimedOut("nobody"), 60.0)
    member.check_invariants()
    assert (member.generation, member.owned) == (4, frozenset({("t", 0)}))
    told = [member.next(70.0 + step) for step in range(2)]
    assert isinstance(told[0], Send) and not any(isinstance(each, Lose) for each in told)


def test_an_answer_from_before_a_member_was_thrown_out_is_answered_to_nobody() -> None:
    """It would have the epoch of who owns partitions, and own none, for ever."""
    member = ConsumerMember("g", ConsumerSettings(), frozenset({"t"}), member_id="m", names={}, ids={})
    assert isinstance(member.next(0.0), Send)
    member.answered(ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=4, heartbeat_interval_ms=100), 0.0)
    assert isinstance(member.next(1.0), Send)
    member.fenced()  # as a commit was told
    member.answered(ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=4, heartbeat_interval_ms=100), 1.1)
    again = member.next(1.2)
    assert isinstance(again, Send) and isinstance(again.request, ConsumerGroupHeartbeatRequest)
    assert again.request.member_epoch == 0 and again.request.subscribed_topic_names == ["t"]


def test_what_is_to_be_given_up_is_owned_until_it_is() -> None:
    """Whatever order answers, hand-overs and losses come in."""
    topic_id = b"t" * 16
    member = ConsumerMember(
        "g", ConsumerSettings(), frozenset({"t"}), member_id="m", names={topic_id: "t"}, ids={"t": topic_id}
    )

    def told(epoch: int, partitions: list[int] | None) -> list[object]:
        shares = [AssignmentTopicPartitions(topic_id=topic_id, partitions=partitions or [])]
        assignment = None if partitions is None else Assignment(topic_partitions=shares)
        member.answered(
            ConsumerGroupHeartbeatResponse(
                member_id="m", member_epoch=epoch, heartbeat_interval_ms=100, assignment=assignment
            ),
            0.0,
        )
        actions: list[object] = []
        for _ in range(3):
            actions.append(member.next(0.0))
            member.check_invariants()
        return actions

    assert any(isinstance(each, Assign) for each in told(1, [0, 1]))
    assert Revoke(frozenset({("t", 1)})) in told(2, [0])
    member.fenced()
    member.check_invariants()
    member.revoked()  # the hand-over ends after it was thrown out
    member.check_invariants()
    assert member.owned == frozenset()


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("static", -2)])
def test_a_member_that_leaves_before_it_is_answered_says_so(instance: str | None, epoch: int) -> None:
    """The coordinator may have let it in, and would keep partitions for it until its session is over."""
    settings = ConsumerSettings(group_instance_id=instance)
    member = ConsumerMember("g", settings, frozenset({"t"}), member_id="m", names={}, ids={})
    assert isinstance(member.next(0.0), Send)
    farewell = member.leave()
    assert farewell is not None and isinstance(farewell.request, ConsumerGroupHeartbeatRequest)
    assert (farewell.request.member_id, farewell.request.member_epoch) == ("m", epoch)
    assert member.leave() is None
    assert ConsumerMember("g", settings, frozenset({"t"}), member_id="m", names={}, ids={}).leave() is None


def test_an_assignment_is_acknowledged_with_what_the_member_has_though_that_is_the_same() -> None:
    """The coordinator asked it to give up what it had not taken up yet, and waits for its word."""
    member = ConsumerMember("g", ConsumerSettings(), frozenset({"t"}), member_id="m", names={}, ids={})
    said: list[object] = []
    for step in range(6):
        action = member.next(float(step))
        if isinstance(action, Send) and isinstance(action.request, ConsumerGroupHeartbeatRequest):
            said.append(action.request.topic_partitions)
            # Of those who are told nothing new, the first has just joined.
            assignment = Assignment(topic_partitions=[]) if len(said) in (1, 3) else None
            member.answered(
                ConsumerGroupHeartbeatResponse(
                    member_id="m", member_epoch=1, heartbeat_interval_ms=100, assignment=assignment
                ),
                float(step),
            )
    assert said == [[], [], None, []]
