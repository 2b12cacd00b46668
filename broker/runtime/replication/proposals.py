"""ISR proposals on their way to the controller and back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from raftlog.broker.core.replica.leadership import REFUSALS, Leadership, Reaction
from raftlog.metadata.cluster_commands import AlteredPartition, IsrProposal, PartitionsAltered
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.runtime.partition import Partition

log = logging.getLogger("raftlog.replication")

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.05, 1.0
"""How soon a proposal that found no controller is made again, twice as long each time: an election takes some hundred
milliseconds, a quorum that is lost may take an operator."""

ANSWER_SECONDS_MAX = 10.0
"""A proposal that is not answered within this time is made again: the controller fences it if it was carried out."""

LINES_MAX = 5
"""So many proposals of one turn get a line in the log; thousands travel together when a broker comes back."""

AlterPartitions = Callable[[Sequence[IsrProposal]], Awaitable[PartitionsAltered]]
"""Carries proposals to the controller; results in the order of the proposals."""


class _Outgoing(NamedTuple):
    partition: Partition
    leadership: Leadership
    proposal: IsrProposal
    attempts: int = 0

    @property
    def is_awaited(self) -> bool:
        """Whether the partition is led in the same epoch still, and nothing newer made the proposal pointless."""
        return self.partition.leadership is self.leadership and self.leadership.awaits(self.proposal)


class IsrProposals:
    """All proposals of this broker. One request at a time is under way, and what comes meanwhile travels in the next
    one: ten thousand partitions get their ISRs back in as many changes of the metadata as the quorum has time for.

    `on_answered(partition, refused)` is called when a partition's proposal has been answered; `refused`: the same
    again would be answered the same now.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        monotonic_ms: Callable[[], int],
        alter: AlterPartitions,
        on_answered: Callable[[Partition, bool], None],
    ) -> None:
        self._loop = loop
        self._monotonic_ms = monotonic_ms
        self._on_answered = on_answered
        self._alter = alter
        self._outgoing: list[_Outgoing] = []
        self._under_way: asyncio.Task[None] | None = None
        self._due = False

    def submit(self, partition: Partition, proposal: IsrProposal) -> None:
        """Propose, with what else is proposed in this turn, or until the request that is under way is answered."""
        assert partition.leadership is not None
        self._outgoing.append(_Outgoing(partition, partition.leadership, proposal))
        self._post_soon()

    def _post_soon(self) -> None:
        if self._outgoing and not self._due and self._under_way is None:
            self._due = True
            self._loop.call_soon(self._post)

    def _post(self) -> None:
        self._due = False
        batch, self._outgoing = [outgoing for outgoing in self._outgoing if outgoing.is_awaited], []
        if not batch:
            return
        new = [outgoing for outgoing in batch if not outgoing.attempts]
        for partition, _, proposal, _ in new[:LINES_MAX]:
            isr = ",".join(str(member.broker_id) for member in proposal.isr)
            log.info("partition=%r epoch=%d.%d proposes isr=%s", partition, *proposal[2:4], isr)
        if len(new) > LINES_MAX:
            log.info("proposes the ISRs of %d partitions more", len(new) - LINES_MAX)
        self._under_way = self._loop.create_task(self._carry(batch))
        self._under_way.add_done_callback(self._carried)

    def _carried(self, task: asyncio.Task[None]) -> None:
        self._under_way = None
        if not task.cancelled():
            self._post_soon()

    async def _carry(self, batch: list[_Outgoing]) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                answer = await self._alter([outgoing.proposal for outgoing in batch])
        except TimeoutError:
            answer = PartitionsAltered(ErrorCode.REQUEST_TIMED_OUT)
        again: list[_Outgoing] = []
        if answer.error is not ErrorCode.NONE:
            log.info("%d ISRs not changed: %s", len(batch), answer.error.name)
        for number, outgoing in enumerate(batch):
            if answer.error is ErrorCode.NONE:
                result = answer.results[number]
            else:
                result = AlteredPartition(outgoing.proposal.topic_id, outgoing.proposal.partition_id, answer.error)
            if self._answered(outgoing, result) is Reaction.RETRY:
                again.append(outgoing._replace(attempts=outgoing.attempts + 1))
        if again:
            attempts = min(outgoing.attempts for outgoing in again)
            seconds = min(RETRY_SECONDS_MIN * 2 ** min(attempts - 1, 10), RETRY_SECONDS_MAX)
            self._loop.call_later(seconds, self._repeat, again)

    def _repeat(self, again: list[_Outgoing]) -> None:
        self._outgoing += again
        self._post_soon()

    def _answered(self, outgoing: _Outgoing, result: AlteredPartition) -> Reaction:
        partition, leadership, proposal, _ = outgoing
        if partition.leadership is not leadership:
            return Reaction.DONE
        if result.error is not ErrorCode.NONE:
            log.debug("partition=%r isr not changed: %s", partition, result.error.name)
        reaction = leadership.answered(proposal, result.error, result.state, self._monotonic_ms())
        if reaction is Reaction.DONE:
            self._on_answered(partition, result.error in REFUSALS)
        return reaction

    def close(self) -> None:
        """Nobody waits for answers any more."""
        self._outgoing.clear()
        if self._under_way is not None:
            self._under_way.cancel()
