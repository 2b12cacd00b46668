"""What can happen to a cluster and not to a quorum alone: workloads that begin, and disks with data that fail.

One bad disk at a time: what is acknowledged is on several, and on none for sure. It is bad until an operator has
exchanged it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

from raftlog.linearizability.simulator.cluster.invariants import ClusterInvariants
from raftlog.linearizability.simulator.faults import Fault
from raftlog.linearizability.simulator.injector import Injector
from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from raftlog.linearizability.simulator.machine.world import Machine, World

DATA_KINDS = ("data-error", "data-wipe", "data-rot")
DETAILED_KINDS = (*DATA_KINDS, "unreachable")
"""Of these the `amount` says more."""
FAILING = (("sync",), ("write",), ("sync", "write", "sync_directory", "rename"))
"""What fails together."""
FAILING_TOO = (("read",), ("remove",), ("truncate", "rename"), (*FAILING[-1], "read", "open", "remove", "truncate"))
"""Likewise, when the `amount` is DETAILS or more."""
DETAILS = 6
FAILING_TOO_CHANCE = 0.4


class ClusterInjector(Injector):
    """As Injector. `begin`: what begins a workload, by its kind. `directories`: the data directories of each broker.
    `clients`: the node that clients run on. `clocks_agree`: no clock may jump, for producers are forgotten by it.
    """

    def __init__(
        self,
        world: World,
        nodes: Sequence[int],
        leader: Callable[[], int | None],
        invariants: ClusterInvariants,
        directories: Sequence[str],
    ) -> None:
        super().__init__(world, nodes, leader)
        self.begin: Mapping[str, Callable[[Fault], bool]] = {}
        self.clients = 0
        self.clocks_agree = False
        self._invariants = invariants
        self._directories = directories
        # Whose disk has to be exchanged, and how.
        self._bad: dict[int, Callable[[Machine], None]] = {}

    def _happen(self, fault: Fault) -> None:
        begin = self.begin.get(fault.kind)
        if begin is None:
            super()._happen(fault)
        elif begin(fault):
            self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
            self.world.trace.add(self.world.now, "work", fault.kind)

    def heal(self) -> None:
        """See Injector."""
        for node in list(self._bad):
            self._exchange(self.world.machines[node])
        super().heal()

    def failing_directory(self, machine: Machine) -> str:
        """The one data directory of several that fails now, or ""."""
        several = len(self._directories) > 1
        return next(iter(machine.disk.failing.values()), "") if several else ""

    # Clients ---------------------------------------------------------------------------------------------------

    def _unreachable(self, machine: Machine, fault: Fault) -> bool:
        """Clients cannot reach the broker, or not hear of it; the others can."""
        to, back = (self.clients, machine.node), (machine.node, self.clients)
        return self._hold(((to,), (back,), (to, back))[fault.amount % 3], fault.seconds)

    def _clock(self, machine: Machine, fault: Fault) -> bool:
        jumps = not self.clocks_agree and super()._clock(machine, fault)
        self._invariants.clocks_jump |= jumps
        return jumps

    # Disks with data -------------------------------------------------------------------------------------------

    def _directory(self, fault: Fault) -> str:
        return self._directories[fault.amount % len(self._directories)]

    def _hold_disk(self, machine: Machine, exchange: Callable[[Machine], None], seconds: float) -> None:
        self._bad[machine.node] = exchange
        self._invariants.hold(machine.node)
        self.world.scheduler.at(self.world.now + seconds, self._exchange, machine)

    def _exchange(self, machine: Machine) -> None:
        """An operator has a bad disk exchanged, for which the host is turned off."""
        exchange = self._bad.pop(machine.node, None)
        if exchange is None:
            return
        machine.thaw()
        machine.power_cut()
        machine.disk.failing.clear()
        exchange(machine)
        self._invariants.held.discard(machine.node)
        if not self.over:
            self.restart_after(machine, 0.1)

    def _may_harm(self, machine: Machine) -> bool:
        return machine.running and machine.node not in self._bad and self.may_cut_power(machine)

    def _data_error(self, machine: Machine, fault: Fault) -> bool:
        if not self._may_harm(machine):
            return False
        further, amount = divmod(fault.amount, DETAILS)
        kinds = FAILING_TOO if further else FAILING
        for operation in kinds[(further - 1 if further else amount // len(self._directories)) % len(kinds)]:
            machine.disk.failing[operation] = self._directory(fault) + "/"
        self._hold_disk(machine, lambda _: None, fault.seconds)
        return True

    def _data_wipe(self, machine: Machine, fault: Fault) -> bool:
        if not self._may_harm(machine):
            return False
        machine.thaw()
        machine.kill()
        machine.disk.wipe(self._directory(fault))
        self._invariants.lost_disk(machine.node)
        self.restart_after(machine, fault.seconds)
        return True

    def _data_rot(self, machine: Machine, fault: Fault) -> bool:
        if not self._may_harm(machine):
            return False
        machine.thaw()
        machine.kill()
        self.restart_after(machine, fault.seconds)
        directory = self._directory(fault)
        random = Random(f"{self.world.seed} rot {fault.at}")
        path = machine.disk.rot(random, f"{directory}/", partial(_records, machine.disk))
        if path is None:
            return False
        self.world.trace.add(self.world.now, "rot", machine.node, path)
        self._hold_disk(machine, lambda machine: machine.disk.wipe(directory), fault.seconds + 1.0)
        return True


def _records(disk: FaultyDisk, path: str) -> int:
    return len(disk.names[path].durable) if path.endswith(".log") else 0
