"""Operations and states as small numbers, and the model's step as a table filled while it is needed.

A model's step is asked once for each pair of a distinct call and a distinct state; histories of small objects ask it a
few dozen times however long they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias

from raftlog.linearizability.checker.history import Operation
from raftlog.linearizability.checker.model import (
    CONSTANT,
    OBSERVER,
    REFUSED,
    TOTAL,
    UNKNOWN,
    UNSEEN,
    Call,
    Model,
    Outlook,
)
from raftlog.linearizability.checker.values import freeze

REFUSED_NUMBER = -1
OVERWRITES = TOTAL | CONSTANT
_ALL = OBSERVER | TOTAL | CONSTANT
# By traits: whether it is an observer, total, and constant.
_KINDS = [(bool(it & OBSERVER), bool(it & TOTAL), it & OVERWRITES == OVERWRITES) for it in range(_ALL + 1)]
_ENTRY_BYTES = 200  # a table entry, a number's two places and their share of the containers


_Key: TypeAlias = tuple[str, Any, Any]  # a call before anybody asked the model about it
_as_call = tuple.__new__  # what Call._make does, without its overhead


class States:
    """The states by number.

    Invariant: `values[number]` is the state that `number` names, and every one was given by the outlook.
    """

    __slots__ = ("_numbers", "_outlook", "bytes_used", "killed", "step", "unseen", "values")

    def __init__(self, step: Callable[[Any, Call], Any]) -> None:
        self.step = step
        self._outlook: Outlook | None = None
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self.killed = False  # whether the outlook ever refused a state because of what comes later
        self.unseen = REFUSED_NUMBER  # the number of UNSEEN, once that came up
        self.bytes_used = 0

    def look_through(self, outlook: Outlook | None) -> None:
        """Before the first state: let states that the outlook maps to the same one have one number."""
        self._outlook = outlook

    def number(self, state: Any) -> int:
        """The number of a state, REFUSED_NUMBER for one without a future."""
        number = self._numbers.get(state)
        if number is not None:
            return number
        outlook = self._outlook
        if outlook is not None:
            seen = outlook(state)
            if seen is REFUSED:
                self.killed = True
                return REFUSED_NUMBER
            if seen is not state:
                state = seen
                number = self._numbers.get(state)
                if number is not None:
                    return number
        number = self._numbers[state] = len(self.values)
        self.values.append(state)
        if state is UNSEEN:
            self.unseen = number
        self.bytes_used += _ENTRY_BYTES + sys.getsizeof(state)
        return number

    def keep(self, numbers: Iterable[int]) -> dict[int, int]:
        """Forget all but these. Answers the new numbers by the old ones."""
        kept = list(numbers)
        self.values = [self.values[number] for number in kept]
        self._numbers = {state: place for place, state in enumerate(self.values)}
        self.unseen = self._numbers.get(UNSEEN, REFUSED_NUMBER)
        self.bytes_used = _ENTRY_BYTES * len(kept) + sum(map(sys.getsizeof, self.values))
        return {number: place for place, number in enumerate(kept)}


class Transition(dict[int, int]):
    """A distinct call, and the table of what it does: `transition[state]` is the number of the state after it, or
    REFUSED_NUMBER. The model is asked once for each state.

    `target` is the last state it led to, which is the only one for a constant call. Two transitions are equal when they
    are the same object.
    """

    __slots__ = ("call", "constant", "observer", "states", "target", "total")
    call: Call
    states: States
    observer: bool
    total: bool
    constant: bool
    target: int
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__
    __ne__ = object.__ne__

    def __missing__(self, state: int) -> int:
        states = self.states
        number = self.target
        if number < 0 or not self.constant:
            after = states.step(states.values[state], self.call)
            if after is REFUSED:
                number = REFUSED_NUMBER
            elif self.observer:
                number = state
            else:
                number = self.target = states.number(after)
        self[state] = number
        states.bytes_used += _ENTRY_BYTES
        return number


class _Transitions(dict[_Key, Transition]):
    """The transitions by call. A call that is looked up for the first time becomes one."""

    __slots__ = ("has_unknown", "model", "states")
    has_unknown: bool  # whether a call of unknown outcome was seen
    model: Model[Any]
    states: States

    def __missing__(self, key: _Key) -> Transition:
        call: Call = _as_call(Call, key)
        _, given, output = key
        if given != given or output != output:
            freeze((given, output))  # which says what is wrong with a NaN
        traits = self.model.traits(call)
        if traits & TOTAL and self.has_unknown and output is not UNKNOWN:
            # Accepted whatever it answered: the same transition as if nobody had seen the answer.
            transition = self[key[0], given, UNKNOWN]
            if transition.total:
                self[key] = transition
                self.states.bytes_used += _ENTRY_BYTES
                return transition
        transition = self[key] = Transition()
        self.states.bytes_used += _ENTRY_BYTES
        transition.call = call
        transition.states = self.states
        transition.target = REFUSED_NUMBER
        transition.observer, transition.total, transition.constant = _KINDS[traits & _ALL]
        return transition


def _keys(operations: Sequence[Operation], info_places: Sequence[int]) -> list[_Key]:
    keys: list[_Key] = [(one.function, one.input, one.output) for one in operations]
    for place in info_places:
        function, given, _ = keys[place]
        keys[place] = (function, given, UNKNOWN)
    return keys


class OperationTable:
    """The distinct calls and states of one part."""

    __slots__ = ("_model", "_transitions", "numbering")

    def __init__(self, model: Model[Any]) -> None:
        self._model = model
        self.numbering = States(model.step)
        self._transitions = _Transitions()
        self._transitions.has_unknown = False
        self._transitions.model = model
        self._transitions.states = self.numbering

    @property
    def states(self) -> list[Any]:
        """The states; a state's number is its place."""
        return self.numbering.values

    def number(self, state: Any) -> int:
        """The number of a state, REFUSED_NUMBER for one without a future."""
        return self.numbering.number(state)

    @property
    def killed(self) -> bool:
        """Whether the outlook ever refused a state because of what comes later."""
        return self.numbering.killed

    @property
    def bytes_used(self) -> int:
        """An estimate of the memory that calls and states take."""
        return self.numbering.bytes_used

    def look_ahead(self, transitions: Sequence[Transition], operations: Sequence[Operation]) -> None:
        """Let the model merge states that these operations, all there will be, cannot tell apart."""
        self.numbering.look_through(self._model.outlook([transition.call for transition in transitions], operations))

    def intern(self, operations: Sequence[Operation], info_places: Sequence[int]) -> list[Transition]:
        """The transitions of the operations' calls. Those at the places in `info_places` are of unknown outcome."""
        transitions = self._transitions
        transitions.has_unknown |= bool(info_places)
        keys = _keys(operations, info_places)
        try:
            return list(map(transitions.__getitem__, keys))
        except TypeError:
            return [transitions[function, freeze(given), freeze(output)] for function, given, output in keys]

    def transition(self, operation: Operation) -> Transition:
        """The transition of the operation's call."""
        try:
            return self._transitions[operation.function, operation.input, operation.output]
        except TypeError:
            return self.intern((operation,), ())[0]

    def unknown_transition(self, operation: Operation) -> Transition:
        """The transition of the operation if nobody saw its answer."""
        return self.intern((operation,), (0,))[0]

    def compact(self, transitions: Collection[Transition], states: Iterable[int]) -> dict[int, int]:
        """Forget all but these transitions and states. Answers the new numbers of the states by the old ones."""
        numbers = self.numbering.keep(states)
        for key in [key for key, transition in self._transitions.items() if transition not in transitions]:
            del self._transitions[key]
        self.numbering.bytes_used += _ENTRY_BYTES * len(self._transitions)
        for transition in transitions:
            transition.clear()
            transition.target = REFUSED_NUMBER
        for transition in transitions:
            if transition.constant:
                transition[0]
        return numbers
