"""Links between simulated hosts: how long they take, what they lose, and when they are cut.

A link is one direction between two nodes. What is lost on it is sent again by TCP, so a program sees a late byte, a
stalled connection or, after long, a broken one; never a missing or a swapped byte. A cut link holds everything back
until it heals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from zlib import crc32

from raftlog.linearizability.simulator.machine.loop import Scheduler
from raftlog.linearizability.simulator.machine.trace import Trace


@dataclass(slots=True)
class Delays:
    """What a link does to what it carries; seconds and probabilities.

    Nearly all takes between `low` and `high`, most of it near `low`; with probability `lost` it is lost and sent
    again after `again`; with probability `split` a piece arrives in two.
    """

    low: float = 0.000_05
    high: float = 0.000_5
    lost: float = 0.0
    again: float = 0.2
    split: float = 0.02

    def draw(self, random: Random) -> float:
        """How long one piece takes."""
        delay = self.low + (self.high - self.low) * random.random() ** 3
        while self.lost and random.random() < self.lost:
            delay += self.again * (0.5 + random.random())
        return delay


@dataclass(slots=True)
class Link:
    """One direction between two nodes. `stalled`: how what it holds back is told when it goes on."""

    delays: Delays
    cut_since: float | None = None
    stalled: list[Callable[[float], None]] = field(default_factory=list)


class Links:
    """All links. Nodes are numbers; `down` holds those without power."""

    def __init__(self, scheduler: Scheduler, random: Random, trace: Trace, delays: Delays) -> None:
        self.scheduler = scheduler
        self.random = random
        self.trace = trace
        self.delays = delays
        self.links: dict[tuple[int, int], Link] = {}
        self.down: dict[int, bool] = {}
        self.unacknowledged_seconds_max = 10.0

    def link(self, source: int, target: int) -> Link:
        """The link from one node to another."""
        found = self.links.get((source, target))
        if found is None:
            found = self.links[source, target] = Link(self.delays)
        return found

    def cut(self, source: int, target: int) -> None:
        """Let nothing through from one node to another; the other direction is a link of its own."""
        link = self.link(source, target)
        if link.cut_since is None:
            link.cut_since = self.scheduler.now

    def heal(self, source: int, target: int) -> None:
        """What was held back arrives as TCP sends it again."""
        link = self.link(source, target)
        if link.cut_since is None:
            return
        lasted = self.scheduler.now - link.cut_since
        link.cut_since = None
        self._resend(link, lasted)

    def heal_all(self) -> None:
        """No link is cut any more."""
        for source, target in sorted(self.links):
            self.heal(source, target)

    def _resend(self, link: Link, lasted: float) -> None:
        stalled, link.stalled = link.stalled, []
        for resume in stalled:
            # TCP doubles its patience with each try: the longer it lasted, the later it notices that all is well.
            resume(self.scheduler.now + self.random.random() * min(max(lasted, 0.2), 3.0))

    def power(self, node: int, *, on: bool) -> None:
        """A host without power neither sends nor answers; with it again, it answers old connections with resets."""
        if not on:
            self.down[node] = True
            return
        self.down.pop(node, None)
        for ends, link in sorted(self.links.items()):
            if node in ends and link.cut_since is None:
                self._resend(link, 1.0)

    def blocked(self, source: int, target: int) -> bool:
        """Whether nothing comes through just now."""
        if target in self.down or source in self.down:
            return True
        link = self.links.get((source, target))
        return link is not None and link.cut_since is not None

    def sent(self, source: int, target: int, data: bytes) -> None:
        """Note what is sent."""
        self.trace.add(self.scheduler.now, "send", source, target, len(data), crc32(data))
