"""What the invariants of a simulated cluster let pass, and what not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftlog.linearizability.simulator.cluster import invariants as module
from raftlog.linearizability.simulator.cluster.invariants import ClusterInvariants, Key
from raftlog.linearizability.simulator.cluster.replica_contents import Batch
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


def looked_at(invariants: ClusterInvariants, start: int, *batches: Batch) -> None:
    """A replica whose log begins at `start` has these below its high watermark."""
    log = SimpleNamespace(log_start_offset=start, high_watermark=batches[-1].end_offset, config=None)
    seen = SimpleNamespace(checked_end=0)
    with pytest.MonkeyPatch.context() as patched:
        headers = [SimpleNamespace(base_offset=batch.base_offset, batch=batch) for batch in batches]
        patched.setattr(module, "raw_batches_of", lambda *_: [(header, b"") for header in headers])
        patched.setattr(module, "batch_of", lambda header, _: header.batch)
        patched.setattr(invariants.transaction_ends, "commit", lambda *_: None)
        invariants._compare(1, KEY, cast(Any, SimpleNamespace(log=log)), cast(Any, seen))


def test_what_a_bad_disk_alone_showed_is_found_again_where_a_power_cut_has_brought_it_back() -> None:
    violations: list[Violation] = []
    down: Any = SimpleNamespace(running=False, parts={})
    invariants = ClusterInvariants(cast(World, SimpleNamespace(now=0.0, machines={1: down})), [1], violations.append)
    first, unseen, last = (Batch(offset, offset + 2, offset, 0, 70) for offset in (40, 42, 44))

    looked_at(invariants, 40, first)
    looked_at(invariants, 44, last)
    looked_at(invariants, 40, first, unseen, last)
    assert (violations, invariants.committed[KEY]) == ([], [first, unseen, last])

    looked_at(invariants, 40, first, unseen._replace(checksum=1))
    assert [violation.invariant for violation in violations] == ["committed records"]
