"""A lock that hands out fencing tokens, and the resource that checks them.

Functions: `acquire` answers a token, or null when somebody holds the lock; `release` takes the token and answers
whether it was still the holder's (null says nothing); `access` takes a token and answers whether the resource let
it through, which it must refuse to a token lower than one it has seen (M. Kleppmann, How to do distributed locking,
2016). Every token handed out must be greater than all before it.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlog.linearizability.checker.history import OK, Operation
from raftlog.linearizability.checker.model import OBSERVER, REFUSED, TOTAL, UNKNOWN, Call, Model, Refused, Traits, named
from raftlog.linearizability.checker.values import freeze


class LockState(NamedTuple):
    """`last` is the greatest token handed out, `held` whether its holder still has it, `seen` the greatest token
    the resource let through."""

    last: int
    held: bool
    seen: int


class Lock(Model[LockState]):
    """With `leases` a lock may be taken from a holder whose lease ran out: only the tokens protect then.

    An `acquire` of unknown outcome may have taken the lock. Its token is the one in its input, `{"token": 7}`, where
    a client knows which it would get; else it is assumed to be one more than the last.
    """

    name = "lock"
    functions = frozenset({"acquire", "release", "access"})

    def __init__(self, *, leases: bool = False) -> None:
        self.leases = leases

    def initial_state(self) -> LockState:
        return LockState(-1, False, -1)

    def step(self, state: LockState, call: Call) -> LockState | Refused:
        if call.function == "acquire":
            return self._acquire(state, _token(call))
        token = call.input
        if call.function == "release":
            holds = state.held and token == state.last
            if call.output is not UNKNOWN and call.output is not None and call.output != holds:
                return REFUSED
            return state._replace(held=False) if holds else state
        passes = state.seen <= token <= state.last
        if call.output is not UNKNOWN and call.output != passes:
            return REFUSED
        return state._replace(seen=token) if passes else state

    def _acquire(self, state: LockState, token: object) -> LockState | Refused:
        free = self.leases or not state.held
        if token is None:
            return state if state.held else REFUSED
        if not free:
            return REFUSED
        if token is UNKNOWN:
            return LockState(state.last + 1, True, state.seen)
        assert isinstance(token, int)
        return LockState(token, True, state.seen) if token > state.last else REFUSED

    def traits(self, call: Call) -> Traits:
        if call.function == "acquire":
            return OBSERVER if call.output is None else 0
        if call.output is False:
            return OBSERVER
        return TOTAL if call.function == "release" and call.output in (None, UNKNOWN) else 0

    def uncertain(self, operation: Operation) -> Operation | None:
        copy = super().uncertain(operation)
        if copy is not None and copy.function == "acquire" and operation.outcome is OK:
            copy.input = {"token": operation.output}
        return copy

    def validate(self, operation: Operation) -> None:
        if operation.function != "acquire":
            if type(operation.input) is not int:
                raise ValueError(f"{operation.function} takes a token, a whole number, not {operation.input!r}")
            silent = operation.function == "release" and operation.output is None
            if operation.outcome is OK and not silent and type(operation.output) is not bool:
                raise ValueError(f"{operation.function} answers true or false, not {operation.output!r}")
            return
        given = operation.input
        token = named(freeze(given), "token")
        if type(token) not in (int, type(None)):
            raise ValueError(f"a token is a whole number, not {token!r}")
        if operation.outcome is OK and type(operation.output) not in (int, type(None)):
            raise ValueError(f"acquire answers a token, a whole number, or null, not {operation.output!r}")

    def describe_state(self, state: LockState) -> str:
        if state.last < 0:
            return "was never taken"
        held = "is held" if state.held else "is free"
        seen = f", the resource saw {state.seen}" if state.seen >= 0 else ""
        return f"{held}, the last token is {state.last}{seen}"

    def refusal(self, state: LockState, call: Call) -> str:
        if call.function == "acquire":
            if call.output is None:
                return "was told that somebody holds the lock, but it is free"
            if state.held and not self.leases:
                return f"was granted token {call.output}, but the holder of token {state.last} has not released it"
            return f"was granted token {call.output}, which is not greater than the last, {state.last}"
        return f"answered {call.output!r} for token {call.input}, but the lock {self.describe_state(state)}"


def _token(call: Call) -> object:
    """The token that an acquire got, or would get."""
    token = named(call.input, "token") if call.output is UNKNOWN else None
    return call.output if token is None else token
