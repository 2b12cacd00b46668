"""Deadlines of long polls: never early, a bit late together, and never so many at once that others wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from raftlog.broker.runtime.deadlines import (
    EXPIRED_PER_TURN,
    LAZY_TICKS,
    LAZY_TOGETHER_MAX,
    TICK_SECONDS,
    Deadlines,
)
from tests.broker.runtime.wheel import Wheel


class Item:
    """Notes when it expires."""

    def __init__(self, wheel: Wheel) -> None:
        self.wheel = wheel
        self.expired_at: float | None = None

    def expire(self) -> None:
        assert self.expired_at is None, "it expires once"
        self.expired_at = self.wheel.now


def test_a_deadline_is_met_within_a_tick_and_never_early() -> None:
    wheel = Wheel()
    deadlines: Deadlines[Item] = Deadlines(cast(asyncio.AbstractEventLoop, wheel))
    items = {seconds: Item(wheel) for seconds in (0.0, 0.001, 0.3, 0.5, 1.0)}
    for seconds, item in items.items():
        deadlines.add(item, wheel.now + seconds)
    wheel.advance_to(102.0)
    for seconds, item in items.items():
        assert item.expired_at is not None and 0 <= item.expired_at - 100.0 - seconds <= TICK_SECONDS + 1e-9


def test_lazy_deadlines_end_together_and_at_most_a_fifth_late() -> None:
    wheel = Wheel()
    deadlines: Deadlines[Item] = Deadlines(cast(asyncio.AbstractEventLoop, wheel))
    items = [Item(wheel) for _ in range(40)]
    due = []
    for item in items:
        wheel.advance_to(wheel.now + 0.013)
        due.append(wheel.now + 0.5)
        deadlines.add_lazily(item, due[-1])
    wheel.advance_to(110.0)
    moments = [item.expired_at for item in items if item.expired_at is not None]
    late = [moment - when for moment, when in zip(moments, due, strict=True)]
    assert all(0 <= seconds <= LAZY_TICKS * TICK_SECONDS + 1e-9 for seconds in late)
    assert len({round(moment, 6) for moment in moments}) <= 8, "forty polls, half a second: a few wake-ups"


def test_many_that_are_due_together_leave_turns_to_others() -> None:
    wheel = Wheel()
    deadlines: Deadlines[Item] = Deadlines(cast(asyncio.AbstractEventLoop, wheel))
    items = [Item(wheel) for _ in range(3 * EXPIRED_PER_TURN)]
    for item in items:
        deadlines.add(item, 100.1)
    wheel.now = 100.2
    wheel.turn()
    for turns in (1, 2, 3):
        wheel.turn()
        assert sum(item.expired_at is not None for item in items) == turns * EXPIRED_PER_TURN


def test_ticks_that_a_long_turn_has_passed_over_share_the_turns_after_it() -> None:
    wheel = Wheel()
    deadlines: Deadlines[Item] = Deadlines(cast(asyncio.AbstractEventLoop, wheel))
    items = [Item(wheel) for _ in range(3 * EXPIRED_PER_TURN)]
    for number, item in enumerate(items):
        deadlines.add(item, 100.1 + number * TICK_SECONDS / 2)
    wheel.now = 101.0
    wheel.turn()
    for turns in (1, 2, 3):
        wheel.turn()
        assert sum(item.expired_at is not None for item in items) == turns * EXPIRED_PER_TURN


def test_lazy_deadlines_that_come_at_once_are_spread_over_the_time_they_have() -> None:
    wheel = Wheel()
    deadlines: Deadlines[Item] = Deadlines(cast(asyncio.AbstractEventLoop, wheel))
    items = [Item(wheel) for _ in range(LAZY_TICKS * LAZY_TOGETHER_MAX + 1)]
    ticks = Counter(deadlines.add_lazily(item, 100.5) for item in items)
    assert sorted(ticks.values()) == [*[LAZY_TOGETHER_MAX] * (LAZY_TICKS - 1), LAZY_TOGETHER_MAX + 1]
    wheel.advance_to(110.0)
    late = [item.expired_at - 100.5 for item in items if item.expired_at is not None]
    assert len(late) == len(items)
    assert all(0 <= seconds <= LAZY_TICKS * TICK_SECONDS + 1e-9 for seconds in late)


def test_an_item_that_fails_keeps_no_other_from_expiring() -> None:
    wheel = Wheel()
    deadlines: Deadlines[Any] = Deadlines(cast(asyncio.AbstractEventLoop, wheel))

    class Failing:
        def expire(self) -> None:
            raise ZeroDivisionError

    early, late = Item(wheel), Item(wheel)
    for item in (early, Failing()):
        deadlines.add(item, 100.1)
    deadlines.add(late, 100.2)
    with pytest.raises(ZeroDivisionError):
        wheel.advance_to(101.0)
    wheel.advance_to(101.0)
    assert early.expired_at is not None and late.expired_at is not None


def test_what_is_removed_while_others_expire_is_left_alone() -> None:
    wheel = Wheel()
    deadlines: Deadlines[Any] = Deadlines(cast(asyncio.AbstractEventLoop, wheel))
    kept = Item(wheel)
    tick = deadlines.add(kept, 100.1)

    class Remover:
        def expire(self) -> None:
            deadlines.remove(kept, tick)

    deadlines.add(Remover(), 100.1)
    wheel.advance_to(101.0)
    assert kept.expired_at is None


def test_all_can_be_ended_at_once() -> None:
    wheel = Wheel()
    deadlines: Deadlines[Item] = Deadlines(cast(asyncio.AbstractEventLoop, wheel))
    items = [Item(wheel) for _ in range(100)]
    for number, item in enumerate(items):
        deadlines.add(item, 100.0 + number / 50)
    deadlines.expire_all()
    assert all(item.expired_at == 100.0 for item in items)
    wheel.advance_to(110.0)
