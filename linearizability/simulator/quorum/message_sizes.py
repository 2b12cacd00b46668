"""How much of its log a Raft leader puts into one message: in runs of a few hundred entries all would always fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from raftlog.raft.core import leadership

SIZES = ((1, 1), (1, 100), (100, 100), (leadership.PROBE_BYTES_MAX, leadership.APPEND_BYTES_MAX))
"""Bytes of entries in a message that asks where two logs agree, and in one that goes on from there."""


@contextmanager
def small_messages(sizes: tuple[int, int]) -> Iterator[None]:
    """A follower gets its entries one by one, or some at a time, or all at once: `sizes` is one of SIZES."""
    probe, append = sizes
    before = leadership.PROBE_BYTES_MAX, leadership.APPEND_BYTES_MAX
    leadership.PROBE_BYTES_MAX, leadership.APPEND_BYTES_MAX = probe, append
    try:
        yield
    finally:
        leadership.PROBE_BYTES_MAX, leadership.APPEND_BYTES_MAX = before
