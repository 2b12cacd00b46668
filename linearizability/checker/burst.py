"""One return: every way of placing open operations that ends with the one that returns now.

Knows: which orders matter. Refuses to know: what happens before and after this return.

Three reductions, safe for every model whose traits are true:

- Equal calls: of open operations with the same call only the one that returns first is tried.
- Absorbed operations: when a CONSTANT call is placed, every open TOTAL call may have been placed just before it,
  unseen, and with it the observers that would have seen it. So a constant call is never placed for its own sake just
  before another constant call.
- Commuting calls: if y then z leaves the state that z then y leaves, and nobody observes the state in between, z
  need not wait for y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from raftlog.linearizability.checker.alphabet import Letter
from raftlog.linearizability.checker.antichain import Entry, Growing, Masks, add

if TYPE_CHECKING:
    from raftlog.linearizability.checker.frontier import Frontier

_LOOK_EVERY = 256  # configurations in one burst between two looks at the budget
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

    __slots__ = ("_absorbs", "_after", "_began", "_bit", "_clean", "_frontier", "_masks", "_tag", "_waiting")

    def __init__(self, frontier: Frontier, bit: int, tag: Any, masks: Masks) -> None:
        self._frontier = frontier
        self._bit = bit
        self._tag = tag
        self._masks = masks
        live = ~frontier.stale
        self._clean = live & ~bit
        self._absorbs = (frontier.absorbable | frontier.observers) & live

    def run(self, waiting: Growing, after: Growing) -> None:
        """Bring the `waiting` configurations over the return and add them to those `after` it."""
        self._waiting = waiting
        self._after = after
        frontier = self._frontier
        level: list[_Step] = [
            (state, entry, None, 0, 0) for state, (_, entries) in waiting.items() for entry in entries
        ]
        explored = self._began = frontier.explored
        look_at = explored + _LOOK_EVERY
        loose = bool(frontier.loose) or frontier.has_loose_spares
        useful = self._useful() if len(level) > 1 and not frontier.has_spares else frontier.mutators
        spent = 0
        while level:
            for step in level:
                explored += 1
                if explored >= look_at:
                    look_at = explored + _LOOK_EVERY
                    if self._is_enough(explored, len(level)):
                        return
                via = step[2]
                candidates = useful if via is None or not via[2].constant else frontier.loose
                self._place(step, candidates, level, loose)
            level = self._next_level(level, spent, loose)
            spent += 1
        frontier.explored = explored

    def _useful(self) -> list[Candidate]:
        """The candidates without constant calls that no next step could build on."""
        frontier = self._frontier
        step = frontier.alphabet.step
        found = []
        for candidate in frontier.mutators:
            _, own, letter, _ = candidate
            target = letter.target
            if letter.constant and own != self._bit and not frontier.acceptance_of(target) & self._bit:
                for _, _, other, _ in frontier.loose if target >= 0 else ():
                    after = other.table.get(target)
                    if (step(other, target) if after is None else after) >= 0:
                        break
                else:
                    continue
            found.append(candidate)
        return found

    def _next_level(self, level: list[_Step], spent: int, loose: bool) -> list[_Step]:
        """The configurations that use one more operation of unknown outcome."""
        frontier = self._frontier
        if not frontier.has_spares:
            return []
        if frontier.thrift is not None and self._after and spent >= frontier.thrift:
            if not frontier.may_cut:
                raise BurstTooWide
            return []
        later: list[_Step] = []
        for step in level:
            done, via = step[1][0], step[2]
            spares = frontier.spare_candidates(done)
            if via is not None and via[2].constant:
                spares = [spare for spare in spares if not spare[2].constant] if frontier.has_loose_spares else []
            elif spares:
                # One that must happen anyway does the same and saves the one of unknown outcome for later.
                sure = [letter for _, own, letter, _ in frontier.mutators if letter.constant and not done & own]
                spares = [spare for spare in spares if spare[2] not in sure] if sure else spares
            if spares:
                self._place(step, spares, later, loose)
        return later

    def _place(self, step: _Step, candidates: list[Candidate], out: list[_Step], loose: bool) -> None:
        """Place each candidate next; what does not yet end the burst goes to `out`."""
        state, (done, absorbed, trace), via, origin, fresh = step
        frontier = self._frontier
        acceptance = frontier.acceptance
        bit = self._bit
        clean = self._clean
        masks = self._masks
        twins = frontier.twins
        observers = frontier.observers
        tried: list[tuple[Letter, bool]] = []
        for candidate in candidates:
            rank, own, letter, tag = candidate
            if done & own:
                continue
            spare = rank >= _FIRST_SPARE
            heir = 0
            if spare or own & twins:
                # Placing a constant call absorbs its twins anyway, so there the mark makes no difference.
                marked = not letter.constant and absorbed & own != 0
                if marked and spare:
                    heir = frontier.heir(letter, done | absorbed)
                twin = (letter, marked and not heir)
                if twin in tried:
                    continue
                tried.append(twin)
            then = letter.table.get(state)
            if then is None:
                then = frontier.alphabet.step(letter, state)
            if then < 0 or (spare and then == state):
                continue
            in_order = via is None or fresh or (own != bit and via[0] <= rank)
            if not in_order and _commute(frontier.alphabet.step, via, letter, origin, then):
                continue
            seen = acceptance.get(then)
            if seen is None:
                seen = frontier.accept(then)
            placed = (done if spare and frontier.reusable else done | own) | seen & observers
            unseen = (absorbed | self._absorbs if letter.constant else absorbed | heir) & ~placed
            story = (trace, tag, then, self._tag) if frontier.traced else None
            if placed & bit:
                add(self._after, then, (placed & clean, unseen & clean, story), masks)
            elif (loose or not letter.constant) and add(self._waiting, then, (placed, unseen, story), masks):
                out.append((then, (placed, unseen, story), candidate, state, seen & ~done & observers & clean))

    def _is_enough(self, explored: int, held: int) -> bool:
        """Look at the budget in the middle of a long burst; whether to be content with what was found so far."""
        frontier = self._frontier
        frontier.explored = explored
        if frontier.checkpoint is not None:
            frontier.checkpoint(held)
        if frontier.burst_limit is None or explored - self._began < frontier.burst_limit:
            return False
        if not frontier.may_cut:
            raise BurstTooWide
        return True


def _commute(step: Callable[[Letter, int], int], via: Candidate | None, second: Letter, origin: int, end: int) -> bool:
    """Whether `second` and then what came before it leads from `origin` to `end` too."""
    assert via is not None
    first = via[2]
    middle = second.table.get(origin)
    if middle is None:
        middle = step(second, origin)
    if middle < 0:
        return False
    other = first.table.get(middle)
    if other is None:
        other = step(first, middle)
    return other == end
