"""Committed offsets of consumer groups as what they are: one register per group and key.

Knows: commits (also those inside transactions) and fetches, in real time and by generation. Refuses to know: what was
polled (see `progress`).

A fetch that answers v is explained by a commit of v that began before the fetch ended and was not certainly replaced
before the fetch began. A commit is certainly replaced by one that began after it was over and had been acknowledged,
or had been seen by a fetch; and by an acknowledged one of a newer generation, whenever it itself ended, because a
member of an older generation is fenced.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

from raftlog.linearizability.checker.kafka.columns import (
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
from raftlog.linearizability.checker.kafka.findings import Example, Judgement

_NO_GENERATION = -1
_ANY_GENERATION = NEVER  # a commit that names no generation may be of any
_LONG_AGO = -NEVER


class _Value(NamedTuple):
    """All commits of one offset to one register: when the first began, when the last was over, and of whom."""

    first_call: int
    last_end: int
    generation: int  # the newest


@dataclass(slots=True)
class _Known:
    """What is certain of a register at one moment of the walk."""

    latest_call: int = _LONG_AGO  # every commit over before this is certainly replaced …
    evidence: int = NOBODY  # … as this operation shows
    evidence_offset: int = NOWHERE
    highest: tuple[int, int] = (NOWHERE, NOBODY)  # the greatest offset certainly in place since the last reset; its row
    generation: tuple[int, int] = (_NO_GENERATION, NOBODY)  # the newest acknowledged, and its row
    resets_until: int = _LONG_AGO  # an operation that began after this cannot have been overtaken by a reset


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
        for number in [*columns.subscriptions, *columns.seeks]:
            self._calls.setdefault(columns.process[number], []).append(columns.call[number])
        for calls in self._calls.values():
            calls.sort()

    def between(self, process: int, start: int, end: int) -> bool:
        """Whether the process did so in the closed interval."""
        calls = self._calls.get(process, [])
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
        self.known = _Known()
        columns = context.columns
        for row in commits:
            number, offset = columns.commit_operation[row], columns.commit_offset[row]
            if columns.outcome[number] == FAIL:
                self.failed.setdefault(offset, row)
                continue
            call = columns.call[number]
            end = columns.returned[number] if columns.outcome[number] == OK else NEVER
            generation = columns.commit_generation[row]
            if generation == _NO_GENERATION:
                generation = _ANY_GENERATION
            before = self.values.get(offset)
            if before is None:
                self.values[offset] = _Value(call, end, generation)
            else:
                self.values[offset] = _Value(
                    min(call, before.first_call), max(end, before.last_end), max(generation, before.generation)
                )

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
                if columns.outcome[number] != OK:
                    continue
                # A transaction's offsets may become visible a moment after its commit is acknowledged.
                wait = self.context.options.transaction_visibility if columns.function[number] == TXN else 0
                if wait is not None:
                    events.append((columns.returned[number] + wait, 1, row, is_fetch))
        events.sort(key=_event_order)
        for _, kind, row, is_fetch in events:
            if is_fetch:
                self._fetch_returned(row) if kind else self._fetch_called(row)
            else:
                self._commit_returned(row) if kind else self._commit_called(row)

    def _commit_called(self, row: int) -> None:
        columns = self.context.columns
        number = columns.commit_operation[row]
        if number in columns.resets and columns.outcome[number] != FAIL:
            end = columns.returned[number] if columns.outcome[number] == OK else NEVER
            self.known.resets_until = max(self.known.resets_until, end)
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
        if call > known.latest_call:
            known.latest_call, known.evidence, known.evidence_offset = call, number, offset
        if number in columns.resets or (offset > known.highest[0] and call > known.resets_until):
            known.highest = (offset, row)
        generation = columns.commit_generation[row]
        if generation > known.generation[0]:
            known.generation = (generation, row)

    def _fetch_called(self, row: int) -> None:
        columns, known = self.context.columns, self.known
        offset = columns.fetch_offset[row]
        number = columns.fetch_operation[row]
        value = self.values.get(offset)
        if value is not None and value.first_call <= columns.returned[number]:
            if value.last_end < known.latest_call:
                self._replaced(row)
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
        elif known.evidence != NOBODY and offset < known.evidence_offset:
            self._replaced(row)

    def _replaced(self, row: int) -> None:
        """The fetch answers something that was certainly replaced before it began."""
        columns, known = self.context.columns, self.known
        weight = abs(known.evidence_offset - columns.fetch_offset[row])
        by_fetch = columns.function[known.evidence] == columns.function[columns.fetch_operation[row]]
        name = "lost-commit"
        if by_fetch and columns.functions.get(known.evidence) == "committed":
            name = "nonmonotonic-committed-read"
        found = (row, known.evidence, known.evidence_offset)
        self.context.findings.add(name, Judgement.ERROR, weight, _tell_replaced, self.context, found)

    def _fetch_returned(self, row: int) -> None:
        """What a fetch saw was in place: whatever was over before its commit began is replaced."""
        columns, known = self.context.columns, self.known
        offset = columns.fetch_offset[row]
        value = self.values.get(offset)
        number = columns.fetch_operation[row]
        if value is not None and value.first_call > known.latest_call:
            known.latest_call, known.evidence, known.evidence_offset = value.first_call, number, offset
        elif value is None and offset not in self.failed and known.evidence_offset < offset:
            # Committed by something that the history does not show, such as automatic commits.
            known.evidence, known.evidence_offset = number, offset


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
    """fenced-commit: an acknowledged commit of an older generation began after a newer one was known."""
    columns = context.columns
    signs: dict[int, list[tuple[int, int]]] = {}  # group -> (operation, generation)
    for number, group, generation, _, _ in columns.assignments:
        signs.setdefault(group, []).append((number, generation))
    commits: dict[int, list[int]] = {}
    for row, generation in enumerate(columns.commit_generation):
        if generation >= 0 and columns.outcome[columns.commit_operation[row]] == OK:
            commits.setdefault(columns.commit_group[row], []).append(row)
    for group, rows in commits.items():
        known = signs.get(group, [])
        known += [(columns.commit_operation[row], columns.commit_generation[row]) for row in rows]
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


def _tell_replaced(context: Context, found: tuple[int, int, int]) -> Example:
    columns, words = context.columns, context.words
    row, evidence, offset = found
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
    text = (
        f"{_register_name(columns, columns.commit_group[row], key)}: {_commit_words(context, row)} committed "
        f"{columns.commit_offset[row]} successfully, although {words.who(newest[0])} had shown generation {newest[1]} "
        f"{words.gap(newest[0], number)} before it began."
    )
    details = {"generation": columns.commit_generation[row], "known": newest[1]}
    return Example(text, (newest[0], number), words.key(key), details)
