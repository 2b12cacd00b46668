"""The analysis in the shape that the page and the terminal's timeline show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from raftlog.linearizability.checker.history import History, Operation
from raftlog.linearizability.checker.kafka.report.describe import describe, keys_of
from raftlog.linearizability.checker.kafka.report.findings import Judgement
from raftlog.linearizability.checker.kafka.report.report import Anomaly, AnomalyExample, KafkaReport
from raftlog.linearizability.checker.page.report import Finding, Report, Severity, plural
from raftlog.linearizability.checker.verdict import Invalid

_SEVERITIES: dict[Judgement, Severity] = {
    Judgement.ERROR: "error",
    Judgement.UNDECIDED: "warning",
    Judgement.ALLOWED: "note",
}
_NOTES_SHOWN = 3  # examples of an anomaly that is no error here


def page_report(report: KafkaReport, history: History | None = None, *, title: str | None = None) -> Report:
    """What `page.html` shows of an analysis.

    With the history (the one that was analysed, or the file of it read again) all its operations are shown, else only
    those of the examples. Anomalies are findings, the gravest first.
    """
    find = _Finder(report, history)
    verdict = report.verdict
    witness = verdict.witness if isinstance(verdict, Invalid) else None
    if witness is not None:
        operations = tuple(find.operation(operation) for operation in witness.operations)
        refused = operations[witness.operations.index(witness.refused)]
        witness = replace(witness, operations=operations, refused=refused)
    return Report(
        status=report.status,
        words=f"{report.headline}\n{witness.words}" if witness is not None else report.headline,
        history=find.history,
        title=title if title is not None else report.source or "",
        facts=_facts(report),
        witness=witness,
        findings=[finding for anomaly in report.anomalies for finding in _findings(anomaly, find)],
        describe_operation=describe,
        keys_of=keys_of,
    )


class _Finder:
    """Finds the operations of examples in the history shown.

    They are the history's own where it was analysed itself. Where the file was analysed they are known by their line,
    and without lines by their place.
    """

    def __init__(self, report: KafkaReport, history: History | None) -> None:
        shown = [one for anomaly in report.anomalies for example in anomaly.examples for one in example.operations]
        self._copies: dict[int, Operation] = {}
        if history is None:
            copies = {id(one): replace(one) for one in shown}
            by_place = {_place(one): copies[id(one)] for one in shown}
            self._copies = {id(one): by_place[_place(one)] for one in shown}
            history = History.of(
                by_place.values(), report.annotations, time_unit=report.time_unit, source=report.source
            )
        self.history = history
        self._own = {id(operation) for operation in history.operations}
        self._by_line = {one.line: one for one in history.operations if one.line is not None}

    def operation(self, operation: Operation) -> Operation:
        """The operation of the history shown that this one stands for."""
        copy = self._copies.get(id(operation))
        if copy is not None or id(operation) in self._own:
            return copy or operation
        if operation.line is not None:
            return self._by_line[operation.line]
        return self.history.operations[operation.index]


def _place(operation: Operation) -> tuple[int, int]:
    return (operation.line or -1, operation.index)


def _facts(report: KafkaReport) -> list[tuple[str, str]]:
    measured = report.measurements
    facts = [
        ("model", "kafka"),
        ("", plural(report.operation_count, "operation")),
        ("", "1 process" if measured.processes == 1 else f"{measured.processes:,} processes"),
        ("", plural(measured.keys, "key")),
        ("sent", f"{measured.records_sent:,}"),
        ("polled", f"{measured.records_polled:,}"),
    ]
    if report.seconds > 0:
        facts.append(("analysed in", f"{report.seconds:.3g} s"))
    return facts


def _findings(anomaly: Anomaly, find: _Finder) -> Iterator[Finding]:
    examples: Sequence[AnomalyExample] = anomaly.examples
    if anomaly.judgement is Judgement.ALLOWED:
        examples = examples[:_NOTES_SHOWN]
    for place, example in enumerate(examples):
        times = "" if anomaly.count == 1 else f" ({place + 1} of {anomaly.count:,})"
        allowed = ", allowed here" if anomaly.allowed else ""
        yield Finding(
            f"{anomaly.name}{times}",
            f"{example.text}\n{anomaly.definition} ({anomaly.severity.value}{allowed})",
            [find.operation(operation) for operation in example.operations],
            _SEVERITIES[anomaly.judgement],
        )
