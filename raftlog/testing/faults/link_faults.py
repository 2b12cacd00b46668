"""What can happen to links: between two brokers, between clients and a broker, and shapes of partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from random import Random

from raftlog.testing.faults.fault import Fault, Owner
from raftlog.testing.faults.spec import FaultSpec, When

Pairs = list[tuple[int, int]]


class LinkFaults:
    """The link between two ends. With `both=False` only what goes from the first to the second is hit."""

    def __init__(self, faults: Owner, source: int, target: int) -> None:
        self._faults = faults
        self._there = [(source, target)]
        self._both = [(source, target), (target, source)]

    def _links(self, both: bool) -> Pairs:
        return self._both if both else self._there

    def cut(self, *, both: bool = True) -> Fault:
        """Nothing passes, and nobody is told; what was sent arrives when the fault is healed."""
        return self._faults.add(FaultSpec("isolate" if both else "cut", links=self._links(both)))

    def slow(self, seconds: float, jitter: float = 0.0, *, both: bool = True) -> Fault:
        """Everything takes `seconds` longer, and up to `jitter` more."""
        return self._faults.add(FaultSpec("slow-link", seconds=seconds, jitter=jitter, links=self._links(both)))

    def drop(self, probability: float, *, both: bool = True) -> Fault:
        """Pieces are lost with this probability; TCP sends them again after 0.2 s."""
        return self._faults.add(FaultSpec("drop", when=When(probability=probability), links=self._links(both)))

    def bandwidth(self, bytes_per_second: float, *, both: bool = True) -> Fault:
        """No more than so many bytes a second, of each connection."""
        return self._faults.add(FaultSpec("bandwidth", amount=bytes_per_second, links=self._links(both)))

    def reset(self) -> Fault:
        """All connections of now break; new ones can be made."""
        return self._faults.add(FaultSpec("reset", links=self._both))


def between(one: Collection[int], other: Collection[int]) -> Pairs:
    """All links from each side to the other."""
    return [(a, b) for a in one for b in other] + [(b, a) for a in one for b in other]


def _one(brokers: Sequence[int]) -> Pairs:
    return between(brokers[:1], brokers[1:])


def _majority(brokers: Sequence[int]) -> Pairs:
    half = len(brokers) // 2
    return between(brokers[:half], brokers[half:])


def _bridge(brokers: Sequence[int]) -> Pairs:
    half = len(brokers) // 2
    return between(brokers[:half], brokers[half + 1 :])


def _majorities_ring(brokers: Sequence[int]) -> Pairs:
    """Each hears its nearest neighbours on a ring, who are a majority with it."""
    n = len(brokers)
    left = n // 4
    heard = {(at, (at + step) % n) for at in range(n) for step in range(-left, n // 2 - left + 1)}
    return [(brokers[b], brokers[a]) for a in range(n) for b in range(n) if (a, b) not in heard]


def _one_way(brokers: Sequence[int]) -> Pairs:
    return [(brokers[0], other) for other in brokers[1:]]


def _chain(brokers: Sequence[int]) -> Pairs:
    near = {*pairwise(brokers)}
    return [(a, b) for a in brokers for b in brokers if a != b and (a, b) not in near and (b, a) not in near]


SHAPES: dict[str, Callable[[Sequence[int]], Pairs]] = {
    "one": _one,
    "majority": _majority,
    "majorities-ring": _majorities_ring,
    "bridge": _bridge,
    "chain": _chain,
    "one-way": _one_way,
}
"""Which links are cut among shuffled brokers: one from all others; half from the rest; all see a majority and no two
the same one; two halves that only the one in the middle sees both of; each sees its neighbours only; one is heard by
nobody."""


def shape(name: str, brokers: Sequence[int], random: Random) -> Pairs:
    """The links that a shape cuts. Raises ValueError for a name that is none, or when it would cut nothing."""
    if name not in SHAPES:
        raise ValueError(f"there is no partition {name!r}: {', '.join(SHAPES)}")
    shuffled = list(brokers)
    random.shuffle(shuffled)
    pairs = SHAPES[name](shuffled)
    if not pairs:
        raise ValueError(f"a partition {name!r} of {len(brokers)} brokers cuts nothing")
    return pairs
