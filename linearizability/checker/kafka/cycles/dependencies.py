"""Who depends on whom, over the whole history, in arrays: where cycles are, before anybody looks at one closely.

There are two graphs over the same operations, one of write-read dependencies only (who polled what somebody sent), one
with the write-write order inferred from offsets too (each send of a key before those behind it). For both it finds the
strongly connected components and the operations that contradict real time.

Real time costs no edges. Let the *reach* of an operation be the latest call among itself and everything it depends
on. If it lies beyond the operation's own return, then something it depends on began after it was over: a cycle with
one real-time edge. If no operation has that, there is no cycle with real-time edges, nor with the order of processes,
which is a part of real time: every edge leads from a lower or equal reach to a higher one, a real-time edge strictly.

Only operations that can lie inside a cycle of dependencies are nodes: with two sends, or a send and a poll. Single
sends hang in the order of their key between nodes, single polls at its end, and both get their reach at the end.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from raftlog.linearizability.checker.kafka.columns.columns import NEVER, NOBODY, NOWHERE, OK, TXN, Columns
from raftlog.linearizability.checker.kafka.columns.gather import (
    NOTHING,
    alike,
    ascending,
    below,
    chosen,
    clear,
    counting,
    differing,
    greater,
    greatest,
    not_above,
    owners,
    peaks,
    peaks_of,
    put_first,
    shifted,
    sizes,
    spread,
    starts_of,
    take,
    tally,
)
from raftlog.linearizability.checker.kafka.context import Context
from raftlog.linearizability.checker.kafka.cycles.components import components

LONG_AGO = -NEVER
_ROUNDS = 64  # over all nodes, before they are looked at one by one


@dataclass(slots=True)
class Suspects:
    """Where the cycles of one graph are.

    `components` are operations that depend on each other in a circle. `late` are ok operations whose reach lies at or
    beyond their return: strictly beyond is a cycle with real time; equal stamps may be one with a process's order, if
    the process went on at the very same stamp.
    """

    reach: array[int]
    context: Context
    components: list[list[int]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def regions(self) -> list[tuple[int, int]]:
        """Closed intervals of reach, apart from each other: each cycle with real time or processes is inside one."""
        spans = sorted(self._spans)
        merged: list[tuple[int, int]] = []
        for start, end in spans:
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    _spans: list[tuple[int, int]] = field(default_factory=list)
    _followed: bytearray | None = None

    def note_late(self, columns: Columns, number: int) -> None:
        """Take the operation up in `late` if it is; with equal stamps only if its process went on at that moment."""
        reach, end = self.reach[number], columns.returned[number]
        if reach == end and self._followed is None:
            self._followed = _followed(self.context)
        late = reach > end or (reach == end and self._followed is not None and self._followed[number])
        if late and columns.outcome[number] == OK:
            self.late.append(number)
            self._spans.append((end, reach))


def suspects_with_write_order(context: Context) -> Suspects:
    """The graph of write-read dependencies and the write-write order that offsets show."""
    return _Inferred(context).suspects()


def suspects_without_write_order(context: Context) -> Suspects:
    """The graph of write-read dependencies alone: nothing in it is inferred."""
    return _Observed(context).suspects()


def _followed(context: Context) -> bytearray:
    """For each operation whether the next one of its process was called at the stamp at which it returned."""
    columns = context.columns
    followed = bytearray(len(columns))
    following = [LONG_AGO] * len(columns.processes)
    process_of, calls, returned = columns.process, columns.call, columns.returned
    for number in reversed(context.by_call):
        process = process_of[number]
        if returned[number] == following[process]:
            followed[number] = 1
        following[process] = calls[number]
    return followed


class _Graph:
    """Nodes in the order of their calls, with their predecessors and the latest call each is known to follow."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.columns = context.columns
        self.nodes = array("i")
        self.place_of = array("i", [NOBODY]) * len(context.columns)  # operation -> place among the nodes
        self.reach = array("q", context.columns.call)
        self.starts = array("i", [0])
        self.sources = array("i")  # places of predecessors
        self.circles: list[list[int]] = []

    def _connect(self, place: int, before: set[int]) -> None:
        """Note a node's predecessors, given as operations."""
        before.discard(NOBODY)
        before.discard(self.nodes[place])
        for number in before:
            self.sources.append(self.place_of[number])
        self.starts.append(len(self.sources))

    def _spread(self) -> None:
        """Give every node the reach of what it follows, and find the components.

        Every cycle has an edge from a later call to an earlier one, so it lies within a stretch of nodes that such
        edges span without a break. Outside such stretches the order of calls is good enough.
        """
        nodes, starts, sources, reach = self.nodes, self.starts, self.sources, self.reach
        count = len(nodes)
        stretch_end = 0
        place = 0
        furthest = self._furthest()
        while place < count:
            stretch_end = max(place, furthest[place]) if place in furthest else place
            end = place
            while end < stretch_end:
                end += 1
                stretch_end = max(stretch_end, furthest.get(end, 0))
            if end > place:
                self._spread_stretch(place, end + 1)
                place = end + 1
                continue
            best = reach[nodes[place]]
            for source in sources[starts[place] : starts[place + 1]]:
                if reach[nodes[source]] > best:
                    best = reach[nodes[source]]
            reach[nodes[place]] = best
            place += 1

    def _furthest(self) -> dict[int, int]:
        """Place of a node -> the furthest later place that has an edge back to it."""
        starts, sources = self.starts, self.sources
        found = {}
        for place in range(len(self.nodes)):
            first, after = starts[place], starts[place + 1]
            if first != after:
                last = max(sources[first:after])
                if last > place:
                    found[place] = last
        return found

    def _spread_stretch(self, first: int, after: int) -> None:
        nodes, starts, sources, reach = self.nodes, self.starts, self.sources, self.reach
        inside: list[Sequence[int]] = []
        for place in range(first, after):
            best = reach[nodes[place]]
            near = []
            for source in sources[starts[place] : starts[place + 1]]:
                if source >= first:
                    near.append(source - first)
                elif reach[nodes[source]] > best:
                    best = reach[nodes[source]]
            reach[nodes[place]] = best
            inside.append(near)
        for component in components(after - first, inside):
            best = max([reach[nodes[first + near]] for member in component for near in (member, *inside[member])])
            for member in component:
                reach[nodes[first + member]] = best
            if len(component) > 1:
                self.circles.append([nodes[first + member] for member in component])


