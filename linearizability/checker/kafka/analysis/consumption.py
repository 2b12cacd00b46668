"""How often each record was consumed: counted always, judged where exactly once is claimed."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from raftlog.linearizability.checker.kafka.columns.columns import (
    FAIL,
    INFO,
    NEVER,
    NOBODY,
    NOWHERE,
    OK,
    POLL,
    SUBSCRIBED,
    TRANSACTIONAL,
    TXN,
    Columns,
)
from raftlog.linearizability.checker.kafka.columns.subscriptions import groups_of
from raftlog.linearizability.checker.kafka.context import Context
from raftlog.linearizability.checker.kafka.report.findings import Example, Judgement

_MOST_SHOWN = 100


@dataclass(slots=True)
class ConsumeCounts:
    """How often subscribed processes consumed single values in ok operations.

    `distribution` maps a count to how many (process, value) pairs have it; `repeated` lists (process, element, count)
    of the highest counts above one.
    """

    distribution: dict[int, int] = field(default_factory=dict)
    repeated: list[tuple[int, int, int]] = field(default_factory=list)


def count_consumption(context: Context) -> ConsumeCounts:
    """Count, per subscribed process, how often each value was consumed in ok operations."""
    columns, counts = context.columns, ConsumeCounts()
    rows: dict[int, array[int]] = {}
    for number in range(len(columns) if columns.any_flag(SUBSCRIBED) else 0):
        if columns.flags[number] & SUBSCRIBED and columns.outcome[number] == OK:
            consumed = columns.polled_by(number)
            if consumed:
                rows.setdefault(columns.process[number], array("i")).extend(consumed)
    distribution: Counter[int] = Counter()
    for process, consumed in rows.items():
        if len(set(consumed)) == len(consumed):
            distribution[1] += len(consumed)
            continue
        times = Counter(consumed)
        distribution.update(times.values())
        counts.repeated.extend((process, element, count) for element, count in times.items() if count > 1)
        counts.repeated.sort(key=lambda repeat: -repeat[2])
        del counts.repeated[_MOST_SHOWN:]
    counts.distribution = dict(sorted(distribution.items()))
    return counts


def check_exactly_once(context: Context) -> None:
    """consumed-twice and consumed-never."""
    judged = context.options.exactly_once
    if judged is False:
        return
    columns = context.columns
    committing: dict[int, list[int]] = {}  # group -> rows of offsets that transactions committed for it
    for row, number in enumerate(columns.commit_operation):
        if columns.function[number] == TXN:
            committing.setdefault(columns.commit_group[row], []).append(row)
    claimed: set[int] = set()
    for group, rows in committing.items():
        numbers = list(dict.fromkeys(columns.commit_operation[row] for row in rows))
        _twice(context, group, [number for number in numbers if columns.committed[number]], rows)
        claimed.update(numbers)
    if committing:
        _never(context, committing)
    if judged:
        for group, numbers in _subscribed(context).items():
            _twice(context, group, [number for number in numbers if number not in claimed])


def _subscribed(context: Context) -> dict[int, list[int]]:
    """Group -> the ok operations of its subscribed consumers that may have polled."""
    columns = context.columns
    found: dict[int, list[int]] = {}
    groups = groups_of(columns, context.options, context.by_call)
    for number in context.by_call:
        polls = columns.outcome[number] == OK and columns.function[number] in (POLL, TXN)
        if polls and columns.flags[number] & SUBSCRIBED:
            found.setdefault(groups[number], []).append(number)
    return found


def _twice(context: Context, group: int, numbers: list[int], rows: Sequence[int] = ()) -> None:
    """Records that two of the operations consumed; `rows` has what they committed if they are transactions."""
    columns = context.columns
    claims = _Claims(context, group, rows)
    if claims.resets:
        numbers = sorted(numbers, key=lambda number: columns.call[number])
    consumer: dict[int, int] | array[int] = {}
    if sum(len(columns.polled_by(number)) for number in numbers) > len(columns.values) // 8:
        consumer = array("i", [NOBODY]) * len(columns.values)  # smaller and quicker than a dictionary of most
    for number in numbers:
        for element in columns.polled_by(number):
            before = consumer.get(element, NOBODY) if isinstance(consumer, dict) else consumer[element]
            if before == NOBODY:
                consumer[element] = number
            elif before != number:
                consumer[element] = claims.judge(element, before, number)


class _Claims:
    """What a group consumed: all that was polled, but of a key of which a transaction committed an offset only what
    lies before that. `resets` are the rows that reset the group's offsets, or may have.
    """

    def __init__(self, context: Context, group: int, rows: Sequence[int]) -> None:
        self.context = context
        self.columns = columns = context.columns
        self.group = group
        self._rows = rows
        rows_of_all = enumerate(columns.commit_operation) if columns.resets else ()
        possible = [row for row, number in rows_of_all if number in columns.resets]
        self.resets = [row for row in possible if columns.commit_group[row] == group and not self._failed(row)]
        self._ends: dict[tuple[int, int], int] = {}  # operation, key -> the offset committed, once it was asked for

    def _failed(self, row: int) -> bool:
        return self.columns.outcome[self.columns.commit_operation[row]] == FAIL

    def judge(self, element: int, before: int, number: int) -> int:
        """Two operations polled the record: tell of it if both consumed it. Answers the last that did."""
        if not self._consumed(number, element):
            return before
        if not self._consumed(before, element) or self._sent_back(element, before, number):
            return number
        found = (self.group, element, before, number)
        self.context.findings.add("consumed-twice", Judgement.ERROR, 1, _tell_twice, self.context, found)
        return before

    def _consumed(self, number: int, element: int) -> bool:
        columns = self.columns
        if self._rows and not self._ends:
            for row in self._rows:
                place = (columns.commit_operation[row], columns.commit_key[row])
                self._ends[place] = max(columns.commit_offset[row], self._ends.get(place, NOWHERE))
        return columns.offset[element] < self._ends.get((number, columns.element_key[element]), NEVER)

    def _sent_back(self, element: int, first: int, second: int) -> bool:
        """Whether the group may have been sent back on purpose between the two operations."""
        columns = self.columns
        for row in self.resets:
            number = columns.commit_operation[row]
            here = columns.commit_key[row] == columns.element_key[element]
            end = columns.returned[number] if columns.outcome[number] == OK else NEVER
            in_time = columns.call[first] <= end and columns.call[number] <= columns.returned[second]
            if here and in_time and columns.commit_offset[row] <= columns.offset[element]:
                return True
        return False


def _never(context: Context, committing: dict[int, list[int]]) -> None:
    """Committed records between the first that a group's committers polled and the last offset they committed.

    A poll counts even outside the transaction, as long as its process commits to the group. Keys in which the group
    was sent forward on purpose, by a reset or a seek, are not judged.
    """
    columns = context.columns
    groups_of: dict[int, dict[int, None]] = {}
    for group, rows in committing.items():
        for row in rows:
            groups_of.setdefault(columns.process[columns.commit_operation[row]], {})[group] = None
    moved = _moved(context, groups_of)
    polls: dict[int, array[int]] = {group: array("i") for group in committing}
    for number, process in enumerate(columns.process):
        if process in groups_of and not (columns.function[number] == TXN and columns.outcome[number] == FAIL):
            for group in groups_of[process]:
                polls[group].append(number)
    for group, rows in committing.items():
        seen, first = _polled(context, polls.pop(group))
        for key, row in _furthest(columns, rows).items():
            if key in first and not moved & {(group, key), (group, NOBODY)}:
                _passed_over(context, row, first[key], seen)


def _furthest(columns: Columns, rows: list[int]) -> dict[int, int]:
    """Key -> the row of the greatest offset that was certainly committed."""
    last: dict[int, int] = {}
    for row in rows:
        key = columns.commit_key[row]
        if columns.committed[columns.commit_operation[row]] and (
            key not in last or columns.commit_offset[row] > columns.commit_offset[last[key]]
        ):
            last[key] = row
    return last


def _polled(context: Context, polls: Iterable[int]) -> tuple[bytearray, dict[int, tuple[int, int]]]:
    """Which elements these operations polled; and by key the first place polled, and by which operation."""
    columns, order = context.columns, context.order
    seen = bytearray(len(columns.values))
    first: dict[int, tuple[int, int]] = {}
    for number in polls:
        for element in columns.polled_by(number):
            seen[element] = 1
            key, place = columns.element_key[element], order.position[element]
            if place != NOWHERE and (key not in first or place < first[key][0]):
                first[key] = (place, number)
    return seen, first


def _moved(context: Context, groups_of: dict[int, dict[int, None]]) -> set[tuple[int, int]]:
    """The (group, key) whose offset was reset, or in which a member sought to beyond what the group had polled."""
    columns, highest = context.columns, context.segments.highest
    moved = {
        (columns.commit_group[row], columns.commit_key[row])
        for row, number in enumerate(columns.commit_operation)
        if number in columns.resets
    }
    reached: dict[tuple[int, int], int] = {}
    for number in context.by_call if columns.seeks else ():
        for group in groups_of.get(columns.process[number], ()):
            moved.update(
                (group, key)
                for key, offset in columns.seeks.get(number, ()) or _anywhere(columns, number)
                if offset == NOWHERE or offset > reached.get((group, key), NOWHERE) + 1
            )
            for segment in range(columns.segment_start[number], columns.segment_start[number + 1]):
                register = (group, columns.segment_key[segment])
                reached[register] = max(highest[segment], reached.get(register, NOWHERE))
    return moved


def _anywhere(columns: Columns, number: int) -> tuple[tuple[int, int], ...]:
    """A seek that names no key may move all of them."""
    return ((NOBODY, NOWHERE),) if number in columns.seeks else ()


def _passed_over(context: Context, row: int, begun: tuple[int, int], seen: bytearray) -> None:
    columns, order = context.columns, context.order
    first, poll = begun
    offset = columns.commit_offset[row]
    for place in range(first, order.key_start[columns.commit_key[row] + 1]):
        element = order.elements[place]
        if columns.offset[element] >= offset:
            return
        writer = columns.writer[element]
        if seen[element] or writer == NOBODY or not columns.committed[writer] or element in order.doubled:
            continue
        context.findings.add("consumed-never", Judgement.ERROR, 1, _tell_never, context, row, element, poll)


def _name(context: Context, group: int) -> str:
    name = context.columns.groups.names[group] if group != NOBODY else ""
    return f"Group {name}" if name else "The group"


def _tell_twice(context: Context, found: tuple[int, int, int, int]) -> Example:
    words, columns = context.words, context.columns
    group, element, first, second = found
    kind = "transactions" if columns.flags[first] & TRANSACTIONAL else "operations"
    sure = " (outcome unknown, but its values were read)" if columns.outcome[second] == INFO else ""
    text = (
        f"{_name(context, group)} consumed {words.element(element)} in two {kind} that both took effect: "
        f"{words.who(first)} and {words.who(second)}{sure}."
    )
    key = words.key(columns.element_key[element])
    return Example(text, (first, second), key, {"value": columns.values[element], "offset": columns.offset[element]})


def _tell_never(context: Context, row: int, element: int, poll: int) -> Example:
    words, columns = context.words, context.columns
    number, offset = columns.commit_operation[row], columns.commit_offset[row]
    key = words.key(columns.element_key[element])
    text = (
        f"{_name(context, columns.commit_group[row])} never consumed {words.element(element)}, sent by "
        f"{words.who(columns.writer[element])}, although {words.who(number)} committed offset {offset} of {key}."
    )
    details = {"value": columns.values[element], "offset": columns.offset[element], "committed": offset}
    operations = dict.fromkeys((columns.writer[element], number, poll, *words.shows(element)))
    return Example(text, tuple(operations), key, details)
