"""Histories as Jepsen writes them: a register test's log lines, or one EDN map a line.

    INFO  jepsen.util - 4	:invoke	:cas	[2 4]
    {:process 4, :type :invoke, :f :cas, :value [2 4], :time 3291485317}

A `:fail` of a compare-and-set that says nothing but the values was refused by the register, which is an answer; any
other `:fail` did not happen. Log lines of other parts of a test are passed over; operations of the nemesis become
annotations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from raftlog.linearizability.checker.formats import edn
from raftlog.linearizability.checker.formats.lines import Progress, Source, Weigh, name_of, text_lines
from raftlog.linearizability.checker.history import (
    Annotation,
    History,
    HistoryError,
    Key,
    Operation,
    Outcome,
    Process,
    TimeUnit,
)
from raftlog.linearizability.checker.values import freeze

_LOG = re.compile(
    r"jepsen\.util(?:\s*[-:])?\s+(?P<process>:?[\w-]+)\s+:(?P<type>\S*)(?:\s+:(?P<f>\S+)(?:\s+(?P<value>.*))?)?$"
)
_MAP = re.compile(r"(?:#[\w.]+\s*)?\{")  # a map, or a record such as #jepsen.history.Op{…}
_TYPES = {"invoke", "ok", "fail", "info"}
_TIME_LIMIT = 2**63


class _Line:
    """One event: who, what, and with which value."""

    __slots__ = ("error", "function", "key", "process", "time", "type", "value")

    def __init__(self, fields: dict[Any, Any]) -> None:
        self.process: Any = fields.get("process")
        self.type: Any = fields.get("type")
        self.function: Any = fields.get("f")
        self.key: Key = freeze(fields.get("key"))
        self.value: Any = fields.get("value")
        self.error: Any = fields.get("error")
        self.time: Any = fields.get("time")
        if not isinstance(self.type, str) or self.type not in _TYPES:
            raise edn.EdnError(f":type is {self.type!r}, not one of :invoke, :ok, :fail, :info")
        if not isinstance(self.function, str):
            raise edn.EdnError(f":f is {self.function!r}, not a keyword")


class EventReader:
    """Pairs invocations with completions. Lines without `:time` are one step of the clock apart."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.operations: list[Operation] = []
        self.annotations: list[Annotation] = []
        self.timed = False
        self._open: dict[Process, Operation] = {}
        self._now = -(2**63)

    def read(self, lines: Iterable[tuple[int, _Line]]) -> History:
        """The history of these numbered lines. Raises HistoryError if none is of a client."""
        number = 1
        for number, line in lines:
            try:
                self._event(number, line)
            except edn.EdnError as error:
                raise HistoryError(str(error), number, self.name) from None
        if not self.operations and not self._open:
            raise HistoryError("no operation of a client is in it", number, self.name)
        self.operations.extend(self._open.values())
        unit = TimeUnit.NANOSECONDS if self.timed else TimeUnit.STEPS
        return History.of(self.operations, self.annotations, time_unit=unit, source=self.name)

    def _event(self, number: int, line: _Line) -> None:
        if type(line.time) is int:
            self.timed = True
        elif self.timed or line.time is not None:
            raise edn.EdnError(":time is missing or no whole number, although other lines have one")
        time = number if line.time is None else line.time
        if not -_TIME_LIMIT <= time < _TIME_LIMIT:
            raise edn.EdnError(":time is no integer of 64 bits")
        if time < self._now:
            raise edn.EdnError(f":time {time} is before that of an earlier line")
        self._now = time
        if line.process is None:
            raise edn.EdnError(":process is missing")
        if type(line.process) is not int:
            self.annotations.append(Annotation(line.function, time, None, str(line.process), None, str(line.value)))
            return
        if line.type == "invoke":
            earlier = self._open.get(line.process)
            if earlier is not None:
                raise edn.EdnError(f"process {line.process} calls while its call of line {earlier.line} is open")
            self._open[line.process] = Operation(
                line.process, line.function, line.value, None, line.key, time, line=number
            )
            return
        operation = self._open.pop(line.process, None)
        if operation is None or operation.function != line.function:
            raise edn.EdnError(f"a completion without a call: process {line.process} has no {line.function} open")
        if line.key is not None and line.key != operation.key:
            raise edn.EdnError(f":key is {line.key!r}, but {operation.key!r} in the call of line {operation.line}")
        operation.returned = time
        self._complete(operation, line)
        self.operations.append(operation)

    @staticmethod
    def _complete(operation: Operation, line: _Line) -> None:
        if line.error is not None:
            operation.error = str(line.error)
        if line.type == "ok":
            operation.outcome = Outcome.OK
            if operation.function == "cas":
                operation.output = True
            elif operation.function not in ("write", "put", "append"):
                operation.output = line.value
        elif line.type == "info":
            operation.error = operation.error or (line.value if isinstance(line.value, str) else None)
        elif operation.function == "cas" and line.error is None and line.value == operation.input:
            operation.outcome = Outcome.OK
            operation.output = False
        else:
            operation.outcome = Outcome.FAIL
            operation.error = operation.error or (line.value if isinstance(line.value, str) else None)


def read_jepsen(
    source: Source, *, name: str | None = None, progress: Progress | None = None, weigh: Weigh | None = None
) -> History:
    """Read a log or a file of EDN maps from a path, an open file or lines: see `read_history`.

    Raises HistoryError with the line.
    """
    name = name_of(source, name)
    return EventReader(name).read(_lines(text_lines(source, name, progress, weigh), name))


def numbered_maps(lines: Iterable[str], name: str | None) -> Iterator[tuple[int, _Line]]:
    """The EDN maps of a file with one on each line."""
    for number, text in enumerate(lines, 1):
        if not edn.is_blank(text):
            yield number, _parse(text, number, name)


def _parse(text: str, number: int, name: str | None) -> _Line:
    try:
        fields = edn.parse(text)
        if not isinstance(fields, dict):
            raise edn.EdnError("a line must hold a map")
        return _Line(fields)
    except edn.EdnError as error:
        raise HistoryError(str(error), number, name) from None


def _lines(lines: Iterable[str], name: str | None) -> Iterator[tuple[int, _Line]]:
    seen = 0
    number = 0
    for number, text in enumerate(lines, 1):
        text = text.strip()
        if _MAP.match(text):
            seen += 1
            yield number, _parse(text, number, name)
            continue
        match = _LOG.search(text)
        if match is None:
            continue
        seen += 1
        try:
            yield number, _log_line(match)
        except edn.EdnError as error:
            raise HistoryError(str(error), number, name) from None
    if number and not seen:
        raise HistoryError("no line up to this one is an operation of a Jepsen log or an EDN map", number, name)


def _log_line(match: re.Match[str]) -> _Line:
    process = match["process"].lstrip(":")
    client = process.isdecimal() and len(process) < 20
    value, _, error = (match["value"] or "nil").partition("\t")
    return _Line(
        {
            "process": int(process) if client else process,
            "type": match["type"],
            "f": match["f"],
            "value": edn.parse(value) if client else value,
            "error": error or None,
        }
    )
