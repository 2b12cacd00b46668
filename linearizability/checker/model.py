"""What an object promises when one operation runs at a time: the protocol every model follows.

A model is a pure function over hashable states; everything optional has a default that is safe.

    class Flag(Model[bool]):
        name = "flag"
        functions = frozenset({"raise", "look"})

        def initial_state(self) -> bool:
            return False

        def step(self, state: bool, call: Call) -> bool | Refused:
            if call.function == "raise":
                return True
            return state if call.output is UNKNOWN or call.output == state else REFUSED
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar

from raftlog.linearizability.checker.history import Key, Operation, Outcome
from raftlog.linearizability.checker.values import freeze


class Unknown:
    """The output of an operation of unknown outcome: nobody saw it, so it refutes nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "?"


class Refused:
    """What `step` answers when the output is impossible in the state."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "REFUSED"


class Unseen:
    """Stands for every state that no output of the history can tell from another such state."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "something nobody reads"


# Compared by identity. Not enumerations, because those are slow to hash.
UNKNOWN: Final = Unknown()
REFUSED: Final = Refused()
UNSEEN: Final = Unseen()

State = TypeVar("State", bound=Hashable)


class Call(NamedTuple):
    """An operation as a model sees it: what was asked and what came back, in hashable values.

    Lists come as tuples, JSON objects as tuples of sorted pairs that equal only those of objects. `output` is UNKNOWN
    for an operation of unknown outcome.
    """

    function: str
    input: Any
    output: Any


# What a checker may assume about a call in order to search less. Claiming too little is always safe.
# Plain numbers to be or-ed: a check of a small history asks for as many traits as it has operations.
Traits: TypeAlias = int
OBSERVER: Final = 1  # wherever it is accepted, it leaves the state as it was
TOTAL: Final = 2  # it is accepted in every state, and its effect does not depend on what it answered
CONSTANT: Final = 4  # it leaves the same state behind whatever was there before

# Maps a state to an equivalent one, or to REFUSED when no continuation of this history can accept it.
Outlook: TypeAlias = Callable[[Any], Any]


_Validate = TypeVar("_Validate", bound=Callable[..., None])


def looks_at(*functions: str) -> Callable[[_Validate], _Validate]:
    """Marks a `validate` that accepts every operation but those of these functions: it need not be asked about them."""

    def mark(validate: _Validate) -> _Validate:
        validate.functions = frozenset(functions)  # type: ignore[attr-defined]
        return validate

    return mark


class Model(Generic[State]):
    """One kind of object. Subclasses give `name`, `functions`, `initial_state` and `step`; the rest is optional.

    Invariant: all methods are pure, and states that are equal behave alike.
    """

    name: ClassVar[str]
    functions: ClassVar[frozenset[str]]

    def initial_state(self) -> State:
        """The state before the first operation."""
        raise NotImplementedError

    def initial_states(self) -> tuple[State, ...]:
        """All states the object may have had before the first operation; usually one."""
        return (self.initial_state(),)

    def step(self, state: State, call: Call) -> State | Refused:
        """The state after the call, or REFUSED when the call cannot have answered this in that state.

        With the output UNKNOWN: the state if the call takes effect, or REFUSED when it then has none (that it may
        have no effect at all is the checker's business).
        """
        raise NotImplementedError

    def traits(self, call: Call) -> Traits:
        """What is certain about the call in every state."""
        return 0

    def outlook(self, calls: Sequence[Call], operations: Sequence[Operation]) -> Outlook | None:
        """A function that merges states which this history, all of one part, cannot tell apart; None for none.

        `calls[i]` is the call of `operations[i]`; of a TOTAL call the output is left out. The states it answers
        must be accepted by `step`, and it must answer itself for what it answered.
        """
        return None

    @looks_at()
    def validate(self, operation: Operation) -> None:
        """Raise ValueError when input or output are not of the kind this model expects."""

    def always_valid(self) -> frozenset[str]:
        """The functions of which `validate` accepts every operation."""
        return self.functions - getattr(self.validate, "functions", self.functions)

    def first_wrong(self, operations: Iterable[Operation]) -> tuple[Operation, str] | None:
        """The first operation that is not one of this model's, and why; None when all are."""
        functions, judge, right = self.functions, self.validate, self.always_valid()
        for operation in operations:
            if operation.function in right:
                continue
            if operation.function not in functions:
                known = ", ".join(sorted(functions))
                return operation, f"{operation.function!r} is no function of the model {self.name}, which has {known}"
            try:
                judge(operation)
            except ValueError as error:
                return operation, str(error)
        return None

    def part(self, operation: Operation) -> Key:
        """Which independent object the operation belongs to: operations with different answers never interact."""
        return operation.key

    def suited(self, operations: Sequence[Operation]) -> Model[Any]:
        """The same model, or one that says the same of this history and falls apart into smaller parts."""
        return self

    def uncertain(self, operation: Operation) -> Operation | None:
        """The operation as one that may have happened or not, at any time after its call; None if it only looked.

        Whatever the operation explains, this one must explain too. It does when `step` with the output UNKNOWN leads
        wherever the operation's own answer leads; a model whose step has to guess there says here what is known.
        """
        if operation.outcome is Outcome.OK:
            call = Call(operation.function, freeze(operation.input), freeze(operation.output))
            if self.traits(call) & OBSERVER:
                return None
        return operation.of_unknown_outcome()

    def describe_operation(self, operation: Operation) -> str:
        """The operation in a few words: `read -> 3`."""
        given = "" if operation.input is None else _short(operation.input)
        text = f"{operation.function}({given})"
        if operation.outcome is Outcome.OK:
            return text if operation.output is None else f"{text} -> {_short(operation.output)}"
        return f"{text} -> ?" if operation.outcome is Outcome.INFO else f"{text} failed"

    def describe_state(self, state: State) -> str:
        """The state in a few words that follow a noun: `holds 3`."""
        return f"is {_short(state)}"

    def refusal(self, state: State, call: Call) -> str:
        """Why the call, refused in that state, is impossible there: `answered 3, but the register holds 5`."""
        return f"answered {_short(call.output)}, which is impossible when the object {self.describe_state(state)}"


class NotOfModel(Exception):
    """An operation is not one of the model's."""

    def __init__(self, operation: Operation, reason: str) -> None:
        self.operation = operation
        self.reason = reason
        super().__init__(reason)


def validate_all(model: Model[Any], operations: Iterable[Operation]) -> None:
    """Raise NotOfModel for the first operation that is not one of the model's."""
    wrong = model.first_wrong(operations)
    if wrong is not None:
        raise NotOfModel(*wrong)


def named(value: Any, name: str) -> Any:
    """The value of that name in a JSON object that has become a tuple of pairs; None when there is none."""
    if isinstance(value, tuple):
        for item in value:
            if isinstance(item, tuple) and len(item) == 2 and item[0] == name:
                return item[1]
    return None


def _short(value: object, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def is_by_key(model: Model[Any]) -> bool:
    """Whether the model's `part` is the key, so that nobody need call it for each operation."""
    return type(model).part is Model.part


def keys_of(model: Model[Any], operations: Iterable[Operation]) -> set[Key]:
    """The model's `part` of all these operations."""
    return {operation.key for operation in operations} if is_by_key(model) else set(map(model.part, operations))
