"""Keeps the garbage collector away while a coordinator loads: it would walk a hundred thousand members at a time.

What was loaded has no cycles, so it goes when nobody refers to it any more. It is put where the collector does not look
(`gc.freeze`), as what a broker has when it starts (`main.py`). Only a process that has done that does this: elsewhere,
in tests and in the simulator, other people's garbage would stay for ever.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_loading = 0


@contextmanager
def collector_paused() -> Iterator[None]:
    """Until the last of those who load at the same time has finished."""
    global _loading
    if not gc.get_freeze_count():
        yield
        return
    _loading += 1
    gc.disable()
    try:
        yield
    finally:
        _loading -= 1
        if not _loading:
            gc.freeze()
            gc.enable()
