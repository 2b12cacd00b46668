"""What became of each value: doubled, replaced, lost, unseen, read though aborted, read though never sent."""

from __future__ import annotations

from typing import NamedTuple

from raftlog.linearizability.checker.kafka.columns.columns import (
    FAIL,
    INFO,
    NOBODY,
    NOWHERE,
    OK,
    READ_UNCOMMITTED,
    TRANSACTIONAL,
)
from raftlog.linearizability.checker.kafka.columns.gather import alike, owners, places_of, take
from raftlog.linearizability.checker.kafka.context import Context, allowed_if
from raftlog.linearizability.checker.kafka.report.findings import Example, Judgement

_SHOWN_PER_KEY = 32


def check_values(context: Context) -> None:
    """Every test of this file."""
    _offsets(context)
    _losses(context)
    _aborted_reads(context)
    _own_reads(context)
    _unwritten(context)


def _offsets(context: Context) -> None:
    add = context.findings.add
    for place, claimants in context.order.rivals.items():
        add("inconsistent-offsets", Judgement.ERROR, len(claimants), _tell_rivals, context, place, claimants)
    for element, offsets in context.order.doubled.items():
        add("duplicate", Judgement.ERROR, len(offsets), _tell_doubled, context, element, offsets)


class _Reach(NamedTuple):
    """How far a key was read: the first and the highest place, and the value read at the highest."""

    first: int
    bound: int
    witness: int


def _losses(context: Context) -> None:
    """lost-write and unseen."""
    columns, order, findings = context.columns, context.order, context.findings
    reaches: dict[int, _Reach] = {}
    claims: dict[int, list[int]] = {}
    for element in order.conflicting:
        claims.setdefault(columns.element_key[element], []).append(element)
    per_key: dict[int, int] = {}
    for element in places_of(0, columns.read_ok):
        writer = columns.writer[element]
        if writer == NOBODY or not columns.committed[writer]:
            continue
        key = columns.element_key[element]
        reach = reaches.get(key)
        if reach is None:
            reach = reaches[key] = _reach(context, key, claims.get(key, []))
        place = order.last(element)
        if NOWHERE < place <= reach.bound:
            weight = reach.bound - place
            findings.add("lost-write", Judgement.ERROR, weight, _tell_lost, context, element, reach.witness)
        if columns.outcome[writer] == OK:
            shown = per_key[key] = per_key.get(key, 0) + 1
            if shown <= _SHOWN_PER_KEY:
                findings.add("unseen", Judgement.ERROR, 1 / shown, _tell_unseen, context, element, reach)
    for shown in per_key.values():
        if shown > _SHOWN_PER_KEY:
            findings.more("unseen", Judgement.ERROR, shown - _SHOWN_PER_KEY)


def _reach(context: Context, key: int, claimants: list[int]) -> _Reach:
    columns, order = context.columns, context.order
    places = range(order.key_start[key], order.key_start[key + 1])
    read_ok, elements = columns.read_ok, order.elements
    first = next((place for place in places if read_ok[elements[place]]), NOWHERE)
    best, witness = NOWHERE, NOBODY
    for place in reversed(places):
        element = elements[place]
        if read_ok[element] and order.first(element) == place:
            best, witness = place, element
            break
    for element in claimants:
        if order.conflicting[element] > best and read_ok[element]:
            best, witness = order.conflicting[element], element
    return _Reach(first, best, witness)


def _aborted_reads(context: Context) -> None:
    """G1a: reads of values whose send certainly failed."""
    columns = context.columns
    aborted = set()
    for number in places_of(FAIL, columns.outcome):
        for element in columns.sends_of(number):
            if columns.read_ok[element] and columns.writer[element] == number:
                aborted.add(element)
    if not aborted:
        return
    for row, element in enumerate(columns.polled):
        if element not in aborted:
            continue
        reader = columns.operation_of_row(row)
        if columns.outcome[reader] != OK:
            continue
        writer = columns.writer[element]
        dirty = columns.flags[reader] & READ_UNCOMMITTED and columns.flags[writer] & TRANSACTIONAL
        context.findings.add("G1a", allowed_if(bool(dirty)), 1, _tell_aborted, context, element, reader)


def _own_reads(context: Context) -> None:
    """precommitted-read: a transaction polls what it sent itself."""
    columns = context.columns
    if not columns.any_flag(TRANSACTIONAL):
        return
    readers = owners(take(columns.segment_row, columns.segment_start))
    told = NOBODY
    for row in alike(take(columns.writer, columns.polled), readers):
        number = readers[row]
        flags = columns.flags[number]
        if number == told or not flags & TRANSACTIONAL:
            continue
        told = number
        judgement = allowed_if(bool(flags & READ_UNCOMMITTED))
        context.findings.add("precommitted-read", judgement, 1, _tell_own, context, columns.polled[row], number)


