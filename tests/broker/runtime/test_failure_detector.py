"""Lost contact: a dead broker is not called a leader once more, and one that is cut off lets its clients go."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from raftlog.broker.runtime.failure_detector import (
    CATCH_UP_SECONDS,
    CUT_OFF_SECONDS,
    LOOK_SECONDS,
    PEER_SILENCE_SECONDS_MAX,
    SILENCE_SECONDS_MAX,
    STALL_SECONDS,
    SUSPICION_SECONDS_MAX,
    TOGETHER_SECONDS,
    PeerSilence,
    QuorumWatch,
    Suspects,
)
from raftlog.metadata.commands import NewTopic
from raftlog.raft.seam import QuorumMember, QuorumStatus
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.runtime.admin_world import AdminWorld, versions
from tests.broker.runtime.manual_loop import ManualLoop


def test_a_broker_is_suspected_from_the_loss_of_its_connection_for_a_moment() -> None:
    now = 0.0
    suspects = Suspects(lambda: now)
    assert suspects.current() == frozenset()
    suspects.on_peer(2, False)
    suspects.on_peer(3, False)
    suspects.on_peer(3, True)
    assert suspects.current() == {2}
    now = SUSPICION_SECONDS_MAX
    assert suspects.current() == frozenset()


def test_a_broker_is_suspected_as_soon_as_the_kernel_knows() -> None:
    gone: frozenset[int] = frozenset()
    suspects = Suspects(lambda: 0.0, lambda: gone)
    assert suspects.current() == frozenset()
    gone = frozenset({3})
    assert suspects.current() == {3}
    gone = frozenset()
    assert suspects.current() == {3}, "until it is back, or fenced"
    suspects.on_peer(3, True)
    assert suspects.current() == frozenset()


def test_a_node_is_silent_when_it_was_connected_and_nothing_comes_from_it() -> None:
    def member(node_id: int, silent: float) -> QuorumMember:
        return QuorumMember(node_id, "", 0, -1, silent >= 0, silent, -1.0)

    voters = (member(1, 0.0), member(2, PEER_SILENCE_SECONDS_MAX), member(3, -1.0))
    silence = PeerSilence(lambda: QuorumStatus(1, 1, 1, 0, 0, voters, (member(4, PEER_SILENCE_SECONDS_MAX + 0.1),)))
    assert silence.peers() == {4}, "2 was heard just now, 3 was never connected"
    silence.on_peer(3, True)
    silence.on_peer(3, False)
    assert silence.peers() == {3, 4}
    silence.on_peer(3, True)
    assert silence.peers() == {4}


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
async def test_a_client_is_not_told_that_a_suspect_leads(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.add_broker(2)
        await world.create(NewTopic("t", assignments=((0, (1,)), (1, (2,)))))
        everything = MetadataRequest(topics=[] if version == 0 else None)
        by_name = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        for lost, expected in ((True, [1, -1]), (False, [1, 2])):
            world.suspects.on_peer(2, not lost)
            for request in (everything, by_name):
                response = await world.call(ApiKey.METADATA, request, version)
                (partitions,) = [topic.partitions for topic in response.topics]
                assert [each.leader_id for each in partitions] == expected
                errors = [ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE if lost else ErrorCode.NONE]
                assert [each.error_code for each in partitions] == errors
                assert partitions[1].isr_nodes == [2]


def status(leader_id: int, age: float = 0.0) -> QuorumStatus:
    voters = tuple(QuorumMember(node, "h", 1, 0, True, age, age) for node in (1, 2, 3))
    return QuorumStatus(1, leader_id, 1, 0, 0, voters, ())


def watch_on(
    wheel: ManualLoop,
    now: Callable[[], QuorumStatus],
    disconnect_all: Callable[[str], None] = lambda _reason: None,
    tell_again: Callable[[], None] = lambda: None,
) -> QuorumWatch:
    return QuorumWatch(cast(asyncio.AbstractEventLoop, wheel), now, 4.0, disconnect_all, tell_again)


def test_clients_are_let_go_ever_less_often_while_there_is_no_contact() -> None:
    wheel = ManualLoop()
    now, disconnect_all = status(2), []
    watch = watch_on(wheel, lambda: now, disconnect_all=lambda _reason: disconnect_all.append(wheel.now))
    watch.begin()
    wheel.advance_to(200.0)
    assert not disconnect_all, "the quorum is there"
    now = status(-1)
    wheel.advance_to(700.0)
    moments = [200.0, *disconnect_all]  # since the quorum was in contact last
    assert [after - before for before, after in pairwise(moments)] == [4.0, 4.0, 8.0, 16.0, 32.0] + 7 * [60.0]
    now = status(2)
    wheel.advance_to(800.0)
    assert len(disconnect_all) == 12, "the quorum is back"
    now = status(-1)
    wheel.advance_to(805.0)
    assert disconnect_all[12:] == [804.0], "and the pauses begin again"
    watch.end()
    wheel.advance_to(2000.0)
    assert len(disconnect_all) == 13


LOST, OWN = -1.0, 0.0


def of_three(leader_id: int, second: float, third: float) -> QuorumStatus:
    ages = {1: OWN, 2: second, 3: third}
    voters = tuple(QuorumMember(node, "h", 1, 0, True, age, age) for node, age in ages.items())
    return QuorumStatus(1, leader_id, 1, 0, 0, voters, ())


@pytest.mark.parametrize(
    "lost",
    [
        of_three(-1, LOST, LOST),
        of_three(-1, LOST, 0.1),
        of_three(1, LOST, LOST),
        dataclasses.replace(of_three(2, 0.1, 0.1), is_writable=False),
    ],
    ids=["all", "leader", "own", "journal"],
)
def test_clients_are_let_go_sooner_when_the_connections_with_the_quorum_have_ended(lost: QuorumStatus) -> None:
    wheel = ManualLoop()
    now, disconnect_all = status(2), []
    watch = watch_on(wheel, lambda: now, disconnect_all=lambda _reason: disconnect_all.append(wheel.now))
    watch.begin()
    wheel.advance_to(200.0)
    now = lost
    wheel.advance_to(215.0)
    first = 200.0 + CUT_OFF_SECONDS
    assert len(disconnect_all) == 2
    assert first <= disconnect_all[0] < first + LOOK_SECONDS
    assert disconnect_all[1] == 208.0, "then as ever"


def test_clients_are_told_again_with_the_first_connection_that_reaches_a_majority() -> None:
    wheel = ManualLoop()
    now, told = status(2), []
    watch = watch_on(wheel, lambda: now, tell_again=lambda: told.append(wheel.now))
    watch.begin()
    now = of_three(-1, LOST, LOST)
    wheel.advance_to(110.0)
    watch.on_peer(2, False)
    watch.on_peer(2, True)
    wheel.advance_to(115.0)
    assert not told, "whoever that was is lost again"
    now = of_three(-1, LOST, OWN)
    watch.on_peer(3, True)
    wheel.advance_to(116.0)
    assert told == [115.0 + TOGETHER_SECONDS], "before it is known who leads"


def test_clients_are_told_again_when_the_quorum_is_heard_over_connections_that_did_not_end() -> None:
    wheel = ManualLoop()
    now, told = status(2), []
    watch = watch_on(wheel, lambda: now, tell_again=lambda: told.append(wheel.now))
    watch.begin()
    now = status(-1)
    wheel.advance_to(120.0)
    assert not told
    now = status(2)
    wheel.advance_to(121.0)
    assert len(told) == 1


def test_a_broker_is_in_contact_when_it_has_heard_the_quorum_for_a_while() -> None:
    wheel = ManualLoop()
    now = status(2)
    watch = watch_on(wheel, lambda: now)
    watch.begin()
    wheel.advance_to(110.0)
    assert watch.is_in_contact()
    for lost in (status(-1), status(2, SILENCE_SECONDS_MAX + 0.1)):
        now = lost
        assert not watch.is_in_contact(), "at once"
        now = status(2)
        assert not watch.is_in_contact(), "what was decided meanwhile is not known yet"
        wheel.advance_to(wheel.now + CATCH_UP_SECONDS + LOOK_SECONDS)
        assert watch.is_in_contact()


def test_a_broker_that_stood_still_is_not_in_contact_though_it_knows_a_leader() -> None:
    wheel = ManualLoop()
    watch = watch_on(wheel, lambda: status(2))
    watch.begin()
    wheel.advance_to(110.0)
    wheel.now += STALL_SECONDS + 0.1  # no timer was called
    assert not watch.is_in_contact()
