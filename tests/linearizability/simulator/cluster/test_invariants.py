"""What the invariants of a simulated cluster let pass, and what not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftlog.linearizability.simulator.cluster.invariants import ClusterInvariants, Key
from raftlog.linearizability.simulator.machine.world import World
from raftlog.linearizability.simulator.violation import Violation
from raftlog.metadata.records import PartitionState

KEY: Key = ("t", 0, bytes(16))


def invariants_after_a_power_cut(violations: list[Violation]) -> ClusterInvariants:
    """Leader 2 alone is in sync, with 54 records; 3 has 49 of them, and 1 had 51 when its host lost power."""
    down: Any = SimpleNamespace(running=False, parts={})
    world = SimpleNamespace(now=0.0, machines=dict.fromkeys((1, 2, 3), down))
    invariants = ClusterInvariants(cast(World, world), [1, 2, 3], violations.append)
    invariants.ends = {(1, KEY): 51, (2, KEY): 54, (3, KEY): 49}
    invariants.newest[KEY] = PartitionState(0, 2, 2, 6, (3, 1, 2), (2,), eligible_leader_replicas=(1,))
    invariants.died(1, power=True)
    return invariants


@pytest.mark.parametrize(("high_watermark", "invariant"), [(51, []), (52, ["min.insync.replicas"])])
def test_who_lost_power_counts_outside_the_isr_for_what_it_had(high_watermark: int, invariant: list[str]) -> None:
    violations: list[Violation] = []
    invariants = invariants_after_a_power_cut(violations)

    invariants._check_isr_has(KEY, 2, 2, high_watermark)

    assert [violation.invariant for violation in violations] == invariant


def test_what_it_had_is_what_it_had_before_it_came_back_with_less_and_lost_power_again() -> None:
    violations: list[Violation] = []
    invariants = invariants_after_a_power_cut(violations)

    invariants.ends[1, KEY] = 46
    invariants.died(1, power=True)
    invariants._check_isr_has(KEY, 2, 2, 51)

    assert violations == []
