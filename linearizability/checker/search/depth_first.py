"""The search depth first: one configuration goes over the returns, and what else could have been is come back to when
it dies.

The order in which operations took effect is rarely in much doubt: of a correct history nearly all that the first guess
leads to survives, and in a small part of an incorrect one all guesses are soon tried. Neither needs the sets of
configurations that `frontier` keeps, and one configuration is five plain values. The reductions are the same: greedy
observers, equal calls, absorbed operations and commuting calls (see `linearization_step`). Where guesses often turn
out wrong the search is given up: sets, of which each member makes others superfluous, are the better means then.

A configuration is the number of the state; the positions of the open operations that change something, of the
observers and of the operations of unknown outcome, as far as they were not placed yet, in the order of their calls;
and a time, the horizon: what was called until then and is still open is absorbed, that is, it may have been placed
just before the last constant call, unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from raftlog.linearizability.checker.search.operation_table import OperationTable, Transition
from raftlog.linearizability.checker.search.schedule import Schedule

_WRONG_TURNS = 400  # returns walked over again before giving up, and as many as there are returns
_ORDERS = 300  # tried at one return before giving up
_LOOK_EVERY = 200  # orders between two looks at the budget
_CHOICES = 2_000  # remembered, to be come back to
_STRETCH = 4096  # returns that need none between two looks at the budget
_NEVER = -(1 << 64)  # before every stamp
_NOTHING = -1  # no operation

_Places: TypeAlias = tuple[int, ...]
# State, operations that change something, observers, operations of unknown outcome, horizon.
_Configuration: TypeAlias = tuple[int, _Places, _Places, _Places, int]
# A configuration within a return, the operation to place next, the state after it, and whether its outcome is unknown.
_Step: TypeAlias = tuple[_Configuration, int, int, bool]
# A configuration within a return, the operation placed last, the state before it, and whether an observer saw it.
_Reached: TypeAlias = tuple[_Configuration, int, int, bool]

# What else can become of a configuration, the place of the return among all, and the number of calls by then.
_Choice: TypeAlias = tuple[Iterator[_Configuration], int, int]


class GivenUp(Exception):
    """The history is not one for this search."""


class DepthFirst:
    """One search depth first, under way. What `walk` finds to have `survived` is valid; what has not is invalid, and
    `refused` is the position of the first return that nothing survives.
    """

    def __init__(self, table: OperationTable, transitions: Sequence[Transition], schedule: Schedule) -> None:
        self.survived = False
        self.refused = 0
        self.explored = 0  # configurations
        self._numbering = table.numbering
        self.transitions = transitions
        self.calls = schedule.calls
        self._schedule = schedule
        self._unknown_ranks: dict[Transition, int] = {}
        for place in sorted(schedule.unknown):
            self._unknown_ranks.setdefault(transitions[place], len(transitions) + len(self._unknown_ranks))
        # By return, state, and what else is open, the horizon and the operations of unknown outcome left.
        self._tried: dict[tuple[int, int, _Places, _Places], tuple[tuple[int, _Places], ...]] = {}
        self._furthest = 0  # returns brought over
        self._look_at = _LOOK_EVERY
        self._forgot = False  # whether some choices are forgotten
        self._has_dependent_pending = any(not transition.constant for transition in self._unknown_ranks)

    def walk(self, states: Iterable[int]) -> Iterator[int]:
        """Search from these states on. Yields now and then how many choices are remembered, so that somebody can look
        at the budget. Raises GivenUp."""
        start: list[_Configuration] = [(state, (), (), (), _NEVER) for state in states]
        choices: list[_Choice] = [(iter(start), 0, 0)]
        allowed = turns = _WRONG_TURNS + len(self._schedule.positions)
        index = 0
        while choices:
            ways, begin, called = choices[-1]
            way = next(ways, None)
            if way is None:
                choices.pop()
                continue
            turns -= index - begin
            if self.explored >= self._look_at or turns < 0:
                self._look(choices, turns)
                yield len(choices)
            index = self._follow(way, begin, called, choices, turned=turns < allowed)
            if self.survived:
                return
            if index - begin >= _STRETCH:
                yield len(choices)
            self._furthest = max(self._furthest, index)
        if self._forgot:
            raise GivenUp
        self.refused = self._schedule.positions[self._furthest - 1]

    def _follow(
        self, way: _Configuration, index: int, called: int, choices: list[_Choice], *, turned: bool
    ) -> int:
        """Go on with a configuration after so many returns and calls, as what is most likely right each time, until it
        dies, or the budget is to be looked at. What else could have been goes to the choices. Answers how many returns
        it was brought over, with the one at which it ended. `turned` says whether anything died before."""
        transitions, numbering, loose = self.transitions, self._numbering, self._has_dependent_pending
        calls, arrivals, positions, ends, _, unknown = self._schedule
        state, mutators, observers, pending, horizon = way
        arrival = arrivals[called]
        called_at = calls[arrival]
        stop = min(len(positions), index + _STRETCH)
        while index < stop:
            position, returned = positions[index], ends[index]
            index += 1
            # Equal stamps are concurrent: whatever is called by now may still come first.
            while called_at <= returned:
                transition = transitions[arrival]
                if transition.observer:
                    observers += (arrival,) if transition[state] < 0 else ()
                elif arrival in unknown:
                    pending += (arrival,)
                else:
                    mutators += (arrival,)
                called += 1
                arrival = arrivals[called]
                called_at = calls[arrival]
            then, alone = _NOTHING, len(mutators) == 1
            if position in mutators:
                transition = transitions[position]
                then = transition[state]
                more = not alone or calls[position] <= horizon or (pending and (loose or not transition.constant))
            elif position not in observers:
                continue
            else:
                more = True
                if alone:
                    transition = transitions[mutators[0]]
                    after = transition[state]
                    then = after if after >= 0 and transitions[position][after] >= 0 else _NOTHING
            if more:
                here = (state, mutators, observers, pending, horizon)
                if turned and not self._is_worth(index, here):
                    return index
                self.explored += 1
                goes_on = self.explored < self._look_at
                obvious = goes_on and then >= 0 and (alone or not transition.constant) and then != numbering.unseen
                ways = self._ways(index, returned, here, obvious)
                choices.append((ways, index, called))
                first = here if obvious else next(ways, None) if goes_on else None
                if first is None:
                    return index
                if first is not here:
                    state, mutators, observers, pending, horizon = first
                    continue
            elif then < 0:
                return index
            state = then
            mutators = () if alone else _without(mutators, position)
            if observers:
                observers = tuple([place for place in observers if transitions[place][state] < 0])
            if transition.constant:
                horizon = returned
        self.survived = index == len(positions)
        choices.append((iter([(state, mutators, observers, pending, horizon)]), index, called))
        return index

    def _look(self, choices: list[_Choice], turns: int) -> None:
        """Give up when there are more configurations than returns and wrong turns left. Forget the oldest choices when
        there are many: it takes too long anyway to go back that far."""
        if self.explored > self._furthest + turns:
            raise GivenUp
        self._look_at = self.explored + _LOOK_EVERY
        if len(choices) > _CHOICES:
            del choices[: _CHOICES // 2]
            self._tried.clear()
            self._forgot = True

    def _is_worth(self, index: int, configuration: _Configuration) -> bool:
        """Whether to go on: not if all that this configuration can do could be done by one that failed there, before
        which as much was absorbed, and which had the same operations left or more."""
        state, mutators, observers, pending, horizon = configuration
        for reached, left in self._tried.get((index, state, mutators, observers), ()):
            if reached >= horizon and (left == pending or set(pending) <= set(left)):
                return False
        return True

    def mixes(self, position: int) -> bool:
        """Whether operations of unknown outcome can be of use to the one that returns.

        Before a constant call all of them are absorbed, unless their results depend on the state.
        """
        return self._has_dependent_pending or not self.transitions[position].constant

    def _ways(
        self, index: int, returned: int, configuration: _Configuration, begun: bool
    ) -> Iterator[_Configuration]:
        """All that can become of the configuration when an operation, not yet placed, returns as the last of so many
        returns, at that time; what is most likely right comes first. With `begun` that one is left out."""
        transitions, position = self.transitions, self._schedule.positions[index - 1]
        own = transitions[position]
        state, mutators, observers, pending, horizon = configuration
        # Nobody comes here again before the first way has failed.
        here = (index, state, mutators, observers)
        self._tried[here] = (*self._tried.get(here, ()), (horizon, pending))
        # One operation that explains the return by itself: there mostly is one, and no more need be looked at.
        unread: tuple[_Configuration, ...] = ()
        watching = own.observer
        fits = len(mutators) > 1 and not begun and not all(transitions[place].total for place in mutators)
        for place in () if begun else self.once(mutators, horizon) if watching else (position,):
            transition = transitions[place]
            then = transition[state]
            if then < 0 or (watching and own[then] < 0):
                continue
            if fits and transition.constant:
                fitted, served = self._fitted(place, configuration)
                if fitted != mutators:
                    left = tuple([it for it in served if transitions[it][then] < 0])
                    yield then, _without(fitted, place), left, pending, returned
            left = tuple([it for it in observers if transitions[it][then] < 0]) if observers else observers
            way = (then, _without(mutators, place), left, pending, returned if transition.constant else horizon)
            if then != self._numbering.unseen:
                yield way
            else:
                unread += (way,)
        # One of them may be what another operation that has to come before a constant call needs.
        mixes = pending != () and (self.mixes(position) or not all(transitions[place].constant for place in mutators))
        if mixes or len(mutators) > 1:
            orders = _Orders(self, position, returned)
            for way in orders.of(configuration, mixes=mixes):
                if way[0] != self._numbering.unseen:
                    yield way
                else:
                    unread += (way,)
        if self.calls[position] <= horizon:
            yield from self._settled(position, configuration)
        yield from unread

    def _fitted(self, place: int, configuration: _Configuration) -> tuple[_Places, _Places]:
        """The changing operations and the observers left when before the constant call at the place all others go
        that may not fit any more after it: all that is not total and fits now."""
        transitions = self.transitions
        state, mutators, observers, _, _ = configuration
        for other in sorted(mutators):
            transition = transitions[other]
            if transition.total or other == place:
                continue
            after = transition[state]
            if after >= 0:
                state = after
                mutators = _without(mutators, other)
                observers = tuple([it for it in observers if transitions[it][state] < 0])
        return mutators, observers

    def _settled(self, position: int, configuration: _Configuration) -> Iterator[_Configuration]:
        """The ways in which the returning operation is counted as placed just before the last constant call: a total
        call unseen, an observer behind another absorbed call, whose result it saw."""
        transitions, calls = self.transitions, self.calls
        state, mutators, observers, pending, horizon = configuration
        own = transitions[position]
        if not own.observer and not own.total:
            return
        tried: list[Transition] = []
        for place in (*sorted(mutators), *reversed(pending)) if own.observer else (position,):
            transition = transitions[place]
            if calls[place] > horizon or transition in tried:
                continue
            tried.append(transition)
            left = observers
            if transition.constant:
                target = transition[state]
                if own.observer and (target < 0 or own[target] < 0):
                    continue
                left = tuple(
                    [it for it in observers if calls[it] > horizon or target < 0 or transitions[it][target] < 0]
                )
            elif own.observer:
                continue
            yield state, _without(mutators, place), left, _without(pending, place), horizon

    def hides(self, configuration: _Configuration) -> bool:
        """Whether a constant call placed next absorbs more than is absorbed, even if it leaves the state as it was."""
        _, mutators, observers, _, horizon = configuration
        return any(self.calls[place] > horizon for place in (*mutators, *observers))

    def once(self, places: _Places, horizon: int) -> Sequence[int]:
        """Of operations with equal calls only the one that returns first, in the order of the returns.

        One that is absorbed differs from one that is not, unless they are constant.
        """
        if len(places) < 2:
            return places
        first: dict[object, int] = {}
        for place in sorted(places):
            transition = self.transitions[place]
            first.setdefault(transition if transition.constant or self.calls[place] > horizon else (transition,), place)
        return list(first.values())

    def pending(self, pending: _Places, mutators: _Places) -> list[int]:
        """The operations of unknown outcome worth trying: of equal calls the last, because older ones are absorbed
        sooner."""
        transitions = self.transitions
        last = {transitions[place]: place for place in pending}
        # One that must happen anyway does the same and saves the one of unknown outcome for later.
        for place in mutators:
            if transitions[place].constant:
                last.pop(transitions[place], None)
        return list(last.values())

    def rank(self, place: int) -> int:
        """The place in the order in which calls that commute are tried."""
        return self._unknown_ranks[self.transitions[place]] if place in self._schedule.unknown else place


class _Orders:
    """The orders of several operations that end with the one that returns now."""

    __slots__ = ("_position", "_returned", "_search", "_seen", "_steps")

    def __init__(self, search: DepthFirst, position: int, returned: int) -> None:
        self._search = search
        self._position = position
        self._returned = returned
        self._steps: list[_Step] = []
        self._seen: set[_Configuration] = set()

    def of(self, configuration: _Configuration, *, mixes: bool) -> Iterator[_Configuration]:
        """What becomes of the configuration. `mixes` says whether operations of unknown outcome can be of use."""
        search = self._search
        reached: list[_Reached] = [(configuration, _NOTHING, _NOTHING, False)]
        if configuration[1]:
            for _ in self._place(reached[0], search.once(configuration[1], configuration[4]), False):
                pass  # it explains the return by itself: that was seen to before
        while True:
            for step in self._steps:  # which grow
                here = self._take(step)
                if here is None:
                    continue
                reached.append(here)
                _, mutators, _, _, horizon = here[0]
                if mutators:
                    yield from self._place(here, search.once(mutators, horizon), False)
            if not mixes:
                return
            # Next those that use one more operation of unknown outcome.
            before, reached, self._steps = reached, [], []
            for here in before:
                _, mutators, _, pending, _ = here[0]
                if pending:
                    yield from self._place(here, search.pending(pending, mutators), True)
            if not self._steps:
                return

    def _take(self, step: _Step) -> _Reached | None:
        """Where a step leads; None if that was reached before."""
        before, place, then, is_pending = step
        after = self._after(before, place, then, is_pending)
        seen = self._seen
        if after in seen:
            return None
        seen.add(after)
        self._search.explored += 1
        if len(seen) > _ORDERS:
            raise GivenUp
        return after, place, before[0], len(after[2]) < len(before[2])

    def _after(self, configuration: _Configuration, place: int, then: int, is_pending: bool) -> _Configuration:
        """The configuration with one more operation placed."""
        _, mutators, observers, pending, horizon = configuration
        transitions = self._search.transitions
        if observers:
            observers = tuple([it for it in observers if transitions[it][then] < 0])
        until = self._returned if transitions[place].constant else horizon
        if is_pending:
            return then, mutators, observers, _without(pending, place), until
        return then, _without(mutators, place), observers, pending, until

    def _place(self, reached: _Reached, places: Sequence[int], is_pending: bool) -> Iterator[_Configuration]:
        """Place each of these next. Answers what ends with the return; the rest goes to the steps."""
        search, position, steps = self._search, self._position, self._steps
        transitions = search.transitions
        own = transitions[position]
        watching = own.observer
        configuration, via, origin, noticed = reached
        state = configuration[0]
        first = via == _NOTHING
        overwrites = not first and transitions[via].constant
        for place in places:
            transition = transitions[place]
            if overwrites and transition.constant:
                continue  # the one before is absorbed by it
            then = transition[state]
            if then < 0 or (is_pending and then == state and not (transition.constant and search.hides(configuration))):
                continue
            if not (first or noticed) and (place == position or search.rank(via) > search.rank(place)):
                # It need not wait for the one before when the other order leads to the same.
                middle = transition[origin]
                if middle >= 0 and transitions[via][middle] == then:
                    continue
            if place == position or (watching and own[then] >= 0):
                yield self._after(configuration, place, then, is_pending)
            else:
                steps.append((configuration, place, then, is_pending))


def _without(places: _Places, place: int) -> _Places:
    if place not in places:
        return places
    at = places.index(place)
    return places[:at] + places[at + 1 :]
