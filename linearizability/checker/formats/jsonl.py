"""The history format for every language: JSON Lines, read and written as a stream. docs/CHECKER.md
describes it.

Everything that arrives is judged before it is stored (`lines` says how), and each error names its line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import IO, Any

from raftlog.linearizability.checker.formats.lines import (
    LineError,
    Progress,
    Source,
    Weigh,
    batches,
    name_of,
    objects,
    opened,
)
from raftlog.linearizability.checker.history import (
    COMPLETION,
    Annotation,
    Event,
    EventType,
    History,
    HistoryError,
    Operation,
    Outcome,
    Process,
    TimeUnit,
    events_of,
)
from raftlog.linearizability.checker.values import freeze, show

_TIME_LIMIT = 2**63  # stamps fit 64 bits, so that other languages and array forms can hold them

_TYPES = ("invoke", "ok", "fail", "info", "operation", "annotation", "history")
_OUTCOMES = {"ok": Outcome.OK, "fail": Outcome.FAIL, "info": Outcome.INFO}
_KNOWN = {
    "invoke": {"type", "process", "function", "key", "input", "time", "id"},
    "completion": {"type", "process", "output", "error", "time", "id", "function", "key"},
    "operation": {"type", "process", "function", "key", "input", "output", "call", "return", "outcome", "error"},
    "annotation": {"type", "label", "time", "until", "lane", "process", "details"},
    "history": {"type", "version", "time_unit"},
}
_ANSWER = {"type", "process", "output", "error", "time"}  # a completion that says nothing again of its call

_call = itemgetter("process", "function", "input", "time")
_CALL_FIELDS = 5  # of a line with these and its type
_answer = itemgetter("process", "output", "time")
_ANSWER_FIELDS = 4

_INVOKE = EventType.INVOKE
_OK = EventType.OK
_OUTCOME_OK = Outcome.OK
_INFO = Outcome.INFO


def read_history(
    source: Source,
    *,
    name: str | None = None,
    progress: Progress | None = None,
    weigh: Weigh | None = None,
) -> History:
    """Read a whole history from a path, an open file or lines.

    `name`, by default the path, stands in errors; `progress` is told the lines read from time to time, and `weigh`
    before a long line is parsed how many bytes it may take. Whatever they raise ends the reading.
    Raises HistoryError with the line for anything that is not a history.
    """
    reader = JsonLinesReader(source, name=name, progress=progress, weigh=weigh)
    operations: list[Operation] = []
    annotations: list[Annotation] = []
    for kind, subject in reader.events(whole_operations=True):
        if kind is _INVOKE:
            continue
        if isinstance(subject, Annotation):
            annotations.append(subject)
        else:
            operations.append(subject)
    operations += reader.unfinished()
    return History.of(operations, annotations, time_unit=reader.time_unit, source=reader.name)


def read_events(source: Source, *, name: str | None = None) -> Iterator[Event]:
    """Read a history event by event, holding only what is open. Lines of whole operations are refused
    here."""
    return JsonLinesReader(source, name=name).events()


class JsonLinesReader:
    """One pass over a JSON Lines history.

    `time_unit` is what the header said, once the first event is out; `line` is the line read last.
    """

    def __init__(
        self,
        source: Source,
        *,
        name: str | None = None,
        progress: Progress | None = None,
        weigh: Weigh | None = None,
    ) -> None:
        self.time_unit = TimeUnit.NANOSECONDS
        self.name = name_of(source, name)
        self.line = 0
        self._source = source
        self._progress = progress
        self._weigh = weigh
        self._open: dict[Any, Operation] = {}
        self._now = -_TIME_LIMIT
        self._whole_operations = False

    def events(self, *, whole_operations: bool = False) -> Iterator[Event]:
        """The events in the order of the file; with `whole_operations` such a line gives its completion
        only.

        Among events with equal stamps a return may come before a call, as the file has it.
        """
        self._whole_operations = whole_operations
        handlers = self._handlers()
        is_empty = True
        try:
            for fields in self._objects():
                if fields is None:
                    continue
                is_empty = False
                try:
                    handler = handlers[fields["type"]]
                except (KeyError, TypeError):
                    raise LineError(_wrong_type(fields)) from None
                event = handler(fields)
                if event is not None:
                    yield event
            if is_empty:
                raise LineError("no line is in it: a history without operations has its first line of type history")
        except LineError as error:
            raise HistoryError(str(error), max(1, self.line + error.ahead), self.name) from None

    def _objects(self) -> Iterator[dict[str, Any] | None]:
        with opened(self._source) as source:
            for lines in batches(source, self._weigh):
                for fields in objects(lines):
                    self.line += 1
                    yield fields
                if self._progress is not None:
                    self._progress(self.line)

    def unfinished(self) -> list[Operation]:
        """The operations that were called and have not returned so far, in the order of their calls."""
        return list(self._open.values())

    def _handlers(self) -> dict[str, Callable[[dict[str, Any]], Event | None]]:
        return {
            "invoke": self._invoke,
            "ok": self._ok,
            "fail": lambda fields: (EventType.FAIL, self._complete(fields, Outcome.FAIL)),
            "info": lambda fields: (EventType.INFO, self._complete(fields, Outcome.INFO)),
            "operation": self._whole,
            "annotation": self._annotation,
            "history": self._header,
        }

    def _ok(self, fields: dict[str, Any]) -> Event:
        return _OK, self._complete(fields, _OUTCOME_OK)

    def _advance(self, fields: dict[str, Any]) -> int:
        time = fields.get("time")
        if type(time) is not int or not -_TIME_LIMIT <= time < _TIME_LIMIT:
            time = _integer(fields, "time")
        if time < self._now:
            raise LineError(f"time {time} is before {self._now}, the time of an earlier line: events must be in order")
        self._now = time
        return time

    def _invoke(self, fields: dict[str, Any]) -> Event:
        """A call. One as nearly all are is taken here; whatever else is on the line is judged field by field."""
        try:
            process, function, given, time = _call(fields)
            key = fields["key"] if len(fields) > _CALL_FIELDS else None
        except KeyError:
            return self._judge_call(fields)
        if (
            type(time) is not int
            or not self._now <= time < _TIME_LIMIT
            or type(function) is not str
            or (type(process) is not int and type(process) is not str)
            or (key is not None and type(key) is not str)
            or len(fields) > _CALL_FIELDS + 1
            or process in self._open
        ):
            return self._judge_call(fields)
        self._now = time
        operation = Operation(process, function, given, None, key, time, None, _INFO, None, -1, self.line)
        self._open[process] = operation
        return _INVOKE, operation

    def _judge_call(self, fields: dict[str, Any]) -> Event:
        _refuse_unknown(fields, "invoke")
        time = self._advance(fields)
        process = fields.get("process")
        if type(process) is not int and type(process) is not str:
            process = _process(fields)
        function = fields.get("function")
        if type(function) is not str:
            function = _text(fields, "function")
        key = fields.get("key")
        operation = Operation(
            process,
            function,
            fields.get("input"),
            None,
            key if type(key) is str else freeze(key),
            time,
            line=self.line,
        )
        handle = process if fields.get("id") is None else ("id", freeze(fields["id"]))
        earlier = self._open.get(handle)
        if earlier is not None:
            which = "its" if type(handle) is not tuple else "the call with that id, the"
            comma = "," if type(handle) is tuple else ""
            raise LineError(
                f"process {show(process)} calls {function} while {which} {earlier.function} "
                f"of line {earlier.line}{comma} is still open"
            )
        self._open[handle] = operation
        return _INVOKE, operation

    def _complete(self, fields: dict[str, Any], outcome: Outcome) -> Operation:
        """A completion, in the same two ways as a call."""
        try:
            process, output, time = _answer(fields)
        except KeyError:
            return self._judge_completion(fields, outcome)
        if (
            len(fields) != _ANSWER_FIELDS
            or type(time) is not int
            or not self._now <= time < _TIME_LIMIT
            or (type(process) is not int and type(process) is not str)
            or process not in self._open
        ):
            return self._judge_completion(fields, outcome)
        self._now = time
        operation = self._open.pop(process)
        operation.returned = time
        operation.outcome = outcome
        operation.output = output
        return operation

    def _judge_completion(self, fields: dict[str, Any], outcome: Outcome) -> Operation:
        plain = fields.keys() <= _ANSWER
        if not plain:
            _refuse_unknown(fields, "completion")
        time = self._advance(fields)
        handle: Any = fields.get("process")
        if fields.get("id") is not None:
            handle = ("id", freeze(fields["id"]))
        elif type(handle) is not int and type(handle) is not str:
            handle = _process(fields)
        operation = self._open.pop(handle, None)
        if operation is None:
            who = f"id {show(handle[1])}" if type(handle) is tuple else f"process {show(handle)}"
            raise LineError(f"a completion without a call: {who} has nothing open")
        if not plain:
            _compare(fields, operation)
        operation.returned = time
        operation.outcome = outcome
        operation.output = fields.get("output")
        error = fields.get("error")
        if error is not None:
            operation.error = error if type(error) is str else show(error)
        return operation

    def _whole(self, fields: dict[str, Any]) -> Event:
        if not self._whole_operations:
            raise LineError("a line of a whole operation cannot be streamed: write its call and its completion")
        _refuse_unknown(fields, "operation")
        outcome = fields.get("outcome", "ok")
        if type(outcome) is not str or outcome not in _OUTCOMES:
            raise LineError(f'outcome is {show(outcome)}, not one of "ok", "fail", "info"')
        error = fields.get("error")
        returned = None if fields.get("return") is None else _integer(fields, "return")
        operation = Operation(
            _process(fields),
            _text(fields, "function"),
            fields.get("input"),
            fields.get("output"),
            freeze(fields.get("key")),
            _integer(fields, "call"),
            returned,
            _OUTCOMES[outcome],
            error if error is None or type(error) is str else show(error),
            line=self.line,
        )
        if returned is None and operation.outcome is not Outcome.INFO:
            raise LineError(f'an operation with outcome "{outcome}" needs a "return" time')
        if returned is not None and returned < operation.call:
            raise LineError(f"the operation returned at {returned}, before it was called at {operation.call}")
        return COMPLETION[operation.outcome], operation

    def _annotation(self, fields: dict[str, Any]) -> Event:
        _refuse_unknown(fields, "annotation")
        start = _integer(fields, "time")
        end = None if fields.get("until") is None else _integer(fields, "until")
        if end is not None and end < start:
            raise LineError(f"the annotation ends at {end}, before it starts at {start}")
        annotation = Annotation(
            _text(fields, "label"),
            start,
            end,
            "events" if fields.get("lane") is None else _text(fields, "lane"),
            None if fields.get("process") is None else _process(fields),
            "" if fields.get("details") is None else _text(fields, "details"),
        )
        return EventType.ANNOTATION, annotation

    def _header(self, fields: dict[str, Any]) -> Event | None:
        _refuse_unknown(fields, "history")
        if fields.get("version", 1) != 1:
            raise LineError(f"history version {show(fields['version'])} is not known, only 1")
        unit = fields.get("time_unit", "ns")
        if unit not in ("ns", "step"):
            raise LineError(f'time_unit is {show(unit)}, not "ns" or "step"')
        self.time_unit = TimeUnit(unit)
        return None


class JsonLinesWriter:
    """Writes a history as it grows to anything with `write(str)`. Flushing is the caller's business."""

    def __init__(self, stream: IO[str], time_unit: TimeUnit = TimeUnit.NANOSECONDS) -> None:
        self._write = stream.write
        self._numbers: dict[int, int] = {}
        self._next_number = 0
        self._busy: dict[Process, int] = {}
        self._put({"type": "history", "version": 1, "time_unit": time_unit.value})

    def write(self, event: Event) -> None:
        """Write one event. Raises HistoryError when a value has no JSON form."""
        kind, subject = event
        if isinstance(subject, Annotation):
            self._annotate(subject)
        elif kind is EventType.INVOKE:
            self._invoke(subject)
        else:
            self._complete(kind, subject)

    def _invoke(self, operation: Operation) -> None:
        fields: dict[str, Any] = {
            "type": "invoke",
            "process": operation.process,
            "function": operation.function,
            "input": operation.input,
            "time": operation.call,
        }
        if operation.key is not None:
            fields["key"] = operation.key
        # One client with several calls in flight: then, and only then, its lines are matched by an id.
        busy = self._busy.get(operation.process, 0)
        self._busy[operation.process] = busy + 1
        if busy:
            self._next_number += 1
            self._numbers[id(operation)] = self._next_number
            fields["id"] = self._next_number
        self._put(fields)

    def _complete(self, kind: EventType, operation: Operation) -> None:
        fields: dict[str, Any] = {
            "type": kind.value,
            "process": operation.process,
            "time": operation.returned,
        }
        if kind is EventType.OK or operation.output is not None:  # a client may know a part of what failed
            fields["output"] = operation.output
        if operation.error is not None:
            fields["error"] = operation.error
        number = self._numbers.pop(id(operation), None)
        if number is not None:
            fields["id"] = number
        self._busy[operation.process] -= 1
        if not self._busy[operation.process]:
            del self._busy[operation.process]
        self._put(fields)

    def _annotate(self, annotation: Annotation) -> None:
        fields: dict[str, Any] = {"type": "annotation", "label": annotation.label, "time": annotation.start}
        if annotation.end is not None:
            fields["until"] = annotation.end
        if annotation.lane != "events":
            fields["lane"] = annotation.lane
        if annotation.process is not None:
            fields["process"] = annotation.process
        if annotation.details:
            fields["details"] = annotation.details
        self._put(fields)

    def _put(self, fields: dict[str, Any]) -> None:
        try:
            self._write(json.dumps(fields, allow_nan=False, separators=(",", ":")) + "\n")
        except (TypeError, ValueError) as error:
            raise HistoryError(f"a value has no JSON form: {error}") from None


