"""How much random tests try: RAFTLOG_TEST_EFFORT times what each of them names, by default once."""

from __future__ import annotations

import os

EFFORT = float(os.environ.get("RAFTLOG_TEST_EFFORT", "1"))


def examples(count: int) -> int:
    """How many examples or seeds to try where `count` are usual; at least one."""
    return max(1, round(count * EFFORT))


def at_least(count: int) -> int:
    """How many to try where `count` are usual and needed, for the test counts what it meets among them."""
    return max(count, examples(count))
