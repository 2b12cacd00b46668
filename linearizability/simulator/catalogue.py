"""The kinds of run and the hazards, by name. Knows names only; what is named is loaded when it is asked for."""

from __future__ import annotations

import importlib
from typing import cast

from raftlog.linearizability.simulator.hazards import RAFT_HAZARDS, Hazard
from raftlog.linearizability.simulator.runs import SimulationMaker

_PACKAGE = "raftlog.linearizability.simulator"
PARTS: dict[str, tuple[str, str]] = {
    "core": ("core_run", "CoreRun"),
    "quorum": ("quorum_run", "QuorumRun"),
    "cluster": ("cluster_run", "ClusterRun"),
}
"""Kind of run -> its module and class."""


def maker(part: str) -> SimulationMaker:
    """What makes runs of this kind."""
    module, name = PARTS[part]
    return cast(SimulationMaker, getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name))


def hazards() -> dict[str, Hazard]:
    """All hazards by name."""
    from raftlog.linearizability.simulator.cluster_hazards import CLUSTER_HAZARDS  # loads the broker

    return {hazard.name: hazard for hazard in (*RAFT_HAZARDS, *CLUSTER_HAZARDS)}
