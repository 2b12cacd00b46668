"""When a stream reads, and how far."""

from __future__ import annotations

from raftlog.pipeline.source.offsets import Partition
from raftlog.pipeline.source.triggers import Limits, Trigger

START: dict[Partition, int] = {("t", 0): 10, ("t", 1): 10}
LAST: dict[Partition, int] = {("t", 0): 14, ("t", 1): 16}


def test_without_limits_all_is_read() -> None:
    assert Trigger().end(START, LAST, Limits(), 0.0) == LAST


def test_with_too_little_to_read_a_trigger_waits_until_the_delay_is_over() -> None:
    trigger, limits = Trigger(), Limits(least=11, delay=5.0)
    assert trigger.end(START, LAST, limits, 100.0) == LAST, "the first one does not wait"
    assert trigger.end(START, LAST, limits, 104.9) == START
    assert trigger.end(START, {**LAST, ("t", 0): 15}, limits, 104.9) == {**LAST, ("t", 0): 15}
    assert trigger.end(START, LAST, limits, 109.8) == START
    assert trigger.end(START, LAST, limits, 109.9) == LAST


def test_a_waiting_trigger_does_not_put_its_delay_off() -> None:
    trigger, limits = Trigger(), Limits(least=11, delay=5.0)
    trigger.end(START, LAST, limits, 0.0)
    assert [trigger.end(START, LAST, limits, at) == START for at in (1.0, 2.0, 4.0, 5.0)] == [True, True, True, False]


def test_at_most_so_many_offsets_are_read() -> None:
    assert Trigger().end(START, LAST, Limits(most=5), 0.0) == {("t", 0): 12, ("t", 1): 13}
