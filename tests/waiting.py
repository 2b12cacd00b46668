"""Waiting until something is so: the one place where tests let real time pass (tests/test_tidy.py sees to that)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

DEADLINE_SECONDS = 30.0
LOOK_SECONDS = 0.01


async def until(condition: Callable[[], object], what: str = "", seconds: float = DEADLINE_SECONDS) -> None:
    """Return when the condition holds, with the event loop free meanwhile; fail with `what` at the deadline."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(LOOK_SECONDS)


def wait_until(condition: Callable[[], object], what: str = "", seconds: float = DEADLINE_SECONDS) -> None:
    """Return when the condition holds; fail with `what` at the deadline."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(LOOK_SECONDS)
