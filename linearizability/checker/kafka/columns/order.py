"""Each key's log as the history shows it: which values stand at which offsets, and in which dense order.

The log of a key is fed by all polls of any outcome, because a poller must never be given unsafe data, and by the
sends that must have committed: those of ok operations, and those of operations of unknown outcome of which at least
one value was seen by an ok poll. Offsets without a value (control records, aborted ones) are gaps that the dense
order leaves out.
"""

from __future__ import annotations

from array import array
from itertools import pairwise

from raftlog.linearizability.checker.kafka.columns.columns import (
    INFO,
    NOBODY,
    NOWHERE,
    OK,
    READ_UNCOMMITTED,
    TRANSACTIONAL,
    Columns,
)
from raftlog.linearizability.checker.kafka.columns.gather import (
    alike,
    ascending,
    chosen,
    counting,
    differing,
    known,
    owners,
    places_of,
    put_first,
    spread,
    starts_of,
    take,
    tally,
)

_IS_OK = bytes(outcome == OK for outcome in range(256))  # a table to translate outcomes with


class Order:
    """The version order of every key.

    `elements` lists the elements key by key in the order of their offsets; the place of an element in it is
    `position[element]` (NOWHERE without a known offset), so two places of one key differ by their dense distance.
    Where several values claim one offset the first one seen is listed and the others are in `conflicting`, with the
    place they claim. A value with several offsets stands at its first; `last_position` has its last.
    `doubtful` counts, before each place, the records that only readers of uncommitted data show to be there and whose
    transaction is not known to have committed: others may pass over them. It is empty where there are no such readers.
    """

    __slots__ = ("conflicting", "doubled", "doubtful", "elements", "key_start", "last_position", "position", "rivals")

    def __init__(self, columns: Columns) -> None:
        self.elements = array("i")
        self.key_start = array("i")
        self.position = array("i", [NOWHERE]) * len(columns.values)
        self.last_position: dict[int, int] = {}
        self.conflicting: dict[int, int] = {}
        self.rivals: dict[tuple[int, int], list[int]] = {}  # (key, offset) -> the values that claim it
        self.doubled: dict[int, list[int]] = {}  # element -> its offsets
        elements = differing(columns.offset, NOWHERE)
        elements = take(elements, ascending(take(columns.offset, elements)))
        elements = take(elements, ascending(take(columns.element_key, elements)))
        special = self._special(columns, elements)
        bounds = starts_of(tally(take(columns.element_key, elements), len(columns.keys.names)))
        for key, (first, after) in enumerate(pairwise(bounds)):
            self.key_start.append(len(self.elements))
            if key in special:
                self._unusual(columns, key, elements[first:after])
            else:
                self.elements += elements[first:after]
                places = counting(range(self.key_start[key], len(self.elements)))
                put_first(self.position, elements[first:after], places)
        self.key_start.append(len(self.elements))
        self.doubtful = array("i")
        if columns.any_flag(READ_UNCOMMITTED):
            self._doubt(columns)

    @staticmethod
    def _special(columns: Columns, elements: array[int]) -> set[int]:
        """The keys in which a value has several offsets, or an offset several values; elements are in order."""
        found = {columns.element_key[element] for element in columns.extra_offsets}
        offsets = take(columns.offset, elements)
        for place in alike(offsets[1:], offsets[:-1]):
            key = columns.element_key[elements[place]]
            if key == columns.element_key[elements[place + 1]]:
                found.add(key)
        return found

    def _doubt(self, columns: Columns) -> None:
        seen = bytearray(len(columns.values))
        for number, flags in enumerate(columns.flags):
            if not flags & READ_UNCOMMITTED:
                for element in columns.polled_by(number):
                    seen[element] = 1
        count = 0
        for element in self.elements:
            self.doubtful.append(count)
            writer = columns.writer[element]
            if writer != NOBODY and not seen[element] and not columns.committed[writer]:
                count += columns.flags[writer] & TRANSACTIONAL
        self.doubtful.append(count)

    def distance(self, earlier: int, later: int, dirty: int) -> int:
        """How many records a reader goes forward from one place of a key to another; `dirty` readers see all."""
        distance = later - earlier
        if distance > 1 and self.doubtful and not dirty:
            distance -= self.doubtful[later] - self.doubtful[earlier + 1]
        return distance

    def _unusual(self, columns: Columns, key: int, elements: array[int]) -> None:
        """A key in which offsets have several values or values several offsets."""
        log: dict[int, list[int]] = {}
        for element in elements:
            offsets = [columns.offset[element], *columns.extra_offsets.get(element, ())]
            if len(offsets) > 1:
                self.doubled[element] = sorted(offsets)
            for offset in offsets:
                log.setdefault(offset, []).append(element)
        for offset in sorted(log):
            claimants = log[offset]
            if len(claimants) > 1:
                self.rivals[key, offset] = sorted(claimants)
            place = len(self.elements)
            fresh = [element for element in sorted(claimants) if self.position[element] == NOWHERE]
            self.elements.append(fresh[0] if fresh else min(claimants))
            for number, element in enumerate(fresh):
                if element in self.conflicting:
                    continue
                if number == 0:
                    self.position[element] = place
                else:
                    self.conflicting[element] = place
            for element in claimants:
                if element in self.doubled:
                    self.last_position[element] = place

    def first(self, element: int) -> int:
        """The first place that the element stands at or claims; NOWHERE without a known offset."""
        place = self.position[element]
        return self.conflicting.get(element, NOWHERE) if place == NOWHERE else place

    def last(self, element: int) -> int:
        """The last place of the element."""
        return self.last_position.get(element, self.first(element))


def settle(columns: Columns, by_returned: range | array[int]) -> None:
    """Find who read each element first and which operations must have committed, and let their offsets count."""
    columns.first_reader = columns.first_clean_reader = _first_readers(columns, by_returned, 0)
    if columns.any_flag(READ_UNCOMMITTED):
        columns.first_clean_reader = _first_readers(columns, by_returned, READ_UNCOMMITTED)
    columns.read_ok = known(columns.first_reader)
    committed = columns.committed = columns.outcome.translate(_IS_OK)
    for number in places_of(INFO, columns.outcome):
        for element in columns.sends_of(number):
            if columns.sure_reader(element) != NOBODY and columns.writer[element] == number:
                committed[number] = 1
                break
    for element, offset in columns.unsure:
        writer = columns.writer[element]
        if writer == NOBODY or not committed[writer]:
            continue
        if columns.offset[element] == NOWHERE:
            columns.offset[element] = offset
        if columns.offset[element] != offset:
            columns.extra_offsets.setdefault(element, set()).add(offset)


def _first_readers(columns: Columns, by_returned: range | array[int], without: int) -> array[int]:
    """The first ok operation that polled each element, among those that have none of these flags."""
    readers = array("i", [NOBODY]) * len(columns.values)
    starts = take(columns.segment_row, columns.segment_start)
    counts = columns.outcome.translate(_IS_OK)
    if without:
        counts = bytearray(done and not flag & without for done, flag in zip(counts, columns.flags, strict=True))
    operations, polled = owners(starts), columns.polled
    if not isinstance(by_returned, range):
        rows = spread(starts, by_returned)
        operations, polled = take(operations, rows), take(polled, rows)
    if 0 in counts:
        marks = take(array("B", counts), operations)
        operations, polled = chosen(operations, marks), chosen(polled, marks)
    put_first(readers, polled, operations)
    return readers
