"""What goes wrong in a run, when, and to whom: a schedule made from the seed before the run begins, as plain data.

A fault names a node, or 0 for "who leads when it happens". A schedule can be printed, read back and shortened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

LEADER = 0
"""Stands for the node that leads when the fault happens."""
REST = "rest"
"""Of a schedule that was shortened: the client `node` does nothing for so long."""
BEFORE = 0
"""Among `others` of a transfer: the leader that was split off last."""


@dataclass(frozen=True, slots=True)
class Fault:
    """At a time (virtual seconds) something happens to a node, or between it and others, for some seconds.

    `others`: the nodes on the other side of a cut, or one node. `amount`: what the kind says.
    """

    at: float
    kind: str
    node: int
    seconds: float = 0.0
    others: tuple[int, ...] = ()
    amount: int = 0

    def __str__(self) -> str:
        who = "leader" if self.node == LEADER else str(self.node)
        others = "".join(f" {other}" for other in self.others)
        against = f" /{others}" if others else ""
        return f"{self.at:.3f} {self.kind} {who}{against} for={self.seconds:.3f} n={self.amount}"


def read_schedule(lines: Iterable[str]) -> list[Fault]:
    """The faults that were printed. Raises ValueError for what is none."""
    faults = []
    for line in lines:
        words = line.split()
        if not words:
            continue
        at, kind, who, *rest = words
        values = dict(word.split("=") for word in rest if "=" in word)
        others = tuple(int(word) for word in rest if word.isdigit())
        node = LEADER if who == "leader" else int(who)
        faults.append(Fault(float(at), kind, node, float(values["for"]), others, int(values["n"])))
    return faults


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: how often it is chosen, and how long it lasts (seconds)."""

    name: str
    weight: float
    shortest: float
    longest: float


# What each does is told in `injector`.
KINDS: tuple[Kind, ...] = (
    Kind("kill", 3, 0.01, 1.5),  # kill -9, and started again after that time
    Kind("power", 2, 0.05, 1.5),  # power cut, likewise; `amount` is not used
    Kind("tear", 2, 0.05, 1.5),  # power cut in the middle of the (`amount`+1)-th change to the disk from then on
    Kind("freeze", 3, 0.01, 2.5),  # SIGSTOP and SIGCONT
    Kind("cut", 3, 0.05, 2.5),  # nothing passes from the node to the others
    Kind("deaf", 2, 0.05, 2.5),  # nothing passes from the others to the node
    Kind("isolate", 3, 0.05, 2.5),  # both
    Kind("split", 2, 0.1, 2.5),  # the node and `others` on one side, the rest on the other side
    Kind("reset", 2, 0.0, 0.0),  # its connections with the others break
    Kind("slow-disk", 1, 0.1, 2.0),  # syncs take up to 0.3 s
    Kind("full-disk", 1, 0.05, 1.0),  # nothing may grow
    Kind("sync-error", 0.7, 0.05, 1.0),  # fsync fails with EIO; then it is killed and started again
    Kind("rot", 0.4, 0.05, 1.0),  # killed, a bit on its platter flips, started again
    Kind("wipe", 0.4, 0.05, 1.0),  # killed, its disk exchanged for an empty one, started again
    Kind("data-error", 4, 0.1, 1.5),  # I/O errors in one data directory (`amount` says which, and what fails)
    Kind("data-wipe", 3, 0.05, 1.0),  # killed, one data directory (`amount`) exchanged for an empty one, started again
    Kind("data-rot", 3, 0.05, 1.0),  # killed, a bit of a record flips, started again; exchanged some time later
    Kind("unreachable", 2, 0.1, 2.0),  # clients cannot reach the node, or hear of it (`amount`); the others can
    Kind("clock", 0.5, 0.1, 3.0),  # its wall clock is `amount` seconds off
    Kind("stop", 1, 0.01, 1.5),  # SIGTERM, and started again some time after it has ended
    Kind("transfer", 0.7, 0.0, 0.0),  # the leader is asked to hand over to `others`
)
BY_NAME = {kind.name: kind for kind in KINDS}

