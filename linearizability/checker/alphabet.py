"""Operations and states as small numbers, and the model's step as a table filled while it is needed.

Knows: how to tell equal calls and equal states apart from others cheaply. Refuses to know: time and search.
A model's step is asked once for each pair of a distinct call and a distinct state; histories of small objects ask
it a few dozen times however long they are.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeAlias

from raftlog.linearizability.checker.history import INFO, Operation
from raftlog.linearizability.checker.jsonl import freeze
from raftlog.linearizability.checker.model import (
    CONSTANT,
    OBSERVER,
    REFUSED,
    TOTAL,
    UNKNOWN,
    Call,
    Model,
    Outlook,
    Traits,
)

REFUSED_NUMBER = -1
OVERWRITES = TOTAL | CONSTANT
_ALL = OBSERVER | TOTAL | CONSTANT
# By traits: whether it is an observer, total, and constant.
_KINDS = [(bool(it & OBSERVER), bool(it & TOTAL), it & OVERWRITES == OVERWRITES) for it in range(_ALL + 1)]
_ENTRY_BYTES = 200  # a table entry, a number's two places and their share of the containers


_Key: TypeAlias = tuple[str, Any, Any]  # a call before anybody asked the model about it
_asked_and_answered = attrgetter("function", "input", "output")
_as_call = tuple.__new__  # what Call._make does, without its overhead


class Letter:
    """A distinct call.

    `table` maps the number of a state to that of the next, or to REFUSED_NUMBER; `target` is the last state it led
    to, which is the only one for a constant call.
    """

    __slots__ = ("call", "constant", "observer", "table", "target", "total")

    def __init__(self, call: Call, traits: Traits) -> None:
        self.call = call
        self.observer, self.total, self.constant = _KINDS[traits & _ALL]
        self.table: dict[int, int] = {}
        self.target = REFUSED_NUMBER


class Alphabet:
    """The distinct calls and states of one part.

    Invariant: `states[number]` is the state that `number` names, and every state was given by the outlook.
    """

    __slots__ = ("_blind", "_model", "_numbers", "_outlook", "bytes_used", "killed", "letters", "states")

    def __init__(self, model: Model[Any]) -> None:
        self._model = model
        self._outlook: Outlook | None = None
        self._blind = False  # whether a call of unknown outcome was seen
        self.letters: dict[_Key, Letter] = {}
        self.states: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self.killed = False  # whether the outlook ever refused a state because of what comes later
        self.bytes_used = 0

    def look_ahead(self, letters: Sequence[Letter], operations: Sequence[Operation]) -> None:
        """Let the model merge states that these operations, all there will be, cannot tell apart."""
        self._outlook = self._model.outlook([letter.call for letter in letters], operations)

    def spell(self, operations: Iterable[Operation]) -> list[Letter]:
        """The letters of the operations' calls."""
        operations = list(operations)
        keys: list[_Key] = list(map(_asked_and_answered, operations))
        for place, operation in enumerate(operations):
            if operation.outcome is INFO:
                self._blind = True
                keys[place] = (operation.function, operation.input, UNKNOWN)
        try:
            distinct = dict.fromkeys(keys)
        except TypeError:
            keys = [(function, freeze(given), freeze(output)) for function, given, output in keys]
            distinct = dict.fromkeys(keys)
        letters = self.letters
        for key in distinct:
            if key not in letters:
                letters[key] = self._new_letter(key)
        return list(map(letters.__getitem__, keys))

    def letter(self, operation: Operation) -> Letter:
        """The letter of the operation's call."""
        return self.spell((operation,))[0]

    def blind_letter(self, operation: Operation) -> Letter:
        """The letter of the operation if nobody saw its answer."""
        return self.spell((replace(operation, outcome=INFO),))[0]

    def _new_letter(self, key: _Key) -> Letter:
        call = _as_call(Call, key)
        self.bytes_used += _ENTRY_BYTES
        traits = self._model.traits(call)
        if self._blind and traits & TOTAL and call.output is not UNKNOWN:
            # Accepted whatever it answered: the same letter as if nobody had seen the answer.
            blind = (call.function, call.input, UNKNOWN)
            letter = self.letters.get(blind)
            if letter is None:
                letter = self.letters[blind] = self._new_letter(blind)
            if letter.total:
                return letter
        return Letter(call, traits)

    def number(self, state: Any) -> int:
        """The number of a state, REFUSED_NUMBER for one without a future."""
        outlook = self._outlook
        if outlook is not None:
            state = outlook(state)
            if state is REFUSED:
                self.killed = True
                return REFUSED_NUMBER
        number = self._numbers.get(state)
        if number is None:
            states = self.states
            number = self._numbers[state] = len(states)
            states.append(state)
            self.bytes_used += _ENTRY_BYTES + sys.getsizeof(state)
        return number

    def step(self, letter: Letter, state: int) -> int:
        """The number of the state after the call; only for pairs not yet in the letter's table."""
        after = self._model.step(self.states[state], letter.call)
        if after is REFUSED:
            number = REFUSED_NUMBER
        elif letter.observer:
            number = state
        else:
            number = self.number(after)
        letter.table[state] = letter.target = number
        self.bytes_used += _ENTRY_BYTES
        return number

    def compact(self, letters: Collection[Letter], states: Iterable[int]) -> dict[int, int]:
        """Forget all but these letters and states. Answers the new numbers of the states by the old ones."""
        kept = [(number, self.states[number]) for number in states]
        self.states = [state for _, state in kept]
        self._numbers = {state: place for place, state in enumerate(self.states)}
        self.letters = {key: letter for key, letter in self.letters.items() if letter in letters}
        self.bytes_used = _ENTRY_BYTES * (len(kept) + len(self.letters)) + sum(map(sys.getsizeof, self.states))
        for letter in letters:
            letter.table = {}
            letter.target = REFUSED_NUMBER
        for letter in letters:
            if letter.constant:
                self.step(letter, 0)
        return {number: place for place, (number, _) in enumerate(kept)}
