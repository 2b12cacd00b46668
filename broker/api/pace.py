"""A request with many entries, worked on some at a time: others have their turn between.

    @responds_in_turns
    async def handle(context, request):
        pace = Pace()
        return Response(results=await pace.each(request.entries, work))

Whoever has few entries is answered at once. What is known may change between two turns: each entry is looked up when
its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from copy import copy
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from raftlog.wire.schema import Struct

if TYPE_CHECKING:
    from asyncio import Future

ENTRIES_PER_TURN = 200
"""So many take a millisecond or two."""

R = TypeVar("R")
P = TypeVar("P")
T = TypeVar("T", bound=Struct)


class Pace:
    """Counts what one request has had of a turn."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ENTRIES_PER_TURN

    @coroutine
    def each(self, parts: Iterable[P], work: Callable[[P], R]) -> Generator[None, None, list[R]]:
        """What `work` makes of each part."""
        results: list[R] = []
        for part in parts:
            if self._left <= 0:
                self._left = ENTRIES_PER_TURN
                yield
            self._left -= 1
            results.append(work(part))
        # An array without elements is an entry itself.
        self._left -= 1
        return results

    @coroutine
    def spend(self, entries: int) -> Generator[None, None, None]:
        """What comes next takes as long as so many entries."""
        if self._left <= 0:
            self._left = ENTRIES_PER_TURN
            yield
        self._left -= entries


def in_parts(topics: Iterable[T], partitions_max: int) -> Iterator[list[T]]:
    """The same topics, each with its `partitions`, some at a time: with no more than so many partitions. One with more
    comes in several parts.
    """
    part: list[T] = []
    left = partitions_max
    for piece, partitions in _pieces(topics, partitions_max):
        if part and partitions > left:
            yield part
            part, left = [], partitions_max
        part.append(piece)
        # A topic itself is something, too.
        left -= max(1, partitions)
    if part:
        yield part


def _pieces(topics: Iterable[T], partitions_max: int) -> Iterator[tuple[T, int]]:
    """Each topic with the number of its partitions, or pieces of it that have no more than so many."""
    for topic in topics:
        partitions: list[Any] = topic.partitions  # type: ignore[attr-defined]
        if len(partitions) <= partitions_max:
            yield topic, len(partitions)
            continue
        for start in range(0, len(partitions), partitions_max):
            piece = copy(topic)
            together = piece.partitions = partitions[start : start + partitions_max]  # type: ignore[attr-defined]
            yield piece, len(together)


@coroutine
def wait_for(future: Future[R]) -> Generator[Future[R], None, R]:
    """Go on, in a turn of the client, when it is done. For what runs `in_turns` and is no task."""
    yield future
    return future.result()
