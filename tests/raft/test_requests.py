"""Requests to the leader's application, over a connection that outlives the process that asked."""

from __future__ import annotations

import asyncio
from typing import Any

from raftlog.raft.channel import Kind
from raftlog.raft.requests import Requests

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
