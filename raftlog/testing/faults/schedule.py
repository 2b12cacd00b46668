"""A schedule of faults from a seed, carried out in real time: the simulator makes it, prints it and can read it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from random import Random
from types import TracebackType
from typing import Protocol, Self

from raftlog.linearizability.simulator.faults import BY_NAME, LEADER, Plan, printed
from raftlog.linearizability.simulator.faults import Fault as Planned
from raftlog.linearizability.simulator.faults import schedule as make_schedule
from raftlog.testing.faults.brokers import BrokerFaults
from raftlog.testing.faults.fault import Fault, Owner, heal_all
from raftlog.testing.faults.link_faults import between
from raftlog.testing.faults.spec import FaultSpec
from raftlog.testing.pids import is_stopped

OF_LINKS = ("cut", "deaf", "isolate", "split", "reset")
OF_AWAKE = ("freeze", "power", "tear")
"""What cannot happen to who stands still."""
SAFE = ("kill", "freeze", "stop", *OF_LINKS, "slow-disk", "clock")
"""What loses nothing that was acknowledged without a sync, whoever it happens to at once."""
CARRIED_OUT = (*SAFE, "power", "tear", "full-disk")


class Target(Owner, Protocol):
    """What a schedule happens to."""

    def broker(self, number: int) -> BrokerFaults:
        """The broker with this id."""

    def quorum_leader(self) -> BrokerFaults:
        """The broker that leads the metadata quorum now."""

    def split(self, brokers: Iterable[int | BrokerFaults]) -> Fault:
        """Nothing passes between these brokers and the rest."""


class Schedule:
    """Faults that begin with the `with` block and are healed when it ends. `lines` is what the simulator prints."""

    def __init__(self, faults: Target, seed: int, seconds: float, kinds: Collection[str] | None) -> None:
        """Raises ValueError for a kind that cannot be carried out here."""
        self._faults = faults
        self.put: list[Fault] = []
        self.told = False
        self.seed = seed
        self.seconds = seconds
        nodes = len(faults.cluster.brokers)
        has_links = faults.cluster.links is not None and nodes > 1
        possible = [kind for kind in CARRIED_OUT if has_links or kind not in OF_LINKS]
        chosen = tuple(kinds or (kind for kind in SAFE if kind in possible))
        if unknown := [kind for kind in chosen if kind not in possible]:
            raise ValueError(f"cannot be carried out here: {unknown}; there are {', '.join(possible)}")
        most = max(2, round(seconds))
        plan = Plan(nodes, 0.0, seconds, max(1, most // 2), most, chosen, 0)
        self.planned = [each for each in make_schedule(Random(seed), plan) if each.kind in chosen]
        self.done: Counter[str] = Counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="raftlog-faults", daemon=True)
        self.failure: Exception | None = None

    @property
    def lines(self) -> str:
        return printed(self.planned)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        heal_all(self.put)
        if self.failure is not None and error is None:
            raise self.failure

    def __str__(self) -> str:
        first = f"the first at {self.planned[0].at:.1f} s" if self.planned else "there are none"
        what = f"{len(self.put)} of {len(self.planned)} put in, {first}; `wait` returns when all of it has happened"
        return f"schedule of seed {self.seed} ({what})"

    def wait(self) -> None:
        """Return when all of it has happened."""
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        ends: list[tuple[float, Fault]] = []
        steps = [*self.planned]
        while (steps or ends) and not self._over.is_set():
            now = time.monotonic() - began
            for end, fault in [each for each in ends if each[0] <= now]:
                ends.remove((end, fault))
                self._end(fault)
            if steps and steps[0].at <= now:
                self._begin(steps.pop(0), now, ends)
                continue
            due = min([step.at for step in steps[:1]] + [end for end, _ in ends], default=now)
            self._over.wait(max(0.0, due - now))

    def _begin(self, planned: Planned, now: float, ends: list[tuple[float, Fault]]) -> None:
        try:
            fault = self._happen(planned)
        except Exception as error:  # noqa: BLE001 - told when the block ends
            self.failure = self.failure or error
            return
        if fault is not None:
            self.done[planned.kind] += 1
            self.put.append(fault)
            ends.append((now + planned.seconds, fault))

    def _end(self, fault: Fault) -> None:
        try:
            fault.heal()
        except Exception as error:  # noqa: BLE001 - told when the block ends
            self.failure = self.failure or error

    def _happen(self, planned: Planned) -> Fault | None:
        node = planned.node
        if node == LEADER:
            node = self._faults.quorum_leader().id
        broker = self._faults.broker(node)
        if not broker.process.running or (planned.kind in OF_AWAKE and is_stopped(broker.process.pid)):
            return None
        others = [other for other in planned.others if other != node]
        actions: dict[str, Callable[[], Fault]] = {
            "kill": broker.kill,
            "stop": broker.stop,
            "freeze": broker.pause,
            "power": broker.power_cut,
            "tear": broker.disk.tear,
            "full-disk": broker.disk.full,
            "slow-disk": lambda: broker.disk.slow(0.3),
            "clock": lambda: broker.clock.jump(planned.amount),
            "split": lambda: self._faults.split([node, *others]),
        }
        if planned.kind in actions:
            return actions[planned.kind]()
        assert planned.kind in OF_LINKS and planned.kind in BY_NAME
        there = [(node, other) for other in others]
        back = [(other, node) for other in others]
        links = {"cut": there, "deaf": back}.get(planned.kind, between([node], others))
        return self._faults.add(FaultSpec(planned.kind, links=links)) if links else None
