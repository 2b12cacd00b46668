"""Whether this machine's clock agrees with that of the broker that leads the quorum.

Retention, time-outs of transactions and the times of records go by each broker's own clock: one that is an hour off
deletes an hour too early, or stamps records with a time that has not come. Nothing in the cluster's own workings needs
clocks that agree, so it is told and not refused. Knows how far clocks may differ; refuses to know how the time is asked
for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from raftlog.raft.seam import ProposalFailed

log = logging.getLogger("raftlog.clock")

DIFFERENCE_SECONDS_MAX = 10.0
"""Machines that set their clocks by the network differ by milliseconds."""

CHECK_SECONDS = 600.0


class ClockCheck:
    """Compares when it begins, and every ten minutes."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        leaders_now_ms: Callable[[], Awaitable[tuple[int, int]]],
        steady: Callable[[], float],
    ) -> None:
        """`leaders_now_ms`: (leader's id, its clock), raising ProposalFailed; `steady`: seconds that never jump."""
        self._now_ms = now_ms
        self._leaders_now_ms = leaders_now_ms
        self._steady = steady

    async def run(self) -> None:
        """For as long as the broker runs."""
        while True:
            await self.compare()
            await asyncio.sleep(CHECK_SECONDS)

    async def compare(self) -> float | None:
        """Seconds that this clock is ahead of the leader's, with a warning when they are too many; None: not known."""
        began = self._steady()
        try:
            leader, theirs_ms = await self._leaders_now_ms()
        except ProposalFailed:
            return None
        # The leader looked at its clock at some moment between question and answer.
        doubt = (self._steady() - began) / 2
        ahead = (self._now_ms() - theirs_ms) / 1000 - doubt
        if abs(ahead) - doubt > DIFFERENCE_SECONDS_MAX:
            log.warning(
                "the clock of this machine is %.0f s %s that of broker %d, which leads the quorum: records are"
                " deleted and stamped by the clock; let NTP set it on every machine",
                abs(ahead),
                "ahead of" if ahead > 0 else "behind",
                leader,
            )
        return ahead
