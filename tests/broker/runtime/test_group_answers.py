"""Thousands of members that wait for one answer each do not keep the event loop: they are told in steps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.broker.runtime import coordinator_runtime, group_host
from raftlog.wire.errors import ErrorCode
from tests.broker.runtime.coordinator_world import Machine, running, settled, turns_pass

AT_ONCE = 3
MEMBERS = 40


@pytest.fixture
async def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(group_host, "ANSWERED_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(coordinator_runtime, "SLICE_STEPS", AT_ONCE)
    async with running(Machine()) as made:
        yield made


async def joining(machine: Machine) -> tuple[str, list[asyncio.Future[Any]]]:
    """The first member, and others that wait until it joins again."""
    first = machine.join().member_id
    others = [asyncio.ensure_future(machine.join()) for _ in range(MEMBERS)]
    await turns_pass()
    assert not any(other.done() for other in others)
    return first, others


async def most_done_in_a_turn(waiting: list[asyncio.Future[Any]]) -> int:
    most = before = 0
    while before < len(waiting):
        await asyncio.sleep(0)
        done = sum(each.done() for each in waiting)
        most, before = max(most, done - before), done
    return most


async def test_the_members_of_a_generation_are_told_of_it_in_steps(machine: Machine) -> None:
    first, others = await joining(machine)
    again = asyncio.ensure_future(settled(machine.join(first)))
    async with asyncio.timeout(10):
        assert await most_done_in_a_turn([again, *others]) <= 2 * AT_ONCE
    answers = [again.result(), *(other.result() for other in others)]
    assert {answer.generation_id for answer in answers} == {2}
    assert [len(answer.members) for answer in answers] == [MEMBERS + 1, *[0] * MEMBERS]


async def test_they_get_their_assignments_in_steps(machine: Machine) -> None:
    first, others = await joining(machine)
    await settled(machine.join(first))
    members = [(await other).member_id for other in others]
    syncs = [asyncio.ensure_future(machine.sync(member, 2)) for member in members]
    await turns_pass()
    assert not any(sync.done() for sync in syncs)
    leaders = asyncio.ensure_future(settled(machine.sync(first, 2)))
    async with asyncio.timeout(10):
        assert await most_done_in_a_turn([leaders, *syncs]) <= 2 * AT_ONCE
    assert leaders.result().assignment == b"plan"
    assert {sync.result().error_code for sync in syncs} == {ErrorCode.NONE}


async def test_an_answer_says_what_was_decided_though_the_group_has_gone_on(machine: Machine) -> None:
    first, others = await joining(machine)
    again = asyncio.ensure_future(settled(machine.join(first)))
    await asyncio.wait([again])
    assert not others[-1].done()
    # Another generation begins before the last ones have heard of this one.
    newcomer = asyncio.ensure_future(machine.join())
    async with asyncio.timeout(10):
        assert {(await other).generation_id for other in others} == {2}
    assert again.result().leader == others[-1].result().leader == first
    newcomer.cancel()


async def test_who_was_not_told_yet_is_told_when_the_coordinator_stops(machine: Machine) -> None:
    first, others = await joining(machine)
    again = asyncio.ensure_future(settled(machine.join(first)))
    await asyncio.wait([again])
    assert not others[-1].done()
    machine.coordinator.stop()
    async with asyncio.timeout(10):
        assert {(await other).generation_id for other in others} == {2}
