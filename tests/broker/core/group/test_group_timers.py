"""The queue of deadlines that heartbeats keep moving."""

from __future__ import annotations

from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import given

from raftlog.broker.core.group import timers as timers_module
from raftlog.broker.core.group.timers import NEVER, Timer, TimerKind, TimerQueue
from raftlog.wire.errors import InvariantViolation


def timer(name: str = "") -> Timer:
    return Timer(TimerKind.SESSION, "group", name)


def test_a_deadline_that_moves_away_a_thousand_times_takes_one_place_in_the_queue() -> None:
    queue, one = TimerQueue(), timer()
    for now in range(1_000):
        queue.set(one, now + 10_000)
    assert len(queue) == 1
    assert list(queue.expired(10_998)) == []
    assert list(queue.expired(10_999)) == [one]
    assert queue.next_look_ms() == NEVER


def test_a_deadline_that_comes_nearer_is_met_in_time_and_only_once() -> None:
    queue, one = TimerQueue(), timer()
    queue.set(one, 300_000)
    queue.set(one, 10_000)
    assert queue.next_look_ms() == 10_000
    assert list(queue.expired(10_000)) == [one]
    assert list(queue.expired(400_000)) == []


def test_a_cancelled_timer_does_not_expire_and_can_be_set_again() -> None:
    queue, one = TimerQueue(), timer()
    queue.set(one, 10)
    one.cancel()
    assert not one.is_set and list(queue.expired(20)) == []
    queue.set(one, 30)
    assert list(queue.expired(30)) == [one]


def test_timers_that_come_and_go_do_not_pile_up_in_the_queue() -> None:
    queue, staying = TimerQueue(), [timer(str(number)) for number in range(700)]
    for number, one in enumerate(staying):
        queue.set(one, 2_000_000 + number)
    gone = []
    for number in range(20_000):
        gone.append(timer("gone"))
        queue.set(gone[-1], 1_800_000 + number)
        gone[-1].cancel()
        assert len(queue) <= 2 * (len(staying) + 1)
    queue.check_invariants(staying)
    queue.set(gone[0], 1_900_000)
    assert list(queue.expired(3_000_000)) == [gone[0], *staying]


def test_a_timer_set_during_expiry_to_a_time_that_has_come_expires_too() -> None:
    queue, one, two = TimerQueue(), timer("1"), timer("2")
    queue.set(one, 10)
    expired = []
    for found in queue.expired(10):
        expired.append(found.member_id)
        if found is one:
            queue.set(two, 5)
    assert expired == ["1", "2"]


def test_a_timer_that_the_queue_does_not_know_of_is_noticed() -> None:
    queue, one = TimerQueue(), timer("1")
    one.deadline_ms = 10
    queue.check_invariants([])
    with pytest.raises(InvariantViolation, match="SESSION of group 1"):
        queue.check_invariants([one])
    queue.set(one, 20)
    one.deadline_ms = 10
    with pytest.raises(InvariantViolation, match="is due 10 and looked at 20"):
        queue.check_invariants([])


@pytest.mark.parametrize("sweep_above", [0, 1_000])
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["set", "cancel", "run", "postpone"]), st.integers(0, 100)),
        max_size=60,
    )
)
def test_the_queue_agrees_with_a_plain_dictionary(sweep_above: int, steps: list[tuple[int, str, int]]) -> None:
    with patch.object(timers_module, "SWEEP_ABOVE_MIN", sweep_above):
        agree(TimerQueue(), steps)


def agree(queue: TimerQueue, steps: list[tuple[int, str, int]]) -> None:
    timers = [timer(str(i)) for i in range(5)]
    expected: dict[int, int] = {}
    now = 0
    for which, action, amount in steps:
        if action == "set":
            queue.set(timers[which], now + amount)
            expected[which] = now + amount
        elif action == "cancel":
            timers[which].cancel()
            expected.pop(which, None)
        elif action == "postpone":
            queue.postpone(amount)
            expected = {i: deadline + amount for i, deadline in expected.items()}
        else:
            now += amount
            due = {i for i, deadline in expected.items() if deadline <= now}
            assert {int(t.member_id) for t in queue.expired(now)} == due
            for i in due:
                del expected[i]
        queue.check_invariants(timers)
        assert queue.next_look_ms() <= min(expected.values(), default=NEVER)
        assert {i for i, t in enumerate(timers) if t.is_set} == expected.keys()
