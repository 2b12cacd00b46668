"""Deadlines of all that waits: never early, a bit late together, and never so many at once that others wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

import pytest

from raftlog.broker.runtime.timer_wheel import (
    EXPIRED_PER_TURN,
    LAZY_TICKS,
    LAZY_TOGETHER_MAX,
    TICK_SECONDS,
    TimedWait,
    TimerWheel,
)
from raftlog.wire.errors import ErrorCode, InvariantViolation
from tests.broker.runtime.manual_loop import ManualLoop


class Item:
    """Notes when it expires."""

    def __init__(self, loop: ManualLoop) -> None:
        self.loop = loop
        self.expired_at: float | None = None

    def expire(self) -> None:
        assert self.expired_at is None, "it expires once"
        self.expired_at = self.loop.now


def test_a_deadline_is_met_within_a_tick_and_never_early() -> None:
    loop = ManualLoop()
    timers = TimerWheel(cast(asyncio.AbstractEventLoop, loop))
    items = {seconds: Item(loop) for seconds in (0.0, 0.001, 0.3, 0.5, 1.0)}
    for seconds, item in items.items():
        timers.add(item, loop.now + seconds)
    loop.advance_to(102.0)
    for seconds, item in items.items():
        assert item.expired_at is not None and 0 <= item.expired_at - 100.0 - seconds <= TICK_SECONDS + 1e-9


def test_lazy_deadlines_end_together_and_at_most_a_fifth_late() -> None:
    loop = ManualLoop()
    timers = TimerWheel(cast(asyncio.AbstractEventLoop, loop))
    items = [Item(loop) for _ in range(40)]
    due = []
    for item in items:
        loop.advance_to(loop.now + 0.013)
        due.append(loop.now + 0.5)
        timers.add_lazily(item, due[-1])
        timers.check_invariants()
    loop.advance_to(110.0)
    timers.check_invariants()
    moments = [item.expired_at for item in items if item.expired_at is not None]
    late = [moment - when for moment, when in zip(moments, due, strict=True)]
    assert all(0 <= seconds <= LAZY_TICKS * TICK_SECONDS + 1e-9 for seconds in late)
    assert len({round(moment, 6) for moment in moments}) <= 8, "forty polls, half a second: a few wake-ups"


def test_many_that_are_due_together_leave_turns_to_others() -> None:
    loop = ManualLoop()
    timers = TimerWheel(cast(asyncio.AbstractEventLoop, loop))
    items = [Item(loop) for _ in range(3 * EXPIRED_PER_TURN)]
    for item in items:
        timers.add(item, 100.1)
    loop.now = 100.2
    loop.turn()
    for turns in (1, 2, 3):
        loop.turn()
        timers.check_invariants()
        assert sum(item.expired_at is not None for item in items) == turns * EXPIRED_PER_TURN


def test_ticks_that_a_long_turn_has_passed_over_share_the_turns_after_it() -> None:
    loop = ManualLoop()
    timers = TimerWheel(cast(asyncio.AbstractEventLoop, loop))
    items = [Item(loop) for _ in range(3 * EXPIRED_PER_TURN)]
    for number, item in enumerate(items):
        timers.add(item, 100.1 + number * TICK_SECONDS / 2)
    loop.now = 101.0
    loop.turn()
    for turns in (1, 2, 3):
        loop.turn()
        timers.check_invariants()
        assert sum(item.expired_at is not None for item in items) == turns * EXPIRED_PER_TURN


def test_lazy_deadlines_that_come_at_once_are_spread_over_the_time_they_have() -> None:
    loop = ManualLoop()
    timers = TimerWheel(cast(asyncio.AbstractEventLoop, loop))
    items = [Item(loop) for _ in range(LAZY_TICKS * LAZY_TOGETHER_MAX + 1)]
    ticks = Counter(timers.add_lazily(item, 100.5) for item in items)
    assert sorted(ticks.values()) == [*[LAZY_TOGETHER_MAX] * (LAZY_TICKS - 1), LAZY_TOGETHER_MAX + 1]
    loop.advance_to(110.0)
    late = [item.expired_at - 100.5 for item in items if item.expired_at is not None]
    assert len(late) == len(items)
    assert all(0 <= seconds <= LAZY_TICKS * TICK_SECONDS + 1e-9 for seconds in late)


def test_an_item_that_fails_keeps_no_other_from_expiring() -> None:
    loop = ManualLoop()
    timers = TimerWheel(cast(asyncio.AbstractEventLoop, loop))

    class Failing:
        def expire(self) -> None:
            raise ZeroDivisionError

    early, late = Item(loop), Item(loop)
    for item in (early, Failing()):
        timers.add(item, 100.1)
    timers.add(late, 100.2)
    with pytest.raises(ZeroDivisionError):
        loop.advance_to(101.0)
    loop.advance_to(101.0)
    assert early.expired_at is not None and late.expired_at is not None


def test_what_is_removed_while_others_expire_is_left_alone() -> None:
    loop = ManualLoop()
    timers = TimerWheel(cast(asyncio.AbstractEventLoop, loop))
    kept = Item(loop)
    tick = timers.add(kept, 100.1)

    class Remover:
        def expire(self) -> None:
            timers.remove(kept, tick)

    timers.add(Remover(), 100.1)
    loop.advance_to(101.0)
    assert kept.expired_at is None


def test_all_of_one_kind_can_be_ended_at_once() -> None:
    loop = ManualLoop()
    timers = TimerWheel(cast(asyncio.AbstractEventLoop, loop))
    items = [Item(loop) for _ in range(100)]
    for number, item in enumerate(items):
        timers.add(item, 100.0 + number / 50)

    class Other(Item):
        pass

    other = Other(loop)
    timers.add(other, 100.5)
    timers.expire_all(Other)
    assert other.expired_at == 100.0 and all(item.expired_at is None for item in items)
    timers.expire_all(Item)
    assert all(item.expired_at == 100.0 for item in items)
    loop.advance_to(110.0)


def test_items_that_would_never_expire_are_noticed() -> None:
    timers = TimerWheel(cast(asyncio.AbstractEventLoop, ManualLoop()))
    tick = timers.add_lazily(Item(ManualLoop()), 100.5)
    timers.check_invariants()
    del timers._buckets[tick]
    with pytest.raises(InvariantViolation, match="which has gone"):
        timers.check_invariants()


def test_a_timed_wait_ends_once_by_what_comes_first() -> None:
    loop = ManualLoop()
    timers = TimerWheel(cast(asyncio.AbstractEventLoop, loop))
    told: list[tuple[str, ErrorCode]] = []

    def wait(name: str) -> TimedWait:
        return TimedWait(timers, 0.1, lambda error: told.append((name, error)))

    waits = {name: wait(name) for name in ("a", "b")}
    waits["a"].done(ErrorCode.NONE)
    assert told == [("a", ErrorCode.NONE)]
    loop.advance_to(101.0)
    for wait in waits.values():
        wait.done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told == [("a", ErrorCode.NONE), ("b", ErrorCode.REQUEST_TIMED_OUT)]
