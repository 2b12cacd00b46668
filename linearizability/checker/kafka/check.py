"""The analysis of a Kafka history: from operations to a report.

    analyze(history, options) -> KafkaReport                         a History, or operations as they come
    check_kafka(history_or_path, options, progress=...) -> KafkaReport   also a JSON Lines file, streamed

`raftlog check FILE --model kafka` calls `check_kafka(path, options, progress=...)`; the form of the file is in
docs/CHECKER_KAFKA.md. Both raise HistoryError, with file and line, for what is no history.
"""

from __future__ import annotations

import gc
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from raftlog.linearizability.checker.budget import Budget, Meter, OutOfBudget
from raftlog.linearizability.checker.formats.jsonl import JsonLinesReader
from raftlog.linearizability.checker.history import Annotation, EventType, History, Operation
from raftlog.linearizability.checker.kafka.analysis.commits import check_commits
from raftlog.linearizability.checker.kafka.analysis.consumption import (
    ConsumeCounts,
    check_exactly_once,
    count_consumption,
)
from raftlog.linearizability.checker.kafka.analysis.groups import check_groups
from raftlog.linearizability.checker.kafka.analysis.lag import Lag
from raftlog.linearizability.checker.kafka.analysis.metadata import check_metadata
from raftlog.linearizability.checker.kafka.analysis.producers import check_producers
from raftlog.linearizability.checker.kafka.analysis.realtime import RealTime
from raftlog.linearizability.checker.kafka.analysis.series import Unseen, last_return, unseen_over_time
from raftlog.linearizability.checker.kafka.analysis.sessions import check_sessions
from raftlog.linearizability.checker.kafka.analysis.transactions import check_transactions
from raftlog.linearizability.checker.kafka.analysis.values import check_values
from raftlog.linearizability.checker.kafka.catalogue import Definition
from raftlog.linearizability.checker.kafka.columns.columns import (
    FUNCTION_NAME,
    INFO,
    NOBODY,
    OUTCOME_NAME,
    TXN,
    Columns,
)
from raftlog.linearizability.checker.kafka.columns.gather import least, plus, tally
from raftlog.linearizability.checker.kafka.columns.intake import Intake
from raftlog.linearizability.checker.kafka.columns.order import Order, settle
from raftlog.linearizability.checker.kafka.columns.restore import restored
from raftlog.linearizability.checker.kafka.columns.segments import lay_out
from raftlog.linearizability.checker.kafka.columns.subscriptions import mark_subscriptions, shows_subscribe
from raftlog.linearizability.checker.kafka.context import Context, sort_by
from raftlog.linearizability.checker.kafka.cycles.cycles import check_cycles
from raftlog.linearizability.checker.kafka.options import KafkaOptions, Mode
from raftlog.linearizability.checker.kafka.report.findings import Example, Findings, Found, Judgement
from raftlog.linearizability.checker.kafka.report.report import (
    Anomaly,
    AnomalyExample,
    Explainer,
    KafkaReport,
    Measurements,
)
from raftlog.linearizability.checker.kafka.report.shrink import smallest
from raftlog.linearizability.checker.kafka.report.words import Words
from raftlog.linearizability.checker.verdict import Limit, Status

_CHECK_EVERY = 4096  # operations between two looks at the budget
_ORDER_BYTES = 40  # what the steps need per operation and element beyond the columns, about

Progress = Callable[[int], None]


def analyze(history: History | Iterable[Operation], options: KafkaOptions | None = None) -> KafkaReport:
    """Analyse operations. A History is not changed; any other iterable is read once and its operations not kept."""
    options = options or KafkaOptions()
    analysis = _Analysis(options, history.source if isinstance(history, History) else None)
    if isinstance(history, History):
        analysis.columns.time_unit = history.time_unit
        analysis.columns.annotations = history.annotations
    return analysis.run(history)


def check_kafka(
    history_or_path: History | str | Path, options: KafkaOptions | None = None, *, progress: Progress | None = None
) -> KafkaReport:
    """Analyse a history, or a JSON Lines file by its path. `progress` is told the lines read from time to time."""
    if isinstance(history_or_path, History):
        return analyze(history_or_path, options)
    options = options or KafkaOptions()
    name = str(history_or_path)
    analysis = _Analysis(options, name)
    reader = JsonLinesReader(name, progress=analysis.watched(progress), weigh=analysis.expect)
    return analysis.run(_operations(reader, analysis.columns.annotations), reader)


def _operations(reader: JsonLinesReader, annotations: list[Annotation]) -> Iterator[Operation]:
    """The operations of a file as they end, and at last those that never did."""
    invoke = EventType.INVOKE
    for kind, subject in reader.events(whole_operations=True):
        if kind is invoke:
            continue
        if isinstance(subject, Annotation):
            annotations.append(subject)
        else:
            yield subject
    yield from reader.unfinished()


