"""Raft's invariants under random trouble, and progress once the trouble is over."""

from __future__ import annotations

import os

import pytest

from tests.effort import examples
from tests.raftlog.raft.core.world import CoreWorld

SEEDS = examples(24)
FIRST = int(os.environ.get("RAFTLOG_CORE_FIRST_SEED", "0"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_the_invariants_hold_whatever_happens_and_work_goes_on_afterwards(seed: int) -> None:
    wipes = 1 if seed % 4 == 2 else 0
    world = CoreWorld(seed, voters=(3, 5, 3, 2)[seed % 4], loss=(0.0, 0.05, 0.2)[seed % 3], wipes=wipes)
    for _ in range(1200):
        world.step()
    world.heal()
    leader = world.leader()
    assert leader is not None, "no leader although nothing is wrong any more"
    world.propose()
    world.heal(2.0)
    for node in world.nodes.values():
        world.check_state(node)
        assert node.state == leader.state, f"node {node.node_id} is behind"
