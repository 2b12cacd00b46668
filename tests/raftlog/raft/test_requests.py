"""Requests to the leader's application, over a connection that outlives the process that asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.raft import requests
from raftlog.raft.channel import Kind
from raftlog.raft.requests import Requests
from raftlog.raft.seam import NotLeader, ProposalFailed

ASKING, LEADING = 1, 2


class Side:
    """One node as `Requests` sees it; it sends to whoever is the other one now."""

    def __init__(self, node_id: int, incarnation: int) -> None:
        self.node_id = node_id
        self.leader_id = LEADING
        self.is_leader = node_id == LEADING
        self.requests = Requests(self, self.send, incarnation)
        self.other: Side | None = None

    def send(self, _: int, kind: Kind, *values: Any) -> bool:
        assert self.other is not None
        take = self.other.requests.on_request if kind is Kind.REQUEST else self.other.requests.on_answer
        take(self.node_id, values)
        return True


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_node_that_was_started_again_does_not_take_the_answer_to_what_it_asked_before() -> None:
    async def story() -> None:
        leader, before, after = Side(LEADING, 1 << 60), Side(ASKING, 1 << 40), Side(ASKING, 1 << 50)
        waiting: list[tuple[bytes, asyncio.Future[bytes]]] = []

        async def decide(_: int, payload: bytes) -> bytes:
            waiting.append((payload, asyncio.get_running_loop().create_future()))
            return await waiting[-1][1]

        leader.requests.handle_with(decide)
        leader.other, before.other, after.other = before, leader, leader
        old = asyncio.create_task(before.requests.ask(b"old", 20))
        await settle()
        leader.other = after
        new = asyncio.create_task(after.requests.ask(b"new", 20))
        await settle()
        assert [payload for payload, _ in waiting] == [b"old", b"new"]
        for payload, answer in waiting:
            answer.set_result(b"answer to " + payload)
        assert await new == b"answer to new"
        old.cancel()

    asyncio.run(story())


def test_a_stopped_leader_is_not_waited_for_once_another_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process holds its connections: whoever had asked it waited until those were given up."""
    monkeypatch.setattr(requests, "DEPOSED_SECONDS_MAX", 0.0)

    async def story() -> None:
        asking = Side(ASKING, 1 << 40)
        asking.other = Silent()
        asked = asyncio.create_task(asking.requests.ask(b"command", 20))
        await settle()
        asking.leader_id = -1
        asking.requests.changed()
        await settle()
        assert not asked.done(), "nobody else leads yet"
        asking.leader_id = LEADING + 1
        asking.requests.changed()
        with pytest.raises(ProposalFailed, match="leads no more") as failure:
            await asyncio.wait_for(asked, 5)
        assert failure.value.outcome_unknown

    asyncio.run(story())


@pytest.mark.parametrize("told_meanwhile", [True, False])
def test_who_is_told_by_the_leader_that_it_leads_no_more_asks_again(
    told_meanwhile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the change was heard of before that answer came, or nothing changes: a hand-over came to nothing."""
    monkeypatch.setattr(requests, "ASK_AGAIN_SECONDS", 20.0 if told_meanwhile else 0.0)

    async def story() -> None:
        asking, leader = Side(ASKING, 1 << 40), Side(LEADING, 1 << 50)
        asking.other, leader.other = leader, asking
        refused: list[asyncio.Future[None]] = []

        async def decide(_: int, payload: bytes) -> bytes:
            if not refused:
                refused.append(asyncio.get_running_loop().create_future())
                await refused[0]
                raise NotLeader(LEADING)
            return payload

        leader.requests.handle_with(decide)
        asked = asyncio.create_task(asking.requests.ask(b"command", 20))
        await settle()
        if told_meanwhile:
            asking.requests.changed()
        refused[0].set_result(None)
        assert await asyncio.wait_for(asked, 5) == b"command"

    asyncio.run(story())


class Silent(Side):
    """Takes requests and answers none."""

    def __init__(self) -> None:
        super().__init__(LEADING, 1)
        self.is_leader = True

        async def decide(_: int, __: bytes) -> bytes:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

        self.requests.handle_with(decide)


def test_who_is_cancelled_at_the_moment_of_the_answer_is_cancelled() -> None:
    """asyncio.wait_for of Python 3.11 forgets it: a broker whose disk had failed never ended."""

    async def story() -> None:
        leader, asking = Side(LEADING, 1 << 60), Side(ASKING, 1 << 40)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def decide(_: int, payload: bytes) -> bytes:
            return await answer

        leader.requests.handle_with(decide)
        leader.other, asking.other = asking, leader
        waiting = asyncio.create_task(asking.requests.ask(b"ask", 20))
        await settle()
        (_, asked), *others = asking.requests._asked.values()
        assert not others
        asked.set_result((0, b"answer", False))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        answer.cancel()
        await settle()

    asyncio.run(story())
