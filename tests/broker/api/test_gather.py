"""A request in parts: one answer to all, in the order of the parts, whenever each is there."""

from __future__ import annotations

from collections.abc import Callable

from raftlog.broker.api.gather import gather
from raftlog.broker.api.pace import ENTRIES_PER_TURN
from tests.broker.api.turns_world import TurnsWorld

Answer = Callable[[int], None]


def test_answers_come_in_any_order_and_are_told_in_that_of_the_parts() -> None:
    waiting: dict[str, Answer] = {}
    told: list[list[int]] = []
    gather(TurnsWorld().context, ["a", "b", "c"], waiting.__setitem__, told.append)
    for number, part in enumerate(("c", "a", "b")):
        assert not told
        waiting[part](number)
    assert told == [[1, 2, 0]]


def test_parts_that_answer_at_once_are_told_once() -> None:
    told: list[list[int]] = []
    gather(TurnsWorld().context, [1, 2, 3], lambda part, answer: answer(part * 10), told.append)
    assert told == [[10, 20, 30]]


def test_without_parts_there_is_an_answer_too() -> None:
    told: list[list[int]] = []
    gather(TurnsWorld().context, [], lambda part, answer: answer(part), told.append)
    assert told == [[]]


def test_of_many_parts_some_are_begun_in_each_turn() -> None:
    world = TurnsWorld()
    begun: list[int] = []
    told: list[list[int]] = []
    ends: list[int] = []

    def begin(part: int, answer: Answer) -> None:
        begun.append(part)
        answer(part)

    gather(world.context, range(3 * ENTRIES_PER_TURN), begin, told.append, lambda: ends.append(len(begun)))
    turns = []
    while not ends:
        turns.append(len(begun))
        assert not told
        world.turn()
    assert turns == [ENTRIES_PER_TURN, 2 * ENTRIES_PER_TURN]
    assert told == [list(range(3 * ENTRIES_PER_TURN))]