def _unwritten(context: Context) -> None:
    columns = context.columns
    for element in alike(columns.writer, NOBODY):
        if columns.read_ok[element]:
            context.findings.add("unwritten-read", Judgement.ALLOWED, 1, _tell_unwritten, context, element)


# What is told


def _tell_rivals(context: Context, place: tuple[int, int], claimants: list[int]) -> Example:
    words, columns = context.words, context.columns
    key, offset = place
    told, operations = [], []
    for element in claimants:
        writer, reader = columns.writer[element], columns.first_reader[element]
        claims = []
        if writer != NOBODY and columns.committed[writer]:
            claims.append(f"sent by {words.who(writer)}")
            operations.append(writer)
        if reader != NOBODY:
            claims.append(f"polled by {words.who(reader)}")
            operations.append(reader)
        told.append(f"{words.value(element)} ({', '.join(claims) or 'polled'})")
    text = f"Offset {offset} of {words.key(key)} holds {len(claimants)} values: {' and '.join(told)}."
    values = [columns.values[element] for element in claimants]
    return Example(text, tuple(dict.fromkeys(operations)), words.key(key), {"offset": offset, "values": values})


def _tell_doubled(context: Context, element: int, offsets: list[int]) -> Example:
    words, columns = context.words, context.columns
    writer, reader = columns.writer[element], columns.first_reader[element]
    found = [number for number in (writer, reader) if number != NOBODY]
    operations = tuple(dict.fromkeys([*found, *words.pollers_elsewhere(element)]))
    key = words.key(columns.element_key[element])
    sent = f", sent once by {words.who(writer)}" if writer != NOBODY else ""
    text = f"{words.value(element)}{sent}, stands at {len(offsets)} offsets of {key}: {_listed(offsets)}."
    return Example(text, operations, key, {"value": columns.values[element], "offsets": offsets})


def _listed(offsets: list[int]) -> str:
    return ", ".join(map(str, offsets[:8])) + (", …" if len(offsets) > 8 else "")


def _tell_lost(context: Context, element: int, witness: int) -> Example:
    words, columns = context.words, context.columns
    writer, reader = columns.writer[element], columns.first_reader[witness]
    if columns.outcome[writer] == INFO:
        sure = "must have committed, since another of its values was read"
    else:
        sure = f"was acknowledged {words.returned(writer)}"
    text = (
        f"{words.element(element)}, sent by {words.who(writer)}, {sure}, and no ok poll returned it, "
        f"although {words.who(reader)} read the later {words.element(witness)}."
    )
    details = {"value": columns.values[element], "offset": columns.offset[element], "read": columns.offset[witness]}
    return Example(text, (writer, reader), words.key(columns.element_key[element]), details)


def _tell_unseen(context: Context, element: int, reach: _Reach) -> Example:
    words, columns = context.words, context.columns
    writer, key = columns.writer[element], columns.element_key[element]
    place = context.order.last(element)
    if reach.first == NOWHERE:
        part, where = "all", f"nothing of {words.key(key)} was ever read"
    elif place == NOWHERE:
        part, where = "unknown", "its offset is not known"
    elif place < reach.first:
        part, where = "prefix", "it lies before everything that was read"
    elif place > reach.bound:
        part, where = "tail", f"it lies behind the last record read, {words.element(reach.witness)}"
    else:
        part, where = "middle", "records before and after it were read"
    text = (
        f"{words.element(element)}, sent by {words.who(writer)}, was acknowledged {words.returned(writer)} "
        f"and no ok poll ever returned it: {where}."
    )
    offset = columns.offset[element]
    details = {"value": columns.values[element], "offset": None if offset == NOWHERE else offset, "part": part}
    return Example(text, (writer,), words.key(key), details)


def _tell_aborted(context: Context, element: int, reader: int) -> Example:
    words, columns = context.words, context.columns
    writer = columns.writer[element]
    error = columns.errors.get(writer)
    text = (
        f"{words.who(reader)} polled {words.element(element)}, which {words.who(writer)} sent and which certainly "
        f"failed{f' ({error})' if error else ''}."
    )
    key = words.key(columns.element_key[element])
    return Example(text, (reader, writer), key, {"value": columns.values[element]})


def _tell_own(context: Context, element: int, number: int) -> Example:
    words, columns = context.words, context.columns
    text = f"{words.who(number)} polled {words.element(element)}, which it sent itself and had not yet committed."
    key = words.key(columns.element_key[element])
    return Example(text, (number,), key, {"value": columns.values[element]})


def _tell_unwritten(context: Context, element: int) -> Example:
    words, columns = context.words, context.columns
    reader = columns.first_reader[element]
    text = f"{words.who(reader)} polled {words.element(element)}, which no operation of this history sent."
    key = words.key(columns.element_key[element])
    return Example(text, (reader,), key, {"value": columns.values[element]})
