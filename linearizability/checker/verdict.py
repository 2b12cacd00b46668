"""What a check answers: Valid, Invalid or Unknown, each with what a person or a page needs to see why.

A verdict is never true or false: asking for its truth raises, because Unknown is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, TypeAlias

from raftlog.linearizability.checker.history import History, Key, Operation

Limit: TypeAlias = Literal["time", "memory", "configurations"]


class Status(Enum):
    """The three answers, for whole histories and for their parts."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Placed:
    """One step of a linearization: the operation took effect here and left `state` behind.

    `state` is the model's own value; the part's `describe_state` turns it into words.
    """

    operation: Operation
    state: Any


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an operation that could have come next in real time does not fit."""

    operation: Operation
    reason: str  # "answered 3, but the register holds 5"


@dataclass(frozen=True, slots=True)
class PossibleState:
    """A state the object may have been in just before the witness's last return.

    `linearization` is one way to get there; `refusals` says of each operation still open why it fails here.
    """

    state: Any
    description: str
    linearization: tuple[Placed, ...]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Witness:
    """A small set of operations that no order explains, and the reason.

    `operations` are in the order of calls. Those in `context` change the object and may have happened or not: they
    are there because somebody could think they explain the rest. `refused` is the one whose return no order
    survives; up to just before it, the witness has the `possible` states. `prefix_end` is the time of the first
    return in the whole part after which nothing explains it: operations called later have no share in the violation.

    `alone()` is a history that `model` finds Invalid all by itself. Leaving out an operation means: one that only
    looks is not there, one that changes something may have happened or not. When `minimal`, whatever is left out,
    `alone(without=…)` is not Invalid. `model` may start in several states: those the object may have had before the
    witness begins.
    """

    key: Key
    operations: tuple[Operation, ...]
    refused: Operation
    prefix_end: int
    linearization: tuple[Placed, ...]  # the longest found
    possible: tuple[PossibleState, ...]
    words: str
    minimal: bool
    context: tuple[Operation, ...] = ()
    model: Any = None

    @property
    def begins_anywhere(self) -> bool:
        """Whether nothing is known of the object before the witness begins: its past is cut off."""
        if self.model is None:
            return False
        return len(self.model.initial_states()) > 1 or not getattr(self.model, "complete", True)

    def alone(self, without: Operation | None = None) -> History:
        """The witness as a history of its own, of copies; without one operation, a proper part of it."""
        uncertain = {id(operation) for operation in self.context}
        kept = []
        for operation in self.operations:
            left_out = operation is without or id(operation) in uncertain
            copy = self.model.uncertain(operation) if left_out else replace(operation)
            if copy is not None:
                kept.append(copy)
        return History.of(kept)


@dataclass(frozen=True, slots=True)
class PartVerdict:
    """The verdict on one part: one key, one partition, one object.

    `linearization` explains a valid part when it was asked for and found; for one of status UNKNOWN or INVALID
    it is the longest found before the budget or the history gave out.
    """

    key: Key
    status: Status
    operations: Sequence[Operation]
    algorithm: str  # which way of checking answered: "log", "zones", "search", …
    configurations: int = 0  # how many the search held in all
    linearization: tuple[Placed, ...] = ()
    witness: Witness | None = None
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What all verdicts have: the model, its parts in the order of their keys' first calls, and the cost."""

    model: Any
    parts: tuple[PartVerdict, ...] = ()
    operation_count: int = 0
    seconds: float = 0.0

    def __bool__(self) -> bool:
        raise TypeError("a verdict is Valid, Invalid or Unknown, never true or false: match on its type")

    def describe_state(self, state: Any) -> str:
        """The state in the model's words."""
        return str(self.model.describe_state(state))

    def describe_operation(self, operation: Operation) -> str:
        """The operation in the model's words."""
        return str(self.model.describe_operation(operation))


@dataclass(frozen=True, slots=True)
class Valid(_Verdict):
    """Some order of all operations explains every answer."""

    status: Status = field(default=Status.VALID, init=False)


@dataclass(frozen=True, slots=True)
class Invalid(_Verdict):
    """No order explains the history. Every bad part carries a witness; `witness` is that of the part whose shortest bad
    prefix ends first. `uncompared` are the keys of parts that may have been bad before: the budget did not reach.
    """

    witness: Witness = field(kw_only=True)
    uncompared: tuple[Key, ...] = field(default=(), kw_only=True)
    status: Status = field(default=Status.INVALID, init=False)


@dataclass(frozen=True, slots=True)
class Unknown(_Verdict):
    """No violation was found before `limit` ran out; `reason` says which budget and how large it was."""

    limit: Limit = field(kw_only=True)
    reason: str = field(kw_only=True)
    status: Status = field(default=Status.UNKNOWN, init=False)


Verdict: TypeAlias = Valid | Invalid | Unknown


class Deferred:
    """A value that is computed when somebody looks at it, once."""

    __slots__ = ("_compute", "_value")

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute: Callable[[], Any] | None = compute
        self._value: Any = None

    def get(self) -> Any:
        """The value."""
        if self._compute is not None:
            self._value = self._compute()
            self._compute = None
        return self._value


class _Deferrable:
    """An attribute that may be set to a Deferred, and is its value when somebody looks at it. `slot` keeps it."""

    def __init__(self, slot: str) -> None:
        self._slot = slot

    def __get__(self, owner: Any, kind: type) -> Any:
        value = getattr(owner, self._slot)
        return value.get() if isinstance(value, Deferred) else value

    def __set__(self, owner: Any, value: Any) -> None:
        object.__setattr__(owner, self._slot, value)


class DeferredPart(PartVerdict):
    """A part whose witness and linearization are found only when they are looked at: most callers never do."""

    __slots__ = ("_linearization", "_witness")
    linearization: Any = _Deferrable("_linearization")
    witness: Any = _Deferrable("_witness")


class DeferredInvalid(Invalid):
    """An Invalid of which nothing but the bad part found first is known until somebody looks: at the witness, and the
    other bad parts are compared with that one; at the parts, and all of them are checked.
    """

    __slots__ = ("_parts", "_uncompared", "_witness")
    parts: Any = _Deferrable("_parts")
    uncompared: Any = _Deferrable("_uncompared")
    witness: Any = _Deferrable("_witness")
