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


class _Steps:
    """One group's way through one key: the offset reached with each step, when that began, and the operation."""

    __slots__ = ("operations", "reached", "times")

    def __init__(self) -> None:
        self.reached = array("q")
        self.times = array("q")
        self.operations = array("i")


class _Progress:
    """How far the members of each group have come in each key that the group commits, as time goes by."""

    def __init__(self, context: Context) -> None:
        self.context = context
        columns = context.columns
        self.steps: dict[int, dict[int, _Steps]] = {}  # group -> key that it commits or fetches -> how far it came
        for group, key in {
            *zip(columns.commit_group, columns.commit_key, strict=True),
            *zip(columns.fetch_group, columns.fetch_key, strict=True),
        }:
            self.steps.setdefault(group, {})[key] = _Steps()
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
        starts, processed, seeks = columns.segment_start, columns.processed, columns.seeks
        for number, group in self._groups():
            steps = self.steps.get(group)
            if steps is not None and starts[number] != starts[number + 1]:
                self._polled(number, steps, group in marking)
            if number in processed or number in seeks:
                for key, offset in processed.get(number, ()):
                    self._step(group, key, number, offset)
                for key, offset in seeks.get(number, ()):
                    self._step(group, key, number, offset - 1)
            for row in resets.get(number, ()) if resets else ():
                known = self.steps[columns.commit_group[row]][columns.commit_key[row]]
                if known.reached:
                    self._step(
                        columns.commit_group[row], columns.commit_key[row], number, columns.commit_offset[row] - 1
                    )

    def _marking(self) -> set[int]:
        """The groups of which the history says what they processed."""
        processed = self.context.columns.processed
        return {group for number, group in self._groups() if number in processed} if processed else set()

    def _polled(self, number: int, steps: dict[int, _Steps], marks: bool) -> None:
        """A poll takes its group on; where processing is told apart, only to where the group begins."""
        columns, highest = self.context.columns, self.context.segments.highest
        keys, called = columns.segment_key, columns.call[number]
        for segment in range(columns.segment_start[number], columns.segment_start[number + 1]):
            known = steps.get(keys[segment])
            if known is None:
                continue
            offset = highest[segment]
            if known.reached:
                if marks or offset <= known.reached[-1]:
                    continue
            elif marks:
                offset = columns.offset[columns.polled[columns.segment_row[segment]]] - 1
            known.reached.append(offset)
            known.times.append(called)
            known.operations.append(number)

    def _groups(self) -> Iterator[tuple[int, int]]:
        return with_groups(self.context.columns, self.context.options, self.context.by_call)

    def _step(self, group: int, key: int, number: int, offset: int) -> None:
        known = self.steps.get(group, {}).get(key)
        if known is not None and (not known.reached or offset > known.reached[-1]):
            known.reached.append(offset)
            known.times.append(self.context.columns.call[number])
            known.operations.append(number)

    def _judge(self, register: tuple[int, int], offset: int, number: int) -> None:
        """Is there a committed record below `offset` and beyond all that the group had reached by the return?"""
        columns = self.context.columns
        group, key = register
        known = self.steps[group][key]
        end = columns.returned[number] if columns.outcome[number] != INFO else NEVER
        step = bisect_right(known.times, end) - 1
        if step < 0:
            return
        reached = known.reached[step]
        if offset <= reached + 1:
            return
        visible = self._visible(key)
        place = bisect_right(visible, reached)
        if place < len(visible) and visible[place] < offset:
            skipped = bisect_left(visible, offset) - place
            found = (register, (number, known.operations[step], offset), (reached, visible[place], skipped))
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
