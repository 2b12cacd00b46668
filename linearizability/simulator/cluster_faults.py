"""What can happen to a cluster that cannot happen to a quorum alone: works that begin, and faults of data and clients.

Knows which entry of a schedule does what. Refuses to know what works do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from raftlog.linearizability.simulator.faults import Fault
from raftlog.linearizability.simulator.injector import Injector
from raftlog.linearizability.simulator.world import World


class ClusterInjector(Injector):
    """As Injector. `begin`: what begins a work, by its kind."""

    def __init__(
        self,
        world: World,
        nodes: Sequence[int],
        leader: Callable[[], int | None],
        begin: Mapping[str, Callable[[Fault], bool]],
    ) -> None:
        super().__init__(world, nodes, leader)
        self._begin = begin

    def _happen(self, fault: Fault) -> None:
        begin = self._begin.get(fault.kind)
        if begin is None:
            super()._happen(fault)
        elif begin(fault):
            self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
            self.world.trace.add(self.world.now, "work", fault.kind)
