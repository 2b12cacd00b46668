"""Why one operation comes before another: the one dependency between two of them that is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from raftlog.linearizability.checker.kafka.columns.columns import NOBODY, NOWHERE, OK, READ_UNCOMMITTED, TRANSACTIONAL
from raftlog.linearizability.checker.kafka.context import Context
from raftlog.linearizability.checker.kafka.cycles.neighbourhood import AFTER, DIRTY, PROCESS, REALTIME, WR, WW
from raftlog.linearizability.checker.kafka.report.findings import Example

_KIND_NAMES = {WW: "ww", WR: "wr", AFTER: "ww+wr", PROCESS: "process", REALTIME: "realtime", DIRTY: "wr"}
_PREFERRED = (WR, DIRTY, WW, AFTER, PROCESS, REALTIME)
_TOLD = 12  # steps of a cycle in words
_TIGHTENED = 32  # operations among which every pair is looked at


class Edge(NamedTuple):
    """One step of a cycle: `first` and `second` are the elements that show it, where there are any."""

    kind: int
    first: int = NOBODY
    second: int = NOBODY


def relate(context: Context, source: int, target: int, mask: int) -> Edge | None:
    """The most telling dependency of these kinds that orders `source` before `target`."""
    for kind in _PREFERRED:
        if mask & kind:
            edge = _FINDERS[kind](context, source, target)
            if edge is not None:
                return edge
    return None


def _sent_and_polled(context: Context, source: int, target: int) -> Edge | None:
    writer = context.columns.writer
    for element in context.columns.polled_by(target):
        if writer[element] == source:
            flags = context.columns.flags
            dirty = flags[source] & TRANSACTIONAL and flags[target] & READ_UNCOMMITTED
            return Edge(DIRTY if dirty else WR, element, element)
    return None


def _clean(context: Context, source: int, target: int) -> Edge | None:
    edge = _sent_and_polled(context, source, target)
    return edge if edge is not None and edge.kind == WR else None


def _dirty(context: Context, source: int, target: int) -> Edge | None:
    edge = _sent_and_polled(context, source, target)
    return edge if edge is not None and edge.kind == DIRTY else None


def _first_sends(context: Context, source: int) -> dict[int, int]:
    """Per key the element that an operation sent to the lowest place."""
    columns, position = context.columns, context.order.position
    first: dict[int, int] = {}
    for element in columns.sends_of(source):
        key = columns.element_key[element]
        if position[element] != NOWHERE and (key not in first or position[element] < position[first[key]]):
            first[key] = element
    return first


def _sent_before(context: Context, source: int, target: int) -> Edge | None:
    return _nearest(context, WW, _first_sends(context, source), context.columns.sends_of(target))


def _sent_before_polled(context: Context, source: int, target: int) -> Edge | None:
    writer = context.columns.writer
    others = [element for element in context.columns.polled_by(target) if writer[element] not in (source, target)]
    return _nearest(context, AFTER, _first_sends(context, source), others)


def _nearest(context: Context, kind: int, first: dict[int, int], elements: Sequence[int]) -> Edge | None:
    """Among the elements that lie behind the first ones of their keys, the one that lies closest behind."""
    columns, position = context.columns, context.order.position
    best: Edge | None = None
    gap = 0
    for element in elements:
        before = first.get(columns.element_key[element], NOBODY)
        if before == NOBODY or position[element] <= position[before]:
            continue
        if best is None or position[element] - position[before] < gap:
            best, gap = Edge(kind, before, element), position[element] - position[before]
    return best


def _same_process(context: Context, source: int, target: int) -> Edge | None:
    columns = context.columns
    if columns.process[source] != columns.process[target] or columns.outcome[source] != OK:
        return None
    if columns.returned[source] > columns.call[target] or columns.call[source] > columns.call[target]:
        return None
    return Edge(PROCESS)


def _was_over(context: Context, source: int, target: int) -> Edge | None:
    columns = context.columns
    over = columns.outcome[source] == OK and columns.returned[source] < columns.call[target]
    return Edge(REALTIME) if over else None


_FINDERS = {
    WR: _clean,
    DIRTY: _dirty,
    WW: _sent_before,
    AFTER: _sent_before_polled,
    PROCESS: _same_process,
    REALTIME: _was_over,
}


class Cycle(NamedTuple):
    """A simple cycle: `edges[i]` leads from `operations[i]` to the next, the last one back to the first."""

    operations: tuple[int, ...]
    edges: tuple[Edge, ...]

    @property
    def kinds(self) -> int:
        """The kinds of all its edges."""
        found = 0
        for edge in self.edges:
            found |= edge.kind
        return found

    def legal_if_dirty(self, context: Context) -> bool:
        """Whether it only needs a transaction whose uncommitted data was read before it read something itself."""
        count = len(self.edges)
        return any(
            self.edges[place].kind == DIRTY and self.edges[place - 1].kind & (WR | DIRTY) for place in range(count)
        )


def tighten(context: Context, operations: Sequence[int], mask: int, needed: Sequence[int]) -> Cycle | None:
    """The shortest cycle among these operations over edges of these kinds that has each of the `needed` kinds.

    All dependencies between any two of them count, not only those between neighbours, so the result is often shorter
    than the cycle that the operations were found on. Each of `needed` may stand for several kinds, as bits.
    """
    numbers = list(dict.fromkeys(operations))
    if len(numbers) > _TIGHTENED:
        return _as_found(context, numbers, mask, needed)
    edges: dict[int, list[tuple[int, Edge]]] = {}
    for source in numbers:
        edges[source] = []
        for target in numbers:
            if source != target:
                edges[source].extend((target, edge) for edge in _all_edges(context, (source, target), mask))
    best: Cycle | None = None
    for start in numbers:
        cycle = _shortest_through(edges, start, needed)
        if cycle is not None and (best is None or len(cycle.operations) < len(best.operations)):
            best = cycle
    return best if best is not None else _as_found(context, numbers, mask, needed)


def _all_edges(context: Context, pair: tuple[int, int], mask: int) -> list[Edge]:
    found = []
    for kind in _PREFERRED:
        if mask & kind:
            edge = _FINDERS[kind](context, *pair)
            if edge is not None:
                found.append(edge)
    return found


def _shortest_through(edges: dict[int, list[tuple[int, Edge]]], start: int, needed: Sequence[int]) -> Cycle | None:
    """The shortest way from `start` back to itself that has the needed kinds, if it meets nothing twice."""
    everything = (1 << len(needed)) - 1
    first = (start, 0)
    came: dict[tuple[int, int], tuple[tuple[int, int], Edge]] = {}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        for target, edge in edges[state[0]]:
            seen = state[1] | sum(1 << place for place, kind in enumerate(needed) if edge.kind & kind)
            if target == start and seen == everything:
                return _unroll(came, state, edge, first)
            following = (target, seen)
            if target != start and following not in came:
                came[following] = (state, edge)
                queue.append(following)
    return None


def _unroll(
    came: dict[tuple[int, int], tuple[tuple[int, int], Edge]],
    state: tuple[int, int],
    edge: Edge,
    first: tuple[int, int],
) -> Cycle | None:
    operations, taken = [state[0]], [edge]
    while state != first:
        state, edge = came[state]
        operations.append(state[0])
        taken.append(edge)
    if len(set(operations)) != len(operations):
        return None
    return Cycle(tuple(reversed(operations)), tuple(reversed(taken)))


def _as_found(context: Context, numbers: list[int], mask: int, needed: Sequence[int]) -> Cycle | None:
    wanted = 0
    for kind in needed:
        wanted |= kind
    edges = []
    for place, source in enumerate(numbers):
        target = numbers[(place + 1) % len(numbers)]
        edge = relate(context, source, target, mask & wanted) or relate(context, source, target, mask)
        if edge is None:
            return None
        edges.append(edge)
    cycle = Cycle(tuple(numbers), tuple(edges))
    return cycle if all(cycle.kinds & kind for kind in needed) else None


def tell_cycle(context: Context, cycle: Cycle) -> Example:
    """The cycle in words: who is who, why each comes before the next, and that this cannot be."""
    words, columns = context.words, context.columns
    names = {number: f"T{place + 1}" for place, number in enumerate(cycle.operations)}
    count = len(cycle.operations)
    told = list(range(count)) if count <= _TOLD else [*range(_TOLD - 1), count - 1]
    who = ", ".join(f"{names[cycle.operations[place]]} is {words.who(cycle.operations[place])}" for place in told)
    steps = []
    for place in told:
        source, target = cycle.operations[place], cycle.operations[(place + 1) % count]
        steps.append(_tell_edge(context, (source, target), (names[source], names[target]), cycle.edges[place]))
    if count > _TOLD:
        steps.insert(-1, f"… {count - _TOLD} more steps …")
    text = f"{who}. {'; '.join(steps)}: each comes before the next, and the last before the first."
    keys = [columns.element_key[edge.first] for edge in cycle.edges if edge.first != NOBODY]
    details = {
        "steps": [
            {"from": place, "to": (place + 1) % count, "kind": _KIND_NAMES[edge.kind]}
            for place, edge in enumerate(cycle.edges)
        ]
    }
    return Example(text, cycle.operations, words.key(keys[0]) if keys else None, details)


def _tell_edge(context: Context, pair: tuple[int, int], names: tuple[str, str], edge: Edge) -> str:
    words = context.words
    source, target = names
    if edge.kind in (WR, DIRTY):
        return f"{source} sent {words.element(edge.first)}, which {target} polled"
    if edge.kind == WW:
        return f"{source} sent {words.element(edge.first)} before {target}'s {words.element(edge.second)}"
    if edge.kind == AFTER:
        return f"{source} sent {words.element(edge.first)} before {words.element(edge.second)}, which {target} polled"
    if edge.kind == PROCESS:
        return f"{source} was over when the same process began {target}"
    return f"{source} was over {words.gap(*pair)} before {target} began"
