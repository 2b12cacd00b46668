"""The kinds of run and the mutants, by name. Knows names only; what is named is loaded when it is asked for."""

from __future__ import annotations

import importlib
from typing import cast

from raftlog.linearizability.simulator.mutants.mutants import RAFT_MUTANTS, Mutant
from raftlog.linearizability.simulator.runs import SimulationMaker

_PACKAGE = "raftlog.linearizability.simulator"
PARTS: dict[str, tuple[str, str]] = {
    "core": ("quorum.core_run", "CoreRun"),
    "quorum": ("quorum.quorum_run", "QuorumRun"),
    "cluster": ("cluster.run", "ClusterRun"),
}
"""Kind of run -> its module and class."""


def maker(part: str) -> SimulationMaker:
    """What makes runs of this kind."""
    module, name = PARTS[part]
    return cast(SimulationMaker, getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name))


def mutants() -> dict[str, Mutant]:
    """All mutants by name."""
    # These load the broker and the client.
    from raftlog.linearizability.simulator.mutants.client import CLIENT_MUTANTS
    from raftlog.linearizability.simulator.mutants.cluster import CLUSTER_MUTANTS
    from raftlog.linearizability.simulator.mutants.group import GROUP_MUTANTS
    from raftlog.linearizability.simulator.mutants.log import LOG_MUTANTS
    from raftlog.linearizability.simulator.mutants.transaction import TRANSACTION_MUTANTS

    all_of_them = (*RAFT_MUTANTS, *CLUSTER_MUTANTS, *LOG_MUTANTS, *TRANSACTION_MUTANTS, *GROUP_MUTANTS, *CLIENT_MUTANTS)
    return {mutant.name: mutant for mutant in all_of_them}
