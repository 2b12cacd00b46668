"""The results of a response by topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class ByTopic(dict[str, T]):
    """Topics in the order in which they are first asked for: `make` is given the name, and makes what holds the
    results of its partitions.
    """

    def __init__(self, make: Callable[[str], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> T:
        self[name] = made = self._make(name)
        return made
