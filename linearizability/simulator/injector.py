"""Carries out a schedule of faults on a world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from raftlog.linearizability.simulator.faults import BEFORE, DAMAGES, LEADER, REST, Fault
from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from raftlog.linearizability.simulator.machine.world import Machine, World
from raftlog.linearizability.simulator.quorum.journals import bytes_that_may_rot


class Injector:
    """Faults on their way. A link that several faults cut heals when the last of them is over.

    `leader()` is the node that leads now, or None. `may_cut_power(machine)`: a power cut that the promise does not
    cover becomes a kill. `may_damage()`: whether a disk may be harmed yet. `rotten_part`: which files rot.
    `stop(machine)`: as SIGTERM.
    """

    def __init__(self, world: World, nodes: Sequence[int], leader: Callable[[], int | None]) -> None:
        self.world = world
        self.nodes = nodes
        self.leader = leader
        self.may_damage: Callable[[], bool] = lambda: True
        self.may_cut_power: Callable[[Machine], bool] = lambda _: True
        self.transfer: Callable[[Machine, int], None] = lambda machine, to: None
        self.stop: Callable[[Machine], bool] = lambda machine: False
        self.restarts_after_full_disk = False
        self.on_damage: Callable[[Machine], None] = lambda machine: None
        self.rotten_part = ""
        self.may_rot: Callable[[FaultyDisk, str], int] = bytes_that_may_rot
        self.done: dict[str, int] = {}
        self.damaged: dict[int, str] = {}
        self.over = False
        self._cuts: dict[tuple[int, int], int] = {}
        self._stalls: dict[int, int] = {}
        self._split_off = 0

    def schedule(self, faults: Iterable[Fault]) -> None:
        """Let all of them happen at their times."""
        for fault in faults:
            if fault.kind != REST:
                self.world.scheduler.at(fault.at, self._happen, fault)

    def _happen(self, fault: Fault) -> None:
        node = fault.node
        if node == LEADER:
            leader = self.leader()
            if leader is None:
                return
            node = leader
        if fault.kind in DAMAGES and not self.may_damage():
            return
        machine = self.world.machines[node]
        act = getattr(self, "_" + fault.kind.replace("-", "_"))
        if act(machine, fault):
            self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
            self.world.trace.add(self.world.now, "fault", fault.kind, node)

    def heal(self) -> None:
        """No fault lasts longer than this moment; everybody who can is started again."""
        self.over = True
        self._cuts.clear()
        self.world.links.heal_all()
        for node in self.nodes:
            machine = self.world.machines[node]
            machine.disk.full = False
            machine.disk.failing.clear()
            machine.disk.countdown = None
            machine.syncs.slow_until = 0.0
            machine.clock_offset = 0.0
            self._stalls.clear()
            machine.thaw()
            self.restart(machine)

    def restart(self, machine: Machine) -> None:
        """Start a machine that is down, unless its disk is known to be damaged."""
        if not machine.running and machine.node not in self.damaged:
            machine.start()

    def restart_after(self, machine: Machine, seconds: float) -> None:
        """The same, later."""
        self.world.scheduler.at(self.world.now + seconds, self.restart, machine)

    # Processes -----------------------------------------------------------------------------------------------

    def _kill(self, machine: Machine, fault: Fault) -> bool:
        if not machine.running:
            return False
        machine.thaw()
        machine.kill()
        self.restart_after(machine, fault.seconds)
        return True

    def _power(self, machine: Machine, fault: Fault) -> bool:
        if not machine.running:
            return False
        if not self.may_cut_power(machine):
            return self._kill(machine, fault)
        machine.thaw()
        machine.power_cut()
        self.restart_after(machine, fault.seconds)
        return True

    def _tear(self, machine: Machine, fault: Fault) -> bool:
        if not machine.running or not self.may_cut_power(machine):
            return False
        machine.disk.countdown = fault.amount
        # Whether or not it comes to that.
        self.world.scheduler.at(self.world.now + 0.3, self._calm, machine)
        self.restart_after(machine, 0.3 + fault.seconds)
        return True

    @staticmethod
    def _calm(machine: Machine) -> None:
        machine.disk.countdown = None

    def _freeze(self, machine: Machine, fault: Fault) -> bool:
        if not machine.running:
            return False
        machine.freeze()
        self._stalls[machine.node] = stall = self._stalls.get(machine.node, 0) + 1
        self.world.scheduler.at(self.world.now + fault.seconds, self._thaw, machine, stall)
        return True

    def _thaw(self, machine: Machine, stall: int) -> None:
        if self._stalls.get(machine.node) == stall:
            machine.thaw()

    def _stop(self, machine: Machine, fault: Fault) -> bool:
        if not machine.running or machine.loop.frozen or not self.stop(machine):
            return False
        # It ends when it has handed over; and it may be killed while it does.
        for again in (1.0, 3.0, 10.0, 20.0):
            self.restart_after(machine, again + fault.seconds)
        return True

    def _clock(self, machine: Machine, fault: Fault) -> bool:
        machine.clock_offset = float(fault.amount)
        return True

    def _transfer(self, machine: Machine, fault: Fault) -> bool:
        leader = self.leader()
        if leader is None:
            return False
        to = self._split_off if fault.others[0] == BEFORE else fault.others[0]
        if to:
            self.transfer(self.world.machines[leader], to)
        return to > 0

    # Links -----------------------------------------------------------------------------------------------------

    def _hold(self, links: Iterable[tuple[int, int]], seconds: float) -> bool:
        links = list(links)
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1
            self.world.links.cut(*link)
        self.world.scheduler.at(self.world.now + seconds, self._release, links)
        return True

    def _release(self, links: list[tuple[int, int]]) -> None:
        for link in links:
            left = self._cuts.get(link, 1) - 1
            self._cuts[link] = left
            if left <= 0:
                self.world.links.heal(*link)

    def _sides(self, machine: Machine, fault: Fault) -> list[int]:
        return [node for node in fault.others if node != machine.node]

    def _cut(self, machine: Machine, fault: Fault) -> bool:
        return self._hold([(machine.node, other) for other in self._sides(machine, fault)], fault.seconds)

    def _deaf(self, machine: Machine, fault: Fault) -> bool:
        return self._hold([(other, machine.node) for other in self._sides(machine, fault)], fault.seconds)

    def _isolate(self, machine: Machine, fault: Fault) -> bool:
        others = self._sides(machine, fault)
        both = [(machine.node, other) for other in others] + [(other, machine.node) for other in others]
        return self._hold(both, fault.seconds)

    def _split(self, machine: Machine, fault: Fault) -> bool:
        self._split_off = machine.node
        here = {machine.node, *fault.others}
        across = [(a, b) for a in self.nodes for b in self.nodes if (a in here) != (b in here)]
        return self._hold(across, fault.seconds)

    def _reset(self, machine: Machine, fault: Fault) -> bool:
        broken = 0
        for other in fault.others:
            broken += self.world.network.reset_connections(machine.node, other)
            broken += self.world.network.reset_connections(other, machine.node)
        return broken > 0

    # Disks -----------------------------------------------------------------------------------------------------

    def _slow_disk(self, machine: Machine, fault: Fault) -> bool:
        machine.syncs.slow_until = self.world.now + fault.seconds
        return True

    def _full_disk(self, machine: Machine, fault: Fault) -> bool:
        machine.disk.full = True
        self.world.scheduler.at(self.world.now + fault.seconds, self._room, machine)
        return True

    def _room(self, machine: Machine) -> None:
        machine.disk.full = False
        if self.restarts_after_full_disk and machine.running and not self.over:
            # As an operator does: what a broker gave up for it stays given up until it is started again.
            machine.thaw()
            machine.kill()
            self.restart_after(machine, 0.1)

    def _sync_error(self, machine: Machine, fault: Fault) -> bool:
        assert fault.kind in DAMAGES
        machine.disk.failing["sync"] = self.rotten_part
        self.world.scheduler.at(self.world.now + fault.seconds, self._mend, machine)
        return True

    def _mend(self, machine: Machine) -> None:
        """The disk is exchanged with what it holds, and the process started again: only that makes it sure of it."""
        machine.disk.failing.clear()
        if machine.running and not self.over:
            machine.thaw()
            machine.kill()
        self.restart(machine)

    def _rot(self, machine: Machine, fault: Fault) -> bool:
        if machine.node in self.damaged:
            return False
        machine.thaw()
        machine.kill()
        path = machine.disk.rot(self.world.disk_random, self.rotten_part, partial(self.may_rot, machine.disk))
        if path is not None:
            self.world.trace.add(self.world.now, "rot", machine.node, path)
            self.on_damage(machine)
        self.restart_after(machine, fault.seconds)
        return path is not None

    def _wipe(self, machine: Machine, fault: Fault) -> bool:
        if machine.node in self.damaged:
            return False
        machine.thaw()
        machine.kill()
        machine.disk.wipe()
        self.on_damage(machine)
        self.restart_after(machine, fault.seconds)
        return True
