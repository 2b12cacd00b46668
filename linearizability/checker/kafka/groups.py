"""Who owns which key in a group, and how far a group has come compared with what it has committed.

Knows: that a generation gives a key to one member, and that a committed offset does not pass a record which no member
has polled (or, where the history says what was processed, processed). Refuses to know: whether commits take effect.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from raftlog.linearizability.checker.kafka.columns import FAIL, INFO, NEVER, NOBODY, NOWHERE, OK, Columns
from raftlog.linearizability.checker.kafka.context import Context
from raftlog.linearizability.checker.kafka.findings import Example, Judgement
from raftlog.linearizability.checker.kafka.subscriptions import with_groups


def check_groups(context: Context) -> None:
    """two-owners and commit-past-processed."""
    _owners(context)
    columns = context.columns
    if columns.commit_operation or columns.fetch_operation:
        _Progress(context).check()


def _owners(context: Context) -> None:
    owner: dict[tuple[int, int, int], tuple[int, int]] = {}  # group, generation, key -> member, operation
    told = set()
    for number, group, generation, member, keys in context.columns.assignments:
        for key in keys:
            known = owner.setdefault((group, generation, key), (member, number))
            if known[0] != member and (group, generation, key, member) not in told:
                told.add((group, generation, key, member))
                where = (group, generation, key)
                context.findings.add(
                    "two-owners", Judgement.ERROR, 1, _tell_owners, context, where, (known, (member, number))
                )


class _Progress:
    """How far the members of each group have come in each key that the group commits, as time goes by."""

    def __init__(self, context: Context) -> None:
        self.context = context
        columns = context.columns
        self.wanted = set(zip(columns.commit_group, columns.commit_key, strict=True))
        self.wanted |= set(zip(columns.fetch_group, columns.fetch_key, strict=True))
        # (group, key) -> when each step forward began, and the offset reached with it
        self.times: dict[tuple[int, int], array[int]] = {}
        self.reached: dict[tuple[int, int], array[int]] = {}
        self.steps: dict[tuple[int, int], array[int]] = {}  # … and by which operation
        self.visible: dict[int, array[int]] = {}  # key -> offsets of committed records, ascending

    def check(self) -> None:
        """commit-past-processed, for every commit acknowledged and every committed offset fetched."""
        columns = self.context.columns
        self._collect()
        for row, number in enumerate(columns.commit_operation):
            if columns.outcome[number] == FAIL or number in columns.resets:
                continue
            register = (columns.commit_group[row], columns.commit_key[row])
            if columns.outcome[number] == OK:
                self._judge(register, columns.commit_offset[row], number)
        for row, number in enumerate(columns.fetch_operation):
            if columns.fetch_offset[row] != NOWHERE:
                register = (columns.fetch_group[row], columns.fetch_key[row])
                self._judge(register, columns.fetch_offset[row], number)

    def _collect(self) -> None:
        columns = self.context.columns
        resets: dict[int, list[int]] = {}  # operation -> rows of offsets set on purpose: that far the group may be
        for row, number in enumerate(columns.commit_operation):
            if number in columns.resets and columns.outcome[number] != FAIL:
                resets.setdefault(number, []).append(row)
        marking = self._marking()
        groups = {group for group, _ in self.wanted}
        for number, group in self._groups():
            if group in groups:
                self._polled(number, group, group in marking)
            for key, offset in columns.processed.get(number, ()):
                self._step(group, key, number, offset)
            for key, offset in columns.seeks.get(number, ()):
                self._step(group, key, number, offset - 1)
            for row in resets.get(number, ()):
                register = (columns.commit_group[row], columns.commit_key[row])
                if register in self.reached:
                    self._step(*register, number, columns.commit_offset[row] - 1)

    def _marking(self) -> set[int]:
        """The groups of which the history says what they processed."""
        processed = self.context.columns.processed
        return {group for number, group in self._groups() if number in processed} if processed else set()

    def _polled(self, number: int, group: int, marks: bool) -> None:
        """A poll takes its group on; where processing is told apart, only to where the group begins."""
        columns, highest = self.context.columns, self.context.segments.highest
        for segment in range(columns.segment_start[number], columns.segment_start[number + 1]):
            key = columns.segment_key[segment]
            if not marks:
                self._step(group, key, number, highest[segment])
            elif (group, key) not in self.reached:
                first = columns.polled[columns.segment_row[segment]]
                self._step(group, key, number, columns.offset[first] - 1)

    def _groups(self) -> Iterator[tuple[int, int]]:
        return with_groups(self.context.columns, self.context.options, self.context.by_call)

    def _step(self, group: int, key: int, number: int, offset: int) -> None:
        register = (group, key)
        if register not in self.wanted:
            return
        reached = self.reached.get(register)
        if reached is None:
            reached = self.reached[register] = array("q")
            self.times[register] = array("q")
            self.steps[register] = array("i")
        if not reached or offset > reached[-1]:
            reached.append(offset)
            self.times[register].append(self.context.columns.call[number])
            self.steps[register].append(number)

    def _judge(self, register: tuple[int, int], offset: int, number: int) -> None:
        """Is there a committed record below `offset` and beyond all that the group had reached by the return?"""
        columns = self.context.columns
        times = self.times.get(register)
        if times is None:
            return
        end = columns.returned[number] if columns.outcome[number] != INFO else NEVER
        step = bisect_right(times, end) - 1
        if step < 0:
            return
        reached = self.reached[register][step]
        if offset <= reached + 1:
            return
        visible = self._visible(register[1])
        place = bisect_right(visible, reached)
        if place < len(visible) and visible[place] < offset:
            skipped = bisect_left(visible, offset) - place
            found = (register, (number, self.steps[register][step], offset), (reached, visible[place], skipped))
            self.context.findings.add(
                "commit-past-processed", Judgement.ERROR, skipped, _tell_past, self.context, found
            )

    def _visible(self, key: int) -> array[int]:
        known = self.visible.get(key)
        if known is None:
            columns, order = self.context.columns, self.context.order
            known = array("q")
            for place in range(order.key_start[key], order.key_start[key + 1]):
                element = order.elements[place]
                writer = columns.writer[element]
                if columns.read_ok[element] if writer == NOBODY else columns.committed[writer]:
                    known.append(columns.offset[element])
            self.visible[key] = known
        return known


def _group_words(columns: Columns, group: int) -> str:
    name = columns.groups.names[group]
    return f"group {name}" if name else "the group"


def _tell_owners(
    context: Context, where: tuple[int, int, int], claims: tuple[tuple[int, int], tuple[int, int]]
) -> Example:
    columns, words = context.columns, context.words
    group, generation, key = where
    (first, shown), (second, also) = claims
    names = [columns.members.names[first], columns.members.names[second]]
    text = (
        f"In generation {generation} of {_group_words(columns, group)}, {words.key(key)} belongs to member {names[0]} "
        f"according to {words.who(shown)}, and to member {names[1]} according to {words.who(also)}."
    )
    details = {"generation": generation, "members": names}
    return Example(text, tuple(dict.fromkeys((shown, also))), words.key(key), details)


def _tell_past(context: Context, found: tuple[tuple[int, int], tuple[int, int, int], tuple[int, int, int]]) -> Example:
    columns, words, order = context.columns, context.words, context.order
    (group, key), (number, furthest, offset), (reached, missed, skipped) = found
    places = range(order.key_start[key], order.key_start[key + 1])
    place = bisect_left(places, missed, key=lambda place: columns.offset[order.elements[place]])
    operations = (number, furthest, *words.shows(order.elements[places[place]]))
    verb = "answered" if columns.functions.get(number) == "committed" else "committed"
    text = (
        f"{_group_words(columns, group)}, {words.key(key)}: {words.who(number)} {verb} {offset}, although the group "
        f"had come no further than offset {reached} by then, with {words.who(furthest)}: it passed over {skipped} "
        f"committed record{'s' if skipped > 1 else ''}, from offset {missed} on."
    )
    details = {"committed": offset, "reached": reached, "passed": skipped}
    return Example(text, tuple(dict.fromkeys(operations)), words.key(key), details)
