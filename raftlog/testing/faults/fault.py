"""A fault in a test's hands: when it happens, what it has done, and its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from raftlog.testing.faults.directory import FaultDirectory
from raftlog.testing.faults.spec import ALWAYS, BACK_LAST, Evidence, FaultSpec, refuse_impossible
from raftlog.testing.faults.starting import wait_for_brokers
from raftlog.testing.waiting import wait_until

if TYPE_CHECKING:
    from raftlog.testing.clusters import Cluster


class NeverFired(AssertionError):
    """A test put in a fault that had no effect: it has shown nothing."""


def heal_all(faults: Iterable[Fault]) -> None:
    """End these, the last one first, but brokers are started again when all else is over: they may not start with a
    full disk, or without the others. Raises what went wrong, when all are over.
    """
    with ExitStack() as healing:
        for fault in sorted(faults, key=lambda each: each.kind not in BACK_LAST):
            healing.callback(fault.heal)


class Owner(Protocol):
    """Where faults come from: those of one cluster (`faults.py`)."""

    cluster: Cluster
    directory: FaultDirectory
    seed: int

    def add(self, spec: FaultSpec, undo: Callable[[], object] | None = None) -> Fault:
        """Put a fault in force, and return when everybody knows it."""

    def happened(self, fault: Fault, size: int = 0) -> None:
        """Count what this process has done itself."""


class Fault:
    """In force from the moment it is made until `heal`, the end of its `with` block, or that of the test."""

    def __init__(self, owner: Owner, spec: FaultSpec, undo: Callable[[], object] | None = None) -> None:
        """`told`: somebody has heard that it never fired."""
        self._owner = owner
        self._directory = owner.directory
        self._undo = undo
        self.number = spec.number
        self.kind = spec.kind
        self.told = False
        self._last: FaultSpec | None = None
        self._healing = threading.RLock()
        self._timer: threading.Timer | None = None

    # -- when --------------------------------------------------------------------------------------

    def once(self) -> Self:
        """It happens to one call: the next (this is how faults of requests begin), or that of `on_call`."""
        return self.times(1)

    def times(self, n: int) -> Self:
        """It happens to `n` calls, all brokers and connections taken together."""
        return self._when(times=n)

    def always(self) -> Self:
        """It happens to each call until it is healed."""
        return self._when(times=ALWAYS)

    def on_call(self, n: int) -> Self:
        """It happens from call `n` on (1 is the first that it is about): `on_call(2)` alone to the second."""
        return self._when(first=n)

    def with_probability(self, probability: float, seed: int | None = None) -> Self:
        """It happens to each call with this probability; `seed` decides to which, that of the run if None."""
        seed = self._owner.seed if seed is None else seed
        return self._when(times=ALWAYS, probability=probability, seed=seed)

    def _when(self, **changes: float) -> Self:
        def change(spec: FaultSpec) -> None:
            spec.when = replace(spec.when, **changes)  # type: ignore[arg-type]
            refuse_impossible(spec)

        self._directory.change(self.number, change)
        return self

    # -- what it has done --------------------------------------------------------------------------

    @property
    def spec(self) -> FaultSpec:
        """All that is known of it now, or was when its cluster stopped."""
        return self._last or self._directory.read(self.number)

    @property
    def evidence(self) -> Evidence:
        return self.spec.evidence

    @property
    def fired(self) -> int:
        """How often it has had an effect: requests, pieces of a stream, calls of a disk, processes."""
        return self.evidence.fired

    @property
    def bytes(self) -> int:
        """What it has hit or lost."""
        return self.evidence.bytes

    @property
    def connections(self) -> int:
        """How many connections it has hit."""
        return self.evidence.connections

    @property
    def ms(self) -> float:
        """For how long it has held things up, in all."""
        return self.evidence.ms

    def wait(self, n: int = 1, timeout: float = 5.0) -> Self:
        """Return when it has fired `n` times. Raises NotInTime."""
        wait_until(lambda: self.fired >= n, timeout, lambda: f"{n} times: {self}")
        return self

    def __str__(self) -> str:
        spec = self.spec
        return f"{spec} ({spec.evidence}{'' if spec.is_healed else ', in force'})"

    # -- end ---------------------------------------------------------------------------------------

    def heal(self) -> None:
        """End it, and undo what it did to processes. A broker that is started again serves when this returns, unless
        other faults keep it from that: then it does when those are healed. Safe to call twice, and from several
        threads: all return when it is over.
        """
        with self._healing:
            if not self.end():
                return
            try:
                if self._undo is not None:
                    self._undo()
            finally:
                self._directory.tell()
            wait_for_brokers(self._owner.cluster)

    def for_seconds(self, seconds: float | None) -> Self:
        """It is healed after so many seconds, by a thread of its own, unless that is done before (None: it is not)."""
        if seconds is not None:
            self._timer = threading.Timer(seconds, self.heal)
            self._timer.daemon = True
            self._timer.start()
        return self

    def end(self) -> bool:
        """End it, and undo nothing; nobody is told yet. Whether it was in force."""
        if self._timer is not None:
            self._timer.cancel()
        with self._healing:
            return self._last is None and self._end()

    def _end(self) -> bool:
        was_healed = False

        def end(spec: FaultSpec) -> None:
            nonlocal was_healed
            was_healed = spec.is_healed
            spec.ended = spec.ended or time.time()

        self._directory.change(self.number, end)
        return not was_healed

    def keep(self) -> None:
        """Remember what it has done: where that is written goes with the cluster."""
        self._last = self.spec

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.heal()
