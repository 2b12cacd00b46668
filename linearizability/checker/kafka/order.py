"""Each key's log as the history shows it: which values stand at which offsets, and in which dense order.

Knows: which operations must have committed, the version order of every key, offsets with several values, values with
several offsets. Refuses to know: who read what when.

The log of a key is fed by all polls of any outcome, because a poller must never be given unsafe data, and by the
sends that must have committed: those of ok operations, and those of operations of unknown outcome of which at least
one value was seen by an ok poll. Offsets without a value (control records, aborted ones) are gaps that the dense
order leaves out.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from raftlog.linearizability.checker.kafka.columns import (
    INFO,
    NOBODY,
    NOWHERE,
    OK,
    READ_UNCOMMITTED,
    TRANSACTIONAL,
    Columns,
)
from raftlog.linearizability.checker.kafka.gather import chosen, owners, put_first, take


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
        members: list[list[int]] = [[] for _ in columns.keys.names]
        offsets = columns.offset
        for element, key in enumerate(columns.element_key):
            if offsets[element] != NOWHERE:
                members[key].append(element)
        special = {columns.element_key[element] for element in columns.extra_offsets}
        for key, elements in enumerate(members):
            self.key_start.append(len(self.elements))
            elements.sort(key=offsets.__getitem__)
            ordered = [offsets[element] for element in elements]
            if key in special or len(set(ordered)) != len(ordered):
                self._unusual(columns, key, elements)
            else:
                first = len(self.elements)
                self.elements.extend(elements)
                for place, element in enumerate(elements, first):
                    self.position[element] = place
            elements.clear()
        self.key_start.append(len(self.elements))
        self.doubtful = array("i")
        if any(map(READ_UNCOMMITTED.__and__, columns.flags)):
            self._doubt(columns)

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

    def _unusual(self, columns: Columns, key: int, elements: list[int]) -> None:
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


def settle(columns: Columns, by_returned: Sequence[int]) -> None:
    """Find who read each element first and which operations must have committed, and let their offsets count."""
    columns.first_reader = columns.first_clean_reader = _first_readers(columns, by_returned, 0)
    if any(map(READ_UNCOMMITTED.__and__, columns.flags)):
        columns.first_clean_reader = _first_readers(columns, by_returned, READ_UNCOMMITTED)
    columns.read_ok = bytearray(map(NOBODY.__lt__, columns.first_reader))
    committed = columns.committed = bytearray(map(OK.__eq__, columns.outcome))
    number = columns.outcome.find(INFO)
    while number >= 0:
        for element in columns.sends_of(number):
            if columns.sure_reader(element) != NOBODY and columns.writer[element] == number:
                committed[number] = 1
                break
        number = columns.outcome.find(INFO, number + 1)
    for element, offset in columns.unsure:
        writer = columns.writer[element]
        if writer == NOBODY or not committed[writer]:
            continue
        if columns.offset[element] == NOWHERE:
            columns.offset[element] = offset
        if columns.offset[element] != offset:
            columns.extra_offsets.setdefault(element, set()).add(offset)


def _first_readers(columns: Columns, by_returned: Sequence[int], without: int) -> array[int]:
    """The first ok operation that polled each element, among those that have none of these flags."""
    readers = array("i", [NOBODY]) * len(columns.values)
    starts, rows, polled = columns.segment_start, columns.segment_row, columns.polled
    outcome, flags = columns.outcome, columns.flags
    if isinstance(by_returned, range):
        counts = array("B", [done == OK and not flag & without for done, flag in zip(outcome, flags, strict=True)])
        operations = owners(take(rows, starts))
        marks = take(counts, operations)
        put_first(readers, chosen(polled, marks), chosen(operations, marks))
        return readers
    for number in reversed(by_returned):
        first, after = starts[number], starts[number + 1]
        if first != after and outcome[number] == OK and not flags[number] & without:
            for element in polled[rows[first] : rows[after]]:
                readers[element] = number
    return readers
