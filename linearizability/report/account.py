"""A run, judged, and told: its verdict, and each anomaly with the stories of its examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from raftlog.linearizability.checker.history import HistoryError
from raftlog.linearizability.checker.kafka import KafkaOptions
from raftlog.linearizability.checker.kafka.report.findings import Judgement
from raftlog.linearizability.checker.models.catalogue import MODELS
from raftlog.linearizability.checker.page.report import plural
from raftlog.linearizability.checker.verdict import Status
from raftlog.linearizability.report.events import Event, events_of
from raftlog.linearizability.report.judged import Judged, Kind, by_kafka, by_model, plain_kind
from raftlog.linearizability.report.run import Fault, LogLine, Run
from raftlog.linearizability.report.stories import GRAVE, Story, stories_of

GRAVE_LINES_MAX = 2_000
"""Warnings and errors of the brokers' logs that are kept of the whole run."""
_HISTORY = "history.jsonl"
_CUT_OFF = "The run did not come to its end: this is what it left."


@dataclass(frozen=True, slots=True)
class Told:
    """A kind of anomaly with its stories, the most telling first."""

    kind: Kind
    stories: Sequence[Story]

    @property
    def is_error(self) -> bool:
        return self.kind.judgement is Judgement.ERROR


@dataclass(frozen=True)
class Account:
    """All that a report says of a run. `events` are in the order of time."""

    run: Run
    judged: Judged
    status: Status
    reason: str
    doubts: Sequence[str]  # why a run without an error is not called valid
    told: Sequence[Told]
    events: Sequence[Event]
    lines: Sequence[LogLine]  # warnings and errors of the whole run

    @cached_property
    def zero(self) -> int:
        """The zero of all times that are told: the first call."""
        return min((operation.call for operation in self.run.history.operations), default=self.run.start)

    @property
    def errors(self) -> list[Told]:
        return [one for one in self.told if one.is_error]

    @property
    def idle_faults(self) -> list[Fault]:
        """Those that happened to nothing."""
        return [fault for fault in self.run.faults if fault.effect is False]

    @property
    def first(self) -> Story | None:
        """The story to open at: of the gravest error."""
        return next((story for one in self.errors for story in one.stories), None)


def checks_of(run: Run) -> list[Mapping[str, Any]]:
    """The checks that the harness made of the run; none while it runs."""
    checks = (run.about.get("verdict") or {}).get("checks") or []
    return [check for check in checks if isinstance(check, Mapping)]


def _of_history(run: Run) -> list[Mapping[str, Any]]:
    return [check for check in checks_of(run) if check.get("file", _HISTORY) == _HISTORY]


def kafka_words(run: Run) -> list[str]:
    """What `raftlog check --model kafka` was told about this run's history, as words of a command line."""
    for check in _of_history(run):
        if check.get("model") == "kafka":
            return [str(word) for word in check.get("options") or ()]
    return [str(word) for word in run.about.get("check") or ()]


def account_of(run: Run, options: KafkaOptions | None = None) -> Account:
    """Judge a run's history (`options`: what `kafka_words` say), and take over what its other checks found.

    Raises HistoryError for a history that no check can read.
    """
    judged, models = _judged(run, options or KafkaOptions())
    status, reason = _verdict(run, judged)
    events = events_of(run.faults, run.samples)
    kinds = [*judged.kinds, *_of_others(run, models)]
    stories = iter(stories_of(run, events, [instance for kind in kinds for instance in kind.instances]))
    told = [Told(kind, [next(stories) for _ in kind.instances]) for kind in kinds]
    said = run.about.get("verdict") or {}
    doubts = [str(doubt) for doubt in said.get("doubts") or ()]
    grave = [line for line in run.logs if line.level in GRAVE]
    return Account(run, judged, status, reason, doubts, told, events, grave[:GRAVE_LINES_MAX])


def _judged(run: Run, options: KafkaOptions) -> tuple[Judged, set[str]]:
    """The history judged again, and by which models."""
    models = [str(check.get("model")) for check in _of_history(run)]
    if "kafka" in models:
        return by_kafka(run.history, options), {"kafka"}
    known = [model for model in models if model in MODELS]
    if known:
        return by_model(run.history, known[0], options.budget), {known[0]}
    # It was cut off before it was judged: what nobody has read by then may yet have been read.
    try:
        return by_kafka(run.history, replace(options, allow=options.allow | {"unseen"})), {"kafka"}
    except HistoryError:
        scope = plural(len(run.history), "operation")
        return Judged(Status.UNKNOWN, _CUT_OFF, (), scope, _described, lambda operation: ()), set()


def _described(operation: Any) -> str:
    return f"{operation.function} {'' if operation.input is None else operation.input}".rstrip()


def _verdict(run: Run, judged: Judged) -> tuple[Status, str]:
    """The graver of what the history shows and what the harness says, which knows of idle faults and other checks."""
    said = run.about.get("verdict")
    grades = [Status.VALID, Status.UNKNOWN, Status.INVALID]
    if not isinstance(said, Mapping) or said.get("status") not in ("valid", "unknown", "invalid"):
        return max(judged.status, Status.UNKNOWN, key=grades.index), judged.reason or _CUT_OFF
    theirs = Status(said["status"])
    if grades.index(theirs) >= grades.index(judged.status):
        return theirs, str(said.get("reason") or "")
    return judged.status, judged.reason


def _of_others(run: Run, models: set[str]) -> Iterator[Kind]:
    """What checks found that are not made here again: the balance of a bank, another file."""
    by_line = {operation.line: operation for operation in run.history.operations}
    for check in checks_of(run):
        is_own = check.get("file", _HISTORY) == _HISTORY
        if is_own and check.get("model") in models:
            continue
        for anomaly in check.get("anomalies") or ():
            yield plain_kind(anomaly, str(check.get("model", "")), by_line if is_own else {})
