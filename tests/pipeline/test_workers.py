"""What the pipeline does to Python's collector in Spark's workers."""

from __future__ import annotations

import subprocess
import sys

OBJECTS = """
import gc
from raftlog.pipeline.workers import freeze_modules

kept = [[] for _ in range(100_000)]
before = len(gc.get_objects())
freeze_modules()
print(before > 100_000, len(gc.get_objects()) < 1_000, gc.get_freeze_count() > 100_000)
frozen, more = gc.get_freeze_count(), [[] for _ in range(1_000)]
freeze_modules()
print(gc.get_freeze_count() <= frozen, len(gc.get_objects()) >= 1_000)
"""


def test_the_collector_is_spared_what_is_there_once_and_what_comes_later_is_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", OBJECTS], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["True True True", "True True"]
