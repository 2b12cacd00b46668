"""What an analysis answers: a status, the anomalies with examples, and measurements; as text and as JSON.

A report is never true or false: asking for its truth raises, because Unknown is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from raftlog.linearizability.checker.history import Annotation, Operation, TimeUnit
from raftlog.linearizability.checker.kafka.catalogue import Severity
from raftlog.linearizability.checker.kafka.report.describe import describe, keys_of
from raftlog.linearizability.checker.kafka.report.findings import Judgement
from raftlog.linearizability.checker.kafka.report.shrink import Smallest, uncertain
from raftlog.linearizability.checker.page.report import plural
from raftlog.linearizability.checker.verdict import (
    Invalid,
    Limit,
    PartVerdict,
    Status,
    Unknown,
    Valid,
    Verdict,
    Witness,
)

_TEXT_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class AnomalyExample:
    """One instance in words. `operations` are those that show it; `index` is their place as they were read."""

    text: str
    key: str | None
    operations: tuple[Operation, ...]  # the history's own where one was given, else made again from what was kept
    descriptions: tuple[str, ...]  # what each of these operations did, on one line
    details: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        told = [
            {
                "process": operation.process,
                "function": operation.function,
                "outcome": operation.outcome.value,
                "call": operation.call,
                "return": operation.returned,
                "line": operation.line,
                "index": operation.index,
                "text": description,
            }
            for operation, description in zip(self.operations, self.descriptions, strict=True)
        ]
        return {"text": self.text, "key": self.key, "operations": told, "details": dict(self.details)}


@dataclass(frozen=True, slots=True)
class Anomaly:
    """All instances of one anomaly under one judgement; `examples` are the most telling, the best first."""

    name: str
    definition: str
    severity: Severity
    judgement: Judgement
    count: int
    examples: tuple[AnomalyExample, ...]

    @property
    def allowed(self) -> bool:
        """Whether it is no error here."""
        return self.judgement is Judgement.ALLOWED

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "definition": self.definition,
            "severity": self.severity.value,
            "judgement": self.judgement.value,
            "count": self.count,
            "examples": [example.to_json() for example in self.examples],
        }


Explainer: TypeAlias = Callable[[Anomaly], Smallest | None]


@dataclass(frozen=True, slots=True)
class Measurements:
    """What was measured and is no anomaly by itself. Times and lags are in the history's time unit."""

    operations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # function -> outcome -> count
    never_ok: tuple[str, ...] = ()  # functions that were called and never succeeded
    processes: int = 0
    keys: int = 0
    records_sent: int = 0
    records_polled: int = 0
    duration: int = 0
    worst_realtime_lag: Mapping[str, Any] = field(default_factory=dict)
    realtime_lag: Mapping[str, Any] = field(default_factory=dict)
    unseen: Mapping[str, Any] = field(default_factory=dict)
    consume_counts: Mapping[str, Any] = field(default_factory=dict)
    info_causes: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "operations": {name: dict(counts) for name, counts in self.operations.items()},
            "never_ok": list(self.never_ok),
            "processes": self.processes,
            "keys": self.keys,
            "records_sent": self.records_sent,
            "records_polled": self.records_polled,
            "duration": self.duration,
            "worst_realtime_lag": dict(self.worst_realtime_lag),
            "realtime_lag": dict(self.realtime_lag),
            "unseen": dict(self.unseen),
            "consume_counts": dict(self.consume_counts),
            "info_causes": dict(self.info_causes),
        }


class KafkaModel:
    """Stands where a verdict names its model: it describes operations and has no states."""

    name = "kafka"

    def part(self, operation: Operation) -> str | None:
        """The first key that the operation is about."""
        return next(iter(keys_of(operation)), None)

    def initial_states(self) -> tuple[()]:
        """There are none."""
        return ()

    def uncertain(self, operation: Operation) -> Operation | None:
        """The operation as one that may have happened or not; None if it only looked."""
        return uncertain(operation)

    def describe_state(self, state: Any) -> str:
        """There are none."""
        return str(state)

    def describe_operation(self, operation: Operation) -> str:
        """The operation in short."""
        return describe(operation)


