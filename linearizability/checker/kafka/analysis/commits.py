"""Committed offsets of consumer groups as what they are: one register per group and key.

A fetch that answers v is explained by a commit of v that began before the fetch ended and was not certainly replaced
before the fetch began. What was over before the register certainly held another value is replaced: the register held
w at some time after an acknowledged commit of w began, and at some time after a fetch that answered w began. A commit
is over when it was acknowledged, and, if it is the only one of its value, when a fetch had answered it. An
acknowledged commit of a newer generation replaces all of older ones, whenever those ended, because a member of an
older generation is fenced. Kafka never orders the offsets themselves, so going back is an error only where the
group's rules make it one, and not after a deliberate seek or reset.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

from raftlog.linearizability.checker.kafka.columns.columns import (
    FAIL,
    NEVER,
    NOBODY,
    NOWHERE,
    OK,
    SUBSCRIBED,
    TRANSACTIONAL,
    TXN,
    Columns,
)
from raftlog.linearizability.checker.kafka.context import Context, allowed_if
from raftlog.linearizability.checker.kafka.report.findings import Example, Judgement

_NO_GENERATION = -1
_ANY_GENERATION = NEVER  # a commit that names no generation may be of any
_LONG_AGO = -NEVER
_UNOWNED = -2  # an offset that no operation ever answers


class _Value(NamedTuple):
    """All commits of one offset to one register: when the first began, when the last was over, and of whom."""

    first_call: int
    last_end: int
    generation: int  # the newest
    commits: int = 1


class _Evidence(NamedTuple):
    """The register certainly held `offset` at some time after `since`, as this operation shows."""

    since: int = _LONG_AGO
    operation: int = NOBODY
    offset: int = _UNOWNED


_NO_EVIDENCE = _Evidence()


@dataclass(slots=True)
class _Known:
    """What is certain of a register at one moment of the walk."""

    held: _Evidence = _NO_EVIDENCE  # the latest
    held_before: _Evidence = _NO_EVIDENCE  # the latest of another offset
    highest: tuple[int, int] = (NOWHERE, NOBODY)  # the greatest offset certainly in place since the last reset; its row
    generation: tuple[int, int] = (_NO_GENERATION, NOBODY)  # the newest acknowledged, and its row
    resets_until: int = _LONG_AGO  # an operation that began after this cannot have been overtaken by a reset

    def note(self, evidence: _Evidence) -> None:
        """Keep the latest evidence, and the latest of any other offset."""
        if evidence.offset == self.held.offset:
            self.held = max(self.held, evidence)
        elif evidence.since > self.held.since:
            self.held, self.held_before = evidence, self.held
        elif evidence.since > self.held_before.since:
            self.held_before = evidence

    def against(self, offset: int) -> _Evidence:
        """The latest evidence of another offset than this one."""
        return self.held_before if self.held.offset == offset else self.held


def check_commits(context: Context) -> None:
    """nonmonotonic-commit, nonmonotonic-committed-read, lost-commit, fenced-commit and aborted-commit-read."""
    columns = context.columns
    commits: dict[tuple[int, int], list[int]] = {}
    for row, group in enumerate(columns.commit_group):
        commits.setdefault((group, columns.commit_key[row]), []).append(row)
    fetches: dict[tuple[int, int], list[int]] = {}
    for row, group in enumerate(columns.fetch_group):
        fetches.setdefault((group, columns.fetch_key[row]), []).append(row)
    rewinds = _Rewinds(columns)
    for register in dict.fromkeys([*commits, *fetches]):
        _Register(context, rewinds, commits.get(register, []), fetches.get(register, [])).walk()
    _fenced_by_clock(context)


class _Rewinds:
    """When each process assigned, subscribed or sought: what it commits after that may well be lower."""

    def __init__(self, columns: Columns) -> None:
        self._calls: dict[int, list[int]] = {}
        self._seeks: dict[tuple[int, int], list[int]] = {}  # (process, key)
        for number in [*columns.subscriptions, *columns.seeks]:
            self._calls.setdefault(columns.process[number], []).append(columns.call[number])
        for number, places in columns.seeks.items():
            for key in [key for key, _ in places] or (NOBODY,):  # NOBODY: in all of them
                self._seeks.setdefault((columns.process[number], key), []).append(columns.call[number])
        for calls in [*self._calls.values(), *self._seeks.values()]:
            calls.sort()

    def between(self, process: int, start: int, end: int) -> bool:
        """Whether the process did so in the closed interval."""
        return _any_between(self._calls.get(process, []), start, end)

    def sought(self, process: int, key: int, start: int, end: int) -> bool:
        """Whether the process chose another place in the key in the closed interval."""
        return any(_any_between(self._seeks.get((process, one), []), start, end) for one in (key, NOBODY))


def _any_between(calls: list[int], start: int, end: int) -> bool:
    place = bisect_left(calls, start)
    return place < len(calls) and calls[place] <= end


class _Register:
    """One group's committed offset of one key."""

    def __init__(self, context: Context, rewinds: _Rewinds, commits: list[int], fetches: list[int]) -> None:
        self.context = context
        self.rewinds = rewinds
        self.commits = commits
        self.fetches = fetches
        self.values: dict[int, _Value] = {}
        self.failed: dict[int, int] = {}  # offset -> row of a commit that certainly failed
        self.unrecorded: set[int] = set()  # offsets that were fetched before the first commit of them that is known
        self.known = _Known()
        columns = context.columns
        self.deliberate = self._deliberate()
        for row in commits:
            number, offset = columns.commit_operation[row], columns.commit_offset[row]
            if columns.outcome[number] == FAIL:
                if offset != NOWHERE:
                    self.failed.setdefault(offset, row)
                continue
            call = columns.call[number]
            end = self._end(number)
            generation = columns.commit_generation[row]
            if generation == _NO_GENERATION:
                generation = _ANY_GENERATION
            before = self.values.get(offset)
            if before is None:
                self.values[offset] = _Value(call, end, generation)
            else:
                self.values[offset] = _Value(
                    min(call, before.first_call),
                    max(end, before.last_end),
                    max(generation, before.generation),
                    before.commits + 1,
                )

    def _end(self, number: int) -> int:
        """The latest time at which a commit can have taken effect.

        A transaction's offsets may become visible a moment after its commit is acknowledged.
        """
        columns = self.context.columns
        if columns.outcome[number] != OK:
            return NEVER
        wait = self.context.options.transaction_visibility if columns.function[number] == TXN else 0
        return NEVER if wait is None else columns.returned[number] + wait

    def _deliberate(self) -> set[int]:
        """The rows that set the offset on purpose: resets, and a process's first commit after it sought the key."""
        columns = self.context.columns
        found = {row for row in self.commits if columns.commit_operation[row] in columns.resets}
        if not columns.seeks:
            return found
        last_call: dict[int, int] = {}
        for row in sorted(self.commits, key=lambda row: columns.call[columns.commit_operation[row]]):
            number = columns.commit_operation[row]
            process, call = columns.process[number], columns.call[number]
            if self.rewinds.sought(process, columns.commit_key[row], last_call.get(process, _LONG_AGO), call):
                found.add(row)
            if columns.outcome[number] != FAIL:
                last_call[process] = call
        return found

    def walk(self) -> None:
        """Walk the register's operations in the order of time: what returned before a call is known to it."""
        columns = self.context.columns
        events: list[tuple[int, int, int, bool]] = []  # time, 0 call or 1 return, row, is a fetch
        for rows, operations, is_fetch in (
            (self.commits, columns.commit_operation, False),
            (self.fetches, columns.fetch_operation, True),
        ):
            for row in rows:
                number = operations[row]
                events.append((columns.call[number], 0, row, is_fetch))
                end = columns.returned[number] if is_fetch else self._end(number)
                if columns.outcome[number] == OK and end != NEVER:
                    events.append((end, 1, row, is_fetch))
        events.sort(key=_event_order)
        for _, kind, row, is_fetch in events:
            if is_fetch:
                self._fetch_returned(row) if kind else self._fetch_called(row)
            else:
                self._commit_returned(row) if kind else self._commit_called(row)

    def _commit_called(self, row: int) -> None:
        columns = self.context.columns
        number = columns.commit_operation[row]
        if row in self.deliberate and columns.outcome[number] != FAIL:
            self.known.resets_until = max(self.known.resets_until, self._end(number))
        elif columns.outcome[number] == OK and columns.commit_offset[row] < self.known.highest[0]:
            if self.known.resets_until >= columns.call[number]:
                return
            before = self.known.highest[1]
            weight = self.known.highest[0] - columns.commit_offset[row]
            judgement = allowed_if(not _ordered(columns, self.rewinds, before, row))
            self.context.findings.add("nonmonotonic-commit", judgement, weight, _tell_back, self.context, before, row)

    def _commit_returned(self, row: int) -> None:
        columns, known = self.context.columns, self.known
        number, offset = columns.commit_operation[row], columns.commit_offset[row]
        call = columns.call[number]
        known.note(_Evidence(call, number, offset))
        if row in self.deliberate or (offset > known.highest[0] and call > known.resets_until):
            known.highest = (offset, row)
        generation = columns.commit_generation[row]
        if generation > known.generation[0]:
            known.generation = (generation, row)

    def _fetch_called(self, row: int) -> None:
        columns, known = self.context.columns, self.known
        offset = columns.fetch_offset[row]
        number = columns.fetch_operation[row]
        value = self.values.get(offset)
        other = known.against(offset)
        if value is not None and value.first_call <= columns.returned[number]:
            if value.last_end < other.since:
                self._replaced(row, other)
            elif value.generation < known.generation[0]:
                newer = known.generation[1]
                self.context.findings.add(
                    "fenced-commit", Judgement.ERROR, 1, _tell_overwritten, self.context, row, newer
                )
            return
        if offset in self.failed:
            self.context.findings.add(
                "aborted-commit-read", Judgement.ERROR, 1, _tell_aborted, self.context, row, self.failed[offset]
            )
        elif other.operation != NOBODY and offset < other.offset:
            self._replaced(row, other)

    def _replaced(self, row: int, other: _Evidence) -> None:
        """The fetch answers something that was certainly replaced before it began."""
        columns = self.context.columns
        weight = abs(other.offset - columns.fetch_offset[row])
        name = "lost-commit"
        if columns.functions.get(other.operation) == "committed":
            name = "nonmonotonic-committed-read"
        self.context.findings.add(name, Judgement.ERROR, weight, _tell_replaced, self.context, row, other)

    def _fetch_returned(self, row: int) -> None:
        """What a fetch saw was in place then: whatever else was over before it began is replaced."""
        columns, known = self.context.columns, self.known
        offset = columns.fetch_offset[row]
        value = self.values.get(offset)
        number = columns.fetch_operation[row]
        if value is not None and value.first_call <= columns.returned[number] and offset not in self.unrecorded:
            known.note(_Evidence(max(value.first_call, columns.call[number]), number, offset))
            if value.commits == 1 and columns.returned[number] < value.last_end:
                self.values[offset] = value._replace(last_end=columns.returned[number])
        elif offset != NOWHERE and offset not in self.failed:
            # Committed by something that the history does not show, such as automatic commits.
            if value is not None:
                self.unrecorded.add(offset)
            known.note(_Evidence(columns.call[number], number, offset))


