"""All configurations an object may be in at one moment of a history, as an antichain (`antichain`).

A call changes little here; a return is one step of just-in-time linearization (`linearization_step`). Two reductions
live here, the others in the step:

- Greedy observers: an operation that never changes the state is placed as soon as a state accepts it.
- Optional operations: one of unknown outcome is never forced, and those with the same call are used in the order
  of their calls, so that what a configuration used up is a number for each call and not a set.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, TypeAlias

from raftlog.linearizability.checker.search.antichain import Groups, Growing, Masks, add, fewest_used, masks_of, settled
from raftlog.linearizability.checker.search.operation_table import OperationTable, Transition

NEVER = 1 << 62  # the rank of an operation that never returns
ENTRY_BYTES = 260  # a configuration with its masks, measured

# Rank of return, bit, transition and tag of an open operation.
Candidate: TypeAlias = tuple[int, int, Transition, Any]
# The operations of unknown outcome with one transition: their rank, the transition, and their bits.
_Pending: TypeAlias = tuple[int, Transition, int]


class Frontier:
    """The set of configurations after some events.

    Invariant: `groups` maps a state to entries of which none makes another superfluous; bits outside `stale` and the
    open operations are clear; `acceptance[state] & observers` has the bits of the open observers that the state
    accepts; `mutators` is sorted by rank, and `dependent` are those of them that are not constant.
    """

    __slots__ = (
        "_free",
        "_next_bit",
        "_optional",
        "_tags",
        "_unused",
        "absorbable",
        "acceptance",
        "checkpoint",
        "dependent",
        "equal_calls",
        "explored",
        "groups",
        "has_dependent_pending",
        "has_pending",
        "may_cut",
        "mutators",
        "observers",
        "pending",
        "pending_limit",
        "reusable",
        "stale",
        "step_limit",
        "table",
        "traced",
        "watchers",
    )

    def __init__(self, table: OperationTable, states: Iterable[int], *, traced: bool = False) -> None:
        """`states` are the numbers of the states possible at the start; `traced` keeps how each came about."""
        self.table = table
        self.groups: Groups = {state: [(0, 0, None)] for state in states}
        self.acceptance = dict.fromkeys(self.groups, 0)
        self.explored = 0  # configurations looked at, in all
        self.reusable = False  # whether an optional operation may be used any number of times: a relaxation
        self.pending_limit: int | None = None  # see LinearizationStep
        self.step_limit: int | None = None  # configurations one return may take
        self.may_cut = False  # whether a step over that limit is cut, which loses configurations, or raises
        self.checkpoint: Callable[[int], None] | None = None  # told the size of a long step; may raise
        self.traced = traced
        self.has_pending = False  # whether any operation of unknown outcome is open
        self.has_dependent_pending = False  # whether an optional operation's result depends on the state before it
        self.observers = 0
        self._optional = 0
        self.absorbable = 0
        self.stale = 0
        self.equal_calls = 0  # bits of mutators that may share their transition with another operation
        self.mutators: list[Candidate] = []
        self.dependent: list[Candidate] = []
        self.pending: dict[Transition, _Pending] = {}
        self._tags: dict[int, Any] = {}  # of the operations of unknown outcome
        self._unused: list[Candidate] | None = None  # what to try of `pending` as long as none is used up
        self.watchers: dict[int, Transition] = {}
        self._free = 0  # bits of operations that returned, to be used again
        self._next_bit = 1

    def copy(self) -> Frontier:
        """An independent frontier in the same place, sharing the table, without a checkpoint."""
        other = Frontier.__new__(Frontier)
        for name, value in zip(_SLOTS, _values(self), strict=True):
            setattr(other, name, value)
        for name in _CONTAINERS:
            setattr(other, name, getattr(self, name).copy())
        other.checkpoint = None
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
        masks = self.masks()
        groups: Growing = {}
        for state, entries in self.groups.items():
            for done, absorbed, trace in entries:
                add(groups, state, (done & unused, absorbed & ~self.stale, trace), masks)
        self.groups = settled(groups)

    def compact(self) -> None:
        """Let the table forget the calls and states that play no part any more. Only for a frontier without traces
        and copies."""
        transitions = {transition for _, _, transition, _ in self.mutators}
        transitions.update(self.pending, self.watchers.values())
        numbers = self.table.compact(transitions, list(self.groups))
        self.groups = {numbers[state]: entries for state, entries in self.groups.items()}
        self.acceptance = {numbers[state]: self.acceptance[state] for state in numbers}

    def invoke(self, transition: Transition, rank: int, tag: Any) -> int:
        """An operation is called. `rank` orders operations by their returns; NEVER makes it optional.

        Answers the bit that stands for it until it returns; 0 for one that is placed at once and for good.
        """
        if transition.observer:
            for state in self.groups:
                if transition[state] < 0:
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
        if transition.observer:
            self.observers |= bit
            self.watchers[bit] = transition
            acceptance = self.acceptance
            for state, seen in acceptance.items():
                if transition[state] >= 0:
                    acceptance[state] = seen | bit
                elif seen & bit:
                    acceptance[state] = seen ^ bit
            return bit
        if transition.total:
            self.absorbable |= bit
            if transition.constant and transition.target < 0:
                transition[next(iter(self.groups))]  # to know its target
        if rank == NEVER:
            self._invoke_pending(bit, transition, tag)
            return bit
        if self.equal_calls & bit:
            self.equal_calls ^= bit
        mutators = self.mutators
        for _, other, its_transition, _ in mutators:
            if its_transition is transition:
                self.equal_calls |= bit | other
        if self.has_pending and transition in self.pending:
            self.equal_calls |= bit
        mutator = (rank, bit, transition, tag)
        insort(mutators, mutator)
        if not transition.constant:
            insort(self.dependent, mutator)
        return bit

    def _invoke_pending(self, bit: int, transition: Transition, tag: Any) -> None:
        self._optional |= bit
        self._tags[bit] = tag
        self.has_pending = True
        self._unused = None
        self.has_dependent_pending |= not transition.constant
        rank, _, bits = self.pending.get(transition, (NEVER + len(self.pending), transition, 0))
        self.pending[transition] = (rank, transition, bits | bit)

    def masks(self) -> Masks:
        """The masks of the open operations."""
        return masks_of((self._next_bit - 1) & ~self.stale, self.observers, self._optional)

    def keep(self, bit: int) -> None:
        """The operation returned, and was placed in every configuration: its bit waits for the next step."""
        self.stale |= bit
        self._forget(bit)

    def replace(self, groups: Groups, bit: int) -> None:
        """The operation returned, and these configurations are left."""
        self._free |= self.stale | bit
        self.stale = 0
        self._forget(bit)
        acceptance = self.acceptance
        if len(acceptance) > len(groups):
            self.acceptance = {state: acceptance[state] for state in groups}
        self.groups = groups

    def _forget(self, bit: int) -> None:
        if self.observers & bit:
            self.observers ^= bit
            del self.watchers[bit]
            return
        self.absorbable &= ~bit
        if not self.mutators.pop(0)[2].constant:
            del self.dependent[0]

    def absorbed_operations(self, absorbed: int) -> Iterator[tuple[int, Transition, Any]]:
        """Bit, transition and tag of the absorbed operations, those that return first before the others."""
        for _, own, transition, tag in self.mutators:
            if absorbed & own:
                yield own, transition, tag
        for _, transition, bits in self.pending.values():
            own = bits & absorbed
            if own:
                own &= -own
                yield own, transition, self._tags[own]

    def pending_candidates(self, done: int) -> list[Candidate]:
        """For each call with operations of unknown outcome the first one not used up."""
        used = done & self._optional
        if not used and self._unused is not None:
            return self._unused
        found = []
        tags = self._tags
        for rank, transition, bits in self.pending.values():
            own = bits & ~used
            if own:
                own &= -own
                found.append((rank, own, transition, tags[own]))
        if not used:
            self._unused = found
        return found

    def next_equal(self, transition: Transition, others: int) -> int:
        """The first optional operation with this transition that is neither placed nor absorbed; 0 for none.

        When the next one to be used is absorbed and a later one is not, it is really the later one that is used,
        and under the rule that the first is used first it inherits the mark.
        """
        free = self.pending[transition][2] & ~others
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
        for bit, transition in self.watchers.items():
            if transition[state] >= 0:
                seen |= bit
        self.acceptance[state] = seen
        return seen


# For copies. The containers are changed in place; what they hold is not.
_SLOTS = Frontier.__slots__
_CONTAINERS = ("_tags", "watchers", "acceptance", "dependent", "groups", "mutators", "pending")
_values = attrgetter(*_SLOTS)
