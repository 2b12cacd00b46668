"""One run from a seed: what every kind of run has in common."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

from raftlog.linearizability.simulator.faults import REST, Fault
from raftlog.linearizability.simulator.machine.links import Delays
from raftlog.linearizability.simulator.machine.loop import TooManyEvents
from raftlog.linearizability.simulator.machine.machine_facts import replaced
from raftlog.linearizability.simulator.machine.world import Machine, World
from raftlog.linearizability.simulator.violation import RunResult, Violation


class Simulation(Protocol):
    """A kind of run."""

    world: World
    faults: Sequence[Fault]
    client_count: int
    fault_seconds: float
    violation: Violation | None
    violated_at: float

    def run(self) -> None:
        """Everything, to the end. Raises Violation."""

    def counts(self) -> dict[str, int]:
        """What was done."""

    def done(self) -> dict[str, int]:
        """Faults that had an effect."""


class SimulationMaker(Protocol):
    """Makes a run of a seed; `faults` in place of the seed's own, `kept_lines` of the trace are kept."""

    part: str

    def __call__(self, seed: int, faults: Sequence[Fault] | None, kept_lines: int | None) -> Simulation: ...


class BaseSimulation:
    """World, time and verdict. A violation stops the run where it is found.

    `began`: when the times of the schedule begin. clients 1 to `client_count` may rest until `fault_seconds` later.
    """

    fault_seconds = 0.0

    def __init__(self, seed: int, kept_lines: int | None) -> None:
        self.seed = seed
        self.random = Random(f"{seed} plan")
        self.world = World(seed, delays=delays_of(Random(f"{seed} delays")), kept_lines=kept_lines)
        self.world.on_bug = self._bug
        self.violation: Violation | None = None
        self.violated_at = 0.0
        self.began = 0.0
        self.client_count = 0
        self._rests: list[Fault] = []

    def take(self, faults: Sequence[Fault], clients: int) -> list[Fault]:
        """The schedule, of which the rests are kept here."""
        self.client_count = clients
        self._rests = [fault for fault in faults if fault.kind == REST]
        return list(faults)

    def is_resting(self, client: int) -> bool:
        """Whether a client does nothing now, because the schedule was shortened."""
        if not self._rests:
            return False
        now = self.world.now - self.began
        return any(rest.node == client and rest.at <= now < rest.at + rest.seconds for rest in self._rests)

    def failed(self, violation: Violation) -> None:
        """Stop the run: an invariant does not hold."""
        if self.violation is None:
            self.violation = violation
            self.violated_at = self.world.now
            self.world.trace.add(self.world.now, "violation", violation.invariant)
        self.world.scheduler.stop()

    def _bug(self, machine: Machine, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Violation):
            self.failed(error)
        else:
            self.failed(Violation("bug", f"node {machine.node}: {context.get('message')}: {error!r}"))

    def advance(self, until: float) -> None:
        """Let time pass. Raises Violation."""
        try:
            self.world.scheduler.run_until(until)
        except TooManyEvents as error:
            self.failed(Violation("progress", str(error)))
        if self.violation is not None:
            raise self.violation


def delays_of(random: Random) -> Delays:
    """How the network of a run is: mostly quick, sometimes slow, lossy or both."""
    low = random.choice((0.000_02, 0.000_1, 0.001))
    high = low * random.choice((2, 10, 40))
    lost = random.choice((0.0, 0.0, 0.0, 0.01, 0.05))
    return Delays(low, high, lost, again=0.2, split=random.choice((0.0, 0.02, 0.3)))


def execute(
    make: SimulationMaker, seed: int, faults: Sequence[Fault] | None = None, *, kept_lines: int | None = 0
) -> RunResult:
    """Make and carry out one run. Failures of any kind are in the result."""
    clock = _Clock()
    quiet = logging.getLogger("raftlog")
    level, propagate = quiet.level, quiet.propagate
    quiet.setLevel(logging.CRITICAL + 1)
    try:
        with replaced(seed, clock.now):
            return _execute(make, seed, faults, kept_lines, clock)
    finally:
        clock.world = None
        quiet.setLevel(level)
        quiet.propagate = propagate


class _Clock:
    """The time of the world, for code that asks the machine for it."""

    def __init__(self) -> None:
        self.world: World | None = None

    def now(self) -> float:
        return self.world.scheduler.now if self.world is not None else 0.0


def _execute(
    make: SimulationMaker, seed: int, faults: Sequence[Fault] | None, kept_lines: int | None, clock: _Clock
) -> RunResult:
    simulation = make(seed, faults, kept_lines)
    world = clock.world = simulation.world
    result = RunResult(make.part, seed, simulation.faults)
    try:
        simulation.run()
    except Violation as violation:
        result.invariant, result.violation = violation.invariant, violation.text
        result.at = simulation.violated_at or world.now
    except Exception as error:  # noqa: BLE001  # whatever a run ends with, its seed fails and the next one is run
        result.invariant, result.violation = "bug", f"{error!r} at {_place_of(error)}"
        result.at = world.now
    result.digest = world.trace.digest()
    result.events = world.scheduler.events
    result.seconds = world.now
    result.counts = simulation.counts()
    result.done = simulation.done()
    result.lines = list(world.trace.lines())
    world.end()
    clock.world = None
    return result


def _place_of(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename.rpartition('/')[2]}:{last.lineno}"
