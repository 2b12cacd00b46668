"""One return: every way of placing open operations that ends with the one that returns now.

Three reductions, safe for every model whose traits are true:

- Equal calls: of open operations with the same call only the one that returns first is tried.
- Absorbed operations: when a CONSTANT call is placed, every open TOTAL call may have been placed just before it,
  unseen, and with it the observers that would have seen it. So a constant call is never placed for its own sake just
  before another constant call.
- Commuting calls: if y then z leaves the state that z then y leaves, and nobody observes the state in between, z
  need not wait for y.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from raftlog.linearizability.checker.search.antichain import Entry, Growing, Masks, add
from raftlog.linearizability.checker.search.operation_table import Letter

if TYPE_CHECKING:
    from raftlog.linearizability.checker.search.frontier import Frontier

_LOOK_EVERY = 256  # operations tried in one burst between two looks at the budget
_FIRST_SPARE = 1 << 62

# Rank of return, bit, letter and tag of an open operation.
Candidate: TypeAlias = tuple[int, int, Letter, Any]
# A configuration, the operation placed last in this burst, the state before that, and the observers it served.
_Step: TypeAlias = "tuple[int, Entry, Candidate | None, int, int]"


class BurstTooWide(Exception):
    """One return would take more configurations than the limit; the frontier is as it was before it."""


class Burst:
    """The search for all configurations after one return.

    With `frontier.thrift` operations of unknown outcome are used only as far as that many more than the least that
    explains the return: the result is then a part of the whole.
    """

    __slots__ = ("_after", "_began", "_bit", "_doomed", "_frontier", "_masks", "_tag", "_tries", "_waiting")

    def __init__(self, frontier: Frontier, bit: int, tag: Any, masks: Masks, doomed: int) -> None:
        self._frontier = frontier
        self._doomed = doomed  # a state to leave out
        self._bit = bit
        self._tag = tag
        self._masks = masks
        self._began = frontier.explored
        self._tries = 0  # since the last look at the budget

    def run(self, waiting: Growing, after: Growing, *, tried: bool) -> None:
        """Bring the `waiting` configurations over the return and add them to those `after` it.

        When `tried`, whatever can be done without operations of unknown outcome was done before.
        """
        self._waiting = waiting
        self._after = after
        frontier = self._frontier
        level: list[_Step] = [
            (state, entry, None, 0, 0) for state, (_, entries) in waiting.items() for entry in entries
        ]
        if not frontier.has_spares:
            self._place(level, level, self._useful() if len(level) > 1 else frontier.mutators)
            return
        spent = 0
        while tried or self._place(level, level, frontier.mutators):
            tried = False
            # Next those that use one more operation of unknown outcome.
            if frontier.thrift is not None and after and spent >= frontier.thrift:
                if not frontier.may_cut:
                    raise BurstTooWide
                return
            if not frontier.has_loose_spares:
                level = [step for step in level if step[2] is None or not step[2][2].constant]
            later: list[_Step] = []
            if not level or not self._place(level, later, None) or not later:
                return
            level = later
            spent += 1

    def _useful(self) -> list[Candidate]:
        """The candidates without constant calls that no next step could build on."""
        frontier = self._frontier
        found = []
        for candidate in frontier.mutators:
            _, own, letter, _ = candidate
            target = letter.target
            if letter.constant and own != self._bit and not frontier.acceptance_of(target) & self._bit:
                for _, _, other, _ in frontier.loose if target >= 0 else ():
                    if other[target] >= 0:
                        break
                else:
                    continue
            found.append(candidate)
        return found

    def _spares(self, done: int, via: Candidate | None) -> list[Candidate]:
        """The operations of unknown outcome to try after such a step."""
        frontier = self._frontier
        spares = frontier.spare_candidates(done)
        if via is not None and via[2].constant:
            return [spare for spare in spares if not spare[2].constant]
        if not frontier.mutators:
            return spares
        # One that must happen anyway does the same and saves the one of unknown outcome for later.
        sure = [letter for _, own, letter, _ in frontier.mutators if letter.constant and not done & own]
        return [spare for spare in spares if spare[2] not in sure] if sure else spares

    def _place(self, level: list[_Step], out: list[_Step], mutators: list[Candidate] | None) -> bool:
        """Place each of the `mutators` next, or with None each operation of unknown outcome; what does not yet end the
        burst goes to `out`. Answers whether nothing was left out."""
        frontier = self._frontier
        acceptance, observers, twins = frontier.acceptance, frontier.observers, frontier.twins
        bit, masks, waiting, after = self._bit, self._masks, self._waiting, self._after
        clean = ~(frontier.stale | bit)
        absorbs = (frontier.absorbable | observers) & ~frontier.stale
        loose = frontier.loose or frontier.has_loose_spares
        reusable, traced = frontier.reusable, frontier.traced
        spare, doomed = mutators is None, self._doomed
        tries = self._tries
        for state, (done, absorbed, trace), via, origin, fresh in level:
            if mutators is None:
                candidates = self._spares(done, via)
            else:
                frontier.explored += 1
                candidates = mutators if via is None or not via[2].constant else frontier.loose
            tries += len(candidates) + 1
            if tries >= _LOOK_EVERY:
                tries = 0
                if self._is_enough(len(level) + (0 if out is level else len(out))):
                    return False
            tried: list[tuple[Letter, bool]] = []
            for candidate in candidates:
                rank, own, letter, tag = candidate
                if done & own:
                    continue
                heir = 0
                if spare:
                    if absorbed & own and not letter.constant:
                        heir = frontier.heir(letter, done | absorbed)
                elif own & twins:
                    # Placing a constant call absorbs its twins anyway, so there the mark makes no difference.
                    twin = (letter, not letter.constant and absorbed & own != 0)
                    if twin in tried:
                        continue
                    tried.append(twin)
                then = letter[state]
                # What leaves the state as it was may still have hidden what was called since the last constant call.
                if then < 0 or (spare and then == state and not (letter.constant and absorbs & ~(absorbed | done))):
                    continue
                if then == doomed:
                    frontier.forwent = True
                    continue
                if via is not None and not fresh and (own == bit or via[0] > rank):
                    # It need not wait for the one before when the other order leads to the same.
                    middle = letter[origin]
                    if middle >= 0 and via[2][middle] == then:
                        continue
                seen = acceptance.get(then)
                if seen is None:
                    seen = frontier.accept(then)
                placed = (done if spare and reusable else done | own) | seen & observers
                unseen = (absorbed | absorbs if letter.constant else absorbed | heir) & ~placed
                story = (trace, tag, then, self._tag) if traced else None
                if placed & bit:
                    add(after, then, (placed & clean, unseen & clean, story), masks)
                elif loose or not letter.constant:
                    entry = (placed, unseen, story)
                    if add(waiting, then, entry, masks):
                        out.append((then, entry, candidate, state, seen & ~done & observers & clean))
        self._tries = tries
        return True

    def _is_enough(self, held: int) -> bool:
        """Look at the budget in the middle of a long burst; whether to be content with what was found so far."""
        frontier = self._frontier
        if frontier.checkpoint is not None:
            frontier.checkpoint(held)
        if frontier.burst_limit is None or frontier.explored - self._began < frontier.burst_limit:
            return False
        if not frontier.may_cut:
            raise BurstTooWide
        return True
