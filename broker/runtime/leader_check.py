"""Whether this broker has what all have to have alike as the broker has it that leads the quorum.

*The clock*: retention, time-outs of transactions and the times of records go by each broker's own: one that is an hour
off deletes an hour too early, or stamps records with a time that has not come. *min.insync.replicas* in a broker's
file: the leader of the quorum counts by its own who may be elected, a partition's leader commits by its own.

Nothing in the cluster's own workings stops for either, so it is told and not refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from raftlog.raft.seam import ProposalFailed

log = logging.getLogger("raftlog.check")

DIFFERENCE_SECONDS_MAX = 10.0
"""Machines that set their clocks by the network differ by milliseconds."""

CHECK_SECONDS = 600.0


class NodeFacts(NamedTuple):
    """What a broker says of itself: its clock in milliseconds, min.insync.replicas in its file (0: not told)."""

    node_id: int
    now_ms: int
    min_insync_replicas: int = 0


class LeaderCheck:
    """Compares when it begins, and every ten minutes."""

    def __init__(
        self,
        own: Callable[[], NodeFacts],
        leaders: Callable[[], Awaitable[NodeFacts]],
        steady: Callable[[], float],
    ) -> None:
        """`leaders` raises ProposalFailed when there is none; `steady`: seconds that never jump."""
        self._own = own
        self._leaders = leaders
        self._steady = steady
        self._warned_of_min_isr = 0

    async def run(self) -> None:
        """For as long as the broker runs."""
        while True:
            await self.compare()
            await asyncio.sleep(CHECK_SECONDS)

    async def compare(self) -> None:
        """Ask, and warn of what differs; nothing happens while nobody leads."""
        began = self._steady()
        try:
            theirs = await self._leaders()
        except ProposalFailed:
            return
        own = self._own()
        self._compare_clocks(own, theirs, self._steady() - began)
        self._compare_min_isr(own, theirs)

    def _compare_clocks(self, own: NodeFacts, theirs: NodeFacts, seconds: float) -> None:
        # The leader looked at its clock at some moment between question and answer.
        doubt = seconds / 2
        ahead = (own.now_ms - theirs.now_ms) / 1000 - doubt
        if abs(ahead) - doubt > DIFFERENCE_SECONDS_MAX:
            log.warning(
                "the clock of this machine is %.0f s %s that of broker %d, which leads the quorum: records are"
                " deleted and stamped by the clock; let NTP set it on every machine",
                abs(ahead),
                "ahead of" if ahead > 0 else "behind",
                theirs.node_id,
            )

    def _compare_min_isr(self, own: NodeFacts, theirs: NodeFacts) -> None:
        wanted = theirs.min_insync_replicas
        if 0 in (wanted, own.min_insync_replicas) or wanted in (own.min_insync_replicas, self._warned_of_min_isr):
            return
        self._warned_of_min_isr = wanted
        log.warning(
            "min.insync.replicas is %d in the settings of this broker and %d in those of broker %d, which leads the"
            " quorum: give all brokers the same, or set it for the cluster with `raftlog config set --broker default`",
            own.min_insync_replicas,
            wanted,
            theirs.node_id,
        )
