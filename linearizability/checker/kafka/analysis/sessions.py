"""The order in which one operation, and one process after another operation, sees and fills each key."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import compress, count, islice, pairwise

from raftlog.linearizability.checker.kafka.columns.columns import (
    ASSIGNED,
    CRASH,
    FAIL,
    INFO,
    NEVER,
    NOBODY,
    NOWHERE,
    READ_UNCOMMITTED,
    SEEK,
)
from raftlog.linearizability.checker.kafka.columns.gather import (
    alike,
    differing,
    not_above,
    owners,
    previous,
    shifted,
    spread,
    take,
)
from raftlog.linearizability.checker.kafka.columns.subscriptions import interruptions
from raftlog.linearizability.checker.kafka.context import Context, allowed_if
from raftlog.linearizability.checker.kafka.report.findings import Example, Judgement

_NO_KEYS: frozenset[int] = frozenset()


def check_sessions(context: Context) -> None:
    """Find the int- and the plain skip and nonmonotonic anomalies of every process.

    Over whole columns each poll and send of a key is held against the one before it of the same process. Only where
    these do not fit, and around operations that are not ok, is looked at what a process had in mind.
    """
    forgotten = _Forgotten(context)
    if context.columns.segment_key:
        _polls(context, forgotten)
    if context.columns.send_element:
        _sends(context, forgotten)


class _Forgotten:
    """What makes the places of a process meaningless: an assign, a subscribe, a seek or a crash."""

    def __init__(self, context: Context) -> None:
        self.columns = columns = context.columns
        self._events: dict[int, list[tuple[int, int]]] = {}  # process -> call and operation, in order
        for number in interruptions(columns):
            self._events.setdefault(columns.process[number], []).append((columns.call[number], number))
        for events in self._events.values():
            events.sort()

    def polled(self, earlier: int, later: int, key: int) -> bool:
        """Whether where the first operation was in the key no longer meant anything to the second one."""
        return any(self._drops(number, key) for number in self._between(earlier, later))

    def sent(self, earlier: int, later: int) -> bool:
        """The same of what was sent: only a crash makes a process forget that."""
        return any(self.columns.function[number] == CRASH for number in self._between(earlier, later))

    def _between(self, earlier: int, later: int) -> Iterator[int]:
        columns = self.columns
        events = self._events.get(columns.process[earlier])
        if events is not None:
            end = (columns.call[later], later)
            for event in islice(events, bisect_right(events, (columns.call[earlier], earlier)), None):
                if event > end:
                    return
                yield event[1]

    def _drops(self, number: int, key: int) -> bool:
        columns = self.columns
        kind = columns.function[number]
        if kind == CRASH:
            return True
        if kind == SEEK:
            keys = [sought for sought, _ in columns.seeks[number]]
            return not keys or key in keys
        subscription = columns.subscriptions[number]
        return subscription.position is not None or key not in subscription.keys


class _Chains:
    """Sends, or segments of polls, in the order of their operations' calls, each with the one before it.

    That is the last one of the same process and key, as a place in this order: `earlier`. Operations of some outcomes
    are not gone on from (`passing`): what they hold and what follows it are always among the `suspects`.
    """

    def __init__(self, context: Context, starts: array[int], keys: array[int], passing: tuple[int, ...]) -> None:
        columns = context.columns
        self.rows = spread(starts, context.by_call)
        self.owner = take(owners(starts), self.rows)
        self.earlier = previous(take(columns.process, self.owner), take(keys, self.rows))
        self.suspects: set[int] = set()
        self._outcome, self._passing = columns.outcome, passing
        self._before: dict[int, int] = {}  # place of a passing operation -> the place before it that counts
        if any(outcome in columns.outcome for outcome in passing):
            marks = take(array("B", [outcome in passing for outcome in columns.outcome]), self.owner)
            self.suspects.update(_marked(marks), _marked(take(marks, self.earlier)))

    def before(self, place: int) -> int:
        """The place before this one that counts, NOBODY for none; to be asked of all suspects in ascending order."""
        earlier = self.earlier[place]
        if earlier != NOBODY and self.owner[earlier] != self.owner[place]:
            earlier = self._before.get(earlier, earlier)
        if self._outcome[self.owner[place]] in self._passing:
            same = earlier != NOBODY and self.owner[earlier] == self.owner[place]
            self._before[place] = self._before[earlier] if same else earlier
        return earlier


def _marked(marks: array[int]) -> Iterator[int]:
    return compress(count(), marks)


def _polls(context: Context, forgotten: _Forgotten) -> None:
    """Polls begin right after where the last one ended, and are plain runs of the log."""
    columns, segments = context.columns, context.segments
    chains = _Chains(context, columns.segment_start, columns.segment_key, (FAIL, INFO))
    rows, owner, earlier = chains.rows, chains.owner, chains.earlier
    expected = shifted(take(take(segments.final_place, rows), earlier), 1)
    suspects = chains.suspects
    suspects.update(differing(take(segments.first_place, rows), expected))
    if segments.odd:
        odd = array("B", bytes(len(rows)))
        for segment in segments.odd:
            odd[segment] = 1
        suspects.update(_marked(take(odd, rows)))
    for place in sorted(suspects):
        segment, number = rows[place], owner[place]
        if segment in segments.odd:
            _inside(context, number, segment)
        before = chains.before(place)
        if before == NOBODY:
            continue
        if owner[before] == number:
            _again(context, number, rows[before], segment)
        elif not forgotten.polled(owner[before], number, columns.segment_key[segment]):
            _between(context, number, rows[before], segment)


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
    both = columns.flags[columns.operation_of_row(rows[0])] & columns.flags[number]
    # Unless the caller says otherwise, who chose its keys itself is not moved by any group.
    chose = context.options.subscription_modes is None and both & ASSIGNED
    judgement = allowed_if(context.subscribes and not chose)
    context.findings.add(name, judgement, weight, _tell_polls, context, *rows)


def _sends(context: Context, forgotten: _Forgotten) -> None:
    """Sends get higher places than the ones before them, and inside one operation the next ones."""
    columns, position = context.columns, context.order.position
    elements = columns.send_element
    chains = _Chains(context, columns.send_start, take(columns.element_key, elements), (FAIL,))
    rows, owner, earlier = chains.rows, chains.owner, chains.earlier
    places = take(take(position, elements), rows)
    before_them = take(places, earlier)
    suspects = chains.suspects
    suspects.update(not_above(places, before_them))
    inner = alike(owner, take(owner, earlier))
    suspects.update(take(inner, differing(take(places, inner), shifted(take(before_them, inner), 1))))
    for place in sorted(suspects):
        before, number = chains.before(place), owner[place]
        if before == NOBODY or NOWHERE in (places[place], places[before]):
            continue
        delta = places[place] - places[before]
        if owner[before] == number:
            if delta != 1:
                _inner_send(context, rows[before], rows[place], delta)
        elif delta <= 0 and columns.outcome[number] != FAIL and not forgotten.sent(owner[before], number):
            _outer_send(context, rows[before], rows[place], 1 - delta)


def _outer_send(context: Context, before: int, row: int, weight: int) -> None:
    if _in_sequence(context, before, context.columns.sender_of_row(row)):
        context.findings.add("nonmonotonic-send", Judgement.ERROR, weight, _tell_sends, context, before, row)


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
