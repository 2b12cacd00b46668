"""All configurations an object may be in at one moment of a history: the heart of the search breadth first.

Just-in-time linearization (G. Lowe, Testing for Linearizability, CCPE 29(4), 2017): an operation is placed only in a
burst that ends with the one that must return now (`burst`). What is kept between two events is an antichain of
configurations (`antichain`). Two reductions live here, the others in the burst:

- Greedy observers: an operation that never changes the state is placed as soon as a state accepts it.
- Optional operations: one of unknown outcome is never forced, and those with the same call are used in the order
  of their calls, so that what a configuration used up is a number for each call and not a set.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, TypeAlias

from raftlog.linearizability.checker.search.antichain import (
    Entry,
    Groups,
    Growing,
    Masks,
    add,
    fewest_used,
    masks_of,
    settled,
)
from raftlog.linearizability.checker.search.linearization_step import Burst, BurstTooWide, Candidate
from raftlog.linearizability.checker.search.operation_table import REFUSED_NUMBER, Alphabet, Letter

NEVER = 1 << 62  # the rank of an operation that never returns
_FEW = 64  # configurations that can be brought over a return without a look at the budget
ENTRY_BYTES = 260  # a configuration with its masks, measured

# The operations of unknown outcome with one letter: their rank, the letter, and their bits.
_Spare: TypeAlias = tuple[int, Letter, int]


class Frontier:
    """The set of configurations after some events.

    Invariant: `groups` maps a state to entries of which none makes another superfluous; bits outside `stale` and the
    open operations are clear; `acceptance[state] & observers` has the bits of the open observers that the state
    accepts; `mutators` is sorted by rank, and `loose` are those of them that are not constant.
    """

    __slots__ = (
        "_free",
        "_next_bit",
        "_optional",
        "_tags",
        "_unused",
        "_watchers",
        "absorbable",
        "acceptance",
        "alphabet",
        "burst_limit",
        "checkpoint",
        "explored",
        "foresee",
        "forwent",
        "groups",
        "has_loose_spares",
        "has_spares",
        "loose",
        "may_cut",
        "mutators",
        "observers",
        "reusable",
        "spares",
        "stale",
        "thrift",
        "traced",
        "twins",
    )

    def __init__(self, alphabet: Alphabet, states: Iterable[int], *, traced: bool = False) -> None:
        """`states` are the numbers of the states possible at the start; `traced` keeps how each came about."""
        self.alphabet = alphabet
        self.groups: Groups = {state: [(0, 0, None)] for state in states}
        self.acceptance = dict.fromkeys(self.groups, 0)
        self.explored = 0  # configurations looked at, in all
        self.reusable = False  # whether an optional operation may be used any number of times: a relaxation
        self.thrift: int | None = None  # see Burst
        self.burst_limit: int | None = None  # configurations one return may take
        self.may_cut = False  # whether a burst over that limit is cut, which loses configurations, or raises
        self.checkpoint: Callable[[int], None] | None = None  # told the size of a long burst; may raise
        self.foresee: Callable[[], int] | None = None  # names a state that is sure to die, or REFUSED_NUMBER
        self.forwent = False  # whether configurations in such a state were left out
        self.traced = traced
        self.has_spares = False  # whether any operation of unknown outcome is open
        self.has_loose_spares = False  # whether an optional operation's result depends on the state before it
        self.observers = 0
        self._optional = 0
        self.absorbable = 0
        self.stale = 0
        self.twins = 0  # bits of mutators that may share their letter with another operation
        self.mutators: list[Candidate] = []
        self.loose: list[Candidate] = []
        self.spares: dict[Letter, _Spare] = {}
        self._tags: dict[int, Any] = {}  # of the operations of unknown outcome
        self._unused: list[Candidate] | None = None  # what to try of `spares` as long as none is used up
        self._watchers: dict[int, Letter] = {}
        self._free = 0  # bits of operations that returned, to be used again
        self._next_bit = 1

    def copy(self) -> Frontier:
        """An independent frontier in the same place, sharing the alphabet, without a checkpoint."""
        other = Frontier.__new__(Frontier)
        for name, value in zip(_SLOTS, _values(self), strict=True):
            setattr(other, name, value)
        for name in _CONTAINERS:
            setattr(other, name, getattr(self, name).copy())
        other.checkpoint = other.foresee = None
        return other

    def size(self) -> int:
        """The number of configurations."""
        return sum(map(len, self.groups.values()))

    def truncate(self, width: int) -> None:
        """Keep only the `width` configurations that used up the fewest optional operations."""
        self.groups = fewest_used(self.groups, width, self._optional)

    def relax(self) -> None:
        """From here on operations of unknown outcome may happen any number of times: what then dies is dead."""
        self.reusable = True
        unused = ~(self._optional | self.stale)
        masks = masks_of((self._next_bit - 1) & ~self.stale, self.observers, self._optional)
        groups: Growing = {}
        for state, entries in self.groups.items():
            for done, absorbed, trace in entries:
                add(groups, state, (done & unused, absorbed & ~self.stale, trace), masks)
        self.groups = settled(groups)

    def compact(self) -> None:
        """Let the alphabet forget the calls and states that play no part any more. Only for a frontier without traces
        and copies."""
        letters = {letter for _, _, letter, _ in self.mutators}
        letters.update(self.spares, self._watchers.values())
        numbers = self.alphabet.compact(letters, list(self.groups))
        self.groups = {numbers[state]: entries for state, entries in self.groups.items()}
        self.acceptance = {numbers[state]: self.acceptance[state] for state in numbers}

    def admit(self, letter: Letter, rank: int, tag: Any) -> int:
        """An operation is called. `rank` orders operations by their returns; NEVER makes it optional.

        Answers the bit that stands for it until it returns; 0 for one that is placed at once and for good.
        """
        if letter.observer:
            for state in self.groups:
                if letter[state] < 0:
                    break
            else:
                return 0
        free = self._free
        if free and rank != NEVER:
            bit = free & -free
            self._free = free ^ bit
        else:
            bit = self._next_bit
            self._next_bit = bit << 1
        if letter.observer:
            self.observers |= bit
            self._watchers[bit] = letter
            acceptance = self.acceptance
            for state, seen in acceptance.items():
                if letter[state] >= 0:
                    acceptance[state] = seen | bit
                elif seen & bit:
                    acceptance[state] = seen ^ bit
            return bit
        if letter.total:
            self.absorbable |= bit
            if letter.constant and letter.target < 0:
                letter[next(iter(self.groups))]  # to know its target
        if rank == NEVER:
            self._admit_spare(bit, letter, tag)
            return bit
        if self.twins & bit:
            self.twins ^= bit
        mutators = self.mutators
        for _, other, its_letter, _ in mutators:
            if its_letter is letter:
                self.twins |= bit | other
        if self.has_spares and letter in self.spares:
            self.twins |= bit
        mutator = (rank, bit, letter, tag)
        insort(mutators, mutator)
        if not letter.constant:
            insort(self.loose, mutator)
        return bit

    def _admit_spare(self, bit: int, letter: Letter, tag: Any) -> None:
        self._optional |= bit
        self._tags[bit] = tag
        self.has_spares = True
        self._unused = None
        self.has_loose_spares |= not letter.constant
        rank, _, bits = self.spares.get(letter, (NEVER + len(self.spares), letter, 0))
        self.spares[letter] = (rank, letter, bits | bit)

    def retire(self, bit: int, tag: Any = None) -> bool:
        """The operation returns. Answers whether any configuration survives; if none does, nothing has changed.

        Of all open operations that have a bit it must be the one with the lowest rank. May raise BurstTooWide or
        whatever `checkpoint` raises; then too nothing has changed.
        """
        if not bit:
            return True
        if bit & self.observers:
            acceptance = self.acceptance
            for state, entries in self.groups.items():
                if acceptance[state] & bit:
                    continue
                for entry in entries:
                    if not entry[0] & bit:
                        return self._advance(bit, tag)
        else:
            for entries in self.groups.values():
                for entry in entries:
                    if not entry[0] & bit:
                        return self._advance(bit, tag)
        # Placed in every configuration: its bit can wait for the next step to be cleared.
        self.stale |= bit
        self._forget(bit)
        return True

    def _forget(self, bit: int) -> None:
        if self.observers & bit:
            self.observers ^= bit
            del self._watchers[bit]
            return
        self.absorbable &= ~bit
        if not self.mutators.pop(0)[2].constant:
            del self.loose[0]

    def _advance(self, bit: int, tag: Any) -> bool:
        mixes = self.has_spares and self._mixes(bit)
        if len(self.groups) == 1 and not (mixes and self.thrift != 0):
            survived = self._step(bit, mixes)
            if survived or (survived is not None and not mixes):
                return survived
        if self.loose or self.has_spares or self.size() > _FEW:
            groups = self._look_ahead(bit, tag, mixes)
        else:
            groups = self._overwrite(bit, tag)
        if not groups:
            return False
        self._free |= self.stale | bit
        self.stale = 0
        self._forget(bit)
        acceptance = self.acceptance
        if len(acceptance) > len(groups):
            self.acceptance = {state: acceptance[state] for state in groups}
        self.groups = groups
        return True

    def _mixes(self, bit: int) -> bool:
        """Whether operations of unknown outcome can be of use to the one that returns.

        Before a constant call all of them are absorbed, unless their results depend on the state.
        """
        return self.has_loose_spares or bit & self.observers != 0 or not self.mutators[0][2].constant

    def _is_frugal(self) -> bool:
        """Whether operations of unknown outcome are left alone wherever a return can be explained without them."""
        return self.thrift == 0 and self.may_cut

    def _step(self, bit: int, mixes: bool) -> bool | None:
        """Bring over the return one configuration with which there is only one thing to do: whether that is possible.
        None when there are more of either. Leaves alone operations of unknown outcome, as a thrifty attempt does."""
        ((state, entries),) = self.groups.items()
        if len(entries) != 1:
            return None
        ((done, absorbed, trace),) = entries
        mutators = self.mutators
        observers = self.observers
        if bit & observers:
            return None if mutators or absorbed & bit else False
        _, _, letter, tag = mutators[0]
        constant = letter.constant
        if absorbed & bit or (len(mutators) != 1 and (self.loose or not constant)):
            return None
        self.explored += 1
        then = letter[state]
        if then < 0:
            return False
        if mixes and not self.may_cut:
            raise BurstTooWide
        acceptance = self.acceptance
        accepted = acceptance.get(then)
        if accepted is None:
            accepted = self.accept(then)
        unused = self.stale | bit
        done = (done | (acceptance[state] | accepted) & observers) & ~unused
        if constant:
            absorbed |= self.absorbable | observers
        self.groups = {then: [(done, absorbed & ~(done | unused), (trace, tag, then, tag) if self.traced else None)]}
        if len(acceptance) != 1:
            self.acceptance = {then: accepted}
        self._free |= unused
        self.stale = 0
        self._forget(bit)
        return True

    def _overwrite(self, bit: int, tag: Any) -> Groups:
        """What `_general` answers when all open mutators are constant and surely happened.

        None of them is then placed but to end the burst, so there is no more to a burst than one of them. A register
        is mostly like this, and it takes half as long.
        """
        observers = self.observers
        live = ~self.stale
        clean = live & ~bit
        masks = masks_of((self._next_bit - 1) & live, observers, 0)
        absorbs = (self.absorbable | observers) & clean
        ways: list[tuple[int, int, int, int, Any]] = []
        serves = 0  # the observers that see what the returning operation writes
        if bit & observers:
            for _, own, letter, its_tag in self.mutators:
                target = letter.target
                served = self.acceptance_of(target)
                if served & bit:
                    # Of equal calls only the one that returns first is tried.
                    before = sum([way[0] for way in ways if way[2] == target]) if own & self.twins else 0
                    ways.append((own, before, target, served, its_tag))
        else:
            target = self.mutators[0][2].target
            serves = self.acceptance_of(target)
            if target >= 0:
                ways.append((bit, 0, target, serves, tag))
        acceptance, traced = self.acceptance, self.traced
        after: Growing = {}
        for state, entries in self.groups.items():
            seen = acceptance[state] & observers
            for entry in entries:
                done, absorbed, trace = entry
                done = done & live | seen
                absorbed &= live & ~seen
                if done & bit:
                    add(after, state, (done & clean, absorbed & clean, trace), masks)
                    continue
                if absorbed & bit and bit & observers:
                    for way in self._settled(bit, (done, absorbed, trace)):
                        add(after, state, way, masks)
                elif absorbed & bit:
                    served = serves & absorbed
                    story = (trace, tag, -1, None) if traced else None
                    add(after, state, ((done | served) & clean, absorbed & ~served & clean, story), masks)
                self.explored += 1
                for own, before, target, served, its_tag in ways:
                    if done & own or before & ~done:
                        continue
                    placed = (done | own | served) & clean
                    story = (trace, its_tag, target, tag) if traced else None
                    add(after, target, (placed, (absorbed | absorbs) & clean & ~placed, story), masks)
        return settled(after)

    def _look_ahead(self, bit: int, tag: Any, mixes: bool) -> Groups:
        """What `_general` answers, without what is sure to die as long as something else survives this return."""
        doomed = REFUSED_NUMBER if self.foresee is None or self.has_spares else self.foresee()
        forwent = self.forwent
        groups = self._general(bit, tag, mixes, doomed)
        if groups or doomed == REFUSED_NUMBER:
            return groups
        self.forwent = forwent
        return self._general(bit, tag, mixes, REFUSED_NUMBER)

    def _general(self, bit: int, tag: Any, mixes: bool, doomed: int) -> Groups:
        live = ~self.stale
        clean = live & ~bit
        observers = self.observers
        masks = masks_of((self._next_bit - 1) & live, observers, self._optional)
        watcher = self._watchers.get(bit)
        own = None if watcher is not None else self.mutators[0][2]
        serves = self.acceptance_of(own.target) if own is not None and own.constant else 0
        after: Growing = {}
        waiting: Growing = {}
        for state, entries in self.groups.items():
            if state == doomed:
                self.forwent = True
                continue
            seen = self.acceptance[state] & observers
            for done, absorbed, trace in entries:
                done = done & live | seen
                absorbed &= live & ~seen
                if done & bit:
                    add(after, state, (done & clean, absorbed & clean, trace), masks)
                    continue
                if absorbed & bit and own is not None:
                    served = serves & absorbed
                    story = (trace, tag, -1, None) if self.traced else None
                    add(after, state, ((done | served) & clean, absorbed & ~served & clean, story), masks)
                elif absorbed & bit:
                    for entry in self._settled(bit, (done, absorbed, trace)):
                        add(after, state, entry, masks)
                add(waiting, state, (done, absorbed, trace), masks)
        if waiting:
            alone = self._is_alone(bit)
            placed = alone and own is not None and (not mixes or self._is_frugal())
            if placed:
                self._place_alone(bit, waiting, after, masks)
            if not alone or (mixes and not (after and self._is_frugal())):
                # With one call to place, or none, all that goes without unknown outcomes is done.
                tried = not self.mutators or (placed and len(self.mutators) == 1)
                Burst(self, bit, tag, masks, doomed).run(waiting, after, tried=tried)
        return settled(after)

    def _is_alone(self, bit: int) -> bool:
        """Whether no other open operation can be of use to the one that returns."""
        if bit & self.observers:
            return not self.mutators
        return len(self.mutators) == 1 or (not self.loose and self.mutators[0][2].constant)

    def _place_alone(self, bit: int, waiting: Growing, after: Growing, masks: Masks) -> None:
        """What a burst does when only the returning operation is placed."""
        _, _, letter, tag = self.mutators[0]
        absorbs = (self.absorbable | self.observers) & ~self.stale if letter.constant else 0
        clean = ~(self.stale | bit)
        for state, (_, entries) in waiting.items():
            self.explored += len(entries)
            then = letter[state]
            if then < 0:
                continue
            seen = self.acceptance_of(then)
            for done, absorbed, trace in entries:
                placed = done | seen
                story = (trace, tag, then, tag) if self.traced else None
                add(after, then, (placed & clean, (absorbed | absorbs) & ~placed & clean, story), masks)

    def _settled(self, bit: int, entry: Entry) -> Iterator[Entry]:
        """The ways in which a returning observer may have been placed before the last constant call."""
        done, absorbed, trace = entry
        tried: list[Letter] = []
        for own, letter, own_tag in self._absorbed(absorbed):
            if not letter.constant or letter in tried:
                continue
            tried.append(letter)
            served = self.acceptance_of(letter.target)
            if served & bit:
                served = served & absorbed | own
                yield (
                    (done | served) & ~bit,
                    absorbed & ~served,
                    (trace, own_tag, -1, None) if self.traced else None,
                )

    def _absorbed(self, absorbed: int) -> Iterator[tuple[int, Letter, Any]]:
        """Bit, letter and tag of the absorbed operations, those that return first before the others."""
        for _, own, letter, tag in self.mutators:
            if absorbed & own:
                yield own, letter, tag
        for _, letter, bits in self.spares.values():
            own = bits & absorbed
            if own:
                own &= -own
                yield own, letter, self._tags[own]

    def spare_candidates(self, done: int) -> list[Candidate]:
        """For each call with operations of unknown outcome the first one not used up."""
        used = done & self._optional
        if not used and self._unused is not None:
            return self._unused
        found = []
        tags = self._tags
        for rank, letter, bits in self.spares.values():
            own = bits & ~used
            if own:
                own &= -own
                found.append((rank, own, letter, tags[own]))
        if not used:
            self._unused = found
        return found

    def heir(self, letter: Letter, others: int) -> int:
        """The first optional operation with this letter that is neither placed nor absorbed; 0 for none.

        When the next one to be used is absorbed and a later one is not, it is really the later one that is used,
        and under the rule that the first is used first it inherits the mark.
        """
        free = self.spares[letter][2] & ~others
        return free & -free

    def acceptance_of(self, state: int) -> int:
        """The bits of the open observers that the state accepts."""
        if state < 0:
            return 0
        seen = self.acceptance.get(state)
        return (self.accept(state) if seen is None else seen) & self.observers

    def accept(self, state: int) -> int:
        """The same for a state not looked at yet."""
        seen = 0
        for bit, letter in self._watchers.items():
            if letter[state] >= 0:
                seen |= bit
        self.acceptance[state] = seen
        return seen


# For copies. The containers are changed in place; what they hold is not.
_SLOTS = Frontier.__slots__
_CONTAINERS = ("_tags", "_watchers", "acceptance", "groups", "loose", "mutators", "spares")
_values = attrgetter(*_SLOTS)
