"""The order in which one operation, and one process after another operation, sees and fills each key.

Knows: the skip and nonmonotonic tests inside operations and between a process's operations, and what makes a
process's place in a key be forgotten. Refuses to know: other processes, and real time.
"""

from __future__ import annotations

from itertools import pairwise

from raftlog.linearizability.checker.kafka.columns import (
    ASSIGN,
    CRASH,
    FAIL,
    NEVER,
    NOWHERE,
    OK,
    READ_UNCOMMITTED,
    SEEK,
    SUBSCRIBE,
    TXN,
)
from raftlog.linearizability.checker.kafka.context import Context, allowed_if
from raftlog.linearizability.checker.kafka.findings import Example, Judgement

_NO_KEYS: frozenset[int] = frozenset()


def check_sessions(context: Context) -> None:
    """Walk every process's operations in order and find the int- and the plain skip and nonmonotonic anomalies."""
    columns, segments = context.columns, context.segments
    polls: list[dict[int, int]] = [{} for _ in columns.processes]  # key -> the last segment polled of it
    sends: list[dict[int, int]] = [{} for _ in columns.processes]  # key -> row of the last send
    function, outcome, process_of = columns.function, columns.outcome, columns.process
    segment_start, send_start, keys = columns.segment_start, columns.send_start, columns.segment_key
    first_place, final_place, odd = segments.first_place, segments.final_place, segments.odd
    for number in context.by_call:
        kind = function[number]
        process = process_of[number]
        if kind > TXN:
            _forget(context, number, polls[process], sends[process])
            continue
        if send_start[number] != send_start[number + 1]:
            _sends(context, number, sends[process], outcome[number] == FAIL)
        first, after = segment_start[number], segment_start[number + 1]
        memory = polls[process]
        if kind == TXN or outcome[number] != OK:
            _polls(context, number, memory)
            continue
        for segment in range(first, after):
            key = keys[segment]
            if segment in odd:
                _inside(context, number, segment)
            before = memory.get(key)
            if before is not None and first_place[segment] != final_place[before] + 1:
                if before < first:
                    _between(context, number, before, segment)
                else:
                    _again(context, number, before, segment)
            memory[key] = segment


def _forget(context: Context, number: int, polls: dict[int, int], sends: dict[int, int]) -> None:
    """Drop the places that an assign, a subscribe, a seek or a crash makes meaningless."""
    columns = context.columns
    kind = columns.function[number]
    if kind == CRASH:
        polls.clear()
        sends.clear()
    elif columns.outcome[number] == FAIL:
        return
    elif kind == SEEK:
        keys = [key for key, _ in columns.seeks[number]]
        for key in keys or list(polls):
            polls.pop(key, None)
    elif kind in (ASSIGN, SUBSCRIBE):
        subscription = columns.subscriptions[number]
        if subscription.from_beginning or subscription.from_end:
            polls.clear()
        for key in [key for key in polls if key not in subscription.keys]:
            del polls[key]


def _polls(context: Context, number: int, memory: dict[int, int]) -> None:
    """The polls of a transaction, or of an operation that is not to be remembered."""
    columns, segments = context.columns, context.segments
    keys, first_place, final_place, odd = columns.segment_key, segments.first_place, segments.final_place, segments.odd
    met: dict[int, int] = {}
    for segment in range(columns.segment_start[number], columns.segment_start[number + 1]):
        key = keys[segment]
        if segment in odd:
            _inside(context, number, segment)
        if key in met:
            _again(context, number, met[key], segment)
        else:
            before = memory.get(key)
            if before is not None and first_place[segment] != final_place[before] + 1:
                _between(context, number, before, segment)
        met[key] = segment
    if columns.outcome[number] == OK:
        memory.update(met)


def _again(context: Context, number: int, earlier: int, segment: int) -> None:
    """An operation polled a key twice: the second time must begin right after the first."""
    columns, segments = context.columns, context.segments
    final, place = segments.final_place[earlier], segments.first_place[segment]
    if NOWHERE not in (final, place) and place != final + 1:
        _jump(context, number, columns.segment_row[earlier + 1] - 1, columns.segment_row[segment])


def _inside(context: Context, number: int, segment: int) -> None:
    """Compare neighbours among the records of a segment that is no plain run."""
    columns, position = context.columns, context.order.position
    first, after = columns.segment_row[segment], columns.segment_row[segment + 1]
    places = [position[element] for element in columns.polled[first:after]]
    for row, (earlier, later) in enumerate(pairwise(places), first):
        if earlier >= 0 and later >= 0 and later - earlier != 1:
            _jump(context, number, row, row + 1)


