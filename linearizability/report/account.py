"""A run, judged, and told: its verdict, and each anomaly with the stories of its examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from raftlog.linearizability.checker.kafka import KafkaOptions, KafkaReport, analyze
from raftlog.linearizability.checker.kafka.findings import Judgement
from raftlog.linearizability.checker.verdict import Status
from raftlog.linearizability.report.events import Event, events_of
from raftlog.linearizability.report.run import Fault, LogLine, Run
from raftlog.linearizability.report.stories import GRAVE, Instance, Story, stories_of

STORIES_MAX = 12
"""Examples of one anomaly that are told; the rest is counted."""
SHRUNK_MAX = 4
"""Of these so many get a minimal witness; each costs some runs of the analysis."""
GRAVE_LINES_MAX = 2_000
"""Warnings and errors of the brokers' logs that are kept of the whole run."""
_HISTORY = "history.jsonl"


@dataclass(frozen=True, slots=True)
class Told:
    """An anomaly with its stories, the most telling first. `model` is the check that found it."""

    name: str
    definition: str
    severity: str
    judgement: Judgement
    count: int
    stories: Sequence[Story]
    model: str = "kafka"

    @property
    def is_error(self) -> bool:
        return self.judgement is Judgement.ERROR


@dataclass(frozen=True)
class Account:
    """All that a report says of a run. `events` are in the order of time."""

    run: Run
    report: KafkaReport
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


def kafka_words(run: Run) -> list[str]:
    """What `raftlog check` was told about this run's history, as words of a command line."""
    for check in checks_of(run):
        if check.get("model") == "kafka" and check.get("file", _HISTORY) == _HISTORY:
            return [str(word) for word in check.get("options") or ()]
    return []


def account_of(run: Run, options: KafkaOptions | None = None) -> Account:
    """Judge a run's history (`options`: what `kafka_words` say), and take over what its other checks found."""
    report = analyze(run.history, options)
    status, reason = _verdict(run, report)
    events = events_of(run.faults, run.samples)
    found = [*_of_kafka(report), *_of_others(run)]
    stories = iter(stories_of(run, events, [instance for _, instances in found for instance in instances]))
    told = [_told(head, [next(stories) for _ in instances]) for head, instances in found]
    said = run.about.get("verdict") or {}
    doubts = [str(doubt) for doubt in said.get("doubts") or ()]
    grave = [line for line in run.logs if line.level in GRAVE]
    return Account(run, report, status, reason, doubts, told, events, grave[:GRAVE_LINES_MAX])


def _verdict(run: Run, report: KafkaReport) -> tuple[Status, str]:
    """The graver of what the history shows and what the harness says, which knows of idle faults and other checks."""
    said = run.about.get("verdict")
    grades = [Status.VALID, Status.UNKNOWN, Status.INVALID]
    if not isinstance(said, Mapping) or said.get("status") not in ("valid", "unknown", "invalid"):
        status = max(report.status, Status.UNKNOWN, key=grades.index)
        return status, report.reason or "The run did not come to its end: this is what it left."
    theirs = Status(said["status"])
    if grades.index(theirs) >= grades.index(report.status):
        return theirs, str(said.get("reason") or "")
    return report.status, report.reason or ""


_Found = tuple[Mapping[str, Any], list[Instance]]


def _of_kafka(report: KafkaReport) -> Iterator[_Found]:
    for anomaly in report.anomalies:
        head = {
            "name": anomaly.name,
            "definition": anomaly.definition,
            "severity": anomaly.severity.value,
            "judgement": anomaly.judgement,
            "count": anomaly.count,
        }
        told = [] if anomaly.judgement is Judgement.UNDECIDED else anomaly.examples[:STORIES_MAX]
        shrinks = anomaly.judgement is Judgement.ERROR and report.explain is not None
        yield (
            head,
            [
                Instance.of(report, anomaly, example, shrunk=shrinks and place < SHRUNK_MAX)
                for place, example in enumerate(told)
                if example.operations
            ],
        )


def _of_others(run: Run) -> Iterator[_Found]:
    """What checks found that are not made here again: a bank's balance, another model."""
    by_line = {operation.line: operation for operation in run.history.operations}
    for check in checks_of(run):
        file = check.get("file", _HISTORY)
        if check.get("model") == "kafka" and file == _HISTORY:
            continue
        for anomaly in check.get("anomalies") or ():
            judged = anomaly.get("judgement")
            head = {
                "name": str(anomaly.get("name", "anomaly")),
                "definition": str(anomaly.get("definition", "")),
                "severity": str(anomaly.get("severity", "critical")),
                "judgement": Judgement(judged) if judged in ("error", "allowed", "undecided") else Judgement.ERROR,
                "count": int(anomaly.get("count", 1)),
                "model": str(check.get("model", "")),
            }
            own = by_line if file == _HISTORY else {}
            yield head, [Instance.plain(each, own) for each in (anomaly.get("examples") or ())[:STORIES_MAX]]


def _told(head: Mapping[str, Any], stories: list[Story]) -> Told:
    return Told(**head, stories=stories)