def _event_order(event: tuple[int, int, int, bool]) -> tuple[int, int]:
    return event[:2]


def _ordered(columns: Columns, rewinds: _Rewinds, before: int, after: int) -> bool:
    """Whether the group's rules order two commits: by generation, subscription, transactions or process."""
    first, second = columns.commit_operation[before], columns.commit_operation[after]
    if columns.commit_generation[before] >= 0 and columns.commit_generation[after] >= 0:
        return True
    if columns.flags[first] & columns.flags[second] & (SUBSCRIBED | TRANSACTIONAL):
        return True
    process = columns.process[first]
    return process == columns.process[second] and not rewinds.between(
        process, columns.returned[first], columns.call[second]
    )


def _fenced_by_clock(context: Context) -> None:
    """fenced-commit: a commit of an older generation that took effect began after a newer one was known.

    In the classic protocol a generation is the group's, so any sign of a newer one fences all members. Where members
    have epochs of their own (KIP-848), only whoever owned or committed the same key with a newer epoch does.
    """
    columns = context.columns
    signs: dict[tuple[int, int], list[tuple[int, int]]] = {}  # group, key or any -> (operation, generation)
    for number, group, generation, _, keys in columns.assignments:
        for key in keys if group in columns.member_epochs else (NOBODY,):
            signs.setdefault((group, key), []).append((number, generation))
    commits: dict[tuple[int, int], list[int]] = {}
    seen = _seen(columns)
    for row, generation in enumerate(columns.commit_generation):
        if generation >= 0 and (columns.outcome[columns.commit_operation[row]] == OK or row in seen):
            group = columns.commit_group[row]
            key = columns.commit_key[row] if group in columns.member_epochs else NOBODY
            commits.setdefault((group, key), []).append(row)
    for register, rows in commits.items():
        _fenced(context, rows, signs.get(register, []))


