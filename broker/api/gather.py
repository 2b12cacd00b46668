"""A request in several parts, each answered for itself, now or later: the answer to all when the last one is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

Q = TypeVar("Q")
R = TypeVar("R")


def gather(
    parts: Sequence[Q], begin: Callable[[Q, Callable[[R], None]], None], done: Callable[[list[R]], None]
) -> None:
    """Begin each part with what takes its answer, once; `done` gets all answers, in the order of the parts."""
    answers: list[Any] = [None] * len(parts)
    missing = len(parts)

    def take(number: int, answer: R) -> None:
        nonlocal missing
        answers[number] = answer
        missing -= 1
        if not missing:
            done(answers)

    for number, part in enumerate(parts):
        begin(part, partial(take, number))
    if not parts:
        done([])
