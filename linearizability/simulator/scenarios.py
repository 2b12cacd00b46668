"""Scenarios: faults that do harm only in one order, which a mixture of faults meets once in hundreds of runs.

Each scenario is what a line of defence was put there for, with the times and the nodes left to chance; code that has
the defence takes it like any other schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from random import Random
from typing import NamedTuple

from raftlog.linearizability.simulator.faults import BEFORE, LEADER, Fault, Plan

CHANCE = 0.5
"""How likely a run that suits a scenario has one."""


CLUSTER_CHANCE = 0.15
"""How likely a cluster of three brokers has its scenario."""
OUT_OF_SYNC_SECONDS = 2.3
"""Who was away for so long is no replica in sync any more, whatever the brokers' settings are."""
ECHOES, ECHO_SECONDS = 4, 0.8
"""What is heard again is heard so often, within so many seconds."""


class Echo(NamedTuple):
    """All that a node acknowledges up to a time (in seconds) is heard again after that time."""

    node: int
    until: float


class Scenario(NamedTuple):
    """The faults, how many of the messages come twice at least, and what is heard again."""

    faults: list[Fault]
    doubled: float = 0.0
    echo: Echo | None = None


def scenario_of(seed: int, plan: Plan, voters: int, *, loose: bool) -> Scenario | None:
    """The scenario of a seed, or None for a schedule of another kind. `loose`: messages may come twice.

    It takes nothing from the chance of the run, so that seeds without a scenario are what they would be without this.
    """
    random = Random(f"{seed} order")
    harms = tuple(name for name in ("rot", "wipe") if name in plan.kinds)
    fitting: list[Callable[[], Scenario]] = []
    if harms and voters in (3, 5):
        fitting.append(lambda: usurper(random, voters, harms))
    if voters == 3:
        fitting.append(lambda: sides(random, plan.last))
    if loose and voters > 3:
        fitting.append(lambda: minority(random, voters))
    if loose and voters == 5:
        fitting.append(lambda: echoes(random))
    if not fitting or random.random() >= CHANCE:
        return None
    return random.choice(fitting)()


def cluster_scenario_of(seed: int, nodes: int, workloads: Container[str]) -> list[Fault] | None:
    """The faults of a cluster's scenario, or None for a schedule of another kind."""
    random = Random(f"{seed} order")
    if nodes == 4 and "single-copies" in workloads and random.random() < CHANCE:
        return turns(random, nodes)
    return amnesia(random, nodes) if nodes == 3 and random.random() < CLUSTER_CHANCE else None


def amnesia(random: Random, nodes: int) -> list[Fault]:
    """One replica is behind; another loses power, and what it had not synced; and when both are back, the one that has
    everything is away.
    """
    behind, forgetful, rest = random.sample(range(1, nodes + 1), nodes)[:3]
    at = 0.1 + 0.3 * random.random()
    away = OUT_OF_SYNC_SECONDS + 0.3 * random.random()
    lost = at + away - 0.1 * random.random()
    return [
        _fault(at, "isolate", behind, away, [forgetful, rest]),
        _fault(lost, "power", forgetful, 0.02 + 0.2 * random.random()),
        _fault(lost + 0.01 * random.random(), "kill", rest, 1.8 + 0.5 * random.random()),
    ]


def turns(random: Random, nodes: int) -> list[Fault]:
    """Both replicas, on the first and the last broker, are away until they are fenced together; one comes back and is
    enough alone; and when it goes, the other comes back, which has nothing of that.
    """
    first, second = random.sample((1, nodes), 2)
    at = 0.5 + 0.3 * random.random()
    back = at + OUT_OF_SYNC_SECONDS + 0.3 * random.random()
    gone = back + 0.4 + 0.4 * random.random()
    return [
        _fault(at, "freeze", first, back - at),
        _fault(at, "freeze", second, gone - at + 0.2 * random.random()),
        _fault(gone, "freeze", first, 4.0),
    ]


CLUSTER_SCENARIOS: Mapping[str, Callable[[Random, int], list[Fault]]] = {"amnesia": amnesia, "turns": turns}
"""Those of clusters of so many brokers, by name."""


def usurper(random: Random, voters: int, harms: tuple[str, ...]) -> Scenario:
    """Some are left behind, a disk loses what it has, and these make a majority while all who know better are away.

    Those left behind may never have been there: then they have no more than an empty disk has. `voters` is odd.
    """
    nodes = random.sample(range(1, voters + 1), voters)
    behind, harmed, rest = nodes[: voters // 2], nodes[voters // 2], nodes[voters // 2 + 1 :]
    harm = random.choice(harms)
    at = 0.0 if harm == "wipe" and random.random() < 0.5 else 0.3 + 0.4 * random.random()
    harmed_at = at + 0.5 + 0.6 * random.random()
    mended = 0.05 + 0.1 * random.random()
    gone = harmed_at + mended * random.random()
    back = gone + 0.1 * random.random()
    return Scenario(
        [
            _fault(at, "split", behind[0], back - at, behind[1:]),
            _fault(harmed_at, harm, harmed, mended),
            _fault(gone, "split", rest[0], 0.7 + 0.7 * random.random(), rest[1:]),
        ]
    )


def minority(random: Random, voters: int) -> Scenario:
    """As many as are just no majority are by themselves for long, with the leader or without; all is said twice."""
    few = random.sample(range(1, voters + 1), voters // 2)
    faults = [_fault(0.3 + 0.4 * random.random(), "split", few[0], 1.2 + 0.8 * random.random(), few[1:])]
    return Scenario(faults, doubled=0.5)


def echoes(random: Random) -> Scenario:
    """A leader of five is left with one follower, is deposed, and comes back at once, with less than it had before.

    That follower hears nothing any more, and what it has acknowledged before is heard again.
    """
    node, other = random.sample(range(1, 6), 2)
    at = 0.4 + 0.4 * random.random()
    back = at + 0.33 + 0.3 * random.random()
    faults = [
        _fault(at, "split", LEADER, back - at, [node]),
        # Who leads now takes nothing more until it has handed over.
        _fault(back + 0.03 * random.random(), "transfer", LEADER, 0.0, [BEFORE]),
        _fault(back, "deaf", node, 1.0, [one for one in range(1, 6) if one != node]),
        _fault(back + 0.1 + 0.2 * random.random(), "split", LEADER, 0.3, [node, other]),
    ]
    return Scenario(faults, echo=Echo(node, back))


def sides(random: Random, last: float) -> Scenario:
    """A leader of three is alone with what it takes, another leads; the first is back, and the third is gone.

    What the leader takes the first one to have is committed by it alone. Over and over until `last`.
    """
    faults = []
    at = 0.3
    while at < last - 1.0:
        at += 0.1 + 0.2 * random.random()
        first, third = random.sample((1, 2, 3), 2)
        faults.append(_fault(at, "transfer", LEADER, 0.0, [first]))
        at += 0.15
        # The others know at once that they have lost it.
        faults.append(_fault(at, "reset", first, 0.0, [node for node in (1, 2, 3) if node != first]))
        alone = 0.3 + 0.4 * random.random()
        faults.append(_fault(at + 0.001, "split", first, alone))
        at += alone
        faults.append(_fault(at - 0.02 * random.random(), "split", third, 0.3 + 0.3 * random.random()))
        at += 0.3
    return Scenario(faults)


def _fault(at: float, kind: str, node: int, seconds: float, others: list[int] | None = None) -> Fault:
    return Fault(round(at, 3), kind, node, round(seconds, 3), tuple(sorted(others or ())))