@contextmanager
def _collecting_young() -> Iterator[Callable[[], Any]]:
    """Leave it to the caller when garbage is collected, and let only what is new be looked at then.

    Nothing that is read is garbage, but the collector would go through all values again and again.
    """
    if not gc.isenabled():
        yield lambda: None
        return
    gc.disable()
    try:
        yield lambda: gc.collect(1)
    finally:
        gc.enable()


class _Analysis:
    """One analysis, from the first operation to the report."""

    def __init__(self, options: KafkaOptions, source: str | None) -> None:
        self.options = options
        self.intake = Intake(options, source)
        self.columns = self.intake.columns
        self.meter = Meter(options.budget)
        self.findings = Findings(options)
        self.lag = Lag()
        self.counts = ConsumeCounts()
        self.unseen = Unseen()
        self.out: OutOfBudget | None = None
        self.original: Callable[[int], Operation] = partial(restored, self.columns)

    def run(self, operations: Iterable[Operation], reader: JsonLinesReader | None = None) -> KafkaReport:
        """Read, judge, report. Out of budget, what was found until then still counts."""
        if isinstance(operations, History):
            self.original = operations.operations.__getitem__
        complete = self._read(operations)
        if reader is not None:
            self.columns.time_unit = reader.time_unit
        self.intake.finish()
        if complete:
            try:
                self._judge()
            except OutOfBudget as out:
                self.out = out
        return self._report()

    def _read(self, operations: Iterable[Operation]) -> bool:
        rest = iter(operations)
        try:
            with _collecting_young() as collect:
                while self.intake.read(islice(rest, _CHECK_EVERY)) == _CHECK_EVERY:
                    self.meter.check(0, self.columns.estimated_bytes())
                    collect()
        except OutOfBudget as out:
            self.out = out
            return False
        return True

    def watched(self, progress: Progress | None) -> Progress:
        """The progress of reading, with a look at the budget: a few operations may hold a million records."""

        def look(lines: int) -> None:
            self.expect(0)
            if progress is not None:
                progress(lines)

        return look

    def expect(self, size: int) -> None:
        """Raise OutOfBudget when so many bytes more are too many."""
        self.meter.check(0, self.columns.estimated_bytes() + size)

    def _judge(self) -> None:
        columns = self.columns
        by_returned = sort_by(columns.returned)
        by_call = sort_by(columns.call)
        mark_subscriptions(columns, self.options, by_call)
        settle(columns, by_returned)
        self._afford()
        order = Order(columns)
        context = Context(
            columns,
            order,
            lay_out(columns, order),
            self.options,
            self.findings,
            Words(columns),
            self.meter,
            by_call,
            by_returned,
            shows_subscribe(columns, self.options),
        )
        steps: tuple[Callable[[], Any], ...] = (
            lambda: check_values(context),
            lambda: check_sessions(context),
            lambda: self._measure(context),
            lambda: check_metadata(context),
            lambda: check_producers(context),
            lambda: check_groups(context),
            lambda: check_commits(context),
            lambda: check_transactions(context),
            lambda: check_exactly_once(context),
            lambda: check_cycles(context),
        )
        for step in steps:
            step()
            self._afford()
        self.counts = count_consumption(context)
        self.unseen = unseen_over_time(columns)
        if not _anything_to_judge(columns):
            self.findings.add("empty-transaction-graph", Judgement.UNDECIDED, 1, _tell_empty)

    def _measure(self, context: Context) -> None:
        """The tests against the clock. What they work out is given up with the end of this."""
        real_time = RealTime(context)
        real_time.appends()
        self._afford()
        self.lag = real_time.lag()
        self._afford()
        real_time.watermarks()

    def _afford(self) -> None:
        columns = self.columns
        more = _ORDER_BYTES * (len(columns) + len(columns.values))
        self.meter.check(0, columns.estimated_bytes() + more)

    # The report

    def _report(self) -> KafkaReport:
        columns = self.columns
        words = Words(columns)
        if self.out is not None:
            self.findings.add("cycle-search-timeout", Judgement.UNDECIDED, 1, _tell_out, self.out.reason)
        anomalies = tuple(_anomaly(found, words, self.original) for found in self.findings.sorted())
        undecided = [one for one in anomalies if one.judgement is Judgement.UNDECIDED]
        status = Status.UNKNOWN if undecided else Status.VALID
        if self.findings.has(Judgement.ERROR):
            status = Status.INVALID
        limit: Limit | None = "configurations" if undecided else None
        return KafkaReport(
            status,
            anomalies,
            self._measurements(words),
            columns.time_unit,
            columns.source,
            tuple(columns.annotations),
            len(columns),
            self.meter.elapsed(),
            limit if self.out is None else self.out.limit,
            undecided[0].examples[0].text if undecided else None,
            self._explainer(),
        )

    def _explainer(self) -> Explainer:
        """Finds the smallest part of an error's best example that shows it by itself, without the rest of this."""
        modes: frozenset[Mode] = frozenset({"subscribe" if shows_subscribe(self.columns, self.options) else "assign"})
        options = replace(self.options, budget=Budget(megabytes=None), subscription_modes=modes)
        unit = self.columns.time_unit

        def shows(name: str, operations: Sequence[Operation]) -> bool:
            found = analyze(History.of([replace(one) for one in operations], time_unit=unit), options)
            return any(error.name == name for error in found.errors)

        return lambda anomaly: smallest(anomaly.examples[0].operations, partial(shows, anomaly.name))

    def _measurements(self, words: Words) -> Measurements:
        columns, unseen = self.columns, self.unseen
        operations = _by_function(columns)
        exempt = ("crash", "debug-topic-partitions")
        end = last_return(columns)
        return Measurements(
            operations,
            tuple(name for name, counts in operations.items() if "ok" not in counts and name not in exempt),
            len(columns.processes),
            len(columns.keys.names),
            len(columns.send_element),
            len(columns.polled),
            0 if end is None else end - least(columns.call, 0),
            self._worst_lag(words),
            {
                "series": self.lag.series,
                "by_key": {words.key(key): lag for key, (lag, _) in enumerate(self.lag.by_key) if lag},
                "by_process": {
                    str(columns.processes[process]): lag for process, (lag, _) in enumerate(self.lag.by_process) if lag
                },
            },
            {
                "times": unseen.times,
                "total": unseen.total,
                "by_key": {words.key(key): line for key, line in unseen.by_key.items()},
                "at_end": {words.key(key): count for key, count in sorted(unseen.at_end.items())},
            },
            self._consumed(words),
            _causes(columns),
        )

    def _worst_lag(self, words: Words) -> dict[str, Any]:
        worst = max(enumerate(self.lag.by_key), key=lambda entry: entry[1][0], default=(0, (0, NOBODY)))
        key, (lag, number) = worst
        if number == NOBODY:
            return {"lag": 0}
        name = words.key(key)
        return {
            "lag": lag,
            "key": name,
            "time": self.columns.call[number],
            "text": f"{words.duration(lag)}, {words.who(number)} in {name}",
        }

    def _consumed(self, words: Words) -> dict[str, Any]:
        columns, counts = self.columns, self.counts
        return {
            "distribution": {str(times): count for times, count in counts.distribution.items()},
            "repeats": sum(count for times, count in counts.distribution.items() if times > 1),
            "repeated": [
                {
                    "process": columns.processes[process],
                    "key": words.key(columns.element_key[element]),
                    "value": columns.values[element],
                    "times": times,
                }
                for process, element, times in counts.repeated
            ],
        }


