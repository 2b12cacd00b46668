"""Who counts as dead, and when: with a clock that the test holds in its hand."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.metadata.liveness import (
    FRESH_SESSION_MS_MIN,
    LOST_CONNECTION_GRACE_MS,
    PAUSE_TOLERANCE_MS,
    TICK_MS,
    Liveness,
)
from tests.effort import examples

SESSION_MS = 2000


class Clock:
    """Ticks as the leader would, and notes who was reported when."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.liveness = Liveness(SESSION_MS)
        self.liveness.begin(self.now_ms)
        self.dead: dict[int, int] = {}

    def run(self, ms: int, *beating: int) -> None:
        """Let time pass; `beating` brokers are heard all the time."""
        end = self.now_ms + ms
        while self.now_ms < end:
            self.now_ms = min(end, self.now_ms + TICK_MS)
            for broker_id in beating:
                self.liveness.heard(broker_id, 1, self.now_ms)
            self.tick()

    def pause(self, ms: int) -> None:
        """The leader itself does not run, and hears nobody."""
        self.now_ms += ms
        self.tick()

    def tick(self) -> None:
        for silence in self.liveness.tick(self.now_ms):
            assert silence.broker_id not in self.dead, "a broker is reported once"
            self.dead[silence.broker_id] = self.now_ms


def watched(*brokers: int) -> Clock:
    clock = Clock()
    for broker_id in brokers:
        clock.liveness.watch(broker_id, 1, clock.now_ms)
    return clock


def test_a_silent_broker_is_dead_when_its_session_ends_and_others_are_not() -> None:
    clock = watched(1, 2)
    began = clock.now_ms
    clock.run(3 * SESSION_MS, 2)
    assert list(clock.dead) == [1]
    assert SESSION_MS <= clock.dead[1] - began <= SESSION_MS + TICK_MS


def test_a_lost_connection_ends_a_session_after_a_short_grace() -> None:
    clock = watched(1, 2)
    clock.liveness.connection(1, False, clock.now_ms)
    assert not clock.liveness.is_alive(1, clock.now_ms)
    began = clock.now_ms
    clock.run(SESSION_MS // 2, 2)
    assert clock.dead[1] - began <= LOST_CONNECTION_GRACE_MS + TICK_MS


def test_a_connection_that_comes_back_within_the_grace_is_nothing() -> None:
    clock = watched(1)
    clock.liveness.connection(1, False, clock.now_ms)
    clock.run(LOST_CONNECTION_GRACE_MS - TICK_MS, 1)
    clock.liveness.connection(1, True, clock.now_ms)
    clock.run(SESSION_MS, 1)
    assert not clock.dead


def test_heartbeats_that_were_under_way_do_not_save_a_broker_whose_connection_is_gone() -> None:
    clock = watched(1)
    clock.liveness.connection(1, False, clock.now_ms)
    clock.run(SESSION_MS, 1)
    assert list(clock.dead) == [1]


def test_a_pause_of_the_leader_itself_is_nobody_elses_fault() -> None:
    clock = watched(1)
    clock.run(SESSION_MS - 4 * TICK_MS)
    clock.liveness.connection(1, True, clock.now_ms)
    clock.pause(10 * SESSION_MS)
    assert not clock.dead
    clock.run(2 * TICK_MS)
    assert not clock.dead
    clock.run(4 * TICK_MS)
    assert clock.dead


def test_a_new_leader_gives_everybody_a_whole_session_and_those_without_a_connection_the_grace() -> None:
    clock = watched(1, 2)
    clock.run(SESSION_MS - TICK_MS)
    clock.liveness.begin(clock.now_ms)
    clock.liveness.connection(2, False, clock.now_ms)
    for broker_id in (1, 2):
        clock.liveness.watch(broker_id, 1, clock.now_ms)
    began = clock.now_ms
    clock.run(2 * SESSION_MS)
    assert clock.dead[2] - began <= LOST_CONNECTION_GRACE_MS + TICK_MS
    assert clock.dead[1] - began >= SESSION_MS


def test_a_leader_that_was_stopped_is_dead_one_session_after_it_was_last_heard() -> None:
    clock = Clock()
    silent_ms = SESSION_MS * 5 // 8
    clock.liveness.watch(1, 1, clock.now_ms, silent_ms)
    clock.liveness.watch(2, 1, clock.now_ms, 100 * SESSION_MS)
    began = clock.now_ms
    clock.run(2 * SESSION_MS)
    assert SESSION_MS <= clock.dead[1] - began + silent_ms <= SESSION_MS + TICK_MS
    assert clock.dead[2] - began >= FRESH_SESSION_MS_MIN, "time for a heartbeat is given to everybody"


def test_who_registers_over_a_connection_on_which_its_predecessor_was_never_heard_is_no_second_one() -> None:
    """After all brokers were killed, every one of them was refused as its own double until the session was over."""
    clock = Clock()
    clock.liveness.watch(1, 1, clock.now_ms, heard=False)
    assert not clock.liveness.is_alive(1, clock.now_ms)
    clock.liveness.heard(1, 1, clock.now_ms)
    assert clock.liveness.is_alive(1, clock.now_ms)
    clock.liveness.connection(1, False, clock.now_ms)
    clock.liveness.connection(1, True, clock.now_ms)
    assert not clock.liveness.is_alive(1, clock.now_ms)
    clock.liveness.heard(1, 1, clock.now_ms)
    assert clock.liveness.is_alive(1, clock.now_ms) and not clock.liveness.is_alive(1, clock.now_ms + SESSION_MS)
    clock.run(SESSION_MS // 2)
    assert not clock.dead


def test_what_an_old_incarnation_says_does_not_count_for_the_new_one() -> None:
    clock = watched(1)
    clock.liveness.watch(1, 2, clock.now_ms)
    clock.run(SESSION_MS + TICK_MS, 1)
    assert list(clock.dead) == [1]


def test_an_old_incarnation_that_is_watched_again_does_not_take_the_place_of_the_new_one() -> None:
    clock = watched(1)
    clock.liveness.watch(1, 2, clock.now_ms)
    clock.liveness.watch(1, 1, clock.now_ms)  # it could not be fenced, and has registered since
    clock.run(SESSION_MS + TICK_MS, 1)
    assert list(clock.dead) == [1]


def test_a_broker_that_is_forgotten_is_not_reported() -> None:
    clock = watched(1)
    clock.liveness.forget(1)
    clock.run(2 * SESSION_MS)
    assert not clock.dead
    assert not clock.liveness.is_alive(1, clock.now_ms) and clock.liveness.silent_ms(1, clock.now_ms) == 0


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(1, 3 * SESSION_MS), st.integers(0, 290)), min_size=1, max_size=30))
def test_a_broker_that_speaks_whenever_the_leader_listens_is_never_taken_for_dead(steps: list[tuple[int, int]]) -> None:
    """Pauses of the leader of any length, each followed by some time in which heartbeats get through."""
    clock = watched(1)
    for pause_ms, quiet_ms in steps:
        clock.pause(pause_ms)
        clock.run(quiet_ms)
        clock.run(2 * TICK_MS, 1)
    # A pause that is too short to be noticed counts; no number of them adds up, because heartbeats come in between.
    assert not clock.dead or max(pause for pause, _ in steps) <= TICK_MS + PAUSE_TOLERANCE_MS
