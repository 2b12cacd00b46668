"""Python with a mutant in it: `python -m raftlog.linearizability.harness.mutated NAME -m MODULE ARGUMENT…` runs MODULE
as `python -m MODULE ARGUMENT…` does, with the simulator's mutant NAME in the code.

Brokers and client processes of a run with a mutant are started with this in the place of their interpreter. What is
shipped knows nothing of it.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from raftlog.linearizability.simulator.catalogue import mutants
from raftlog.linearizability.simulator.mutants.mutants import patch
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


@contextmanager
def looked_at_often(mutant: str) -> Iterator[None]:
    """Idle producers are looked for every 100 ms, and not every ten minutes: a run takes less than that."""
    from raftlog.broker.store.log_manager_settings import LogManagerSettings

    def often(config: Mapping[str, Any]) -> LogManagerSettings:
        return replace(real(config), producer_expiration_check_interval_ms=100)

    real = LogManagerSettings.from_config
    with patch(LogManagerSettings, "from_config", staticmethod(often)), mutants()[mutant].apply():
        yield


EXPIRE = ("producers-expire-in-transactions", "producers-expire-too-early")
REAL: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "no-fsync": no_fsync,
    **{name: partial(looked_at_often, name) for name in EXPIRE},
}
"""In the place of the simulator's own, where that is about the simulator's disk or the simulator's settings."""


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