def _seen(columns: Columns) -> set[int]:
    """The commits of unknown outcome that took effect: a fetch answered what nobody else committed."""
    commits: dict[tuple[int, int, int], list[int]] = {}
    for row, number in enumerate(columns.commit_operation):
        if columns.outcome[number] != FAIL:
            value = (columns.commit_group[row], columns.commit_key[row], columns.commit_offset[row])
            commits.setdefault(value, []).append(row)
    found = set()
    for row, number in enumerate(columns.fetch_operation):
        value = (columns.fetch_group[row], columns.fetch_key[row], columns.fetch_offset[row])
        rows = commits.get(value, ())
        if len(rows) == 1 and columns.call[columns.commit_operation[rows[0]]] <= columns.returned[number]:
            found.add(rows[0])
    return found


def _fenced(context: Context, rows: list[int], known: list[tuple[int, int]]) -> None:
    columns = context.columns
    for row in rows:
        if columns.outcome[columns.commit_operation[row]] == OK:
            known.append((columns.commit_operation[row], columns.commit_generation[row]))
    known.sort(key=lambda sign: columns.returned[sign[0]])
    rows.sort(key=lambda row: columns.call[columns.commit_operation[row]])
    done, newest = 0, (NOBODY, _NO_GENERATION)
    for row in rows:
        number = columns.commit_operation[row]
        while done < len(known) and columns.returned[known[done][0]] < columns.call[number]:
            newest = max(newest, known[done], key=lambda sign: sign[1])
            done += 1
        if columns.commit_generation[row] < newest[1]:
            weight = newest[1] - columns.commit_generation[row]
            context.findings.add("fenced-commit", Judgement.ERROR, weight, _tell_fenced, context, row, newest)