def _by_function(columns: Columns) -> dict[str, dict[str, int]]:
    """How many operations of each function ended how."""
    width = len(OUTCOME_NAME)
    functions = columns.function.translate(bytes(width * (function % len(FUNCTION_NAME)) for function in range(256)))
    counts = tally(plus(array("B", functions), array("B", columns.outcome)), width * len(FUNCTION_NAME))
    named: Counter[tuple[str, int]] = Counter()
    for number, name in columns.functions.items():
        counts[width * columns.function[number] + columns.outcome[number]] -= 1
        named[name, columns.outcome[number]] += 1
    for kind, count in enumerate(counts):
        named[FUNCTION_NAME[kind // width], kind % width] += count
    operations: dict[str, dict[str, int]] = {}
    for (name, outcome), count in sorted(named.items()):
        if count:
            operations.setdefault(name, {})[OUTCOME_NAME[outcome]] = count
    return operations


def _anything_to_judge(columns: Columns) -> bool:
    return bool(
        columns.send_element
        or columns.polled
        or columns.commit_operation
        or columns.fetch_operation
        or columns.metadata_operation
        or columns.assignments
        or columns.initialised
        or columns.leaders
    )


def _causes(columns: Columns) -> dict[str, int]:
    """The distinct errors of sends, polls and transactions of unknown outcome, the most frequent first."""
    causes = Counter(
        error
        for number, error in columns.errors.items()
        if columns.outcome[number] == INFO and columns.function[number] <= TXN
    )
    return dict(causes.most_common())


def _anomaly(found: Found, words: Words, original: Callable[[int], Operation]) -> Anomaly:
    definition: Definition = found.definition
    examples = []
    for example in found.examples:
        numbers = tuple(dict.fromkeys(example.operations))
        operations = tuple(original(number) for number in numbers)
        descriptions = tuple(words.operation(number) for number in numbers)
        examples.append(AnomalyExample(example.text, example.key, operations, descriptions, example.details))
    return Anomaly(definition.name, definition.text, definition.severity, found.judgement, found.count, tuple(examples))


def _tell_empty() -> Example:
    return Example("The history holds no send, no polled record, no commit and no answer about a key.")


def _tell_out(reason: str) -> Example:
    return Example(f"The budget ran out before everything was looked at: {reason}.")
