"""When faults happen: decided by the seed before the run begins."""

from __future__ import annotations

import itertools

from raftlog.linearizability.harness.faults import FAULTS, faults_named
from raftlog.linearizability.harness.nemesis import schedule

ALL = frozenset({"processes", "links", "disks", "clocks", "requests", "transactions", "newest clients"})


def test_a_seed_makes_the_same_schedule_and_another_seed_another_one() -> None:
    assert schedule("everything", 60, 7, ALL) == schedule("everything", 60, 7, ALL)
    assert schedule("everything", 60, 7, ALL) != schedule("everything", 60, 8, ALL)


def test_faults_lie_one_behind_the_other_with_quiet_between_them_and_begin_within_the_load() -> None:
    for seed in range(50):
        periods = schedule("kill", 60, seed, ALL)
        assert len(periods) >= 3
        for one, other in itertools.pairwise(periods):
            assert one.at + one.seconds < other.at
        assert all(each.at < 60 and each.faults == (FAULTS["kill"],) for each in periods)


def test_several_faults_take_turns_and_each_comes_up_in_a_short_run() -> None:
    for seed in range(50):
        names = [each.faults[0].name for each in schedule("kill,pause,partition", 9, seed, ALL)]
        assert names[:3] == ["kill", "pause", "partition"]


def test_nothing_is_scheduled_where_nothing_should_happen() -> None:
    assert schedule("none", 60, 1, ALL) == []


def test_everything_is_what_the_system_and_the_workload_have_a_hold_of() -> None:
    names = {fault.name for fault in faults_named("everything", frozenset({"processes"}))}
    assert {"kill", "pause", "restart", "reassign"} <= names
    old = {fault.name for fault in faults_named("everything", ALL - {"newest clients"})}
    assert "zombie-writer" in old and "delayed-end-txn" not in old
    assert not names & {"partition", "clock", "delayed-end-txn", "isr-of-one", "none"}
