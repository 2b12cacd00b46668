"""A report as plain JSON values: columns of numbers, and every text once.

The page's script reads it: `assets/data.js` is the other side.

The size is linear in the operations, whatever they carry: a text is kept once and only up to a limit, times are
steps from the operation before, and a column that never changes is one value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from raftlog.linearizability.checker.history import Annotation, Key, Operation, Outcome, Process
from raftlog.linearizability.checker.page.report import Finding, Report, part_name
from raftlog.linearizability.checker.verdict import PartVerdict, Placed, Status, Witness

VERSION = 1
LABEL_LIMIT = 300  # characters of an operation or a state in words: what fits a line of the page's side
VALUE_LIMIT = 2_000  # characters of an input or an output: beyond, nobody reads it in a browser
POSSIBLE_LIMIT = 20  # states before the refusal that are explained one by one
_BEFORE = "what went before is left out"
REFUSALS_LIMIT = 50  # open operations explained for each of them

Column: TypeAlias = "list[Any] | dict[str, Any]"

_encoder = json.JSONEncoder(ensure_ascii=False, default=repr, separators=(", ", ": "))
_OUTCOMES = {Outcome.OK: 0, Outcome.FAIL: 1, Outcome.INFO: 2}


def value_text(value: object) -> str:
    """A value as JSON where it has such a form, else as Python writes it; cut at VALUE_LIMIT characters."""
    try:
        text = _encoder.encode(value)
    except (TypeError, ValueError, RecursionError):
        text = _repr(value)
    return shortened(text, VALUE_LIMIT)


def shortened(text: str, limit: int) -> str:
    """The text, or its beginning and how long it was."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters in all)"


def _repr(value: object) -> str:
    try:
        return repr(value)
    except RecursionError:
        return "(nested too deeply to be shown)"


