"""What a run with faults left behind, as values. All times are of the history's clock, in nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from raftlog.linearizability.checker.history import History


class RunError(ValueError):
    """A folder that is no run, or a file of it that makes no sense: says which file, which line, and why."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, from its beginning to its end (None: never healed). `evidence` counts what it did.

    `effect` is whether it happened to anything; None where the run ended before that was known.
    """

    kind: str
    target: str
    start: int
    end: int | None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    effect: bool | None = None
    error: str = ""  # why it could not be put in

    @property
    def label(self) -> str:
        """`kill broker 2`."""
        return f"{self.kind} {self.target}".strip()

    def touches(self, start: int, end: int) -> bool:
        """Whether it was in force at some time between the two."""
        return self.start <= end and (self.end is None or self.end >= start)


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """What a partition said of itself at one time; None where nobody answered."""

    leader: int | None = None
    leader_epoch: int | None = None
    isr: tuple[int, ...] | None = None
    high_watermark: int | None = None
    last_stable: int | None = None
    log_end: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """All partitions, the quorum of the metadata, and the processes (up, down, paused) at one time."""

    time: int
    partitions: Mapping[str, PartitionSample]
    term: int | None = None
    quorum_leader: int | None = None
    brokers: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # committed offsets by partition


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a broker's log, with the lines that belong to it (a trace)."""

    time: int
    broker: str
    level: str  # as the broker writes it: INFO, WARNING, ERROR …; empty where it says none
    text: str


@dataclass(frozen=True)
class Run:
    """A whole run. `about` is run.json; what is missing there is left out of the report."""

    name: str
    about: Mapping[str, Any]
    history: History
    faults: Sequence[Fault] = ()
    samples: Sequence[Sample] = ()
    logs: Sequence[LogLine] = ()  # in the order of time
    clients: Mapping[str, str] = field(default_factory=dict)  # the end of what each client wrote to standard error

    @property
    def command(self) -> str:
        """The command that runs it again."""
        return str(self.about.get("command") or "")

    @cached_property
    def start(self) -> int:
        """The first moment that anything tells of: zero of the page's axis."""
        times = [operation.call for operation in self.history.operations[:1]]
        times += [fault.start for fault in self.faults[:1]] + [sample.time for sample in self.samples[:1]]
        return min(times, default=0)

    @cached_property
    def end(self) -> int:
        """The last moment that anything tells of."""
        times = [operation.returned or operation.call for operation in self.history.operations]
        times += [fault.end or fault.start for fault in self.faults] + [sample.time for sample in self.samples[-1:]]
        return max(times, default=0)
