"""Simulated machines and what can happen to them: start, stop, kill, power cut, freeze, slow disk, jumping clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from raftlog.linearizability.simulator.machine.links import Delays, Links
from raftlog.linearizability.simulator.machine.loop import Scheduler, new_loop
from raftlog.linearizability.simulator.machine.machine_facts import EPOCH_SECONDS
from raftlog.linearizability.simulator.machine.network import Network
from raftlog.linearizability.simulator.machine.trace import Trace

Program = Callable[["Machine"], Coroutine[Any, Any, object]]
"""What a machine runs from its start on; what it keeps in `machine.parts` is there for invariants to look at."""


class SyncTimes:
    """How long syncs take on one disk, in seconds."""

    __slots__ = ("high", "low", "random", "slow_until")

    def __init__(self, random: Random, low: float = 0.000_1, high: float = 0.001) -> None:
        self.random = random
        self.low = low
        self.high = high
        self.slow_until = 0.0

    def draw(self, now: float) -> float:
        """One sync."""
        seconds = self.low + (self.high - self.low) * self.random.random() ** 3
        if now < self.slow_until:
            seconds += 0.3 * self.random.random() ** 2
        return seconds


class SimulatedClock:
    """The broker's Clock port: a wall clock that faults may set, and the process's own steady time."""

    __slots__ = ("machine",)

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def now_ms(self) -> int:
        """See Clock."""
        return int((EPOCH_SECONDS + self.monotonic() + self.machine.clock_offset) * 1000)

    def monotonic(self) -> float:
        """See Clock."""
        return self.machine.loop.time()


class Machine:
    """A host with one disk and at most one process. States: running, frozen (a sort of running), down, powered off.

    `incarnation` counts starts of the process, `boots` those of the host; `parts` is what the
    present process made and others may look at.
    """

    def __init__(self, world: World, node: int, host: str) -> None:
        self.world = world
        self.node = node
        self.host = host
        self.disk = FaultyDisk()
        self.disk.quota = node % 2 == 0
        self.clock = SimulatedClock(self)
        self.clock_offset = 0.0
        self.incarnation = 0
        self.boots = 1
        self.parts: dict[str, Any] = {}
        self.random = Random(f"{world.seed} machine {node}")
        self.syncs = SyncTimes(Random(f"{world.seed} syncs {node}"))
        self.loop = new_loop(world.scheduler, world.network, node, f"{host}.0")
        self.loop.dead = True
        self.program: Program | None = None
        self.powered_off = False
        self.refused: BaseException | None = None
        self.disk.on_operation = self._on_disk
        self.disk.on_power_cut = self.power_cut

    @property
    def running(self) -> bool:
        """Whether there is a process, frozen or not."""
        return not self.loop.dead

    def _on_disk(self, operation: str, path: str, size: int) -> None:
        world = self.world
        world.trace.add(world.scheduler.now, operation, self.node, path.rpartition("/")[2], size)
        if operation in ("sync", "sync_directory"):
            self.loop.spend(self.syncs.draw(world.scheduler.now))

    # Life ----------------------------------------------------------------------------------------------------

    def start(self, program: Program | None = None) -> None:
        """Begin a new process; the program is the last one when none is given."""
        assert not self.running
        self.program = program or self.program
        assert self.program is not None
        world = self.world
        if self.powered_off:
            self.powered_off = False
            self.boots += 1
            world.links.power(self.node, on=True)
        self.disk.off = False
        self.disk.countdown = None
        self.incarnation += 1
        self.refused = None
        self.parts = {}
        self.loop = new_loop(world.scheduler, world.network, self.node, f"{self.host}.{self.incarnation}")
        self.loop.on_failure = lambda context: world.on_bug(self, context)
        world.trace.add(world.scheduler.now, "start", self.node, self.incarnation)
        # In a turn of the loop, as asyncio.run does it.
        self.loop.call_soon(self._run, self.program)

    def _run(self, program: Program) -> None:
        task = self.loop.create_task(program(self))
        self.parts["main"] = task
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        """The program returned (a stop in order) or failed (a refusal to start, or a bug)."""
        if self.loop.dead:
            return
        error = None if task.cancelled() else task.exception()
        self.refused = error
        self.world.trace.add(self.world.scheduler.now, "ended", self.node, type(error).__name__)
        self._die(power=False)
        if error is not None:
            self.world.on_refusal(self, error)

    def kill(self) -> None:
        """kill -9: what was written stays in the page cache of the host."""
        if self.running:
            self.world.trace.add(self.world.scheduler.now, "kill", self.node)
            self._die(power=False)

    def power_cut(self) -> None:
        """The host goes: unsynced writes and names are lost, torn or kept, and nobody is told."""
        self.world.trace.add(self.world.scheduler.now, "power", self.node)
        self._die(power=True)
        self.powered_off = True
        self.disk.crash(self.world.disk_random)
        self.world.links.power(self.node, on=False)

    def _die(self, *, power: bool) -> None:
        loop = self.loop
        if not loop.dead:
            loop.keep(self.parts)
            loop.kill()
            self.world.dead_loops.append(loop)
            self.world.network.process_died(loop, power=power)
        self.disk.off = True
        self.disk.kill()
        self.world.on_death(self, power)

    def freeze(self) -> None:
        """SIGSTOP: the kernel still takes connections and bytes."""
        if self.running:
            self.loop.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.loop.thaw()


class World:
    """All machines, the network between them, and the time. Everything in it is a function of the seed.

    `on_bug` is called for what a process's loop could not hand to anybody, `on_refusal` when a program ends in an
    exception, `on_death` after each end of a process.
    """

    def __init__(self, seed: int, *, delays: Delays | None = None, kept_lines: int | None = 0) -> None:
        self.seed = seed
        self.trace = Trace(kept_lines)
        self.scheduler = Scheduler(Random(f"{seed} scheduler"))
        self.links = Links(self.scheduler, Random(f"{seed} network"), self.trace, delays or Delays())
        self.network = Network(self.links)
        self.disk_random = Random(f"{seed} disks")
        self.machines: dict[int, Machine] = {}
        self.dead_loops: list[object] = []
        self.on_bug: Callable[[Machine, dict[str, Any]], None] = _ignore
        self.on_refusal: Callable[[Machine, BaseException], None] = _ignore
        self.on_death: Callable[[Machine, bool], None] = _ignore

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.scheduler.now

    def add_machine(self, node: int, host: str) -> Machine:
        """A new host, without a process."""
        machine = self.machines[node] = Machine(self, node, host)
        self.network.add_host(host, node)
        return machine

    def end(self) -> None:
        """The run is over: nothing that is cleared away from now on runs any more."""
        for machine in self.machines.values():
            if machine.running:
                machine.loop.keep(machine.parts)
                machine.loop.kill()
            machine.disk.off = True
            machine.disk.on_power_cut = None


def _ignore(*_: object) -> None:
    pass
