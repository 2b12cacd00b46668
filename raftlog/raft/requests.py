"""Requests to the leader's application and their answers: asked on any node, carried out once, on the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from raftlog.raft.channel import Kind
from raftlog.raft.core.errors import PeerViolation
from raftlog.raft.seam import NotLeader, ProposalFailed, RequestHandler

REQUESTS_MAX = 10_000
"""Requests of others that are being answered, or wait until this node may decide."""
REQUEST_BYTES_MAX = 32 * 1024 * 1024
DEPOSED_SECONDS_MAX = 0.5
"""A leader that hands over answers at once; one that was replaced may stand still, and holds its connections."""

ASK_AGAIN_SECONDS = 0.25
"""A leader that could not hand over leads on, and nobody is told."""

ANSWERED, NOT_LEADER, FAILED = 0, 1, 2


class Quorum(Protocol):
    """What is asked of the quorum."""

    @property
    def node_id(self) -> int:
        """This node."""

    @property
    def leader_id(self) -> int:
        """The leader, or -1."""

    @property
    def is_leader(self) -> bool:
        """Whether this node may decide."""


class Requests:
    """Both sides of `ask_leader`."""

    def __init__(self, quorum: Quorum, send: Callable[..., bool], incarnation: int) -> None:
        """`send(node_id, kind, *values)`: whether there is a connection. `incarnation`: random for each start."""
        self._quorum = quorum
        self._send = send
        self._handler: RequestHandler | None = None
        # The leader may still be answering what this node asked before it was started again: no number comes twice.
        self._number = incarnation
        self._asked: dict[int, tuple[int, asyncio.Future[Sequence[Any]]]] = {}
        # Of them, those whose leader leads no more: they wait only a moment longer.
        self._given_up: set[int] = set()
        self._changes: list[asyncio.Future[None]] = []
        self._changes_seen = 0
        self._held: list[tuple[int, int, bytes]] = []
        self._answering: dict[tuple[int, int], asyncio.Task[None]] = {}

    def handle_with(self, handler: RequestHandler) -> None:
        """Answer requests with this."""
        self._handler = handler

    def close(self) -> None:
        """Nobody is answered any more, and nobody waits."""
        for task in self._answering.values():
            task.cancel()
        for _, waiting in self._asked.values():
            _fail(waiting, "this node stops")
        self.changed()

    # -- asking ------------------------------------------------------------------------------------

    async def ask(self, payload: bytes, timeout_seconds: float) -> bytes:
        """See MetadataLog.ask_leader."""
        if len(payload) > REQUEST_BYTES_MAX:
            raise ProposalFailed(f"a request of {len(payload)} bytes is too large", outcome_unknown=False)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while True:
            left = deadline - loop.time()
            if left <= 0:
                raise NotLeader(self._quorum.leader_id)
            if self._quorum.is_leader:
                return await self._ask_itself(payload, left)
            changes = self._changes_seen
            answer = await self._ask_other(payload, left)
            if answer is not None:
                return answer
            if changes == self._changes_seen:
                await self._wait_for_change(min(deadline - loop.time(), ASK_AGAIN_SECONDS))

    async def _ask_itself(self, payload: bytes, left: float) -> bytes:
        if self._handler is None:
            raise ProposalFailed("nobody answers requests on this node", outcome_unknown=False)
        try:
            async with asyncio.timeout(left):
                return await _run(self._handler, self._quorum.node_id, payload)
        except TimeoutError as error:
            raise ProposalFailed("the request was not carried out in time", outcome_unknown=True) from error

    async def _ask_other(self, payload: bytes, left: float) -> bytes | None:
        """The leader's answer; None when it was not asked, or said that it does not lead."""
        leader_id = self._quorum.leader_id
        if leader_id in (-1, self._quorum.node_id):
            return None
        self._number += 1
        number = self._number
        waiting: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = (leader_id, waiting)
        try:
            if not self._send(leader_id, Kind.REQUEST, number, payload):
                return None
            async with asyncio.timeout(left):
                status, value, unknown = await waiting
        except TimeoutError as error:
            raise ProposalFailed(f"node {leader_id} did not answer in time", outcome_unknown=True) from error
        finally:
            del self._asked[number]
            self._given_up.discard(number)
        if status == NOT_LEADER:
            return None
        if status == FAILED:
            raise ProposalFailed(str(value), outcome_unknown=bool(unknown))
        return bytes(value)

    async def _wait_for_change(self, left: float) -> None:
        if left <= 0:
            return
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changes.append(change)
        handle = asyncio.get_running_loop().call_later(left, _resolve, change)
        try:
            await change
        finally:
            handle.cancel()

    def changed(self) -> None:
        """Who leads, who is connected, or whether this node may decide has changed."""
        self._changes_seen += 1
        changes, self._changes = self._changes, []
        for change in changes:
            _resolve(change)
        self._give_up_on_deposed()
        if self._quorum.is_leader or self._quorum.leader_id != self._quorum.node_id:
            held, self._held = self._held, []
            for request in held:
                self._begin(*request)

    def _give_up_on_deposed(self) -> None:
        leader_id = self._quorum.leader_id
        for number, (asked, waiting) in self._asked.items():
            if leader_id not in (-1, asked) and number not in self._given_up:
                self._given_up.add(number)
                loop = asyncio.get_running_loop()
                loop.call_later(DEPOSED_SECONDS_MAX, _fail, waiting, f"node {asked} leads no more, and does not answer")

    def on_answer(self, node_id: int, values: Sequence[Any]) -> None:
        """The leader answered. Raises PeerViolation."""
        try:
            number, status, value, unknown = values
        except ValueError as error:
            raise PeerViolation("not an answer") from error
        asked, waiting = self._asked.get(number, (-1, None))
        if asked == node_id and waiting is not None and not waiting.done():
            waiting.set_result((status, value, unknown))

    def peer_lost(self, node_id: int) -> None:
        """Whoever asked this node does not learn what became of it."""
        for asked, waiting in self._asked.values():
            if asked == node_id:
                _fail(waiting, f"the connection with node {node_id} was lost")
        self._held = [request for request in self._held if request[0] != node_id]

    # -- answering ---------------------------------------------------------------------------------

    def on_request(self, node_id: int, values: Sequence[Any]) -> None:
        """A node asks. Raises PeerViolation."""
        try:
            number, payload = values
        except ValueError as error:
            raise PeerViolation("not a request") from error
        if type(number) is not int or type(payload) is not bytes:
            raise PeerViolation("not a request")
        if len(self._answering) + len(self._held) >= REQUESTS_MAX:
            self._send(node_id, Kind.ANSWER, number, FAILED, "the leader has too many requests to answer", False)
        elif self._quorum.leader_id == self._quorum.node_id and not self._quorum.is_leader:
            self._held.append((node_id, number, payload))  # just elected: a moment later it may decide
        else:
            self._begin(node_id, number, payload)

    def _begin(self, node_id: int, number: int, payload: bytes) -> None:
        if not self._quorum.is_leader or self._handler is None:
            self._send(node_id, Kind.ANSWER, number, NOT_LEADER, self._quorum.leader_id, False)
            return
        if (node_id, number) not in self._answering:
            task = asyncio.get_running_loop().create_task(self._answer(self._handler, node_id, number, payload))
            self._answering[node_id, number] = task

    async def _answer(self, handler: RequestHandler, node_id: int, number: int, payload: bytes) -> None:
        answer: tuple[int, Any, bool] = (FAILED, "the request failed on the leader", True)
        try:
            answer = (ANSWERED, await handler(node_id, payload), False)
        except NotLeader as error:
            answer = (NOT_LEADER, error.leader_id, False)
        except ProposalFailed as error:
            answer = (FAILED, str(error), error.outcome_unknown)
        finally:
            self._answering.pop((node_id, number), None)
            self._send(node_id, Kind.ANSWER, number, *answer)


async def _run(handler: RequestHandler, node_id: int, payload: bytes) -> bytes:
    return await handler(node_id, payload)


def _fail(waiting: asyncio.Future[Sequence[Any]], why: str) -> None:
    if not waiting.done():
        waiting.set_exception(ProposalFailed(why, outcome_unknown=True))


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
