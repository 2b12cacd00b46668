"""Waiting until something is so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_SECONDS = 0.005


class NotInTime(AssertionError):
    """What a test waited for did not come."""


def wait_until(look: Callable[[], T], seconds: float, what: Callable[[], str]) -> T:
    """What `look` returns as soon as that is true. Raises NotInTime with `what()` after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() >= deadline:
            raise NotInTime(f"not within {seconds:g} s: {what()}")
        time.sleep(LOOK_SECONDS)
    return found