def write_history(history: History, stream: IO[str]) -> None:
    """Write a finished history, one line an event."""
    writer = JsonLinesWriter(stream, history.time_unit)
    for event in events_of(history.operations, history.annotations):
        writer.write(event)


def _compare(fields: dict[str, Any], operation: Operation) -> None:
    """What a completion says again of its call must be what the call said."""
    for name, told in (("process", operation.process), ("function", operation.function), ("key", operation.key)):
        if fields.get(name) is not None and freeze(fields[name]) != told:
            raise LineError(f"{name} is {show(fields[name])}, but {show(told)} in the call of line {operation.line}")


def _wrong_type(fields: dict[str, Any]) -> str:
    if "type" not in fields:
        return 'the field "type" is missing'
    known = ", ".join(f'"{kind}"' for kind in _TYPES)
    return f"type is {show(fields['type'])}, not one of {known}"


def _refuse_unknown(fields: dict[str, Any], kind: str) -> None:
    known = _KNOWN[kind]
    if fields.keys() <= known:
        return
    name = min(fields.keys() - known)
    raise LineError(f"a line of this type has no field {show(name)}")


def _integer(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is int and -_TIME_LIMIT <= value < _TIME_LIMIT:
        return value
    if name not in fields:
        raise LineError(f'the field "{name}" is missing')
    raise LineError(f'"{name}" is {show(value)}, not an integer of 64 bits')


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if type(value) is str:
        return value
    if name not in fields:
        raise LineError(f'the field "{name}" is missing')
    raise LineError(f'"{name}" is {show(value)}, not a string')


def _process(fields: dict[str, Any]) -> Process:
    value = fields.get("process")
    if type(value) is int or type(value) is str:
        return value
    if "process" not in fields:
        raise LineError('the field "process" is missing')
    raise LineError(f'"process" is {show(value)}, neither an integer nor a string')