class _Texts:
    """All texts of the page, each once, by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number


class _Encoder:
    """One report on its way to JSON. Operations are numbered in the order of their calls."""

    def __init__(self, report: Report, written: Callable[[object], str]) -> None:
        self.report = report
        self.written = written
        self.texts = _Texts()
        self.operations = report.history.by_call()
        self.numbers = {id(operation): number for number, operation in enumerate(self.operations)}
        self.processes = _ordered({operation.process: None for operation in self.operations})
        self.base = min((operation.call for operation in self.operations), default=0)
        self.keys: dict[Key, int] = {}
        for part in report.parts:
            self.keys.setdefault(part.key, len(self.keys))

    def number(self, operation: Operation | int) -> int:
        """The operation's number; one that is not in the history itself is known by its index."""
        if isinstance(operation, int):
            number = operation
        else:
            number = self.numbers.get(id(operation), operation.index)
        if not 0 <= number < len(self.operations):
            raise ValueError("the report speaks of an operation that is not in its history")
        return number

    def pieces(self) -> Iterator[tuple[str, Any]]:
        """The members of the page's object, the large ones apart, so that not all need be held at once."""
        report = self.report
        yield "version", VERSION
        yield "title", report.title
        yield "status", report.status.value
        yield "words", report.words
        yield "facts", [list(fact) for fact in report.facts]
        yield "unit", report.history.time_unit.value
        yield "base", str(self.base)  # as text: it may need more bits than JavaScript's numbers have
        yield "count", len(self.operations)
        yield "processes", [process_name(process) for process in self.processes]
        yield from self._columns()
        yield "parts", self._parts()
        yield "open", self._opening()
        yield "findings", [self._finding(finding) for finding in report.findings]
        yield "annotations", [self._annotation(annotation) for annotation in report.history.annotations]
        yield "texts", self.texts.texts

    def _columns(self) -> Iterator[tuple[str, Column]]:
        operations = self.operations
        number = self.texts.number
        describe = self.report.describe_operation
        processes = {process: place for place, process in enumerate(self.processes)}
        functions: dict[str, int] = {}
        yield "process", column(processes[operation.process] for operation in operations)
        yield "function", column(functions.setdefault(op.function, len(functions)) for op in operations)
        yield "functions", list(functions)
        yield "call", column(_steps(operation.call for operation in operations))
        yield (
            "duration",
            column(-1 if op.returned is None else op.returned - op.call for op in operations),
        )
        yield "outcome", column(_OUTCOMES[operation.outcome] for operation in operations)
        yield "text", column(number(shortened(describe(operation), LABEL_LIMIT)) for operation in operations)
        yield "input", column(number(self.written(operation.input)) for operation in operations)
        yield "output", column(number(self.written(operation.output)) for operation in operations)
        yield "error", column(-1 if op.error is None else number(shortened(op.error, VALUE_LIMIT)) for op in operations)
        yield "line", column(0 if operation.line is None else operation.line for operation in operations)
        sets: dict[tuple[int, ...], int] = {}
        keys = self.keys
        keys_of = self.report.keys_of

        def key_set(operation: Operation) -> int:
            found = tuple([keys.setdefault(key, len(keys)) for key in keys_of(operation)])
            return sets.setdefault(found, len(sets))

        yield "keys", column(map(key_set, operations))
        yield "keySets", [list(found) for found in sets]

    def _parts(self) -> list[dict[str, Any]]:
        found = {part.key: part for part in self.report.parts}
        return [self._part(key, found.get(key)) for key in self.keys]

    def _part(self, key: Key, part: PartVerdict | None) -> dict[str, Any]:
        name = shortened(part_name(key), LABEL_LIMIT)
        if part is None:
            return {"name": name}
        encoded: dict[str, Any] = {
            "name": name,
            "status": part.status.value,
            "algorithm": part.algorithm,
            "configurations": part.configurations,
        }
        if part.limit is not None:
            encoded["limit"] = part.limit
        if part.linearization:
            encoded["order"] = self._order(part.linearization)
        if part.witness is not None:
            encoded["witness"] = self._witness(part.witness)
        return encoded

    def _order(self, linearization: Sequence[Placed], before: str | None = None) -> dict[str, Any]:
        describe = self.report.describe_state
        number = self.texts.number
        return {
            "operations": [self.number(placed.operation) for placed in linearization],
            "states": [number(shortened(describe(placed.state), LABEL_LIMIT)) for placed in linearization],
            "before": number(self.report.initial_state if before is None else before),
        }

    def _witness(self, witness: Witness) -> dict[str, Any]:
        number = self.texts.number
        before = _BEFORE if witness.begins_anywhere else None
        return {
            "operations": [self.number(operation) for operation in witness.operations],
            "refused": self.number(witness.refused),
            "prefixEnd": witness.prefix_end - self.base,
            "order": self._order(witness.linearization, before),
            "words": witness.words,
            "minimal": witness.minimal,
            "states": len(witness.possible),
            "possible": [
                {
                    "state": number(shortened(possible.description, LABEL_LIMIT)),
                    "order": self._order(
                        possible.linearization, before if possible.linearization else possible.description
                    ),
                    "refusals": [
                        [self.number(refusal.operation), number(shortened(refusal.reason, VALUE_LIMIT))]
                        for refusal in possible.refusals[:REFUSALS_LIMIT]
                    ],
                }
                for possible in witness.possible[:POSSIBLE_LIMIT]
            ],
        }

    def _opening(self) -> int:
        """The number of the part to open at, or -1 for all of them."""
        witness = self.report.witness
        if witness is not None:
            return self.keys.get(witness.key, -1)
        for part in self.report.parts:
            if part.status is not Status.VALID:
                return self.keys[part.key]
        return -1

    def _finding(self, finding: Finding) -> dict[str, Any]:
        return {
            "title": finding.title,
            "text": finding.text,
            "severity": finding.severity,
            "operations": [self.number(operation) for operation in finding.operations],
        }

    def _annotation(self, annotation: Annotation) -> dict[str, Any]:
        encoded: dict[str, Any] = {"label": annotation.label, "start": annotation.start - self.base}
        if annotation.end is not None:
            encoded["end"] = annotation.end - self.base
        encoded["lane"] = annotation.lane
        if annotation.process is not None:
            encoded["process"] = process_name(annotation.process)
        if annotation.details:
            encoded["details"] = shortened(annotation.details, VALUE_LIMIT)
        return encoded


def pieces(report: Report, *, values: bool = True) -> Iterator[tuple[str, Any]]:
    """The members of the page's data, in order. Raises ValueError for an operation that the history lacks.

    Without `values` operations have no input and output but in words.
    """
    return _Encoder(report, value_text if values else lambda _: "").pieces()


def column(values: Iterable[Any]) -> Column:
    """The values as a list, or as `{"all": value}` when they are all the same."""
    listed = list(values)
    if listed and all(value == listed[0] for value in listed):
        return {"all": listed[0]}
    return listed


def process_name(process: Process) -> str:
    """How a row is called: `process 3`, or the name that the client has."""
    return process if isinstance(process, str) else f"process {process}"


def _ordered(processes: Mapping[Process, None]) -> list[Process]:
    """Numbered processes by number, then named ones by name."""
    numbered = sorted(process for process in processes if isinstance(process, int))
    return [*numbered, *sorted(process for process in processes if isinstance(process, str))]


def _steps(values: Iterable[int]) -> Iterator[int]:
    before: int | None = None
    for value in values:
        yield 0 if before is None else value - before
        before = value
