"""Makes Spark's Python workers cheap between tasks."""

from __future__ import annotations

import gc
import os

_frozen_in: set[int] = set()


def freeze_modules() -> None:
    """Once in a process, and when what it works with is imported: Python's collector need not walk that any more.

    A worker of Spark's collects garbage after every task (`pyspark/daemon.py`), and each time walked PySpark, Arrow and
    NumPy: half of the processor time of a small micro-batch.
    """
    if os.getpid() not in _frozen_in:
        _frozen_in.add(os.getpid())
        gc.collect()
        gc.freeze()
