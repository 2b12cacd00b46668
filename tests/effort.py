"""How many examples Hypothesis tries: few in every run, as many times more as RAFTLOG_TEST_EFFORT says."""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """`count`, or that many times RAFTLOG_TEST_EFFORT."""
    return count * int(os.environ.get("RAFTLOG_TEST_EFFORT", "1"))
