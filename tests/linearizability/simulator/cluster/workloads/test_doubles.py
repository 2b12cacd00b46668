"""Who may commit for a group with an instance id that two members share, and from outside."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.linearizability.simulator.cluster.workloads.doubles import Doubles, Joined, Spell
from raftlog.linearizability.simulator.violation import Violation


def doubles() -> Doubles:
    ways = SimpleNamespace(random=Random(0), loop=SimpleNamespace())
    context: Any = SimpleNamespace(ways=lambda name: ways)
    return Doubles(context, 0)


@pytest.mark.parametrize(
    ("other", "call", "holds"),
    [
        (Joined("i", "b", asked=5, had=6), 7, False),
        (Joined("i", "b", asked=5, had=6), 6, True),
        (Joined("i", "b", asked=1, had=6), 7, True),
        (Joined("j", "b", asked=5, had=6), 7, True),
    ],
)
def test_who_was_replaced_for_certain_before_a_commit_was_sent_does_not_commit(
    other: Joined, call: int, holds: bool
) -> None:
    workload = doubles()
    workload.joined = [Joined("i", "a", asked=0, had=2), other]
    if holds:
        workload.check_commit("i", "a", call)
    else:
        with pytest.raises(Violation, match="fencing"):
            workload.check_commit("i", "a", call)


@pytest.mark.parametrize(("spell", "holds"), [(Spell(1, 9), False), (Spell(4, 9), True), (Spell(1, 5), True)])
def test_a_commit_from_outside_is_not_taken_while_a_member_is_there(spell: Spell, holds: bool) -> None:
    workload = doubles()
    workload.spells = {("a", 1): spell}
    workload.taken = [(4, 6)]
    if holds:
        workload.judge()
    else:
        with pytest.raises(Violation, match="from outside"):
            workload.judge()
