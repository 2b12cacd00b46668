"""What a broker asks of the leader of the metadata quorum, and how the leader answers.

A request is `[kind, body, …]`, an answer `[the leader's log index, body, …]`, both msgpack. The index lets the asker
wait until it has replayed what the answer is about.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar, assert_never

import msgpack

from raftlog.broker.runtime.clock_check import NodeClock
from raftlog.metadata.command_codec import (
    MalformedCommand,
    decode_answer,
    decode_command,
    encode_answer,
    encode_command,
)
from raftlog.metadata.commands import Command
from raftlog.raft.seam import MetadataLog, NotLeader, ProposalFailed, QuorumMember, QuorumStatus

R = TypeVar("R")

CHANGE_VOTERS_SECONDS_MAX = 60.0
"""A new voter has to catch up before it votes."""

ASK_SECONDS_MAX = 5.0


class Request(IntEnum):
    """What is asked. A number is never given to another request."""

    COMMAND = 1
    QUORUM_STATUS = 2
    ADD_VOTER = 3
    REMOVE_VOTER = 4
    TRANSFER_LEADERSHIP = 5
    CLOCK = 6


class CommandResult(NamedTuple):
    """An answer, and the entry up to which the asker has to replay before it looks at the image."""

    log_index: int
    answer: Any


class Forwarding:
    """Both ends: asks the leader, and answers when this node leads."""

    def __init__(self, log: MetadataLog, execute: Callable[[Command[Any]], Awaitable[Any]]) -> None:
        """`execute` decides and commits a command here. Raises NotLeader and ProposalFailed."""
        self._log = log
        self._execute = execute
        self.own_clock: Callable[[], NodeClock] = lambda: NodeClock(log.node_id, 0)
        log.on_request(self._answer)

    # -- asking ------------------------------------------------------------------------------------

    async def command(self, command: Command[Any], timeout_seconds: float) -> CommandResult:
        """The leader's answer to a command. Raises NotLeader, ProposalFailed."""
        index, body = await self._ask(timeout_seconds, Request.COMMAND, encode_command(command))
        try:
            return CommandResult(index, decode_answer(body, command))
        except MalformedCommand as error:
            # The command may well have been carried out.
            text = f"the leader {self._log.leader_id} answers otherwise than expected: {error}"
            raise ProposalFailed(text, outcome_unknown=True) from error

    async def quorum_status(self) -> QuorumStatus:
        """The quorum as its leader sees it. Raises NotLeader, ProposalFailed."""
        if self._log.is_leader:
            return self._log.status()
        _, *fields = await self._ask(ASK_SECONDS_MAX, Request.QUORUM_STATUS)
        node_id, leader_id, term, committed, last, voters, observers = fields
        members = [tuple(QuorumMember(*member) for member in group) for group in (voters, observers)]
        return QuorumStatus(node_id, leader_id, term, committed, last, members[0], members[1])

    async def add_voter(self, node_id: int, host: str, port: int) -> None:
        """Give an observer a vote. Raises NotLeader, ProposalFailed."""
        await self._ask(CHANGE_VOTERS_SECONDS_MAX, Request.ADD_VOTER, node_id, host, port)

    async def remove_voter(self, node_id: int) -> None:
        """Take a node's vote. Raises NotLeader, ProposalFailed."""
        await self._ask(CHANGE_VOTERS_SECONDS_MAX, Request.REMOVE_VOTER, node_id)

    async def transfer_leadership(self, to: int | None) -> int:
        """Make another voter the leader. Raises NotLeader, ProposalFailed."""
        _, leader_id = await self._ask(ASK_SECONDS_MAX, Request.TRANSFER_LEADERSHIP, to)
        return int(leader_id)

    async def leaders_clock(self) -> NodeClock:
        """What the leader says of itself. Raises NotLeader, ProposalFailed."""
        if self._log.is_leader:
            return self.own_clock()
        _, *fields = await self._ask(ASK_SECONDS_MAX, Request.CLOCK)
        # A newer leader may say more.
        return NodeClock(*map(int, fields[: len(NodeClock._fields)]))

    async def _ask(self, timeout_seconds: float, kind: Request, *parts: Any) -> tuple[Any, ...]:
        data = await self._log.ask_leader(msgpack.packb((kind, *parts)), timeout_seconds)
        try:
            index, *answer = msgpack.unpackb(data, use_list=False)
            if index is None:
                raise ProposalFailed(str(answer[0]), outcome_unknown=False)
            return (int(index), *answer)
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise ProposalFailed(f"the leader's answer cannot be read: {error}", outcome_unknown=True) from error

    # -- answering ---------------------------------------------------------------------------------

    async def _answer(self, node_id: int, payload: bytes) -> bytes:
        if not self._log.is_leader:
            raise NotLeader(self._log.leader_id)
        try:
            kind, arguments = _parse(payload)
        except (MalformedCommand, ValueError, TypeError, OverflowError, msgpack.exceptions.UnpackException) as error:
            text = f"the leader of the quorum cannot read what node {node_id} asks: {error}"
            return bytes(msgpack.packb((None, text)))
        answer = await self._execute_request(kind, arguments)
        return bytes(msgpack.packb((self._log.committed_index, *answer)))

    async def _execute_request(self, kind: Request, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        match kind:
            case Request.COMMAND:
                return (encode_answer(await self._execute(*arguments)),)
            case Request.QUORUM_STATUS:
                status = self._log.status()
                return (
                    *(status.node_id, status.leader_id, status.term, status.committed_index, status.last_index),
                    [dataclasses.astuple(member) for member in status.voters],
                    [dataclasses.astuple(member) for member in status.observers],
                )
            case Request.ADD_VOTER:
                await self._log.add_voter(*arguments)
            case Request.REMOVE_VOTER:
                await self._log.remove_voter(*arguments)
            case Request.CLOCK:
                return self.own_clock()
            case Request.TRANSFER_LEADERSHIP:
                return (await self._log.transfer_leadership(*arguments),)
            case _:
                assert_never(kind)
        return ()


def _parse(payload: bytes) -> tuple[Request, tuple[Any, ...]]:
    """The request and its arguments, of the right number and types. Raises MalformedCommand, ValueError, TypeError,
    OverflowError.
    """
    number, *parts = msgpack.unpackb(payload, use_list=False)
    kind = Request(number)
    match kind:
        case Request.COMMAND:
            (body,) = parts
            return kind, (decode_command(body),)
        case Request.QUORUM_STATUS | Request.CLOCK:
            return kind, ()
        case Request.ADD_VOTER:
            node_id, host, port = parts
            return kind, (int(node_id), str(host), int(port))
        case Request.REMOVE_VOTER:
            (node_id,) = parts
            return kind, (int(node_id),)
        case Request.TRANSFER_LEADERSHIP:
            (to,) = parts
            return kind, (None if to is None else int(to),)
        case _:
            assert_never(kind)
