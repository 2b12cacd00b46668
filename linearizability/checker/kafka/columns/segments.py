"""Where each polled segment and each send lies in its key's log: what later walks need, worked out for all at once."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

from raftlog.linearizability.checker.kafka.columns.columns import FAIL, INFO, NOWHERE, TRANSACTIONAL, Columns
from raftlog.linearizability.checker.kafka.columns.gather import (
    clear,
    known,
    places_of,
    shifted,
    steps_other_than_one,
    take,
)
from raftlog.linearizability.checker.kafka.columns.order import Order


@dataclass(slots=True)
class Segments:
    """One entry per segment.

    A plain segment's records are next to each other in the log, each in its place, one after the other. The rest are
    in `odd`; their `last_place` and `highest` are right nevertheless, NOWHERE if nothing in them has a place or an
    offset.
    """

    first_place: array[int] = field(default_factory=lambda: array("i"))
    last_place: array[int] = field(default_factory=lambda: array("i"))  # the greatest place
    highest: array[int] = field(default_factory=lambda: array("q"))  # the greatest offset
    odd: set[int] = field(default_factory=set)
    final_place: array[int] = field(default_factory=lambda: array("i"))  # of the last record


@dataclass(slots=True)
class Sends:
    """One entry per row of sends: its key, its element's offset, and the offset it certainly had by its return."""

    key: array[int]
    offset: array[int]
    acknowledged: array[int]  # NOWHERE for none


def lay_out_sends(columns: Columns) -> Sends:
    """Work out the sends of all operations."""
    offsets = take(columns.offset, columns.send_element)
    acknowledged = offsets[:]
    for outcome in (FAIL, INFO):
        for number in places_of(outcome, columns.outcome):
            for row in range(columns.send_start[number], columns.send_start[number + 1]):
                acknowledged[row] = NOWHERE
    for row, offset in columns.send_ack.items():
        number = columns.sender_of_row(row)
        # What a transaction was told while it ran was so, whatever became of it.
        if columns.committed[number] or columns.flags[number] & TRANSACTIONAL:
            acknowledged[row] = offset
    return Sends(take(columns.element_key, columns.send_element), offsets, acknowledged)


def lay_out(columns: Columns, order: Order) -> Segments:
    """Work out the segments of all polls."""
    polled, rows = columns.polled, columns.segment_row
    if not polled:
        return Segments()
    places = take(order.position, polled)
    starts, ends = rows[:-1], shifted(rows[1:], -1)
    segments = Segments(take(places, starts), take(places, ends))
    segments.highest = take(columns.offset, take(polled, ends))
    jumps = steps_other_than_one(places)
    clear(jumps, shifted(starts[1:], -1))
    row = jumps.find(1)
    while row >= 0:
        segment = bisect_right(rows, row) - 1
        segments.odd.add(segment)
        row = jumps.find(1, rows[segment + 1] - 1)
    for row in places_of(0, known(places)):
        segments.odd.add(bisect_right(rows, row) - 1)
    segments.final_place = segments.last_place[:] if segments.odd else segments.last_place
    for segment in segments.odd:
        segments.last_place[segment] = max(places[rows[segment] : rows[segment + 1]])
    unusual = {bisect_right(rows, row) - 1 for row in columns.polled_offset}
    for segment in segments.odd | unusual:
        offsets = [_offset(columns, row) for row in range(rows[segment], rows[segment + 1])]
        segments.highest[segment] = max(offsets)
    return segments


def _offset(columns: Columns, row: int) -> int:
    """The offset at which a record was polled, NOWHERE if it came without."""
    offset = columns.polled_offset.get(row, columns.offset[columns.polled[row]])
    return NOWHERE if offset is None else offset
