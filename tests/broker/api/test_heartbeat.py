"""Heartbeats: who is answered at once, and who when there is news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

import pytest

from raftlog.broker.api import heartbeat
from raftlog.broker.runtime import group_host, held_heartbeats
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.broker.runtime.coordinator_world import (
    NODE,
    PARTITIONS,
    Machine,
    image_of,
    offsets_topic,
    running,
    settled,
    turns_pass,
)

PATIENT = "confluent-kafka-python 2.16.1-rdkafka-2.16.0"
OURS = "raftlog-client 0.1.0"
OTHERS = ("apache-kafka-java 4.3.1", "KafkaJS 2.2.4", "")


class Beat:
    """A heartbeat that a client with a connection has sent."""

    def __init__(self, machine: Machine, member_id: str, generation: int, software: str = PATIENT) -> None:
        self._answers: list[HeartbeatResponse] = []
        self.when_early: Callable[[], None] | None = None
        self.can_be_early = True
        self.services = SimpleNamespace(groups=machine.coordinator)
        self.connection = SimpleNamespace(software=software)
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
        heartbeat.handle(self, request)  # type: ignore[arg-type]

    def respond(self, response: HeartbeatResponse) -> None:
        self._answers.append(response)

    @property
    def answer(self) -> ErrorCode | None:
        if not self._answers:
            return None
        (answer,) = self._answers
        return ErrorCode(answer.error_code)


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    async with running(Machine()) as made:
        yield made


async def stable(machine: Machine) -> tuple[str, str]:
    """The ids of a group's two members, which have their assignments of generation 2."""
    first = machine.join().member_id
    joining = asyncio.ensure_future(machine.join())
    await turns_pass()
    await settled(machine.join(first))
    second = (await joining).member_id
    for member in (first, second):
        await settled(machine.sync(member, 2))
    return first, second


@pytest.mark.parametrize("patient", [PATIENT, OURS])
async def test_who_goes_on_meanwhile_hears_at_once_that_it_has_to_join_again(machine: Machine, patient: str) -> None:
    first, _ = await stable(machine)
    beats = [Beat(machine, first, 2, patient), *(Beat(machine, first, 2, software) for software in OTHERS)]
    assert [beat.answer for beat in beats] == [None, *[ErrorCode.NONE] * len(OTHERS)]
    joining = asyncio.ensure_future(machine.join())
    await turns_pass()
    assert beats[0].answer is ErrorCode.REBALANCE_IN_PROGRESS
    joining.cancel()


async def test_those_who_leave_together_commit_before_they_hear_of_each_other(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has joined again by then could not. librdkafka joins while it is closed and commits what it has done."""
    monkeypatch.setattr(group_host, "AFTER_LEAVE_SECONDS", 0.01)
    first, second = await stable(machine)
    beat = Beat(machine, first, 2)
    machine.leave(second)
    assert beat.answer is None
    async with asyncio.timeout(5):
        while beat.answer is None:
            await asyncio.sleep(0)
    assert beat.answer is ErrorCode.REBALANCE_IN_PROGRESS


async def test_who_is_put_out_of_the_group_hears_it_at_once(machine: Machine) -> None:
    _, second = await stable(machine)
    beat = Beat(machine, second, 2)
    machine.leave(second)  # an operator may
    assert beat.answer is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_has_one_heartbeat_that_waits(machine: Machine) -> None:
    first, _ = await stable(machine)
    earlier, later = Beat(machine, first, 2), Beat(machine, first, 2)
    assert (earlier.answer, later.answer) == (ErrorCode.NONE, None)
    joining = asyncio.ensure_future(machine.join())
    await turns_pass()
    assert later.answer is ErrorCode.REBALANCE_IN_PROGRESS
    joining.cancel()


async def test_what_a_later_response_would_wait_for_is_answered(machine: Machine) -> None:
    first, second = await stable(machine)
    beat = Beat(machine, first, 2)
    assert beat.when_early is not None
    beat.when_early()
    assert beat.answer is ErrorCode.NONE
    machine.leave(second)


async def test_without_news_it_is_answered_in_time(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_heartbeats, "HOLD_SECONDS_MAX", 0.01)
    first, _ = await stable(machine)
    beat = Beat(machine, first, 2)
    assert beat.answer is None
    async with asyncio.timeout(5):
        while beat.answer is None:
            await asyncio.sleep(0)
    assert beat.answer is ErrorCode.NONE


async def test_the_session_of_who_waits_ends_as_if_it_had_been_answered_at_once(machine: Machine) -> None:
    first, _ = await stable(machine)
    beat = Beat(machine, first, 2)
    (host,) = machine.coordinator.hosts.values()
    timer = host.shard.classic("g").members[first].session
    deadline = timer.deadline_ms
    assert beat.when_early is not None
    beat.when_early()
    assert timer.deadline_ms == deadline


async def test_members_of_a_coordinator_that_is_one_no_more_are_sent_away(machine: Machine) -> None:
    first, _ = await stable(machine)
    beat = Beat(machine, first, 2)
    machine.change(image_of(offsets_topic([NODE + 1] * PARTITIONS, epoch=1)))
    assert beat.answer is ErrorCode.NOT_COORDINATOR
