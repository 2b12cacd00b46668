"""A history in JSON Lines, read a piece of the file at a time and each piece by itself.

An operation belongs to the piece that has its completion. One that was called in an earlier piece is put together
afterwards, from what each piece tells of its edges: at most as many operations as there are clients.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import IO, Any

from raftlog.linearizability.checker.formats.jsonl import JsonLinesReader
from raftlog.linearizability.checker.formats.lines import LineError
from raftlog.linearizability.checker.history import (
    Annotation,
    Event,
    EventType,
    HistoryError,
    Operation,
    Outcome,
)
from raftlog.linearizability.checker.values import freeze, show
from raftlog.pipeline.verify.edges import NEVER, Edges


class ChunkReader(JsonLinesReader):
    """Takes completions without a call for those of an earlier piece, once for each client."""

    def __init__(self, lines: IO[bytes] | Section, chunk: int) -> None:
        super().__init__(lines, name=f"piece {chunk}")
        self.operations: list[Operation] = []
        self.edges = Edges(chunk)
        self._looked_to = 0
        # Calls that are not what their process has open: those with an id, and whole operations.
        self._aside: set[int] = set()

    def read(self) -> list[Operation]:
        """The operations that end here. What is wrong with the piece is in its edges."""
        edges, operations = self.edges, self.operations
        try:
            for kind, subject in self.events(whole_operations=True):
                if edges.first_time == NEVER:
                    edges.first_time, edges.first_line = self._now, self.line
                if kind is EventType.INVOKE:
                    continue
                if isinstance(subject, Annotation):
                    edges.annotations.append(subject)
                elif subject.index != _ELSEWHERE:
                    operations.append(subject)
        except HistoryError as error:
            edges.error = (error.reason, error.line or 1)
        edges.is_blank = edges.error is not None and edges.error[0].startswith("no line is in it")
        if edges.is_blank:
            edges.error = None
        edges.lines, edges.last_time, edges.operations = self.line, self._now, len(operations)
        edges.still_open = dict(self._open)
        self._look(operations[self._looked_to :])
        self._look(edges.still_open.values())
        return operations

    def _judge_call(self, fields: dict[str, Any]) -> Event:
        event = super()._judge_call(fields)
        if fields.get("id") is not None:
            self.edges.called.setdefault(_handle(fields), self.line)
            self._aside.add(id(event[1]))
        return event

    def _whole(self, fields: dict[str, Any]) -> Event:
        event = super()._whole(fields)
        self._aside.add(id(event[1]))
        return event

    def _judge_completion(self, fields: dict[str, Any], outcome: Outcome) -> Operation:
        handle = _handle(fields)
        is_one = isinstance(handle, int | str | tuple)
        if not is_one or handle in self._open or self._was_here(handle):
            return super()._judge_completion(fields, outcome)
        self._advance(fields)
        self.edges.ended.append((fields, self.line))
        return Operation(0, "", None, index=_ELSEWHERE)

    def _header(self, fields: dict[str, Any]) -> Any:
        event = super()._header(fields)
        self.edges.time_unit = self.time_unit
        return event

    def _was_here(self, handle: Any) -> bool:
        """Whether this client, or this id, has called or ended something in this piece before."""
        self._look(self.operations[self._looked_to :])
        self._looked_to = len(self.operations)
        return handle in self.edges.called or any(_handle(told) == handle for told, _ in self.edges.ended)

    def _look(self, calls: Iterable[Operation]) -> None:
        """Note who has called without an id."""
        called = self.edges.called
        for each in calls:
            if id(each) not in self._aside:
                line = each.line or 1
                called[each.process] = min(called.get(each.process, line), line)


_ELSEWHERE = -2
"""The index of an operation that was called in an earlier piece."""


def _handle(fields: dict[str, Any]) -> Any:
    return fields.get("process") if fields.get("id") is None else ("id", freeze(fields["id"]))


class Section(io.RawIOBase):
    """The bytes of the lines that begin at `start` or later and before `end`; to be read as a file is."""

    def __init__(self, stream: IO[bytes], start: int, end: int) -> None:
        self._stream = stream
        self._end = _line_start(stream, end)
        self._at = _line_start(stream, start)
        stream.seek(self._at)

    @property
    def size(self) -> int:
        """Bytes that are left."""
        return max(0, self._end - self._at)

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(self.size if size < 0 else min(size, self.size))
        self._at += len(data)
        return data


def _line_start(stream: IO[bytes], at: int) -> int:
    """Where the first line begins that does so at this place or behind it."""
    if at == 0:
        return 0
    stream.seek(at - 1)
    stream.readline()
    return stream.tell()


class Joined(JsonLinesReader):
    """What the pieces of a history have told, put together in their order."""

    def __init__(self, edges: Sequence[Edges], path: str) -> None:
        super().__init__((), name=path)
        self.operations: list[Operation] = []
        """Those that were called in one piece and ended in another, and those that never ended."""
        self.annotations: list[Annotation] = []
        self.first_lines: list[int] = []
        """By piece: how many lines lie before it."""
        for each in edges:
            self._add(each)
        if all(each.is_blank for each in edges):
            reason = "no line is in it: a history without operations has its first line of type history"
            raise HistoryError(reason, 1, path)
        self.operations += self.unfinished()

    def _add(self, edges: Edges) -> None:
        """Raises HistoryError."""
        before = self.line
        self.first_lines.append(before)
        self.time_unit = edges.time_unit or self.time_unit
        try:
            if edges.first_time != NEVER:
                self.line = before + edges.first_line
                self._advance({"time": edges.first_time})
            for fields, line in edges.ended:
                self.line = before + line
                self._now = NEVER  # within the piece it was looked at
                outcome = {"ok": Outcome.OK, "fail": Outcome.FAIL, "info": Outcome.INFO}[fields["type"]]
                self.operations.append(self._complete(fields, outcome))
        except LineError as error:
            raise HistoryError(str(error), self.line, self.name) from None
        if edges.error is not None:
            reason, line = edges.error
            reason = re.sub(r"\bof line (\d+)", lambda told: f"of line {before + int(told[1])}", reason)
            raise HistoryError(reason, before + line, self.name)
        self._take_over(edges, before)
        self.annotations += edges.annotations
        self._now = max(self._now, edges.last_time)
        self.line = before + edges.lines

    def _take_over(self, edges: Edges, before: int) -> None:
        again = [(edges.called[handle], handle) for handle in self._open if handle in edges.called]
        if again:
            line, handle = min(again, key=itemgetter(0))
            earlier = self._open[handle]
            whose = "its" if type(handle) is not tuple else "the call with that id, the"
            what = f"{whose} {earlier.function} of line {earlier.line}"
            reason = f"process {show(earlier.process)} calls something while {what} is still open"
            raise HistoryError(reason, before + line, self.name)
        for handle, operation in edges.still_open.items():
            operation.line = before + (operation.line or 0)
            self._open[handle] = operation
