"""One return brought over all configurations of a frontier: a step of just-in-time linearization.

G. Lowe, Testing for Linearizability, CCPE 29(4), 2017: an operation is placed only together with one that must return
now, as one of the orders of open operations that end with it. Three reductions, safe for every model whose traits are
true:

- Equal calls: of open operations with the same call only the one that returns first is tried.
- Absorbed operations: when a CONSTANT call is placed, every open TOTAL call may have been placed just before it,
  unseen, and with it the observers that would have seen it. So a constant call is never placed for its own sake just
  before another constant call.
- Commuting calls: if y then z leaves the state that z then y leaves, and nobody observes the state in between, z
  need not wait for y.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from raftlog.linearizability.checker.search.antichain import Entry, Groups, Growing, add, settled
from raftlog.linearizability.checker.search.frontier import Candidate, Frontier
from raftlog.linearizability.checker.search.operation_table import Transition

_LOOK_EVERY = 256  # operations tried in one step between two looks at the budget

# A configuration, the operation placed last in this step, the state before that, and the observers it served.
_Reached: TypeAlias = "tuple[int, Entry, Candidate | None, int, int]"


class StepTooWide(Exception):
    """One return would take more configurations than the limit; the frontier is as it was before it."""


def complete(frontier: Frontier, bit: int, tag: Any = None) -> bool:
    """The operation returns. Answers whether any configuration survives; if none does, nothing has changed.

    Of all open operations that have a bit it must be the one with the lowest rank. May raise StepTooWide or
    whatever the frontier's `checkpoint` raises; then too nothing has changed.
    """
    if not bit:
        return True
    acceptance, watched = frontier.acceptance, bit & frontier.observers
    for state, entries in frontier.groups.items():
        if watched and acceptance[state] & bit:
            continue
        for entry in entries:
            if not entry[0] & bit:
                return _step(frontier, bit, tag)
    frontier.keep(bit)
    return True


def _step(frontier: Frontier, bit: int, tag: Any) -> bool:
    groups = LinearizationStep(frontier, bit, tag).run()
    if groups:
        frontier.replace(groups, bit)
    return bool(groups)


class LinearizationStep:
    """The return of the operation with this bit and tag.

    With `frontier.pending_limit` operations of unknown outcome are used only as far as that many more than the least
    that explains the return: the result is then a part of the whole.
    """

    __slots__ = ("_after", "_began", "_bit", "_frontier", "_masks", "_tag", "_tries", "_waiting")

    def __init__(self, frontier: Frontier, bit: int, tag: Any) -> None:
        self._frontier = frontier
        self._bit = bit
        self._tag = tag
        self._masks = frontier.masks()
        self._began = frontier.explored
        self._tries = 0  # since the last look at the budget
        self._waiting: Growing = {}  # configurations in which the operation is yet to be placed
        self._after: Growing = {}  # those that are over the return

    def run(self) -> Groups:
        """The configurations after the return."""
        self._sort_out()
        if self._waiting:
            self._place_in_rounds()
        return settled(self._after)

    def _sort_out(self) -> None:
        """Bring over the return the configurations that had the operation before, placed or absorbed."""
        frontier, bit, masks, after = self._frontier, self._bit, self._masks, self._after
        live = ~frontier.stale
        clean = live & ~bit
        for state, entries in frontier.groups.items():
            seen = frontier.acceptance[state] & frontier.observers
            for done, absorbed, trace in entries:
                entry = (done & live | seen, absorbed & live & ~seen, trace)
                if entry[0] & bit:
                    add(after, state, (entry[0] & clean, entry[1] & clean, trace), masks)
                    continue
                for way in self._settle(entry) if absorbed & bit else ():
                    add(after, state, way, masks)
                add(self._waiting, state, entry, masks)

    def _settle(self, entry: Entry) -> Iterator[Entry]:
        """The ways in which the absorbed operation is counted as placed just before the last constant call: one that
        changes something unseen, an observer behind another absorbed call, whose result it saw."""
        frontier, bit = self._frontier, self._bit
        done, absorbed, trace = entry
        if not bit & frontier.observers:
            _, _, own, tag = frontier.mutators[0]
            served = absorbed & frontier.acceptance_of(own.target) if own.constant else 0
            story = (trace, tag, -1, None) if frontier.traced else None
            yield (done | served) & ~bit, absorbed & ~(served | bit), story
            return
        tried: list[Transition] = []
        for its_bit, transition, tag in frontier.absorbed_operations(absorbed):
            if not transition.constant or transition in tried:
                continue
            tried.append(transition)
            served = frontier.acceptance_of(transition.target)
            if served & bit:
                served = served & absorbed | its_bit
                story = (trace, tag, -1, None) if frontier.traced else None
                yield (done | served) & ~bit, absorbed & ~served, story

    def _place_in_rounds(self) -> None:
        """Place operations that surely happened; then in each round one more of unknown outcome before them."""
        frontier = self._frontier
        level: list[_Reached] = [
            (state, entry, None, 0, 0) for state, (_, entries) in self._waiting.items() for entry in entries
        ]
        limit = frontier.pending_limit
        spent = 0
        while self._place(level, level, frontier.mutators) and self._is_worth_pending():
            if limit is not None and self._after and spent >= limit:
                if not frontier.may_cut:
                    raise StepTooWide
                return
            if not frontier.has_dependent_pending:
                level = [reached for reached in level if reached[2] is None or not reached[2][2].constant]
            later: list[_Reached] = []
            if not level or not self._place(level, later, None) or not later:
                return
            level = later
            spent += 1

    def _is_worth_pending(self) -> bool:
        """Whether operations of unknown outcome can be of use to the one that returns.

        Before a constant call all of them are absorbed, unless their results depend on the state.
        """
        frontier = self._frontier
        if not frontier.has_pending:
            return False
        return frontier.has_dependent_pending or bool(frontier.dependent) or self._bit & frontier.observers != 0

    def _place(self, level: list[_Reached], out: list[_Reached], mutators: list[Candidate] | None) -> bool:
        """Place each of the `mutators` next, or with None each operation of unknown outcome; what does not yet end the
        step goes to `out`. Answers whether nothing was left out."""
        frontier = self._frontier
        acceptance, observers, equal_calls = frontier.acceptance, frontier.observers, frontier.equal_calls
        bit, masks, waiting, after = self._bit, self._masks, self._waiting, self._after
        clean = ~(frontier.stale | bit)
        absorbs = (frontier.absorbable | observers) & ~frontier.stale
        dependent = frontier.dependent or frontier.has_dependent_pending
        traced, is_pending = frontier.traced, mutators is None
        keeps_own = is_pending and frontier.reusable
        tries = self._tries
        for state, (done, absorbed, trace), via, origin, fresh in level:
            if mutators is None:
                candidates = self._pending_to_try(done, via)
            else:
                frontier.explored += 1
                candidates = mutators if via is None or not via[2].constant else frontier.dependent
                if equal_calls and len(candidates) > 1:
                    candidates = self._distinct(candidates, done, absorbed)
            tries += len(candidates) + 1
            if tries >= _LOOK_EVERY:
                tries = 0
                if self._is_enough(len(level) + (0 if out is level else len(out))):
                    return False
            for candidate in candidates:
                rank, own, transition, tag = candidate
                then = transition[state]
                if then < 0 or done & own:
                    continue
                constant = transition.constant
                # What leaves the state as it was may still have hidden what was called since the last constant call.
                if is_pending and then == state and not (constant and absorbs & ~(absorbed | done)):
                    continue
                if (
                    via is not None
                    and not fresh
                    and (own == bit or via[0] > rank)
                    and (middle := transition[origin]) >= 0
                    and via[2][middle] == then
                ):
                    continue  # it need not wait for the one before: the other order leads to the same
                seen = acceptance.get(then)
                if seen is None:
                    seen = frontier.accept(then)
                placed = (done if keeps_own else done | own) | seen & observers
                if constant:
                    unseen = (absorbed | absorbs) & ~placed
                elif is_pending and absorbed & own:
                    unseen = (absorbed | frontier.next_equal(transition, done | absorbed)) & ~placed
                else:
                    unseen = absorbed & ~placed
                story = (trace, tag, then, self._tag) if traced else None
                if placed & bit:
                    add(after, then, (placed & clean, unseen & clean, story), masks)
                elif (dependent or not constant) and add(waiting, then, (placed, unseen, story), masks):
                    served = seen & ~done & observers & clean
                    out.append((then, (placed, unseen, story), candidate, state, served))
        self._tries = tries
        return True

    def _distinct(self, candidates: list[Candidate], done: int, absorbed: int) -> list[Candidate]:
        """Of candidates with the same call only the one that returns first."""
        equal_calls = self._frontier.equal_calls
        tried: list[tuple[Transition, bool]] = []
        found = []
        for candidate in candidates:
            _, own, transition, _ = candidate
            if own & equal_calls and not done & own:
                # Placing a constant call absorbs its equals anyway, so there the mark makes no difference.
                kind = (transition, not transition.constant and absorbed & own != 0)
                if kind in tried:
                    continue
                tried.append(kind)
            found.append(candidate)
        return found

    def _pending_to_try(self, done: int, via: Candidate | None) -> list[Candidate]:
        """The operations of unknown outcome to try after such a placement."""
        frontier = self._frontier
        pending = frontier.pending_candidates(done)
        if via is not None and via[2].constant:
            return [one for one in pending if not one[2].constant]
        if not frontier.mutators:
            return pending
        # One that must happen anyway does the same and saves the one of unknown outcome for later.
        sure = [transition for _, own, transition, _ in frontier.mutators if transition.constant and not done & own]
        return [one for one in pending if one[2] not in sure] if sure else pending

    def _is_enough(self, held: int) -> bool:
        """Look at the budget in the middle of a long step; whether to be content with what was found so far."""
        frontier = self._frontier
        if frontier.checkpoint is not None:
            frontier.checkpoint(held)
        if frontier.step_limit is None or frontier.explored - self._began < frontier.step_limit:
            return False
        if not frontier.may_cut:
            raise StepTooWide
        return True
