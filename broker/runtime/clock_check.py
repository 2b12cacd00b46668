"""Whether this machine's clock is that of the broker that leads the quorum.

Retention and the times of records go by each broker's own clock: one that is an hour off deletes an hour too early, or
stamps records with a time that has not come. Nothing in the cluster's own workings stops for that, so it is logged and
not refused.
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


class NodeClock(NamedTuple):
    """What a broker says of its clock: milliseconds since 1970."""

    node_id: int
    now_ms: int


class ClockCheck:
    """Compares when it begins, and every ten minutes."""

    def __init__(
        self,
        own: Callable[[], NodeClock],
        leaders: Callable[[], Awaitable[NodeClock]],
        steady: Callable[[], float],
    ) -> None:
        """`leaders` raises ProposalFailed when there is none; `steady`: seconds that never jump."""
        self._own = own
        self._leaders = leaders
        self._steady = steady

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

    def _compare_clocks(self, own: NodeClock, theirs: NodeClock, seconds: float) -> None:
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