@dataclass(frozen=True, slots=True)
class KafkaReport:
    """The answer of the Kafka analysis.

    `status` is INVALID with any error, UNKNOWN without one when something could not be judged, else VALID. `limit`
    and `reason` tell what could not be judged: a budget or the steps of the cycle search ran out, or there is nothing.
    `anomalies` hold errors first, then by severity.
    """

    status: Status
    anomalies: tuple[Anomaly, ...]
    measurements: Measurements
    time_unit: TimeUnit = TimeUnit.NANOSECONDS
    source: str | None = None
    annotations: tuple[Annotation, ...] = ()
    operation_count: int = 0
    seconds: float = 0.0
    limit: Limit | None = None
    reason: str | None = None
    explain: Explainer | None = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        raise TypeError("a report is valid, invalid or unknown, never true or false: look at its status")

    @property
    def errors(self) -> tuple[Anomaly, ...]:
        """The anomalies that make the history invalid."""
        return tuple(anomaly for anomaly in self.anomalies if anomaly.judgement is Judgement.ERROR)

    def anomaly(self, name: str) -> Anomaly | None:
        """The anomaly of this name, the error before the allowed one; None if there is none."""
        return next((anomaly for anomaly in self.anomalies if anomaly.name == name), None)

    @property
    def verdict(self) -> Verdict:
        """The answer in the shape of every other check; the witness is the first error's best example."""
        model = KafkaModel()
        if self.status is Status.VALID:
            return Valid(model, (), self.operation_count, self.seconds)
        if self.status is Status.UNKNOWN:
            limit, reason = self.limit or "configurations", self.reason or ""
            return Unknown(model, (), self.operation_count, self.seconds, limit=limit, reason=reason)
        parts = tuple(
            PartVerdict(anomaly.name, Status.INVALID, witness.operations, "kafka", witness=witness)
            for anomaly in self.errors
            for witness in (_witness(model, anomaly, None if self.explain is None else self.explain(anomaly)),)
        )
        witness = parts[0].witness
        assert witness is not None
        return Invalid(model, parts, self.operation_count, self.seconds, witness=witness)

    def text(self, examples: int = _TEXT_EXAMPLES) -> str:
        """The report for a terminal, with at most so many examples of each anomaly."""
        lines = [self.headline]
        for anomaly in self.anomalies:
            if anomaly.judgement is Judgement.ALLOWED:
                continue
            judged = f"{anomaly.judgement.value}, {anomaly.severity.value}"
            lines += ["", f"{anomaly.name}: {_times(anomaly.count)} ({judged})", f"  {anomaly.definition}"]
            lines += [f"  - {example.text}" for example in anomaly.examples[:examples]]
            if anomaly.count > examples:
                lines.append(f"  … {anomaly.count - min(examples, len(anomaly.examples)):,} more")
        allowed = [anomaly for anomaly in self.anomalies if anomaly.allowed]
        if allowed:
            lines += ["", "Found, and allowed here: " + ", ".join(f"{one.name} ({one.count:,})" for one in allowed)]
        lines += self._measured()
        return "\n".join(lines)

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        measured = self.measurements
        scope = (
            f"{plural(self.operation_count, 'operation')} of {measured.processes:,} "
            f"{'process' if measured.processes == 1 else 'processes'} on {plural(measured.keys, 'key')} "
            f"({plural(measured.records_sent, 'record')} sent, {measured.records_polled:,} polled)"
        )
        if self.status is Status.INVALID:
            head = f"INVALID: {plural(len(self.errors), 'kind')} of error in {scope}."
        elif self.status is Status.UNKNOWN:
            head = f"UNKNOWN: no error in {scope}, but not everything could be judged. {self.reason}"
        else:
            head = f"VALID: no error in {scope}."
        if self.status is Status.INVALID and self.reason:
            head += f" {self.reason}"
        return head

    def _measured(self) -> list[str]:
        measured = self.measurements
        lines = []
        worst = measured.worst_realtime_lag
        if worst.get("lag"):
            lines.append(f"Worst lag of a poll: {worst['text']}.")
        repeated = measured.consume_counts.get("repeated")
        if repeated:
            lines.append(f"Consumed more than once by one subscribed process: {measured.consume_counts['repeats']:,}.")
        if measured.info_causes:
            causes = ", ".join(f"{cause} ({count:,})" for cause, count in list(measured.info_causes.items())[:5])
            lines.append(f"Unknown outcomes were caused by: {causes}.")
        if measured.never_ok:
            lines.append(f"Never succeeded: {', '.join(measured.never_ok)}.")
        return ["", *lines] if lines else []

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "model": "kafka",
            "status": self.status.value,
            "source": self.source,
            "time_unit": self.time_unit.value,
            "operation_count": self.operation_count,
            "seconds": self.seconds,
            "limit": self.limit,
            "reason": self.reason,
            "anomalies": [anomaly.to_json() for anomaly in self.anomalies],
            "measurements": self.measurements.to_json(),
        }


def _times(count: int) -> str:
    return "found once" if count == 1 else f"found {count:,} times"


def _witness(model: KafkaModel, anomaly: Anomaly, smallest: Smallest | None) -> Witness:
    example = anomaly.examples[0]
    if smallest is None:
        smallest = Smallest(tuple(sorted(example.operations, key=lambda operation: operation.call)), False)
    operations = smallest.operations
    refused = max(operations, key=lambda one: (one.returned is not None, one.returned or 0))
    end = refused.returned if refused.returned is not None else refused.call
    words = f"{anomaly.name}: {example.text}"
    return Witness(example.key, operations, refused, end, (), (), words, smallest.minimal, model=model)
