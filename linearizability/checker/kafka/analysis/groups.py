"""Who owns which key in a group, and how far a group has come compared with what it has committed."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from raftlog.linearizability.checker.kafka.columns.columns import FAIL, INFO, NEVER, NOBODY, NOWHERE, OK, Columns
from raftlog.linearizability.checker.kafka.columns.gather import (
    ascending,
    chosen,
    counting,
    known,
    owners,
    plus,
    put_first,
    rises,
    spread,
    starts_of,
    take,
    tally,
)
from raftlog.linearizability.checker.kafka.columns.subscriptions import groups_of
from raftlog.linearizability.checker.kafka.context import Context
from raftlog.linearizability.checker.kafka.report.findings import Example, Judgement


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


@dataclass(slots=True)
class _Steps:
    """Ways through keys: the register (a group's key), the offset reached with each step, and the operation."""

    registers: array[int] = field(default_factory=lambda: array("i"))
    reached: array[int] = field(default_factory=lambda: array("q"))
    operations: array[int] = field(default_factory=lambda: array("i"))

    def at(self, places: array[int]) -> _Steps:
        """The steps at these places."""
        return _Steps(take(self.registers, places), take(self.reached, places), take(self.operations, places))


_POLLED, _PROCESSED, _SOUGHT, _RESET = range(4)  # what takes a group on, in the order in which one operation does


class _Progress:
    """How far the members of each group have come in each key that the group commits, as time goes by."""

    def __init__(self, context: Context) -> None:
        self.context = context
        columns = context.columns
        pairs = [*zip(columns.commit_group, columns.commit_key, strict=True)]
        pairs += zip(columns.fetch_group, columns.fetch_key, strict=True)
        self.registers = {register: number for number, register in enumerate(dict.fromkeys(pairs))}
        self.groups = groups_of(columns, context.options, context.by_call)
        self.marking = {self.groups[number] for number in columns.processed}  # whose processing is told apart
        self.steps: list[_Steps] = []  # of each register
        self.times: list[array[int]] = []
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
        """Find the steps of every register: what goes beyond all before, in the order of calls."""
        columns, limit = self.context.columns, len(self.registers)
        steps = self._polled()
        if columns.processed or columns.seeks or columns.resets:
            steps = self._with_told(steps)
        marks = array("B", rises(steps.reached, steps.registers, limit))
        steps = steps.at(chosen(counting(range(len(marks))), marks))
        steps = steps.at(ascending(steps.registers))
        times = take(columns.call, steps.operations)
        for first, after in pairwise(starts_of(tally(steps.registers, limit))):
            self.steps.append(_Steps(array("i"), steps.reached[first:after], steps.operations[first:after]))
            self.times.append(times[first:after])

    def _polled(self) -> _Steps:
        """Polls take their group on; where processing is told apart, only to where the group begins."""
        columns = self.context.columns
        rows = spread(columns.segment_start, self.context.by_call)
        operations = take(owners(columns.segment_start), rows)
        registers = self._registers_of(take(self.groups, operations), take(columns.segment_key, rows))
        of_any = array("B", known(registers))
        rows, registers = chosen(rows, of_any), chosen(registers, of_any)
        steps = _Steps(registers, take(self.context.segments.highest, rows), chosen(operations, of_any))
        if not self.marking:
            return steps
        begun: set[int] = set()
        kept = array("i")
        for place, register in enumerate(registers):
            if self.groups[steps.operations[place]] in self.marking:
                if register in begun:
                    continue
                begun.add(register)
                steps.reached[place] = columns.offset[columns.polled[columns.segment_row[rows[place]]]] - 1
            kept.append(place)
        return steps.at(kept)

    def _registers_of(self, groups: array[int], keys: array[int]) -> array[int]:
        """The register of each pair of a group and a key, NOBODY for none."""
        columns = self.context.columns
        width = len(columns.keys.names)
        groups_here = dict.fromkeys(group for group, _ in self.registers)
        firsts = {group: width * place for place, group in enumerate(groups_here, 1)}
        table = array("i", [NOBODY]) * (width * (len(firsts) + 1))  # first a row of groups without any
        for (group, key), number in self.registers.items():
            table[firsts[group] + key] = number
        bases = array("i", [firsts.get(group, 0) for group in range(len(columns.groups.names))])
        return take(table, plus(take(bases, groups), keys))

    def _with_told(self, polled: _Steps) -> _Steps:
        """The steps in the order of calls, with those that the history tells: what was processed, sought or reset."""
        columns, by_call = self.context.columns, self.context.by_call
        place_of = counting(range(len(columns)))
        put_first(place_of, counting(by_call) if isinstance(by_call, range) else by_call, place_of[:])
        steps = _Steps(polled.registers[:], polled.reached[:], polled.operations[:])
        kinds = bytearray(len(polled.registers))  # _POLLED
        for kind, register, offset, number in self._told():
            if register in self.registers:
                steps.registers.append(self.registers[register])
                steps.reached.append(offset)
                steps.operations.append(number)
                kinds.append(kind)
        places = take(place_of, steps.operations)
        moments = array("q", (4 * place + kind for place, kind in zip(places, kinds, strict=True)))
        begun: set[int] = set()
        kept = array("i")
        for step in ascending(moments):
            way, kind = steps.registers[step], kinds[step]
            if kind == _RESET and way not in begun:
                continue  # nothing is known of the group yet
            if kind == _POLLED and way in begun and self.groups[steps.operations[step]] in self.marking:
                continue
            begun.add(way)
            kept.append(step)
        return steps.at(kept)

    def _told(self) -> Iterator[tuple[int, tuple[int, int], int, int]]:
        columns, groups = self.context.columns, self.groups
        for number, places in columns.processed.items():
            for key, offset in places:
                yield _PROCESSED, (groups[number], key), offset, number
        for number, places in columns.seeks.items():
            for key, offset in places:
                yield _SOUGHT, (groups[number], key), offset - 1, number
        for row, number in enumerate(columns.commit_operation):
            if number in columns.resets and columns.outcome[number] != FAIL:
                register = (columns.commit_group[row], columns.commit_key[row])
                yield _RESET, register, columns.commit_offset[row] - 1, number

    def _judge(self, register: tuple[int, int], offset: int, number: int) -> None:
        """Is there a committed record below `offset` and beyond all that the group had reached by the return?"""
        columns = self.context.columns
        way = self.registers[register]
        end = columns.returned[number] if columns.outcome[number] != INFO else NEVER
        step = bisect_right(self.times[way], end) - 1
        if step < 0:
            return
        reached = self.steps[way].reached[step]
        if offset <= reached + 1:
            return
        visible = self._visible(register[1])
        place = bisect_right(visible, reached)
        if place < len(visible) and visible[place] < offset:
            skipped = bisect_left(visible, offset) - place
            found = (register, (number, self.steps[way].operations[step], offset), (reached, visible[place], skipped))
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
