"""What happened: operations with the interval in which each took effect, and annotations beside them.

Intervals are closed: an operation took effect somewhere in `[call, returned]`, both ends included, so two
operations that only share a stamp are concurrent. A clock too coarse to tell two events apart can therefore
hide a violation but never invent one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

Process: TypeAlias = int | str
Key: TypeAlias = Hashable


class Outcome(Enum):
    """How an operation ended, as far as its caller could tell."""

    OK = "ok"  # it happened, and `output` is what it answered
    FAIL = "fail"  # it did not happen and never will
    INFO = "info"  # nobody knows: it may have happened, and it may yet happen at any later time

    def __repr__(self) -> str:
        return self.name


OK = Outcome.OK
FAIL = Outcome.FAIL
INFO = Outcome.INFO


class TimeUnit(Enum):
    """What one step of a history's clock means."""

    NANOSECONDS = "ns"
    STEPS = "step"  # only the order of events is known (a log without stamps)


class HistoryError(ValueError):
    """A history that cannot be read or makes no sense: says which file, which line, and what is wrong."""

    def __init__(self, reason: str, line: int | None = None, source: str | None = None) -> None:
        self.reason = reason
        self.line = line
        self.source = source
        super().__init__(reason)

    def __str__(self) -> str:
        source = self.source or "history"
        return f"{source}: {self.reason}" if self.line is None else f"{source}:{self.line}: {self.reason}"


@dataclass(slots=True, eq=False)
class Operation:
    """One call by one client. Compared by identity: two calls may look the same and still be two.

    `call` and `returned` are in the history's time unit. `returned` is None when no answer was ever
    recorded; with the outcome INFO it is only when the client gave up, and the effect may come later.
    `output` counts only with the outcome OK. `index` is the place in the order of calls, `line` where a
    file recorded the call.
    """

    process: Process
    function: str
    input: Any
    output: Any = None
    key: Key = None
    call: int = 0
    returned: int | None = None
    outcome: Outcome = INFO
    error: str | None = None
    index: int = -1
    line: int | None = None

    @property
    def end(self) -> float:
        """The latest time at which the operation can have taken effect."""
        if self.outcome is INFO or self.returned is None:
            return float("inf")
        return self.returned

    def of_unknown_outcome(self) -> Operation:
        """A copy of which nobody knows whether it happened. (`dataclasses.replace` takes ten times as long.)"""
        given, error = self.input, self.error
        process, function = self.process, self.function
        return Operation(process, function, given, None, self.key, self.call, None, INFO, error, self.index, self.line)

    def precedes(self, other: Operation) -> bool:
        """Whether this operation was certainly over before `other` began."""
        return self.outcome is not INFO and self.returned is not None and self.returned < other.call


@dataclass(slots=True, frozen=True)
class Annotation:
    """Something that happened beside the operations: a fault, a leader change. Never judged, always
    shown."""

    label: str
    start: int
    end: int | None = None  # None: a point in time
    lane: str = "events"
    process: Process | None = None  # set when it belongs to one client
    details: str = ""


class EventType(Enum):
    """The kinds of line in a growing history."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"
    ANNOTATION = "annotation"


# One step of a growing history. An operation comes twice, the same object each time: at INVOKE without an
# answer, and at its completion with it.
Event: TypeAlias = tuple[EventType, "Operation | Annotation"]

COMPLETION = {OK: EventType.OK, FAIL: EventType.FAIL, INFO: EventType.INFO}

_event_order = itemgetter(0, 1)
_by_returned = attrgetter("returned")
_by_call = attrgetter("call")


@dataclass(slots=True)
class History:
    """A finished history.

    Invariant: `operations` lie in the order of their `returned`, and those that never returned come last,
    in the order of their `call`; every `index` is the operation's place in the order of calls.
    """

    operations: list[Operation] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    time_unit: TimeUnit = TimeUnit.NANOSECONDS
    source: str | None = None

    @classmethod
    def of(
        cls,
        operations: Iterable[Operation],
        annotations: Iterable[Annotation] = (),
        *,
        time_unit: TimeUnit = TimeUnit.NANOSECONDS,
        source: str | None = None,
    ) -> History:
        """A history of these operations, in any order. Raises HistoryError for an impossible interval."""
        ordered = in_order(operations)
        for operation in ordered:
            if operation.returned is None:
                if operation.outcome is OK:
                    raise HistoryError("an operation with outcome ok has no return time", operation.line, source)
            elif operation.returned < operation.call:
                raise HistoryError("the operation returned before it was called", operation.line, source)
        history = cls(ordered, list(annotations), time_unit, source)
        for index, operation in enumerate(history.by_call()):
            operation.index = index
        return history

    def by_call(self) -> list[Operation]:
        """The operations in the order in which they were called."""
        return sorted(self.operations, key=_by_call)

    def events(self) -> Iterator[Event]:
        """The history as it grew: calls before returns where stamps are equal, since those are
        concurrent."""
        yield from events_of(self.operations, self.annotations)

    def __len__(self) -> int:
        return len(self.operations)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def check_invariants(self) -> None:
        """Raise AssertionError unless the class invariant holds."""
        returned = [op.returned for op in self.operations if op.returned is not None]
        assert returned == sorted(returned)
        assert all(op.returned is not None for op in self.operations[: len(returned)])
        calls = [op.call for op in self.operations[len(returned) :]]
        assert calls == sorted(calls)
        assert [op.index for op in self.by_call()] == list(range(len(self.operations)))


def in_order(operations: Iterable[Operation]) -> list[Operation]:
    """The operations as a History keeps them: by their returns, those that never returned at the end."""
    finished: list[Operation] = []
    unfinished: list[Operation] = []
    for operation in operations:
        (unfinished if operation.returned is None else finished).append(operation)
    finished.sort(key=_by_returned)
    unfinished.sort(key=_by_call)
    return finished + unfinished


def places_of(outcome: Outcome, operations: Sequence[Operation]) -> list[int]:
    """Where in the sequence the operations with this outcome are."""
    return [place for place, operation in enumerate(operations) if operation.outcome is outcome]


def without(outcome: Outcome, operations: Sequence[Operation]) -> list[Operation]:
    """The operations with another outcome."""
    return [operation for operation in operations if operation.outcome is not outcome]


def events_of(operations: Sequence[Operation], annotations: Sequence[Annotation] = ()) -> Iterator[Event]:
    """The events of finished operations in time order; calls come before returns with the same stamp."""
    events: list[tuple[int, int, Event]] = [
        (annotation.start, 0, (EventType.ANNOTATION, annotation)) for annotation in annotations
    ]
    invoke, ok = EventType.INVOKE, EventType.OK  # looking them up in their class takes longer, and hashing an outcome
    events.extend((op.call, 1, (invoke, op)) for op in sorted(operations, key=_by_call))
    events.extend(
        (op.returned, 2, (ok if op.outcome is OK else COMPLETION[op.outcome], op))
        for op in operations
        if op.returned is not None
    )
    events.sort(key=_event_order)
    for _, _, event in events:
        yield event
