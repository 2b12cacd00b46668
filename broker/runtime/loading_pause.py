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
_is_frozen = False


def freeze_start() -> None:
    """What is here now stays: the collector need not walk it again, nor what is loaded later."""
    global _is_frozen
    _is_frozen = True
    gc.freeze()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Until the last of those who load at the same time has finished."""
    global _loading
    if not _is_frozen:
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
