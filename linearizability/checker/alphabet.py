"""Operations and states as small numbers, and the model's step as a table filled while it is needed.

Knows: how to tell equal calls and equal states apart from others cheaply. Refuses to know: time and search.
A model's step is asked once for each pair of a distinct call and a distinct state; histories of small objects ask
it a few dozen times however long they are.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import Any

from raftlog.linearizability.checker.history import INFO, Operation
from raftlog.linearizability.checker.jsonl import freeze
from raftlog.linearizability.checker.model import REFUSED, UNKNOWN, Call, Model, Outlook, Timed, Traits

REFUSED_NUMBER = -1
_ENTRY_BYTES = 200  # a table entry, a number's two places and their share of the containers


class Letter:
    """A distinct call.

    `table` maps the number of a state to that of the next, or to REFUSED_NUMBER; `target` is the last state it led
    to, which is the only one for a constant call.
    """

    __slots__ = ("call", "constant", "observer", "table", "target", "total")

    def __init__(self, call: Call, traits: Traits) -> None:
        self.call = call
        self.observer = Traits.OBSERVER in traits
        self.total = Traits.TOTAL in traits
        self.constant = Traits.CONSTANT in traits and self.total
        self.table: dict[int, int] = {}
        self.target = REFUSED_NUMBER


class Alphabet:
    """The distinct calls and states of one part.

    Invariant: `states[number]` is the state that `number` names, and every state was given by the outlook.
    """

    __slots__ = ("_model", "_numbers", "_outlook", "bytes_used", "killed", "letters", "states")

    def __init__(self, model: Model[Any]) -> None:
        self._model = model
        self._outlook: Outlook | None = None
        self.letters: dict[Hashable, Letter] = {}
        self.states: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self.killed = False  # whether the outlook ever refused a state because of what comes later
        self.bytes_used = 0

    def look_ahead(self, operations: Sequence[Operation]) -> None:
        """Let the model merge states that these operations, all there will be, cannot tell apart."""
        if type(self._model).outlook is not Model.outlook:
            history = [Timed(self.call(operation), operation.call, operation.end) for operation in operations]
            self._outlook = self._model.outlook(history)

    def call(self, operation: Operation) -> Call:
        """The operation as the model sees it."""
        output = UNKNOWN if operation.outcome is INFO else operation.output
        call = Call(operation.function, operation.input, output)
        try:
            hash(call)
        except TypeError:
            return Call(operation.function, freeze(operation.input), freeze(output))
        return call

    def letter(self, operation: Operation) -> Letter:
        """The letter of the operation's call."""
        output = UNKNOWN if operation.outcome is INFO else operation.output
        key = (operation.function, operation.input, output)
        try:
            letter = self.letters.get(key)
        except TypeError:
            key = (operation.function, freeze(operation.input), freeze(output))
            letter = self.letters.get(key)
        if letter is None:
            letter = self.letters[key] = self._new_letter(Call(*key))
        return letter

    def _new_letter(self, call: Call) -> Letter:
        self.bytes_used += _ENTRY_BYTES
        traits = self._model.traits(call)
        if Traits.TOTAL in traits and call.output is not UNKNOWN:
            # Accepted whatever it answered: the same letter as if nobody had seen the answer.
            blind = call._replace(output=UNKNOWN)
            if self._model.traits(blind) == traits:
                letter = self.letters.get(blind)
                if letter is None:
                    letter = self.letters[blind] = Letter(blind, traits)
                return letter
        return Letter(call, traits)

    def number(self, state: Any) -> int:
        """The number of a state, REFUSED_NUMBER for one without a future."""
        if self._outlook is not None:
            state = self._outlook(state)
            if state is REFUSED:
                self.killed = True
                return REFUSED_NUMBER
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self.states)
            self.states.append(state)
            self.bytes_used += _ENTRY_BYTES + sys.getsizeof(state)
        return number

    def step(self, letter: Letter, state: int) -> int:
        """The number of the state after the call; only for pairs not yet in the letter's table."""
        after = self._model.step(self.states[state], letter.call)
        number = REFUSED_NUMBER if after is REFUSED else self.number(after)
        letter.table[state] = number
        letter.target = number
        self.bytes_used += _ENTRY_BYTES
        return number
