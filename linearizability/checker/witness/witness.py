"""From a core to a witness: the states possible before the refusal, the ways to get there, and the words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from raftlog.linearizability.checker.history import FAIL, OK, Key, Operation, TimeUnit
from raftlog.linearizability.checker.model import REFUSED, UNKNOWN, Call, Model
from raftlog.linearizability.checker.values import freeze
from raftlog.linearizability.checker.verdict import Placed, PossibleState, Refusal, Witness
from raftlog.linearizability.checker.witness.explanation import capital, tell_large, tell_lone, tell_search, who
from raftlog.linearizability.checker.witness.reduce import Core

_ORDERS_LIMIT = 5_000  # configurations tried out; a core that did not become small may have more
_STATES_LIMIT = 12  # told
_ANY_STATE = "is in any state"
_ORDERS_WORTH = 500  # operations; of a core that did not become smaller, all orders would take longer than its search

# Operations placed, as bits, and the state after them.
_Configuration = tuple[int, Any]


class Orders:
    """All ways to order a few operations, as far as the model and real time allow."""

    def __init__(self, model: Model[Any], operations: Sequence[Operation], context: set[int]) -> None:
        self.model = model
        self.operations = sorted(operations, key=lambda operation: (operation.call, operation.index))
        self._certain = [operation.outcome is OK and id(operation) not in context for operation in self.operations]
        self._calls = [_call(model, *one) for one in zip(self.operations, self._certain, strict=True)]
        self._before = [self._must_precede(operation) for operation in self.operations]
        self._came: dict[_Configuration, tuple[_Configuration, int] | None] = {}
        self._explore()

    def _must_precede(self, operation: Operation) -> int:
        """The certain operations that were over before this one began, as bits."""
        return sum(
            1 << place
            for place, other in enumerate(self.operations)
            if self._certain[place] and other.precedes(operation)
        )

    def _explore(self) -> None:
        work: list[_Configuration] = [(0, state) for state in self.model.initial_states()]
        self._came = dict.fromkeys(work)
        for placed, state in work:
            if len(self._came) > _ORDERS_LIMIT:
                break
            for place in self._next(placed):
                after = self.model.step(state, self._calls[place])
                following = (placed | 1 << place, after)
                if after is not REFUSED and following not in self._came:
                    self._came[following] = ((placed, state), place)
                    work.append(following)

    def _next(self, placed: int) -> Iterator[int]:
        for place, before in enumerate(self._before):
            if not placed >> place & 1 and not before & ~placed:
                yield place

    def refused(self) -> Operation:
        """The first return after which nothing is left."""
        returns = [place for place, certain in enumerate(self._certain) if certain]
        returns.sort(key=lambda place: self.operations[place].returned or 0)
        reached = 0
        for placed, _ in self._came:
            count = 0
            while count < len(returns) and placed >> returns[count] & 1:
                count += 1
            reached = max(reached, count)
        return self.operations[returns[min(reached, len(returns) - 1)]]

    def possible(self, refused: Operation) -> list[PossibleState]:
        """The states before the return of the refused operation, those with the longest order first."""
        assert refused.returned is not None
        needed = sum(
            1 << place
            for place, other in enumerate(self.operations)
            if self._certain[place]
            and other is not refused
            and other.returned is not None
            and (other.returned < refused.returned or other.precedes(refused))
        )
        best: dict[Any, int] = {}
        for placed, state in self._came:
            if not needed & ~placed and (state not in best or placed.bit_count() > best[state].bit_count()):
                best[state] = placed
        found = []
        for state, placed in sorted(best.items(), key=lambda item: -item[1].bit_count())[:_STATES_LIMIT]:
            refusals = self._refusals(placed, state, refused)
            order = self.order(placed, state)
            found.append(PossibleState(state, self.model.describe_state(state), order, refusals))
        return found

    def _refusals(self, placed: int, state: Any, refused: Operation) -> tuple[Refusal, ...]:
        told = []
        for place in self._next(placed):
            operation = self.operations[place]
            if operation.call > (refused.returned or 0):
                continue
            if self.model.step(state, self._calls[place]) is REFUSED:
                told.append(Refusal(operation, self.model.refusal(state, self._calls[place])))
        told.sort(key=lambda refusal: refusal.operation is not refused)
        return tuple(told)

    def order(self, placed: int, state: Any) -> tuple[Placed, ...]:
        """One way to get to a configuration."""
        steps: list[Placed] = []
        came = self._came[placed, state]
        while came is not None:
            (placed_before, state_before), place = came
            steps.append(Placed(self.operations[place], state))
            state = state_before
            came = self._came[placed_before, state_before]
        return tuple(reversed(steps))

    def longest(self) -> tuple[Placed, ...]:
        """The longest order that was found."""
        placed, state = max(self._came, key=lambda configuration: configuration[0].bit_count())
        return self.order(placed, state)


def _call(model: Model[Any], operation: Operation, certain: bool) -> Call:
    if certain:
        return Call(operation.function, freeze(operation.input), freeze(operation.output))
    # What is known of an operation that may have happened is the model's to say: the token a lock would have given.
    known = model.uncertain(operation) or operation
    return Call(known.function, freeze(known.input), UNKNOWN)


def lone_words(core: Core, operations: Sequence[Operation]) -> str | None:
    """What is said of a core of one operation among those of a part, where others changed something before.

    None where the states that were possible tell more.
    """
    if len(core.operations) != 1 or len(core.model.initial_states()) > 1:
        return None
    [refused] = core.operations
    others = (one for one in operations if one.call <= refused.end and one.outcome is not FAIL and one is not refused)
    return tell_lone(refused) if any(core.model.uncertain(one) is not None for one in others) else None


def witness_of(core: Core, key: Key, prefix_end: int, unit: TimeUnit, words: str | None = None) -> Witness:
    """The witness of a core. Without `words` they are made from the possible states."""
    if len(core.operations) > _ORDERS_WORTH:
        return _large_witness(core, key, prefix_end, words)
    orders = Orders(core.model, core.operations, core.context)
    refused = orders.refused()
    possible = orders.possible(refused)
    context = [operation for operation in orders.operations if id(operation) in core.context]
    sure = [operation for operation in orders.operations if id(operation) not in core.context]
    told = tell_search(core.model, sure, refused, possible, unit)
    if words is not None:
        if len(sure) > 1:
            told = f"{words} {told}"
        else:  # of one operation alone there is no more to tell, and the state before it was not looked at
            told = words
            possible = [_because(one, refused, words) for one in possible]
    return Witness(
        key,
        tuple(orders.operations),
        refused,
        prefix_end,
        orders.longest(),
        tuple(possible),
        told,
        core.minimal,
        tuple(context),
        core.model,
    )


def with_words(witness: Witness, words: str) -> Witness:
    """The witness of one operation, told in these words."""
    possible = tuple(_because(one, witness.refused, words) for one in witness.possible)
    return replace(witness, words=words, possible=possible)


def _because(possible: PossibleState, refused: Operation, words: str) -> PossibleState:
    """Refused in the words, and not for the state that the operation finds when it is alone: any other is as good."""
    reason = words.removeprefix(f"{capital(who(refused))} ").removesuffix(".")
    refusals = tuple(
        Refusal(one.operation, reason) if one.operation is refused else one for one in possible.refusals
    )
    return replace(possible, description=_ANY_STATE, refusals=refusals)


def _large_witness(core: Core, key: Key, prefix_end: int, words: str | None) -> Witness:
    """The witness of a core that could not be made small: what is refused, and how much it takes to see that."""
    operations = sorted(core.operations, key=lambda operation: (operation.call, operation.index))
    context = tuple(operation for operation in operations if id(operation) in core.context)
    sure = [operation for operation in operations if id(operation) not in core.context and operation.outcome is OK]
    refused = max(sure, key=lambda operation: (operation.returned == prefix_end, operation.returned or 0))
    told = words or tell_large(core.model, refused, len(operations) - 1)
    return Witness(key, tuple(operations), refused, prefix_end, (), (), told, False, context, core.model)