DAMAGES = ("sync-error", "rot", "wipe")
"""What may cost a node its data for good: not for a majority, and `Plan.damage_max` says how many."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What schedules of a kind of run look like. Seconds, and how many faults."""

    nodes: int
    first: float
    last: float
    fewest: int
    most: int
    kinds: tuple[str, ...]
    damage_max: int


HUNTED = ("kill", "power", "tear", "isolate", "cut", "freeze", "transfer")
"""What is done to one leader after the other in runs that leave no leader in peace."""
PARTED = ("split", "isolate")
"""What leaves a leader with a minority."""
LOST = ("kill", "power", "isolate", "transfer")
REPLACED = ("stop", "kill", "transfer")


def schedule(random: Random, plan: Plan) -> list[Fault]:
    """A schedule, by time. Each run has some kinds of faults and not others: the rare ones meet more often so."""
    makers = [_hunt, _hunt, _seesaw, _relapse, _stumble, *[_mixture] * 5]
    if plan.damage_max and not {"rot", "wipe"}.isdisjoint(plan.kinds):
        makers[0] = _decay
    maker = random.choice(makers)
    kinds = {_hunt: HUNTED, _seesaw: PARTED, _relapse: LOST, _stumble: REPLACED}.get(maker, plan.kinds)
    if set(kinds).isdisjoint(plan.kinds) or (maker is _relapse and plan.nodes == 1):
        maker = _mixture  # of what there is
    faults = maker(random, plan)
    return sorted(faults, key=lambda fault: (fault.at, fault.kind, fault.node))


def _hunt(random: Random, plan: Plan) -> list[Fault]:
    faults = []
    names = [name for name in HUNTED if name in plan.kinds]
    at = plan.first
    while at < plan.last:
        at += 0.05 + 0.4 * random.random()
        kind = BY_NAME[random.choice(names)]
        seconds = 0.02 + 0.8 * random.random() ** 2
        others = _others(random, plan, random.randint(1, plan.nodes), kind.name)
        if kind.name == "isolate":
            others = tuple(range(1, plan.nodes + 1))
        faults.append(Fault(round(at, 3), kind.name, LEADER, round(seconds, 3), others, random.randint(0, 5)))
    return faults


def _seesaw(random: Random, plan: Plan) -> list[Fault]:
    """A leader is left with a minority, another is elected, and leadership comes back: over and over."""
    names = [name for name in PARTED if name in plan.kinds]
    faults = []
    at = plan.first
    while at < plan.last:
        at += 0.05 + 0.2 * random.random()
        alone = 0.3 + 0.7 * random.random()
        if random.random() < 0.4:
            # The others know at once that they have lost it, and it does not.
            faults.append(Fault(round(at, 3), "reset", LEADER, 0.0, tuple(range(1, plan.nodes + 1))))
            at += 0.001
        kind = random.choice(names)
        others = _others(random, plan, random.randint(1, plan.nodes), kind)
        faults.append(Fault(round(at, 3), kind, LEADER, round(alone, 3), others[:1] if kind == "split" else others))
        at += alone + 0.3 * random.random()
        if "transfer" in plan.kinds:
            to = (random.randint(1, plan.nodes),)
            faults.append(Fault(round(at, 3), "transfer", LEADER, 0.0, to))
    return faults


def _relapse(random: Random, plan: Plan) -> list[Fault]:
    """The leader goes, and while others elect the next one, some of them are killed and come back at once."""
    names = [name for name in LOST if name in plan.kinds]
    faults = []
    at = plan.first
    while at < plan.last:
        at += 0.2 + 0.4 * random.random()
        kind = random.choice(names)
        others = _others(random, plan, random.randint(1, plan.nodes), kind)
        faults.append(Fault(round(at, 3), kind, LEADER, round(0.3 + 0.5 * random.random(), 3), others))
        for node in random.sample(range(1, plan.nodes + 1), random.randint(1, plan.nodes - 1)):
            faults.append(Fault(round(at + 0.005 + 0.05 * random.random(), 3), "kill", node, 0.01))
    return faults


