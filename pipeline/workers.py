"""Makes Spark's Python workers cheap between tasks."""

from __future__ import annotations

import gc
import os

_spared: set[int] = set()


def spare_collector() -> None:
    """Once in a process, and when what it works with is imported: take all that is there from Python's collector.

    A worker of Spark's collects garbage after every task (`pyspark/daemon.py`), and each time went through PySpark,
    Arrow and NumPy, for 40 ms of processor time, six times a micro-batch.
    """
    if os.getpid() not in _spared:
        _spared.add(os.getpid())
        gc.collect()
        gc.freeze()
