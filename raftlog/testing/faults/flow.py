"""One direction of a connection through a link: when each piece of what comes in may go on.

Pure: it is given pieces and the time, and says what is due. TCP sends again what a network loses, so a lost piece is a
late one, and behind a cut everything waits; nothing is missing or swapped (as in the simulator's `links.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from raftlog.testing.faults.spec import CUTS, FaultSpec

SENT_AGAIN_SECONDS = 0.2
"""What TCP waits before it sends a lost piece again."""
NEVER = float("inf")


@dataclass(slots=True)
class Conditions:
    """What the faults in force make of one direction of a link. Seconds, bytes a second, probabilities."""

    specs: Sequence[FaultSpec] = ()
    is_cut: bool = False
    delay: float = 0.0
    jitter: float = 0.0
    dropped: float = 0.0
    bandwidth: float = 0.0

    @classmethod
    def of(cls, specs: Sequence[FaultSpec], source: int, target: int) -> Conditions:
        """Those of the link from one end to the other. Faults of a kind add up; the narrowest bandwidth counts. A reset
        is over when it has happened.
        """
        found = cls([spec for spec in specs if (source, target) in spec.links and spec.kind != "reset"])
        for spec in found.specs:
            match spec.kind:
                case "slow-link":
                    found.delay += spec.seconds
                    found.jitter += spec.jitter
                case "drop":
                    found.dropped = 1 - (1 - found.dropped) * (1 - spec.when.probability)
                case "bandwidth":
                    found.bandwidth = min(found.bandwidth or NEVER, spec.amount)
                case _ if spec.kind in CUTS:
                    found.is_cut = True
        return found

    @property
    def is_clear(self) -> bool:
        return not self.specs


class Flow:
    """Pieces in order, each with the time at which it came and the one at which it may go on (NEVER behind a cut)."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._pieces: deque[tuple[float, float, bytes]] = deque()
        self._free_at = 0.0
        self._lost = 0
        self.held_bytes = 0

    @property
    def is_empty(self) -> bool:
        return not self._pieces

    def put(self, data: bytes, now: float, conditions: Conditions) -> bool:
        """A piece has come; whether it is lost, and so sent again."""
        lost_before = self._lost
        self._pieces.append((now, self._due(len(data), now, conditions), data))
        self.held_bytes += len(data)
        return self._lost > lost_before

    def _due(self, size: int, now: float, conditions: Conditions) -> float:
        if conditions.is_cut:
            return NEVER
        due = now + conditions.delay + conditions.jitter * self._random.random()
        while conditions.dropped and self._random.random() < conditions.dropped:
            due += SENT_AGAIN_SECONDS
            self._lost += 1
        if conditions.bandwidth:
            due = max(due, self._free_at) + size / conditions.bandwidth
        self._free_at = due = max(due, self._free_at)
        return due

    def changed(self, now: float, conditions: Conditions) -> None:
        """Other faults are in force: what waits is judged anew."""
        pieces, self._pieces = self._pieces, deque()
        self._free_at = 0.0
        for came, _, data in pieces:
            self._pieces.append((came, self._due(len(data), max(came, now), conditions), data))

    def take(self, now: float) -> tuple[list[bytes], float]:
        """What may go on now, and for how many seconds it has waited in all."""
        taken, waited = [], 0.0
        while self._pieces and self._pieces[0][1] <= now:
            came, _, data = self._pieces.popleft()
            self.held_bytes -= len(data)
            waited += now - came
            taken.append(data)
        return taken, waited

    @property
    def next_at(self) -> float:
        """When something may go on; NEVER if nothing will by itself."""
        return self._pieces[0][1] if self._pieces else NEVER
