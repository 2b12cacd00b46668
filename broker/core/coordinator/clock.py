"""The time, as a coordinator's state is told it."""

from __future__ import annotations

from typing import NamedTuple

NEVER = 1 << 62
"""A time that does not come (ms)."""


class Now(NamedTuple):
    """One instant on two clocks, in ms: `monotonic_ms` never jumps and is for deadlines, `wall_ms` is since 1970."""

    monotonic_ms: int
    wall_ms: int
