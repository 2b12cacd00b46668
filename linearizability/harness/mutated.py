"""Python with a mutant in it: `python -m raftlog.linearizability.harness.mutated NAME -m MODULE ARGUMENT…` runs MODULE
as `python -m MODULE ARGUMENT…` does, with the simulator's mutant NAME in the code.

Brokers and client processes of a run with a mutant are started with this in the place of their interpreter. What is
shipped knows nothing of it.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager

from raftlog.linearizability.simulator.catalogue import mutants
from raftlog.linearizability.simulator.mutants import patch
from raftlog.testing.process import safe_path

MODULE = "raftlog.linearizability.harness.mutated"
WITHOUT = ("raftlog.testing.faults.links",)
"""Processes of the harness itself."""


def python(mutant: str) -> list[str]:
    """The interpreter of a run's processes; "" is none."""
    if not mutant:
        return [sys.executable]
    return [sys.executable, *safe_path(), "-m", MODULE, mutant]


def no_fsync() -> AbstractContextManager[None]:
    """Nothing is ever synced; what a power cut takes is decided by the disk of `raftlog.testing`."""
    from raftlog.testing.faults.machine import FaultyDisk

    return patch(FaultyDisk, "sync", lambda self, descriptor: None)


REAL = {"no-fsync": no_fsync}
"""In the place of the simulator's own, where that is about the simulator's disk."""


def main(arguments: Sequence[str]) -> None:
    """See the module."""
    name, rest = arguments[0], list(arguments[1:])
    at = rest.index("-m")
    module = rest[at + 1]
    sys.argv = [module, *rest[at + 2 :]]
    if module in WITHOUT:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    put = REAL[name] if name in REAL else mutants()[name].apply
    with put():
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