def _jump(context: Context, number: int, before: int, row: int) -> None:
    """Two records of one key that an operation polled one after the other are no neighbours."""
    columns, position = context.columns, context.order.position
    key = columns.element_key[columns.polled[row]]
    if key in columns.rebalanced.get(number, _NO_KEYS):
        return
    places = (position[columns.polled[before]], position[columns.polled[row]])
    delta = context.order.distance(*places, columns.flags[number] & READ_UNCOMMITTED)
    if delta == 1:
        return
    name = "int-poll-skip" if delta > 1 else "int-nonmonotonic-poll"
    weight = delta if delta > 1 else 1 - delta
    context.findings.add(name, Judgement.ERROR, weight, _tell_polls, context, before, row)


def _between(context: Context, number: int, before: int, segment: int) -> None:
    """A process's poll of a key does not begin right after its last one; unknown places say nothing."""
    columns, segments = context.columns, context.segments
    final, place = segments.final_place[before], segments.first_place[segment]
    if NOWHERE in (final, place):
        return
    delta = context.order.distance(final, place, columns.flags[number] & READ_UNCOMMITTED)
    if delta == 1:
        return
    name, weight = ("poll-skip", delta) if delta > 1 else ("nonmonotonic-poll", 1 - delta)
    rows = (columns.segment_row[before + 1] - 1, columns.segment_row[segment])
    context.findings.add(name, allowed_if(context.subscribes), weight, _tell_polls, context, *rows)


def _sends(context: Context, number: int, memory: dict[int, int], failed: bool) -> None:
    columns = context.columns
    position = context.order.position
    elements, element_key = columns.send_element, columns.element_key
    met: dict[int, int] = {}
    for row in range(columns.send_start[number], columns.send_start[number + 1]):
        element = elements[row]
        key = element_key[element]
        place = position[element]
        before = met.get(key)
        if before is not None:
            earlier = position[elements[before]]
            if place >= 0 and earlier >= 0 and place - earlier != 1:
                _inner_send(context, before, row, place - earlier)
        elif not failed:
            before = memory.get(key)
            if before is not None and place >= 0:
                earlier = position[elements[before]]
                if earlier >= place and _in_sequence(context, before, number):
                    weight = earlier - place + 1
                    context.findings.add(
                        "nonmonotonic-send", Judgement.ERROR, weight, _tell_sends, context, before, row
                    )
        met[key] = row
    if not failed:
        memory.update(met)


def _in_sequence(context: Context, row: int, number: int) -> bool:
    """Whether the operation of an earlier send was over when this one began (a process may have several in flight).

    One called at the same stamp that never returned may as well have been the earlier of the two.
    """
    columns = context.columns
    earlier = columns.sender_of_row(row)
    if columns.returned[number] == NEVER and columns.call[earlier] == columns.call[number]:
        return False
    return columns.returned[earlier] <= columns.call[number]


def _inner_send(context: Context, before: int, row: int, delta: int) -> None:
    if delta > 1:
        context.findings.add("int-send-skip", Judgement.ALLOWED, delta, _tell_sends, context, before, row)
    else:
        context.findings.add("int-nonmonotonic-send", Judgement.ERROR, 1 - delta, _tell_sends, context, before, row)


def _tell_polls(context: Context, before: int, row: int) -> Example:
    columns, words = context.columns, context.words
    first, second = columns.polled[before], columns.polled[row]
    earlier, later = columns.operation_of_row(before), columns.operation_of_row(row)
    return _tell(context, (first, second), (earlier, later), f"polled {words.element(first)}")


def _tell_sends(context: Context, before: int, row: int) -> Example:
    columns, words = context.columns, context.words
    first, second = columns.send_element[before], columns.send_element[row]
    earlier, later = columns.sender_of_row(before), columns.sender_of_row(row)
    return _tell(context, (first, second), (earlier, later), f"sent {words.element(first)}")


def _tell(context: Context, elements: tuple[int, int], operations: tuple[int, int], verb: str) -> Example:
    words, order, columns = context.words, context.order, context.columns
    first, second = elements
    earlier, later = operations
    delta = order.position[second] - order.position[first]
    then = ", and next " if earlier == later else f"; {words.who(later)} next began with "
    text = f"{words.who(earlier)} {verb}{then}{words.element(second)}"
    involved = [later] if earlier == later else [earlier, later]
    if delta > 1:
        between = order.elements[order.position[first] + 1 : order.position[second]]
        shown = ", ".join(words.element(element) for element in between[:3]) + (", …" if len(between) > 3 else "")
        involved += [number for element in between[:1] for number in words.shows(element)]
        text += f", past {delta - 1} known record{'s' if delta > 2 else ''}: {shown}"
    elif delta == 0:
        text += ", the same place again"
    else:
        text += f", {-delta} record{'s' if delta < -1 else ''} back"
    involved += [number for element in elements for number in words.shows(element)]
    details = {
        "values": [columns.values[first], columns.values[second]],
        "offsets": [columns.offset[first], columns.offset[second]],
        "delta": delta,
    }
    return Example(text + ".", tuple(dict.fromkeys(involved)), words.key(columns.element_key[first]), details)
