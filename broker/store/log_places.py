"""Which of two logs of one partition counts: a disk came back after the partition was made in another directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Place(NamedTuple):
    """A replica's topic and data directory. From the metadata the directory may be NO_DIRECTORY: they do not say which;
    of a log the topic may be None: it does not say of which it is.
    """

    topic_id: bytes | None
    directory_id: bytes


PlaceOf = Callable[[str, int], Place | None]
"""Where the metadata have (topic, partition); None for what they do not know."""


def nowhere(topic: str, index: int) -> Place | None:
    """The metadata know of nothing."""
    return None


def second_counts(wanted: Place | None, first: Place, second: Place) -> bool | None:
    """Whether the second log is the one that the metadata mean, and not the first; None if nobody can tell."""
    if wanted is None or second.topic_id != wanted.topic_id:
        return False
    if first.topic_id != wanted.topic_id:
        return True
    if (first.directory_id == wanted.directory_id) == (second.directory_id == wanted.directory_id):
        return None
    return second.directory_id == wanted.directory_id