class _Inferred(_Graph):
    """With the write order. Along each key only the nearest node before a place matters, the rest follows from it."""

    def suspects(self) -> Suspects:
        """Build, spread, and look for what is late."""
        self._choose_nodes()
        order = self.context.order
        self.before = array("i", [NOBODY]) * len(order.elements)  # last node at or before each place
        self.between = array("q", [LONG_AGO]) * len(order.elements)  # latest call of single sends since that node
        if self.nodes:
            self._lay_out()
            if not self._spread_at_once():
                for place, number in enumerate(self.nodes):
                    self._connect(place, self._predecessors(number))
                self._spread()
        suspects = Suspects(self.reach, self.context, self.circles)
        self._finish(suspects)
        return suspects

    def _choose_nodes(self) -> None:
        columns, by_call = self.columns, self.context.by_call
        sends, segments = sizes(columns.send_start), sizes(columns.segment_start)
        none = array("i", bytes(4 * len(sends)))
        sending = below(none, sends)
        polling = take(sending, below(none[: len(sending)], take(segments, sending)))
        found = below(shifted(none, 1), sends) + polling
        if found:
            marks = array("B", bytes(len(sends)))
            put_first(marks, found, array("B", b"\1") * len(found))
            numbers = counting(by_call) if isinstance(by_call, range) else by_call
            self.nodes = chosen(numbers, take(marks, numbers))
            put_first(self.place_of, self.nodes, counting(range(len(self.nodes))))

    def _lay_out(self) -> None:
        context, order, call = self.context, self.context.order, self.columns.call
        writers = take(self.columns.writer, order.elements)
        nodes = take(self.place_of + array("i", [NOBODY]), writers)
        single = alike(nodes, NOBODY)
        latest = counting(range(len(nodes)))  # the place of the last node
        put_first(latest, single, array("i", [NOWHERE]) * len(single))
        latest = peaks(latest, order.key_start)
        self.before = take(writers + array("i", [NOBODY]), latest)
        # Calls as their places in the order of calls, from 1 on, so that 0 stands for none and for nodes.
        by_call = context.by_call
        called = counting(range(1, len(call) + 1))
        if not isinstance(by_call, range):
            put_first(called, by_call, called[:])
            call = take(call, by_call)
        called = take(take(called + array("i", [0]), writers), single)
        since = array("i", bytes(4 * len(nodes)))
        put_first(since, single, called)
        stretches = greater(latest, take(order.key_start, owners(order.key_start)))
        self.between = take(array("q", [LONG_AGO]) + call, peaks_of(since, stretches))

    def _spread_at_once(self) -> bool:
        """Give all nodes the reach of what they follow, round by round over whole columns.

        False, with nothing done, if some follow each other in a circle, if that cannot be excluded in a few rounds, or
        if records without a place were polled: then nodes are to be looked at one by one.
        """
        if any(map(self._loose, self.context.segments.odd)):
            return False
        edges = self._edges()
        if edges is None:
            return False
        starts, sources, since = edges
        reach = greater(take(self.reach, self.nodes), since)
        for _ in range(_ROUNDS):
            known = reach
            reach = greater(known, greatest(take(known + array("q", [LONG_AGO]), sources), starts))
            if reach == known:
                break
        else:
            return False
        if _circular(reach, sources, owners(starts)):
            return False
        put_first(self.reach, self.nodes, reach)
        return True

    def _edges(self) -> tuple[array[int], array[int], array[int]] | None:
        """Where the edges of each node begin, the places of the nodes that it follows, and the latest single sends.

        None if a node follows a single send that follows it.
        """
        places, targets = self._places_before()
        starts = starts_of(tally(targets, len(self.nodes)))
        followed = take(self.before + array("i", [NOBODY]), places)
        since = take(self.between + array("q", [LONG_AGO]), places)
        own = alike(followed, take(self.nodes, targets))
        if below(array("q", [LONG_AGO]) * len(own), take(since, own)):
            return None
        sources = take(self.place_of + array("i", [NOBODY]), followed)
        put_first(sources, own, array("i", [NOBODY]) * len(own))
        return starts, sources, greatest(since, starts)

    def _places_before(self) -> tuple[array[int], array[int]]:
        """The places right before the sends of each node and the last ones that it polled, NOWHERE for none.

        With each the place of the node, in the order of which they come.
        """
        columns, order, nodes = self.columns, self.context.order, self.nodes
        sent = take(columns.send_element, spread(columns.send_start, nodes))
        places = take(order.position, sent)
        first = not_above(places, take(order.key_start, take(columns.element_key, sent)))
        places = shifted(places, -1)
        put_first(places, first, array("i", [NOWHERE]) * len(first))
        places += take(self.context.segments.last_place, spread(columns.segment_start, nodes))
        targets = array("i")
        for starts in (columns.send_start, columns.segment_start):
            targets += owners(starts_of(take(sizes(starts), nodes)))
        rows = ascending(targets)
        return take(places, rows), take(targets, rows)

    def _predecessors(self, number: int) -> set[int]:
        """The nodes right before the operation; its reach takes in the single sends since them."""
        columns, order = self.columns, self.context.order
        before, between = self.before, self.between
        last_place, odd = self.context.segments.last_place, self.context.segments.odd
        places = []
        found: set[int] = set()
        latest = LONG_AGO
        for row in range(columns.send_start[number], columns.send_start[number + 1]):
            element = columns.send_element[row]
            place = order.position[element]
            if place > order.key_start[columns.element_key[element]]:
                places.append(place - 1)
        for segment in range(columns.segment_start[number], columns.segment_start[number + 1]):
            place = last_place[segment]
            if place != NOWHERE:
                places.append(place)
            if segment in odd:
                loose = self._loose(segment)
                found.update(writer for writer in loose if self.place_of[writer] != NOBODY)
                latest = max([latest, *[columns.call[writer] for writer in loose]])
        circle = False
        for place in places:
            source, since = before[place], between[place]
            found.add(source)
            if since > LONG_AGO:
                circle = circle or source == number
                if since > latest:
                    latest = since
        if latest > self.reach[number]:
            self.reach[number] = latest
        if circle:
            self.circles.append([number])  # through a single send between two places of its own
        return found

    def _loose(self, segment: int) -> list[int]:
        """The senders of what an odd segment read that has no place."""
        columns, position = self.columns, self.context.order.position
        read = columns.polled[columns.segment_row[segment] : columns.segment_row[segment + 1]]
        senders = [columns.writer[element] for element in read if position[element] == NOWHERE]
        return [sender for sender in senders if sender != NOBODY]

    def _finish(self, suspects: Suspects) -> None:
        """Give single sends and polls their reach, and note all that is late."""
        columns, order, reach = self.columns, self.context.order, self.reach
        writers = take(columns.writer, order.elements)  # with NOBODY for a number what is put at the end is taken
        upto = peaks(take(reach + array("q", [LONG_AGO]), writers), order.key_start)
        self.between = upto  # from here on: the greatest reach at or before each place
        nodes = take(self.place_of + array("i", [0]), writers)
        single = alike(nodes, NOBODY)
        numbers, reached = take(writers, single), take(upto, single)
        put_first(reach, numbers[::-1], reached[::-1])
        for place in not_above(take(columns.returned, numbers), reached):
            reach[numbers[place]] = reached[place]  # a value may stand at several places
            suspects.note_late(columns, numbers[place])
        for place in not_above(take(columns.returned, self.nodes), take(reach, self.nodes)):
            suspects.note_late(columns, self.nodes[place])
        if columns.segment_key:
            self._finish_polls(suspects)

    def _finish_polls(self, suspects: Suspects) -> None:
        columns, starts = self.columns, self.columns.segment_start
        upto = take(self.between + array("q", [LONG_AGO]), self.context.segments.last_place)
        for segment in self.context.segments.odd:
            upto[segment] = self._reach_of_odd(segment)
        best = greatest(upto, starts)
        put_first(best, self.nodes, array("q", [NOTHING]) * len(self.nodes))
        self.reach[:] = greater(self.reach, best)
        for number in not_above(columns.returned, best):
            if starts[number] != starts[number + 1] and self.place_of[number] == NOBODY:
                suspects.note_late(columns, number)

    def _reach_of_odd(self, segment: int) -> int:
        place = self.context.segments.last_place[segment]
        best = self.between[place] if place != NOWHERE else LONG_AGO
        return max([best, *[self.reach[writer] for writer in self._loose(segment)]])


