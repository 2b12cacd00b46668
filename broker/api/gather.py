"""A request in several parts, each answered for itself, now or later: the answer to all when the last one is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from raftlog.broker.api.pace import Pace

if TYPE_CHECKING:
    from raftlog.broker.api.context import RequestContext

Q = TypeVar("Q")
R = TypeVar("R")


def gather(
    context: RequestContext,
    parts: Sequence[Q],
    begin: Callable[[Q, Callable[[R], None]], None],
    done: Callable[[list[R]], None],
    begun: Callable[[], None] = lambda: None,
) -> None:
    """Begin each part with what takes its answer, once; `done` gets all answers, in the order of the parts. Of many,
    some are begun in each turn; `begun` is called when all are.
    """
    answers: list[Any] = [None] * len(parts)
    missing = len(parts)

    def take(number: int, answer: R) -> None:
        nonlocal missing
        answers[number] = answer
        missing -= 1
        if not missing:
            done(answers)

    async def begin_all() -> None:
        await Pace().each(enumerate(parts), lambda part: begin(part[1], partial(take, part[0])))

    def all_begun(_: None) -> None:
        begun()
        if not parts:
            done([])

    context.in_turns(begin_all(), all_begun)