# What is told


def _register_name(columns: Columns, group: int, key: int) -> str:
    name = columns.groups.names[group]
    return f"group {name}, {columns.keys.names[key]}" if name else columns.keys.names[key]


def _commit_words(context: Context, row: int) -> str:
    columns = context.columns
    member = columns.members.names[columns.commit_member[row]]
    generation = columns.commit_generation[row]
    of = [f"member {member}"] if member else []
    if generation >= 0:
        of.append(f"generation {generation}")
    by = context.words.who(columns.commit_operation[row])
    return f"{by} as {', '.join(of)}" if of else by


def _tell_back(context: Context, before: int, row: int) -> Example:
    columns, words = context.columns, context.words
    first, second = columns.commit_operation[before], columns.commit_operation[row]
    key = columns.commit_key[row]
    text = (
        f"{_register_name(columns, columns.commit_group[row], key)}: {_commit_words(context, row)} committed "
        f"{columns.commit_offset[row]}, although {_commit_words(context, before)} had committed "
        f"{columns.commit_offset[before]} {words.gap(first, second)} before it began."
    )
    details = {"before": columns.commit_offset[before], "after": columns.commit_offset[row]}
    return Example(text, (first, second), words.key(key), details)


def _answer(columns: Columns, row: int) -> str:
    offset = columns.fetch_offset[row]
    return "no committed offset" if offset == NOWHERE else str(offset)


def _tell_replaced(context: Context, row: int, other: _Evidence) -> Example:
    columns, words = context.columns, context.words
    evidence, offset = other.operation, other.offset
    number, key = columns.fetch_operation[row], columns.fetch_key[row]
    verb = "answered" if columns.functions.get(evidence) == "committed" else "committed"
    text = (
        f"{_register_name(columns, columns.fetch_group[row], key)}: {words.who(number)} answered "
        f"{_answer(columns, row)}, although {words.who(evidence)} had {verb} {offset} "
        f"{words.gap(evidence, number)} before it began and nothing since can have brought that back."
    )
    details = {"before": offset, "after": None if columns.fetch_offset[row] == NOWHERE else columns.fetch_offset[row]}
    return Example(text, (evidence, number), words.key(key), details)


def _tell_overwritten(context: Context, row: int, newer: int) -> Example:
    columns, words = context.columns, context.words
    number, key = columns.fetch_operation[row], columns.fetch_key[row]
    text = (
        f"{_register_name(columns, columns.fetch_group[row], key)}: {words.who(number)} answered "
        f"{_answer(columns, row)}, which only an older generation committed, although {_commit_words(context, newer)} "
        f"had committed {columns.commit_offset[newer]} before it began."
    )
    details = {"before": columns.commit_offset[newer], "after": columns.fetch_offset[row]}
    return Example(text, (columns.commit_operation[newer], number), words.key(key), details)


def _tell_aborted(context: Context, row: int, failed: int) -> Example:
    columns, words = context.columns, context.words
    number, key = columns.fetch_operation[row], columns.fetch_key[row]
    text = (
        f"{_register_name(columns, columns.fetch_group[row], key)}: {words.who(number)} answered "
        f"{_answer(columns, row)}, which only {_commit_words(context, failed)} had tried to commit, and that failed."
    )
    operations = (columns.commit_operation[failed], number)
    return Example(text, operations, words.key(key), {"offset": columns.fetch_offset[row]})


def _tell_fenced(context: Context, row: int, newest: tuple[int, int]) -> Example:
    columns, words = context.columns, context.words
    number, key = columns.commit_operation[row], columns.commit_key[row]
    how = "successfully" if columns.outcome[number] == OK else "and it was seen to take effect"
    text = (
        f"{_register_name(columns, columns.commit_group[row], key)}: {_commit_words(context, row)} committed "
        f"{columns.commit_offset[row]} {how}, although {words.who(newest[0])} had shown generation {newest[1]} "
        f"{words.gap(newest[0], number)} before it began."
    )
    details = {"generation": columns.commit_generation[row], "known": newest[1]}
    return Example(text, (newest[0], number), words.key(key), details)
