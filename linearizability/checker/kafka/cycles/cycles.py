"""Cycles of dependencies: which classes there are, and the shortest of each.

The classes are G0 and G1c with their process and real-time forms; the shortest cycle of each is looked for where
`dependencies` says that there is one.

Cycles that need the inferred write order are always allowed: Kafka's transactions do not isolate writes. Cycles of
write-read dependencies alone, with or without process and real-time order, are errors, unless a transaction's
uncommitted data was read at read_uncommitted.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from raftlog.linearizability.checker.kafka.columns.columns import READ_UNCOMMITTED, TXN
from raftlog.linearizability.checker.kafka.context import Context, allowed_if
from raftlog.linearizability.checker.kafka.cycles.dependencies import (
    Suspects,
    suspects_with_write_order,
    suspects_without_write_order,
)
from raftlog.linearizability.checker.kafka.cycles.neighbourhood import (
    AFTER,
    DIRTY,
    PROCESS,
    REALTIME,
    WR,
    WW,
    Neighbourhood,
    OutOfSteps,
    Steps,
)
from raftlog.linearizability.checker.kafka.cycles.relations import Cycle, tell_cycle, tighten
from raftlog.linearizability.checker.kafka.report.findings import Example, Judgement

_READS = WR | DIRTY | AFTER
_LARGEST_REGION = 100_000  # operations; what is larger is not looked into
_SEARCHES_PER_COMPONENT = 8  # how many edges or late operations of one place are followed
_MOST_TIGHTENED = 1_000  # steps that tightening a cycle takes at most, long ones being left as they are
_EXAMPLES_WANTED = 64  # after that many cycles of one class the rest are only counted


@dataclass(frozen=True, slots=True)
class _Class:
    """One class of cycles: the edges it may have, and the kinds of which it must have at least one each."""

    name: str
    mask: int
    needed: tuple[int, ...] = ()


def _classes(observed: bool) -> tuple[_Class, ...]:
    if observed:
        reads = WR | DIRTY
        return (
            _Class("G1c", reads, (reads,)),
            _Class("G1c-process", reads | PROCESS, (reads, PROCESS)),
            _Class("G1c-realtime", reads, (reads,)),
        )
    return (
        _Class("G0", WW),
        _Class("G1c", WW | _READS, (_READS,)),
        _Class("G0-process", WW | PROCESS, (WW, PROCESS)),
        _Class("G1c-process", WW | _READS | PROCESS, (_READS, PROCESS)),
        _Class("G0-realtime", WW),
        _Class("G1c-realtime", WW | _READS, (_READS,)),
    )


def check_cycles(context: Context) -> None:
    """Find the cycles of both graphs. What the budget of steps does not allow is reported as existing."""
    inferred = suspects_with_write_order(context)
    if not inferred.components and not inferred.late:
        return
    observed = suspects_without_write_order(context)
    if observed.components or observed.late:
        _Search(context, observed, True).run()
    _Search(context, inferred, False).run()


class _Search:
    """The search in one graph."""

    def __init__(self, context: Context, suspects: Suspects, observed: bool) -> None:
        self.context = context
        self.suspects = suspects
        self.observed = observed
        self.steps = Steps(context.options.cycle_steps, context.meter)
        self.classes = {one.name: one for one in _classes(observed)}
        self.found: dict[str, int] = {}

    def run(self) -> None:
        """Components first, then the regions of time, each from the smallest on."""
        for component in sorted(self.suspects.components, key=len):
            try:
                if len(component) > _LARGEST_REGION:
                    raise OutOfSteps
                self._component(component)
            except OutOfSteps:
                self._left("PL-2-cycle-exists", component, component)
        regions = sorted(self._regions(), key=lambda region: len(region[0]))
        for members, late in regions:
            try:
                if len(members) > _LARGEST_REGION:
                    raise OutOfSteps
                self._region(members, late)
            except OutOfSteps:
                reach, returned = self.suspects.reach, self.context.columns.returned
                self._left("strong-PL-2-cycle-exists", [one for one in late if reach[one] > returned[one]], members)

    def _left(self, name: str, certain: list[int], members: list[int]) -> None:
        """Something that was not looked into, with the operations that are certainly on a cycle.

        In the graph without inferred writes that is an error, unless reads of uncommitted data may excuse the cycle.
        """
        flags, findings, count = self.context.columns.flags, self.context.findings, len(certain)
        if not self.observed:
            if count:
                findings.add(name.replace("PL-2", "PL-1"), Judgement.ALLOWED, count, _tell_left, count)
                findings.add(name, Judgement.ALLOWED, count, _tell_left, count)
        elif not count or any(flags[number] & READ_UNCOMMITTED for number in members):
            findings.add("cycle-search-timeout", Judgement.UNDECIDED, len(members), _tell_undecided, len(members))
        else:
            findings.add(name, Judgement.ERROR, count, _tell_left, count)

    # Cycles of dependencies alone

    def _component(self, component: list[int]) -> None:
        operations = component if len(component) > 1 else self._with_single_sends(component[0])
        nearby = Neighbourhood(self.context, operations, self.steps)
        if self.observed:
            for part in nearby.components(WR):
                self._cycle_in(nearby, part, _Class("G1c", WR, (WR,)))
            if any(kinds & DIRTY for found in nearby.edges for kinds in found.values()):
                for part in nearby.components(WR | DIRTY):
                    self._cycle_in(nearby, part, self.classes["G1c"])
            return
        for part in nearby.components(WW):
            self._cycle_in(nearby, part, self.classes["G0"])
        for part in nearby.components(WW | _READS):
            self._cycle_in(nearby, part, self.classes["G1c"])

    def _with_single_sends(self, number: int) -> list[int]:
        """An operation and the others' sends between its own, or between its own and what it polled."""
        columns, order = self.context.columns, self.context.order
        own: dict[int, list[int]] = {}
        for element in [*columns.sends_of(number), *columns.polled_by(number)]:
            if order.position[element] >= 0:
                own.setdefault(columns.element_key[element], []).append(order.position[element])
        found = {number: None}
        for places in own.values():
            for place in range(min(places), max(places) + 1):
                self.steps.take(1)
                writer = columns.writer[order.elements[place]]
                if writer >= 0:
                    found[writer] = None
                if len(found) > _SEARCHES_PER_COMPONENT:
                    break
        return list(found)

    def _cycle_in(self, nearby: Neighbourhood, part: list[int], wanted: _Class) -> None:
        """Add the shortest cycle of the class found in one component, if there is one."""
        inside = set(part)
        needed = wanted.needed[-1] if wanted.needed else wanted.mask
        tried = 0
        best: Cycle | None = None
        for source in sorted(part):
            for target, kinds in nearby.edges[source].items():
                if not kinds & needed or target not in inside or tried >= _SEARCHES_PER_COMPONENT:
                    continue
                tried += 1
                rest = wanted.needed[0] if len(wanted.needed) > 1 and not kinds & wanted.needed[0] else 0
                path = nearby.path(target, source, wanted.mask, rest)
                if path is None:
                    continue
                cycle = self._tighten(nearby, path, wanted.mask, wanted.needed)
                if cycle is not None and (best is None or len(cycle.operations) < len(best.operations)):
                    best = cycle
        if best is not None:
            self._add(wanted.name, best)

    def _tighten(self, nearby: Neighbourhood, path: list[int], mask: int, needed: tuple[int, ...]) -> Cycle | None:
        operations = [nearby.operations[node] for node in path]
        self.steps.take(min(len(operations) ** 2, _MOST_TIGHTENED))
        return tighten(self.context, operations, mask, needed)

    def _add(self, name: str, cycle: Cycle) -> None:
        if self.observed:
            judgement = allowed_if(cycle.legal_if_dirty(self.context))
        elif not cycle.kinds & (WW | AFTER):
            return  # found in the graph without inferred writes too
        else:
            judgement = Judgement.ALLOWED
        weight = 1 / len(cycle.operations)
        self.found[name] = self.found.get(name, 0) + 1
        self.context.findings.add(name, judgement, weight, tell_cycle, self.context, cycle)

    # Cycles with the order of processes and of time

    def _regions(self) -> list[tuple[list[int], list[int]]]:
        """(all operations, late operations) of each stretch of reach, and the components with nobody late."""
        regions = self.suspects.regions()
        if not regions:
            return []
        starts = [start for start, _ in regions]
        reach, function = self.suspects.reach, self.context.columns.function
        members: list[list[int]] = [[] for _ in regions]
        for number in range(len(reach)):
            if function[number] <= TXN:
                place = bisect_right(starts, reach[number]) - 1
                if place >= 0 and reach[number] <= regions[place][1]:
                    members[place].append(number)
        late: list[list[int]] = [[] for _ in regions]
        for number in self.suspects.late:
            late[bisect_right(starts, reach[number]) - 1].append(number)
        return list(zip(members, late, strict=True))

    def _region(self, members: list[int], late: list[int]) -> None:
        nearby = Neighbourhood(self.context, members, self.steps)
        before: set[int] = set()
        for wanted in self._realtime_classes(nearby):
            now = self._late_in(nearby, wanted.mask, late)
            self._realtime(nearby, wanted, [node for node in now if node not in before])
            before |= set(now)
        for name in ("G0-process", "G1c-process"):
            if name in self.classes:
                for part in nearby.components(self.classes[name].mask):
                    self._cycle_in(nearby, part, self.classes[name])

    def _realtime_classes(self, nearby: Neighbourhood) -> list[_Class]:
        """From fewer kinds of edges to more, so that an operation is told with the fewest it needs."""
        if not self.observed:
            return [self.classes["G0-realtime"], self.classes["G1c-realtime"]]
        found = [_Class("G1c-realtime", WR, (WR,))]
        if any(kinds & DIRTY for successors in nearby.edges for kinds in successors.values()):
            found.append(self.classes["G1c-realtime"])
        return found

    def _late_in(self, nearby: Neighbourhood, mask: int, late: list[int]) -> list[int]:
        """The late operations that are late over edges of these kinds alone, the latest first."""
        self.steps.take(sum(map(len, nearby.edges)))
        reach, ends = nearby.reach(mask), self.context.columns.returned
        nodes = [nearby.node_of[number] for number in late]
        found = [node for node in nodes if reach[node] > ends[nearby.operations[node]]]
        return sorted(found, key=lambda node: ends[nearby.operations[node]] - reach[node])

    def _realtime(self, nearby: Neighbourhood, wanted: _Class, late: list[int]) -> None:
        if not late:
            return
        backward = nearby.reversed()
        told: set[frozenset[int]] = set()
        for place, node in enumerate(late):
            if place >= _EXAMPLES_WANTED:
                self._count(wanted.name, len(late) - place)
                return
            path = nearby.path_from_later(node, wanted.mask, wanted.needed[0] if wanted.needed else 0, backward)
            if path is None:
                continue
            cycle = self._tighten(nearby, path, wanted.mask | REALTIME, (*wanted.needed, REALTIME))
            if cycle is not None and frozenset(cycle.operations) not in told:
                told.add(frozenset(cycle.operations))
                self._add(wanted.name, cycle)

    def _count(self, name: str, count: int) -> None:
        if self.found.get(name):
            judgement = Judgement.ERROR if self.observed else Judgement.ALLOWED
            if self.context.findings.holds(name, judgement):
                self.context.findings.more(name, judgement, count)


def _tell_undecided(count: int) -> Example:
    return Example(f"The steps for searching cycles ran out before {count:,} suspicious operations were looked at.")


def _tell_left(count: int) -> Example:
    return Example(f"{count} operations lie on such cycles, or contradict real time through them.")
