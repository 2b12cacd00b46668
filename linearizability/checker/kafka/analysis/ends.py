"""How far each key's log was known to reach as time went by.

A fact is an acknowledged send or a polled record. In a key with transactions an open one may hide what was
acknowledged, so to readers of committed data only what such readers polled counts there.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from raftlog.linearizability.checker.kafka.columns.columns import (
    NEVER,
    NOBODY,
    NOWHERE,
    READ_UNCOMMITTED,
    TRANSACTIONAL,
    Columns,
)
from raftlog.linearizability.checker.kafka.columns.gather import (
    ascending,
    below,
    chosen,
    counting,
    differing,
    owners,
    put_first,
    rises,
    shifted,
    spread,
    starts_of,
    take,
    tally,
)
from raftlog.linearizability.checker.kafka.columns.segments import Sends
from raftlog.linearizability.checker.kafka.context import Context

_IS_TRANSACTIONAL = bytes(bool(flags & TRANSACTIONAL) for flags in range(256))  # a table to translate flags with


@dataclass(slots=True)
class KeyEnds:
    """When a key's known end moved: times, ends (the highest known offset + 1) and the operations that showed it."""

    times: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    operations: array[int] = field(default_factory=lambda: array("i"))


class _Facts(NamedTuple):
    """Keys, offsets in them, and the operations that show them."""

    keys: array[int]
    offsets: array[int]
    operations: array[int]


def known_and_visible_ends(context: Context, sends: Sends) -> tuple[list[KeyEnds], list[KeyEnds]]:
    """Of every key, from all that was acknowledged and polled; and from what no open transaction can hide."""
    columns, highest = context.columns, context.segments.highest
    polled = _higher(context, columns.segment_start, columns.segment_key, highest)
    known = _ends(context, (_higher(context, columns.send_start, sends.key, sends.acknowledged), polled))
    hiding = _hiding_keys(columns)
    if not hiding:
        return known, known
    if columns.any_flag(READ_UNCOMMITTED):
        highest, starts = highest[:], columns.segment_start
        for number in [number for number, flags in enumerate(columns.flags) if flags & READ_UNCOMMITTED]:
            for segment in range(starts[number], starts[number + 1]):
                highest[segment] = NOWHERE
        polled = _higher(context, columns.segment_start, columns.segment_key, highest)
    seen = _ends(context, (polled,))
    return known, [seen[key] if key in hiding else ends for key, ends in enumerate(known)]


def _hiding_keys(columns: Columns) -> frozenset[int]:
    """The keys in which some transaction may be open at some time."""
    if not columns.any_flag(TRANSACTIONAL):
        return frozenset()
    marks = take(array("B", columns.flags.translate(_IS_TRANSACTIONAL)), owners(columns.send_start))
    counts = tally(take(columns.element_key, chosen(columns.send_element, marks)), len(columns.keys.names))
    return frozenset(key for key, count in enumerate(counts) if count)


def _higher(context: Context, starts: array[int], keys: array[int], offsets: array[int]) -> _Facts:
    """The rows whose offset is higher than all before it in its key, in the order of returns."""
    operations = owners(starts)
    if not isinstance(context.by_returned, range):
        rows = spread(starts, context.by_returned)
        keys, offsets, operations = take(keys, rows), take(offsets, rows), take(operations, rows)
    marks = array("B", rises(offsets, keys, len(context.columns.keys.names)))
    return _Facts(chosen(keys, marks), chosen(offsets, marks), chosen(operations, marks))


def _ends(context: Context, facts: Sequence[_Facts]) -> list[KeyEnds]:
    """Where the offsets rise beyond all before, in the order of returns; in one operation as `facts` come."""
    columns, by_returned = context.columns, context.by_returned
    limit = len(columns.keys.names)
    keys, offsets, operations = array("i"), array("q"), array("i")
    for some in facts:
        keys += some.keys
        offsets += some.offsets
        operations += some.operations
    if isinstance(by_returned, range):
        order = ascending(operations)
    else:
        place_of = array("i", [NOBODY]) * len(columns)
        put_first(place_of, by_returned, counting(range(len(columns))))
        order = ascending(take(place_of, operations))
    keys, offsets, operations = take(keys, order), take(offsets, order), take(operations, order)
    marks = rises(offsets, keys, limit)
    times = take(columns.returned, operations)
    # What never returned comes last in the order of returns, and what has no offset before all that has one.
    kept = chosen(counting(range(len(marks))), array("B", marks))
    kept = take(kept, below(take(times, kept), NEVER))
    kept = take(kept, differing(take(offsets, kept), NOWHERE))
    return _by_key(limit, take(keys, kept), KeyEnds(take(times, kept), take(offsets, kept), take(operations, kept)))


def _by_key(limit: int, keys: array[int], all_keys: KeyEnds) -> list[KeyEnds]:
    order = ascending(keys)
    times, ends = take(all_keys.times, order), shifted(take(all_keys.ends, order), 1)
    operations = take(all_keys.operations, order)
    bounds = starts_of(tally(keys, limit))
    return [
        KeyEnds(times[first:after], ends[first:after], operations[first:after]) for first, after in pairwise(bounds)
    ]


def highest_of(context: Context, number: int, key: int) -> int:
    """The element of the highest offset that an operation sent to a key or polled of it."""
    columns = context.columns
    highest = NOBODY
    for other in [*columns.sends_of(number), *columns.polled_by(number)]:
        if columns.element_key[other] == key and (highest == NOBODY or columns.offset[other] > columns.offset[highest]):
            highest = other
    return highest
