"""What is wrong with a run's history, by whichever model it was judged: in one shape for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from raftlog.linearizability.checker.budget import Budget
from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import History, Key, Operation
from raftlog.linearizability.checker.kafka import KafkaOptions, KafkaReport, analyze
from raftlog.linearizability.checker.kafka.report.describe import describe, keys_of, records_of
from raftlog.linearizability.checker.kafka.report.findings import Judgement
from raftlog.linearizability.checker.kafka.report.report import Anomaly, AnomalyExample
from raftlog.linearizability.checker.models.catalogue import MODELS
from raftlog.linearizability.checker.page.report import part_name, plural
from raftlog.linearizability.checker.verdict import Invalid, Status, Unknown

STORIES_MAX = 12
"""Examples of one anomaly that are told; the rest is counted."""
SHRUNK_MAX = 4
"""Of these so many get a minimal witness; each costs some runs of the analysis."""
SHRUNK_RECORDS_MAX = 5_000
"""An example whose operations hold more records is shown as it is: its smallest witness would take seconds to find."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One example of an anomaly, before anything is told around it. `operations` are the history's own."""

    text: str
    key: str | None
    operations: Sequence[Operation]  # that show it, in the order of calls
    witness: Sequence[Operation]  # the smallest part of these that shows it
    minimal: bool
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of anomaly, with those of its examples that are told, the most telling first. `model` found it."""

    name: str
    definition: str
    severity: str
    judgement: Judgement
    count: int
    instances: Sequence[Instance]
    model: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Values and the ends of the equal stretches of time that they belong to, in the history's clock."""

    times: Sequence[int] = ()
    values: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """A history with its verdict; `scope` is in words how much was judged."""

    status: Status
    reason: str
    kinds: Sequence[Kind]
    scope: str
    describe: Callable[[Operation], str]
    keys_of: Callable[[Operation], Sequence[Key]]
    unseen: Curve = Curve()
    lag: Curve = Curve()


def by_model(history: History, model: str, budget: Budget) -> Judged:
    """Judged as linearizable or not. Raises KeyError for a model that the checker does not have."""
    verdict = check(history, MODELS[model](), budget=budget)
    kinds = []
    if isinstance(verdict, Invalid):
        witness = verdict.witness
        key = None if witness.key is None else part_name(witness.key)
        shown = sorted(witness.operations, key=lambda operation: operation.call)
        instance = Instance(witness.words, key, shown, shown, witness.minimal, {})
        definition = f"No order of the operations explains every answer of a {model}."
        kinds.append(Kind("not-linearizable", definition, "critical", Judgement.ERROR, 1, [instance], model))

    def keys(operation: Operation) -> Sequence[Key]:
        return () if operation.key is None else (operation.key,)

    reason = verdict.reason if isinstance(verdict, Unknown) else ""
    scope = plural(verdict.operation_count, "operation")
    return Judged(verdict.status, reason, kinds, scope, verdict.describe_operation, keys)


def by_kafka(history: History, options: KafkaOptions) -> Judged:
    """Judged by the analysis of Kafka histories. Raises HistoryError for operations that it does not know."""
    report = analyze(history, options)
    measured = report.measurements
    zero = min((operation.call for operation in history.operations), default=0)
    lags = measured.realtime_lag.get("series", [])
    scope = (
        f"{plural(report.operation_count, 'operation')} "
        f"({plural(measured.records_sent, 'record')} sent, {measured.records_polled:,} polled)"
    )
    last = max(1, len(lags) - 1)
    return Judged(
        report.status,
        report.reason or "",
        [_kind(report, anomaly) for anomaly in report.anomalies],
        scope,
        describe,
        keys_of,
        Curve(measured.unseen.get("times", ()), measured.unseen.get("total", ())),
        Curve([zero + measured.duration * place // last for place in range(len(lags))], lags),
    )


def _kind(report: KafkaReport, anomaly: Anomaly) -> Kind:
    told = [] if anomaly.judgement is Judgement.UNDECIDED else anomaly.examples[:STORIES_MAX]
    instances = [
        _instance(report, anomaly, example, shrunk=place < SHRUNK_MAX and anomaly.judgement is Judgement.ERROR)
        for place, example in enumerate(told)
        if example.operations
    ]
    severity = anomaly.severity.value
    return Kind(anomaly.name, anomaly.definition, severity, anomaly.judgement, anomaly.count, instances, "kafka")


def _instance(report: KafkaReport, anomaly: Anomaly, example: AnomalyExample, *, shrunk: bool) -> Instance:
    operations = tuple(sorted(example.operations, key=lambda operation: operation.call))
    size = sum(len(records) for operation in operations for _, _, records in records_of(operation))
    smallest = None
    if shrunk and report.explain is not None and size <= SHRUNK_RECORDS_MAX:
        smallest = report.explain(replace(anomaly, examples=(example,)))
    witness, minimal = smallest or (operations, False)
    return Instance(example.text, example.key, operations, witness, minimal, example.details)


def plain_kind(anomaly: Mapping[str, Any], model: str, by_line: Mapping[int | None, Operation]) -> Kind:
    """An anomaly as run.json has it, of a check that is not made here; its operations are found by their lines."""
    judged = anomaly.get("judgement")
    return Kind(
        str(anomaly.get("name", "anomaly")),
        str(anomaly.get("definition", "")),
        str(anomaly.get("severity", "critical")),
        Judgement(judged) if judged in ("error", "allowed", "undecided") else Judgement.ERROR,
        int(anomaly.get("count", 1)),
        [_plain(example, by_line) for example in (anomaly.get("examples") or ())[:STORIES_MAX]],
        model,
    )


def _plain(example: Mapping[str, Any], by_line: Mapping[int | None, Operation]) -> Instance:
    lines = [one.get("line") for one in example.get("operations") or ()]
    found = sorted({line: by_line[line] for line in lines if line in by_line}.values(), key=lambda one: one.call)
    key = example.get("key")
    details = example.get("details") or {}
    return Instance(str(example.get("text", "")), None if key is None else str(key), found, found, False, details)