def _stumble(random: Random, plan: Plan) -> list[Fault]:
    """Who is to lead next stands still in the very moment in which the leader goes, and for longer than is waited."""
    names = [name for name in REPLACED if name in plan.kinds]
    faults = []
    at = plan.first
    while at < plan.last:
        at += 0.1 + 0.8 * random.random()
        still = 0.5 + 3.0 * random.random()
        faults.append(Fault(round(at, 3), "freeze", random.randint(1, plan.nodes), round(still, 3)))
        gone = 0.05 + 0.5 * random.random()
        to = (random.randint(1, plan.nodes),)
        soon = round(at + 0.03 * random.random(), 3)
        faults.append(Fault(soon, random.choice(names), LEADER, round(gone, 3), to))
        at += still
    return faults


def _decay(random: Random, plan: Plan) -> list[Fault]:
    """One is left behind, the disk of another one fails, and when both are back the leader is gone."""
    behind, bad = random.sample(range(1, plan.nodes + 1), 2)
    rest = tuple(node for node in range(1, plan.nodes + 1) if node != behind)
    at = random.choice((0.1 * random.random(), 0.3 + 0.5 * random.random()))
    damage = at + 0.3 + 0.7 * random.random()
    mended = 0.05 + 0.2 * random.random()
    gone = damage + mended * random.random()
    away = gone + 0.3 * random.random() - at
    everybody = tuple(range(1, plan.nodes + 1))
    harms = [name for name in ("rot", "wipe") if name in plan.kinds]
    return [
        Fault(round(at, 3), random.choice(("kill", "isolate")), behind, round(away, 3), rest),
        Fault(round(damage, 3), random.choice(harms), bad, round(mended, 3)),
        Fault(round(gone, 3), random.choice(("kill", "isolate")), LEADER, round(0.6 + random.random(), 3), everybody),
    ]


def _mixture(random: Random, plan: Plan) -> list[Fault]:
    chosen = [kind for name in plan.kinds for kind in (BY_NAME[name],) if random.random() < 0.5]
    kinds = chosen or [BY_NAME[name] for name in plan.kinds]
    weights = [kind.weight for kind in kinds]
    damaged: list[int] = []
    faults = []
    for _ in range(random.randint(plan.fewest, plan.most)):
        kind = random.choices(kinds, weights)[0]
        node = LEADER if random.random() < 0.4 else random.randint(1, plan.nodes)
        if kind.name in DAMAGES:
            node = _damageable(random, plan, damaged)
            if node == LEADER:
                continue
        others = _others(random, plan, node, kind.name)
        seconds = kind.shortest + (kind.longest - kind.shortest) * random.random() ** 2
        amount = {"tear": random.randint(0, 8), "clock": random.randint(-3600, 3600)}.get(kind.name, 0)
        at = plan.first + (plan.last - plan.first) * random.random()
        faults.append(Fault(round(at, 3), kind.name, node, round(seconds, 3), others, amount))
    return faults


def _damageable(random: Random, plan: Plan, damaged: list[int]) -> int:
    """A node that may be damaged, or LEADER when no more may."""
    if len(damaged) < plan.damage_max:
        free = [node for node in range(1, plan.nodes + 1) if node not in damaged]
        damaged.append(random.choice(free))
        return damaged[-1]
    return random.choice(damaged) if damaged else LEADER


def _others(random: Random, plan: Plan, node: int, kind: str) -> tuple[int, ...]:
    rest = [other for other in range(1, plan.nodes + 1) if other != node]
    if kind == "split":
        return tuple(sorted(random.sample(rest, random.randint(0, len(rest) - 1))))
    if kind in ("cut", "deaf") and random.random() < 0.6:
        return (random.choice(rest),)
    if kind in ("cut", "deaf", "isolate", "reset"):
        return tuple(rest)
    return (random.choice(rest),) if kind == "transfer" else ()


def printed(faults: Sequence[Fault]) -> str:
    """One line for each."""
    return "\n".join(map(str, faults))