def _circular(reach: array[int], sources: array[int], targets: array[int]) -> bool:
    """Whether edges may lead in a circle: those between equal reaches are taken away from their beginnings on."""
    if not reach:
        return False
    linked = differing(sources, NOBODY)
    sources, targets = take(sources, linked), take(targets, linked)
    level = alike(take(reach, sources), take(reach, targets))
    for _ in range(_ROUNDS):
        if not level:
            return False
        sources, targets = take(sources, level), take(targets, level)
        begins = bytearray(b"\1") * len(reach)
        clear(begins, targets)
        level = alike(take(array("B", begins), sources), array("B", bytes(len(sources))))
        if len(level) == len(sources):
            return True
    return True


class _Observed(_Graph):
    """Without the write order: a poll follows the senders of exactly what it returned."""

    def suspects(self) -> Suspects:
        """Build, spread, and look for what is late."""
        columns = self.columns
        sends, segments, function = columns.send_start, columns.segment_start, columns.function
        for number in self.context.by_call:
            if function[number] > TXN or sends[number] == sends[number + 1]:
                continue
            if segments[number] != segments[number + 1]:
                self.place_of[number] = len(self.nodes)
                self.nodes.append(number)
        for place, number in enumerate(self.nodes):
            self._connect(place, self._predecessors(number))
        self._spread()
        suspects = Suspects(self.reach, self.context, self.circles)
        for number in self.nodes:
            suspects.note_late(columns, number)
        for number in self._only_polls():
            self.reach[number] = max(self.reach[number], self._latest(number))
            suspects.note_late(columns, number)
        return suspects

    def _only_polls(self) -> Iterator[int]:
        columns = self.columns
        for number in range(len(columns)):
            polls = columns.segment_start[number] != columns.segment_start[number + 1]
            if polls and self.place_of[number] == NOBODY:
                yield number

    def _latest(self, number: int) -> int:
        writer, reach = self.columns.writer, self.reach
        senders = {writer[element] for element in self.columns.polled_by(number)}
        senders.discard(NOBODY)
        return max([reach[sender] for sender in senders], default=LONG_AGO)

    def _predecessors(self, number: int) -> set[int]:
        columns = self.columns
        found = set()
        for element in columns.polled_by(number):
            sender = columns.writer[element]
            if sender in (NOBODY, number):
                continue
            if self.place_of[sender] != NOBODY:
                found.add(sender)
            elif columns.call[sender] > self.reach[number]:
                self.reach[number] = columns.call[sender]
        return found
