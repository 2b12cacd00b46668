"""Transactions as readers see them: whole or torn.

A transaction is known to be decided once it returned ok, or once a finished poll had one of its values. At a read
point that began later it must be visible in all keys that the read point covers, or in none. Visible in a key: polled
there by this operation, or below the visible end met. Not visible: at or beyond that end, with no open transaction
before it to hide it. A transaction that one operation polled in one key and jumped over in another is torn whatever
the time.
"""

from __future__ import annotations

from bisect import bisect_left

from raftlog.linearizability.checker.kafka.columns.columns import (
    NEVER,
    NOBODY,
    NOWHERE,
    OK,
    READ_UNCOMMITTED,
    TRANSACTIONAL,
    Columns,
)
from raftlog.linearizability.checker.kafka.context import Context
from raftlog.linearizability.checker.kafka.report.findings import Example, Judgement

_LOOK_AHEAD = 64  # how many records beyond a visible end are looked at, at each read point and key


def check_transactions(context: Context) -> None:
    """torn-transaction."""
    _jumped_over(context)
    if context.options.transaction_visibility is not None:
        for number, ends in _read_points(context.columns).items():
            _hidden_parts(context, number, ends)


def _jumped_over(context: Context) -> None:
    """Operations that polled one part of a transaction and skipped another within their run of a key."""
    columns = context.columns
    jumping: dict[int, list[int]] = {}
    for segment in sorted(context.segments.odd):
        number = columns.operation_of_row(columns.segment_row[segment])
        excused = columns.segment_key[segment] in columns.rebalanced.get(number, ())
        if not excused and not columns.flags[number] & READ_UNCOMMITTED:
            jumping.setdefault(number, []).append(segment)
    for number, segments in jumping.items():
        _jumps(context, number, segments)


def _jumps(context: Context, number: int, segments: list[int]) -> None:
    """For every transaction of which the operation polled something: did it pass over a part in another key?"""
    columns, order = context.columns, context.order
    runs: dict[int, list[tuple[int, int]]] = {}  # key -> first and last place of each run
    reached: set[int] = set()  # places returned, also those where another value stood
    for segment in segments:
        rows = range(columns.segment_row[segment], columns.segment_row[segment + 1])
        places = [place for row in rows if (place := order.first(columns.polled[row])) != NOWHERE]
        reached.update(places)
        if places:
            runs.setdefault(columns.segment_key[segment], []).append((min(places), max(places)))
    polled = dict.fromkeys(columns.polled_by(number))
    first_seen: dict[int, int] = {}
    for element in polled:
        writer = columns.writer[element]
        if writer != NOBODY and columns.flags[writer] & TRANSACTIONAL and columns.committed[writer]:
            first_seen.setdefault(writer, element)
    for writer, seen in first_seen.items():
        for element in columns.sends_of(writer):
            key, place = columns.element_key[element], order.position[element]
            passed = any(first < place < last for first, last in runs.get(key, ()))
            if passed and place not in reached and element not in polled and key != columns.element_key[seen]:
                found = (number, seen, element)
                context.findings.add("torn-transaction", Judgement.ERROR, 1, _tell_torn, context, found, None)


def _read_points(columns: Columns) -> dict[int, dict[int, int]]:
    """Operations that met visible ends of several keys, or of one and polled others: key -> end."""
    points = {
        number: ends
        for number, ends in columns.ends.items()
        if columns.outcome[number] == OK and not columns.flags[number] & READ_UNCOMMITTED
    }
    question = columns.questions.numbers.get("last-stable-offset", NOWHERE)
    committed = columns.questions.numbers.get("list-offsets latest read_committed", NOWHERE)
    for row, asked in enumerate(columns.metadata_question):
        if asked in (question, committed):
            number = columns.metadata_operation[row]
            points.setdefault(number, {})[columns.metadata_key[row]] = columns.metadata_offset[row]
    return points


def _hidden_parts(context: Context, number: int, ends: dict[int, int]) -> None:
    """Walk each key from its visible end on, as far as every record is known and decided, past no gap.

    An open transaction hides all that stands behind it, and a gap may be what is left of one: beyond either, nothing
    is surprising. What is decided, and has nothing but decided records between itself and the end, should be visible.
    """
    columns, order = context.columns, context.order
    polled = set(columns.polled_by(number))
    wait = context.options.transaction_visibility or 0
    told: set[int] = set()
    for key, end in ends.items():
        places = range(order.key_start[key], order.key_start[key + 1])
        first = bisect_left(places, end, key=lambda place: columns.offset[order.elements[place]])
        for place in places[first : first + _LOOK_AHEAD]:
            element = order.elements[place]
            writer = columns.writer[element]
            if columns.offset[element] != end + place - places[first] or writer == NOBODY or element in polled:
                break
            if _decided(columns, writer) + wait >= columns.call[number]:
                break
            if writer in told or not columns.flags[writer] & TRANSACTIONAL:
                continue
            seen = _visible_part(context, writer, ends, polled)
            if seen != NOBODY:
                told.add(writer)
                weight = columns.call[number] - _decided(columns, writer)
                found = (number, seen, element)
                context.findings.add("torn-transaction", Judgement.ERROR, weight, _tell_torn, context, found, end)


def _visible_part(context: Context, writer: int, ends: dict[int, int], polled: set[int]) -> int:
    """A value of the transaction that the read point shows, or NOBODY."""
    columns = context.columns
    for element in columns.sends_of(writer):
        below = NOWHERE < columns.offset[element] < ends.get(columns.element_key[element], NOWHERE)
        if element in polled or (below and element not in context.order.doubled):
            return element
    return NOBODY


def _decided(columns: Columns, writer: int) -> int:
    """The earliest time by which an operation's sends are known to be decided."""
    decided = columns.returned[writer] if columns.outcome[writer] == OK else NEVER
    for element in columns.sends_of(writer):
        reader = columns.sure_reader(element)
        if reader != NOBODY:
            decided = min(decided, columns.returned[reader])
    return decided


def _tell_torn(context: Context, found: tuple[int, int, int], end: int | None) -> Example:
    words, columns = context.words, context.columns
    number, seen, hidden = found
    writer = columns.writer[seen]
    how = "it passed that place without returning it" if end is None else f"the visible end there was {end}"
    text = (
        f"{words.who(writer)} sent {words.element(seen)} and {words.element(hidden)}; "
        f"{words.who(number)} saw the first and not the second: {how}."
    )
    shown = [seen, hidden]
    if end is not None:  # nothing that is open stands between the visible end and the hidden part
        place = context.order.position[hidden]
        shown += context.order.elements[max(place - (columns.offset[hidden] - end), 0) : place]
    involved = [writer, number]
    for element in shown:
        involved += [columns.writer[element], *words.shows(element)]
    operations = tuple(dict.fromkeys(other for other in involved if other != NOBODY))
    details = {"visible": columns.values[seen], "hidden": columns.values[hidden], "end": end}
    return Example(text, operations, words.key(columns.element_key[hidden]), details)
