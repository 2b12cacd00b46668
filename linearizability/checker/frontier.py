"""All configurations an object may be in at one moment of a history: the heart of the search.

Knows: which operations are open, and the set of configurations; moves the set over one call or one return. Refuses
to know: where operations come from, budgets' owners, and what is done with an empty set.

Just-in-time linearization (G. Lowe, Testing for Linearizability, CCPE 29(4), 2017): an operation is placed only in a
burst that ends with the one that must return now. A configuration is a state and, for the operations still open,
which of them are placed. Five reductions keep the set small; each is safe for every model whose traits are true.

1. Greedy observers: an operation that never changes the state is placed as soon as a state accepts it.
2. Equal calls: of open operations with the same call only the one that returns first is tried.
3. Optional operations (unknown outcome) are never forced; a configuration is dropped when another with the same rest
   used up a subset of its optional ones.
4. Absorbed operations: when a CONSTANT call is placed, every open TOTAL call may have been placed just before it,
   unseen. It stays open but may now return without a further step, which is better than both having been placed and
   not having been.
5. Commuting calls: if y then z leaves the state that z then y leaves and nobody observes the state in between, z
   need not wait for y.

Reductions 1 to 3 and the sink states of the alphabet are described in docs/CHECKER.md with their sources.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from raftlog.linearizability.checker.alphabet import Alphabet, Letter

NEVER = 1 << 62  # the rank of an operation that never returns
ENTRY_BYTES = 260  # a configuration with its masks, measured
_ACCEPTANCE_LIMIT = 16  # states whose acceptance is kept up to date though no configuration is in them
_CHECK_EVERY = 1023

# How a configuration came about, newest first: (earlier, tag of the operation placed, state after, burst's tag).
Trace: TypeAlias = "tuple[Trace | None, Any, int, Any]"
# Bits of the open operations placed for good; of those that may have been absorbed; and the trace if asked for.
Entry: TypeAlias = "tuple[int, int, Trace | None]"
Groups: TypeAlias = dict[int, list[Entry]]
# Rank of return, order of admission, bit, letter, tag.
_Mutator: TypeAlias = tuple[int, int, int, Letter, Any]
_Masks: TypeAlias = tuple[int, int, int]


class Frontier:
    """The set of configurations after some events.

    Invariant: `groups` maps a state to entries of which none makes another superfluous; bits outside `_stale` and
    the open operations are clear; `_acceptance[state]` has the bits of the open observers that the state accepts.
    """

    __slots__ = (
        "_absorbable",
        "_acceptance",
        "_admitted",
        "_free",
        "_mutators",
        "_next_bit",
        "_observers",
        "_optional",
        "_stale",
        "_traced",
        "_twins",
        "_watchers",
        "alphabet",
        "checkpoint",
        "explored",
        "groups",
        "reusable",
    )

    def __init__(self, alphabet: Alphabet, states: Iterable[int], *, traced: bool = False) -> None:
        """`states` are the numbers of the states possible at the start; `traced` keeps how each came about."""
        self.alphabet = alphabet
        self.groups: Groups = {state: [(0, 0, None)] for state in states}
        self.explored = 0  # configurations looked at, in all
        self.reusable = False  # whether an optional operation may be used any number of times: a relaxation
        self.checkpoint: Callable[[int], None] | None = None  # told the size of a large step; may raise
        self._traced = traced
        self._acceptance = dict.fromkeys(self.groups, 0)
        self._observers = 0
        self._optional = 0
        self._absorbable = 0
        self._stale = 0
        self._twins = 0  # mutators that may have the letter of another one
        self._mutators: list[_Mutator] = []
        self._watchers: dict[int, Letter] = {}
        self._free = [1 << place for place in range(59, -1, -1)]
        self._next_bit = 1 << 60
        self._admitted = 0

    def copy(self) -> Frontier:
        """An independent frontier in the same place, sharing the alphabet."""
        other = Frontier(self.alphabet, ())
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(other, name, value.copy() if isinstance(value, list | dict) else value)
        return other

    def size(self) -> int:
        """The number of configurations."""
        return sum(map(len, self.groups.values()))

    def open_calls(self) -> list[tuple[int, Any]]:
        """Bit and tag of every open operation that changes something, in the order of their returns."""
        return [(bit, tag) for _, _, bit, _, tag in self._mutators]

    def truncate(self, width: int) -> None:
        """Keep only the `width` configurations that used up the fewest optional operations."""
        optional = self._optional
        ranked = sorted(
            ((done & optional).bit_count(), place, state, (done, absorbed, trace))
            for state, entries in self.groups.items()
            for place, (done, absorbed, trace) in enumerate(entries)
        )
        groups: Groups = {}
        for _, _, state, entry in ranked[:width]:
            groups.setdefault(state, []).append(entry)
        self.groups = groups

    def admit(self, letter: Letter, rank: int, tag: Any) -> int:
        """An operation is called. `rank` orders operations by their returns; NEVER makes it optional.

        Answers the bit that stands for it until it returns.
        """
        if self._free:
            bit = self._free.pop()
        else:
            bit = self._next_bit
            self._next_bit <<= 1
        if letter.observer:
            self._observers |= bit
            self._watchers[bit] = letter
            table = letter.table
            acceptance = self._acceptance
            for state in acceptance:
                after = table.get(state)
                if after is None:
                    after = self.alphabet.step(letter, state)
                if after >= 0:
                    acceptance[state] |= bit
            return bit
        if rank == NEVER:
            self._optional |= bit
        if letter.total:
            self._absorbable |= bit
            if letter.constant and letter.target < 0:
                self.alphabet.step(letter, next(iter(self.groups)))
        self._admitted += 1
        self._twins &= ~bit
        for other in self._mutators:
            if other[3] is letter:
                self._twins |= bit | other[2]
        insort(self._mutators, (rank, self._admitted, bit, letter, tag))
        return bit

    def retire(self, bit: int, tag: Any = None) -> bool:
        """The operation returns. Answers whether any configuration survives; if none does, nothing has changed.

        Of all open operations it must be the one with the lowest rank.
        """
        acceptance = self._acceptance
        for state, entries in self.groups.items():
            if acceptance[state] & bit:
                continue
            for entry in entries:
                if not entry[0] & bit:
                    return self._advance(bit, tag)
        # Placed in every configuration: its bit can wait for the next step to be cleared.
        self._stale |= bit
        if self._watchers.pop(bit, None) is None:
            self._absorbable &= ~bit
            self._mutators.pop(0)
        return True

    def _advance(self, bit: int, tag: Any) -> bool:
        live = ~self._stale
        clean = live & ~bit
        masks = (~(self._observers | self._optional), self._observers, self._optional)
        watching = bit in self._watchers
        after: Groups = {}
        waiting: Groups = {}
        for state, entries in self.groups.items():
            seen = self._acceptance[state]
            for done, absorbed, trace in entries:
                done = (done | seen) & live
                if done & bit:
                    _add(after, state, (done & clean, absorbed & clean & ~seen, trace), masks)
                    continue
                absorbed &= live & ~seen
                if not absorbed & bit:
                    pass
                elif watching:
                    self._serve(bit, tag, after, state, (done, absorbed, trace), masks)
                else:
                    letter = self._mutators[0][3]
                    served = self._acceptance_of(letter.target) & absorbed if letter.constant else 0
                    story = (trace, tag, -1, tag) if self._traced else None
                    _add(after, state, ((done | served) & clean, absorbed & clean & ~served, story), masks)
                _add(waiting, state, (done, absorbed, trace), masks)
        if waiting:
            self._burst(bit, tag, waiting, after)
        if not after:
            return False
        self._settle(bit, clean, after)
        return True

    def _serve(self, bit: int, tag: Any, after: Groups, state: int, entry: Entry, masks: _Masks) -> None:
        """Let the returning observer have seen an operation absorbed before the last constant one."""
        done, absorbed, trace = entry
        tried: list[Letter] = []
        for _, _, own, letter, own_tag in self._mutators:
            if not absorbed & own or not letter.constant or letter in tried:
                continue
            tried.append(letter)
            served = self._acceptance_of(letter.target)
            if served & bit:
                served = served & absorbed | own
                story = (trace, own_tag, -1, tag) if self._traced else None
                _add(after, state, ((done | served) & ~bit, absorbed & ~served, story), masks)

    def _burst(self, bit: int, tag: Any, waiting: Groups, after: Groups) -> None:
        """Place operations, the returning one last, in every order that may matter."""
        acceptance = self._acceptance
        step = self.alphabet.step
        live = ~self._stale
        absorbable = (self._absorbable | self._observers) & live
        clean = live & ~bit
        masks = (~(self._observers | self._optional), self._observers, self._optional)
        # After a call that is total and constant, another such is never placed: the first would be absorbed.
        chained = [mutator for mutator in self._mutators if not mutator[3].constant]
        twins = self._twins
        traced = self._traced
        reusable = self.reusable
        work: list[Any] = [(state, entry, None, 0, 0) for state, entries in waiting.items() for entry in entries]
        explored = self.explored
        for state, (done, absorbed, trace), via, origin, fresh in work:
            explored += 1
            if not explored & _CHECK_EVERY and self.checkpoint is not None:
                self.checkpoint(len(work))
            tried: list[tuple[Letter, bool]] = []
            for mutator in self._mutators if via is None or not via[3].constant else chained:
                rank, _, own, letter, own_tag = mutator
                if done & own:
                    continue
                if own & twins:
                    twin = (letter, bool(absorbed & own))
                    if twin in tried:
                        continue
                    tried.append(twin)
                then = letter.table.get(state)
                if then is None:
                    then = step(letter, state)
                if then < 0 or (rank == NEVER and then == state):
                    continue
                if (
                    via is not None
                    and not fresh
                    and (own == bit or via[0] > rank)
                    and _commute(step, via[3], letter, origin, then)
                ):
                    continue
                seen = acceptance.get(then)
                if seen is None:
                    seen = self._accept(then)
                placed = (done if rank == NEVER and reusable else done | own) | seen & live
                unseen = (absorbed | absorbable if letter.constant else absorbed) & ~placed
                story = (trace, own_tag, then, tag) if traced else None
                if placed & bit:
                    _add(after, then, (placed & clean, unseen & clean, story), masks)
                elif (chained or not letter.constant) and _add(waiting, then, (placed, unseen, story), masks):
                    work.append((then, (placed, unseen, story), mutator, state, seen & ~done & clean))
        self.explored = explored

    def _acceptance_of(self, state: int) -> int:
        """The bits of the open observers that the state accepts."""
        if state < 0:
            return 0
        seen = self._acceptance.get(state)
        return self._accept(state) if seen is None else seen

    def _accept(self, state: int) -> int:
        seen = 0
        for bit, letter in self._watchers.items():
            after = letter.table.get(state)
            if after is None:
                after = self.alphabet.step(letter, state)
            if after >= 0:
                seen |= bit
        self._acceptance[state] = seen
        return seen

    def _settle(self, bit: int, clean: int, after: Groups) -> None:
        stale = self._stale | bit
        while stale:
            lowest = stale & -stale
            stale ^= lowest
            self._free.append(lowest)
        self._stale = 0
        self._observers &= clean
        self._absorbable &= clean
        if self._watchers.pop(bit, None) is None:
            self._mutators.pop(0)
        acceptance = self._acceptance
        if len(acceptance) > _ACCEPTANCE_LIMIT:
            self._acceptance = {state: acceptance[state] & clean for state in after}
        else:
            for state in acceptance:
                acceptance[state] &= clean
        self.groups = after


def _commute(step: Callable[[Letter, int], int], first: Letter, second: Letter, origin: int, end: int) -> bool:
    """Whether `second` and then `first` leads from `origin` to `end` too."""
    middle = second.table.get(origin)
    if middle is None:
        middle = step(second, origin)
    if middle < 0:
        return False
    other = first.table.get(middle)
    if other is None:
        other = step(first, middle)
    return other == end


def _add(groups: Groups, state: int, entry: Entry, masks: _Masks) -> bool:
    """Add a configuration unless one there makes it superfluous; drop those it makes superfluous."""
    entries = groups.get(state)
    if entries is None:
        groups[state] = [entry]
        return True
    forced, observers, optional = masks
    done, absorbed, _ = entry
    beaten = False
    for other, unseen, _ in entries:
        differs = done ^ other
        if not (
            absorbed & ~(unseen | other & observers)
            or (differs
            and (differs & forced & ~unseen or done & differs & observers or other & differs & optional))
        ):
            return False
        if not (
            unseen & ~(absorbed | done & observers)
            or differs & forced & ~absorbed
            or other & differs & observers
            or done & differs & optional
        ):
            beaten = True
    if beaten:
        groups[state] = [kept for kept in entries if not _beats(entry, kept, masks)]
    groups[state].append(entry)
    return True


def _beats(entry: Entry, other: Entry, masks: _Masks) -> bool:
    """Whether whatever can follow `other` can follow `entry`."""
    forced, observers, optional = masks
    done, absorbed, _ = entry
    differs = done ^ other[0]
    return not (
        other[1] & ~(absorbed | done & observers)
        or differs & forced & ~absorbed
        or other[0] & differs & observers
        or done & differs & optional
    )
