"""The facts of the real machine that code can ask for without being given them, replaced while a run lasts.

`os.urandom` (and with it `uuid.uuid4`), the functions of `random` and the clocks of `time` become functions of the
seed. What is left to the real machine shows as two runs of one seed that differ.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EPOCH_SECONDS = 1_750_000_000
"""Where the wall clock stands at the beginning of a run: some day in June 2025."""


@contextmanager
def replaced(seed: int, now: Callable[[], float]) -> Iterator[None]:
    """Run the body with the machine's facts made from `seed` and the virtual time `now()`."""
    source = random.Random(f"machine {seed}")
    patches: list[tuple[Any, str, object]] = [
        (os, "urandom", source.randbytes),
        (time, "time", lambda: EPOCH_SECONDS + now()),
        (time, "time_ns", lambda: int((EPOCH_SECONDS + now()) * 1e9)),
        (time, "monotonic", now),
        (time, "monotonic_ns", lambda: int(now() * 1e9)),
        (sys, "unraisablehook", lambda _: None),
    ]
    state = random.getstate()
    kept = [(module, name, getattr(module, name)) for module, name, _ in patches]
    collecting = gc.isenabled()
    gc.freeze()
    # A collection in the middle of a run would close what dead processes left behind, at a moment that depends
    # on everything that the interpreter did before.
    gc.disable()
    random.seed(f"global {seed}")
    for module, name, value in patches:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in kept[:-1]:
            setattr(module, name, value)
        random.setstate(state)
        # What the run left, and not all that was there before it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
        gc.unfreeze()
        sys.unraisablehook = kept[-1][2]
        if collecting:
            gc.enable()
