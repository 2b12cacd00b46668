"""A few operations and every dependency between them, to search for cycles in.

Along each key an edge leads from every send to the next send of another of these operations; what lies between is
left out, since the order of a key is transitive.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from raftlog.linearizability.checker.budget import Meter
from raftlog.linearizability.checker.kafka.columns.columns import NOBODY, NOWHERE, OK, READ_UNCOMMITTED, TRANSACTIONAL
from raftlog.linearizability.checker.kafka.context import Context
from raftlog.linearizability.checker.kafka.cycles.components import components

# Kinds of edges, as bits.
WW = 1  # sent before the other sent, in one key
WR = 2  # sent what the other polled
AFTER = 4  # sent something that lies before what the other polled
PROCESS = 8  # the same process, one operation after the other
REALTIME = 16  # was over before the other began
DIRTY = 32  # WR out of a transaction, to a reader of uncommitted data

_ASK_EVERY = 50_000  # steps between two looks at the budget


class OutOfSteps(Exception):
    """The searches have walked as many edges as they may."""


class Steps:
    """How many edges may still be walked. From time to time the budget of the whole analysis is asked too."""

    __slots__ = ("ask_at", "left", "meter")

    def __init__(self, left: int, meter: Meter) -> None:
        self.left = left
        self.meter = meter
        self.ask_at = left - _ASK_EVERY

    def take(self, count: int) -> None:
        """Account for edges walked. Raises OutOfSteps, or OutOfBudget."""
        self.left -= count
        if self.left < 0:
            raise OutOfSteps
        if self.left < self.ask_at:
            self.ask_at = self.left - _ASK_EVERY
            self.meter.check(0, 0)


class Neighbourhood:
    """The graph. Nodes are the places of operations in `operations`; `edges[node]` maps successors to kinds."""

    def __init__(self, context: Context, operations: Sequence[int], steps: Steps) -> None:
        self.context = context
        self.steps = steps
        self.operations = sorted(operations, key=lambda number: (context.columns.call[number], number))
        self.node_of = {number: node for node, number in enumerate(self.operations)}
        self.edges: list[dict[int, int]] = [{} for _ in self.operations]
        self._sends: dict[int, tuple[list[int], list[int]]] = {}  # key -> places, nodes
        self._write_order()
        self._reads()
        self._processes()

    def _add(self, source: int, target: int, kind: int) -> None:
        if source != target:
            self.edges[source][target] = self.edges[source].get(target, 0) | kind

    def _write_order(self) -> None:
        columns, order = self.context.columns, self.context.order
        found: dict[int, list[tuple[int, int]]] = {}
        for node, number in enumerate(self.operations):
            sends = columns.sends_of(number)
            self.steps.take(1 + len(sends))
            for element in sends:
                place = order.position[element]
                if place != NOWHERE and columns.writer[element] == number:
                    found.setdefault(columns.element_key[element], []).append((place, node))
        for key, sends_of_key in found.items():
            sends_of_key.sort()
            for (_, source), (_, target) in pairwise(sends_of_key):
                self._add(source, target, WW)
            self._sends[key] = ([place for place, _ in sends_of_key], [node for _, node in sends_of_key])

    def _reads(self) -> None:
        columns, order = self.context.columns, self.context.order
        flags = columns.flags
        for node, number in enumerate(self.operations):
            dirty = flags[number] & READ_UNCOMMITTED
            for key, first, after in columns.segments_of(number):
                self.steps.take(after - first)
                polled = columns.polled[first:after]
                self._add_writers(node, polled, dirty)
                furthest = max([order.position[element] for element in polled], default=NOWHERE)
                places, nodes = self._sends.get(key, ([], []))
                before = bisect_right(places, furthest) - 1
                if before >= 0 and not self.edges[nodes[before]].get(node, 0) & (WR | DIRTY):
                    self._add(nodes[before], node, AFTER)

    def _processes(self) -> None:
        columns = self.context.columns
        last: dict[int, int] = {}
        for node, number in enumerate(self.operations):
            before = last.get(columns.process[number], NOBODY)
            if before != NOBODY and columns.returned[self.operations[before]] <= columns.call[number]:
                self._add(before, node, PROCESS)
            if columns.outcome[number] == OK:
                last[columns.process[number]] = node

    def components(self, mask: int) -> Iterator[list[int]]:
        """The strongly connected components of two nodes or more, over edges of these kinds."""
        for component in components(len(self.operations), self.neighbours(mask)):
            if len(component) > 1:
                yield component

    def neighbours(self, mask: int) -> list[list[int]]:
        """Successors over edges of these kinds."""
        return [[target for target, kinds in found.items() if kinds & mask] for found in self.edges]

    def reversed(self) -> list[dict[int, int]]:
        """Predecessors with the kinds of their edges."""
        backward: list[dict[int, int]] = [{} for _ in self.operations]
        for source, found in enumerate(self.edges):
            for target, kinds in found.items():
                backward[target][source] = kinds
        return backward

    def reach(self, mask: int) -> list[int]:
        """The latest call among each node and all that lead to it over edges of these kinds."""
        calls = self.context.columns.call
        reach = [calls[number] for number in self.operations]
        backward = [[source for source, kinds in found.items() if kinds & mask] for found in self.reversed()]
        for component in components(len(self.operations), backward):
            best = max(reach[node] for node in component)
            for node in component:
                best = max([best, *[reach[source] for source in backward[node]]])
            for node in component:
                reach[node] = best
        return reach

    def _add_writers(self, node: int, polled: Iterable[int], dirty: int) -> None:
        columns = self.context.columns
        for element in polled:
            writer = columns.writer[element]
            sender = self.node_of.get(writer, NOBODY)
            if sender != NOBODY:
                is_dirty = dirty and columns.flags[writer] & TRANSACTIONAL
                self._add(sender, node, DIRTY if is_dirty else WR)

    def path(self, start: int, goal: int, mask: int, needed: int) -> list[int] | None:
        """The shortest path over edges of these kinds, with at least one of the `needed` kinds unless that is 0."""
        first = (start, needed == 0)
        came: dict[tuple[int, bool], tuple[int, bool] | None] = {first: None}
        queue = deque([first])
        while queue:
            state = queue.popleft()
            node, satisfied = state
            if node == goal and satisfied and state != first:
                return _trace(came, state)
            self.steps.take(1 + len(self.edges[node]))
            for target, kinds in self.edges[node].items():
                following = (target, satisfied or bool(kinds & needed))
                if kinds & mask and following not in came:
                    came[following] = state
                    queue.append(following)
        return None

    def path_from_later(self, goal: int, mask: int, needed: int, backward: list[dict[int, int]]) -> list[int] | None:
        """The shortest path to `goal` from any node that was called after `goal` had returned."""
        calls, end = self.context.columns.call, self.context.columns.returned[self.operations[goal]]
        first = (goal, needed == 0)
        came: dict[tuple[int, bool], tuple[int, bool] | None] = {first: None}
        queue = deque([first])
        while queue:
            state = queue.popleft()
            node, satisfied = state
            if satisfied and calls[self.operations[node]] > end:
                return _trace(came, state)[::-1]
            self.steps.take(1 + len(backward[node]))
            for source, kinds in backward[node].items():
                following = (source, satisfied or bool(kinds & needed))
                if kinds & mask and following not in came:
                    came[following] = state
                    queue.append(following)
        return None


def _trace(came: dict[tuple[int, bool], tuple[int, bool] | None], state: tuple[int, bool]) -> list[int]:
    nodes = []
    step: tuple[int, bool] | None = state
    while step is not None:
        nodes.append(step[0])
        step = came[step]
    return nodes[::-1]
