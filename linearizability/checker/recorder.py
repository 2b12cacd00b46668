"""Recording a history while it happens, from threads, tasks or both, for under two microseconds an event.

No lock is needed. Every event is one append to a deque, which is atomic, and an operation's call is
appended before the operation starts, its completion after it ended. The order of the appends is therefore a
true order of events. Two threads may append in another order than they read the clock; such stamps are
moved forward to the greatest stamp already appended, which is never after the start of the operation
called, so the interval only grows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from raftlog.linearizability.checker.history import (
    FAIL,
    OK,
    Annotation,
    Event,
    EventType,
    History,
    HistoryError,
    Key,
    Operation,
    Process,
)

_INVOKE = EventType.INVOKE
_OK = EventType.OK
_FAIL = EventType.FAIL
_INFO = EventType.INFO
_ANNOTATION = EventType.ANNOTATION


class Recorder:
    """Collects the events of a running test.

    Each method may be called from any thread. `invoke` hands out the operation that `ok`, `fail` or `info`
    later completes; one that is never completed stays of unknown outcome. Use either `history` at the end
    or `drain` along the way, from one thread.
    """

    __slots__ = ("_clock", "_completed", "_events", "_last", "_notes", "_open")

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock` answers monotonic nanoseconds and is the same for every process recorded."""
        self._clock = clock
        self._events: deque[Any] = deque()  # of Event
        self._open: dict[int, Operation] = {}
        self._completed: list[Operation] = []
        self._notes: list[Annotation] = []
        self._last = -(2**63)

    def invoke(self, process: Process, function: str, input: Any = None, key: Key = None) -> Operation:
        """Record a call; to be called before the request leaves."""
        operation = Operation(process, function, input, None, key, self._clock())
        self._events.append((_INVOKE, operation))
        return operation

    def ok(self, operation: Operation, output: Any = None) -> None:
        """The operation happened and answered `output`; to be called after the answer is there."""
        if operation.returned is not None:
            raise HistoryError(f"{operation.function} by {operation.process!r} was completed twice")
        operation.output = output
        operation.returned = self._clock()
        operation.outcome = OK
        self._events.append((_OK, operation))

    def fail(self, operation: Operation, error: str | None = None) -> None:
        """The operation certainly did not happen and will not."""
        if operation.returned is not None:
            raise HistoryError(f"{operation.function} by {operation.process!r} was completed twice")
        operation.error = error
        operation.returned = self._clock()
        operation.outcome = FAIL
        self._events.append((_FAIL, operation))

    def info(self, operation: Operation, error: str | None = None) -> None:
        """Nobody knows whether the operation happened or will: a time-out, a lost connection."""
        if operation.returned is not None:
            raise HistoryError(f"{operation.function} by {operation.process!r} was completed twice")
        operation.error = error
        operation.returned = self._clock()
        self._events.append((_INFO, operation))

    def annotate(
        self,
        label: str,
        *,
        lane: str = "events",
        start: int | None = None,
        end: int | None = None,
        details: str = "",
    ) -> Annotation:
        """Note something beside the operations; without `start` it happened now. Times are the clock's."""
        annotation = Annotation(label, self._clock() if start is None else start, end, lane, None, details)
        self._events.append((_ANNOTATION, annotation))
        return annotation

    def now(self) -> int:
        """The clock's time, for the `start` of a later annotation."""
        return self._clock()

    def drain(self) -> Iterator[Event]:
        """The events recorded since the last call, in order, for an online check or a file."""
        events = self._events
        for _ in range(len(events)):
            event = events.popleft()
            kind, subject = event
            if kind is _INVOKE:
                stamp = subject.call
                if stamp >= self._last:
                    self._last = stamp
                else:
                    subject.call = self._last
            elif kind is not _ANNOTATION:
                stamp = subject.returned
                if stamp >= self._last:
                    self._last = stamp
                else:
                    subject.returned = self._last
            yield event

    def history(self, source: str | None = None) -> History:
        """Everything recorded so far. Operations still open are of unknown outcome."""
        for event in self.drain():
            kind, subject = event
            if isinstance(subject, Annotation):
                self._notes.append(subject)
            elif kind is _INVOKE:
                self._open[id(subject)] = subject
            else:
                self._completed.append(self._open.pop(id(subject)))
        return History.of(self._completed + list(self._open.values()), self._notes, source=source)
