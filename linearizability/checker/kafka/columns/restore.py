"""Operations made again from their columns, as a history would write them.

What the analysis does not need is not kept, so the order of sends and polls inside one operation may differ from the
original, a send carries its offset even where its own answer did not say it, and several polls of one operation become
one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from raftlog.linearizability.checker.history import FAIL as FAIL_OUTCOME
from raftlog.linearizability.checker.history import INFO as INFO_OUTCOME
from raftlog.linearizability.checker.history import OK as OK_OUTCOME
from raftlog.linearizability.checker.history import Operation
from raftlog.linearizability.checker.kafka.columns.columns import (
    FUNCTION_NAME,
    NEVER,
    NOBODY,
    NOWHERE,
    READ_UNCOMMITTED,
    TRANSACTIONAL,
    TXN,
    Columns,
)
from raftlog.linearizability.checker.kafka.columns.fields import EPOCHS

_OUTCOMES = (OK_OUTCOME, FAIL_OUTCOME, INFO_OUTCOME)
_Answer: TypeAlias = tuple[Any, Any]  # input, output


def restored(columns: Columns, number: int) -> Operation:
    """One operation of the history; `index` is its place in the order in which operations were read."""
    function = columns.functions.get(number) or FUNCTION_NAME[columns.function[number]]
    given, output = _FACTS.get(function, _data)(columns, number)
    returned = columns.returned[number]
    return Operation(
        columns.processes[columns.process[number]],
        function,
        given,
        output,
        None,
        columns.call[number],
        None if returned == NEVER else returned,
        _OUTCOMES[columns.outcome[number]],
        columns.errors.get(number),
        number,
        columns.line[number] or None,
    )


def _offset(offset: int) -> int | None:
    return None if offset == NOWHERE else offset


def _rows(operations: array[int], number: int) -> range:
    """The rows of an operation in a table that lists its operations in ascending order."""
    return range(bisect_left(operations, number), bisect_right(operations, number))


def _entries(table: Sequence[tuple[Any, ...]], number: int) -> Sequence[tuple[Any, ...]]:
    first = bisect_left(table, number, key=lambda entry: entry[0])
    return table[first : bisect_right(table, number, key=lambda entry: entry[0])]


# Sends, polls and transactions


def _data(columns: Columns, number: int) -> _Answer:
    micro = _sends(columns, number) + _polls(columns, number) + _commits(columns, number)
    given: Any = [[*one[:2], one[2][1]] if one[0] == "send" else ["poll"] if one[0] == "poll" else one for one in micro]
    output: Any = micro
    producer = columns.producer[number] if number < len(columns.producer) else NOBODY
    extra: dict[str, Any] = {}
    if producer != NOBODY:
        extra = _producer(columns, producer, columns.epoch[number])
    if columns.flags[number] & READ_UNCOMMITTED:
        extra["isolation"] = "read_uncommitted"
    if columns.flags[number] & TRANSACTIONAL and columns.function[number] != TXN:
        extra["transactional"] = True
    if extra:
        given = {"ops": given, **extra}
    if number in columns.rebalanced:
        output = {"ops": output, "rebalance": [columns.keys.names[key] for key in sorted(columns.rebalanced[number])]}
    return given, output


def _sends(columns: Columns, number: int) -> list[Any]:
    found: list[Any] = []
    for row in range(columns.send_start[number], columns.send_start[number + 1]):
        element = columns.send_element[row]
        known = columns.send_ack.get(row, columns.offset[element])
        found.append(
            ["send", columns.keys.names[columns.element_key[element]], [_offset(known), columns.values[element]]]
        )
    return found


def _polls(columns: Columns, number: int) -> list[Any]:
    polled: dict[str, list[list[Any]]] = {}
    for key, first, after in columns.segments_of(number):
        records = [[row_offset(columns, row), columns.values[columns.polled[row]]] for row in range(first, after)]
        polled.setdefault(columns.keys.names[key], []).extend(records)
    ends = {columns.keys.names[key]: end for key, end in sorted(columns.ends.get(number, {}).items())}
    if ends:
        return [["poll", polled, ends]]
    return [["poll", polled]] if polled else []


def row_offset(columns: Columns, row: int) -> int | None:
    """The offset at which a polled record came."""
    if row in columns.polled_offset:
        return columns.polled_offset[row]
    return columns.offset[columns.polled[row]]


def _commits(columns: Columns, number: int) -> list[Any]:
    found: list[Any] = []
    for row in _rows(columns.commit_operation, number):
        group = columns.groups.names[columns.commit_group[row]]
        member = _member(columns, row)
        offset = {columns.keys.names[columns.commit_key[row]]: columns.commit_offset[row]}
        found.append(["commit", group, offset, member] if member else ["commit", group, offset])
    return found


def _member(columns: Columns, row: int) -> dict[str, Any]:
    """Who made a commit, as far as it says so."""
    member = columns.members.names[columns.commit_member[row]]
    fields: dict[str, Any] = {"member": member} if member else {}
    if columns.commit_generation[row] >= 0:
        fields["generation"] = columns.commit_generation[row]
    return fields


def _producer(columns: Columns, producer: int, epoch: int) -> dict[str, Any]:
    fields = {"producer": columns.producers.names[producer], "epoch": epoch % EPOCHS}
    return fields | ({"producer_id": epoch // EPOCHS} if epoch >= EPOCHS else {})


# The other functions


def _subscription(columns: Columns, number: int) -> _Answer:
    subscription = columns.subscriptions[number]
    given: dict[str, Any] = {"keys": sorted(columns.keys.names[key] for key in subscription.keys)}
    if subscription.group is not None:
        given["group"] = subscription.group
    if subscription.isolation is not None:
        given["isolation"] = subscription.isolation
    if subscription.position is not None:
        given["position"] = subscription.position
    return given, None


def _seek(columns: Columns, number: int) -> _Answer:
    return [[columns.keys.names[key], _offset(offset)] for key, offset in columns.seeks[number]], None


def _process(columns: Columns, number: int) -> _Answer:
    return [[columns.keys.names[key], offset] for key, offset in columns.processed[number]], None


def _commit(columns: Columns, number: int) -> _Answer:
    rows = _rows(columns.commit_operation, number)
    if not rows:
        return {"offsets": []}, None
    offsets = [[columns.keys.names[columns.commit_key[row]], _offset(columns.commit_offset[row])] for row in rows]
    given = {"group": columns.groups.names[columns.commit_group[rows[0]]], "offsets": offsets}
    reset = {"reset": True} if number in columns.resets else {}
    return {**given, **_member(columns, rows[0]), **reset}, None


def _committed(columns: Columns, number: int) -> _Answer:
    rows = _rows(columns.fetch_operation, number)
    answer = [[columns.keys.names[columns.fetch_key[row]], _offset(columns.fetch_offset[row])] for row in rows]
    given = {"keys": [key for key, _ in answer]}
    return (given | {"group": columns.groups.names[columns.fetch_group[rows[0]]]} if rows else given), answer


def _assignments(columns: Columns, number: int) -> tuple[dict[str, Any], int, dict[str, list[str]]]:
    """(input, generation, keys by member)."""
    entries = _entries(columns.assignments, number)
    if not entries:
        return {}, NOBODY, {}
    _, group, generation, _, _ = entries[0]
    given = {"group": columns.groups.names[group]}
    if group in columns.member_epochs:
        given["protocol"] = "consumer"
    members = {columns.members.names[member]: [columns.keys.names[key] for key in keys] for *_, member, keys in entries}
    return given, generation, members


def _join(columns: Columns, number: int) -> _Answer:
    given, generation, members = _assignments(columns, number)
    if not members:
        return given, None
    member, keys = next(iter(members.items()))
    return given, {"member": member, "generation": generation, "keys": keys}


def _describe_group(columns: Columns, number: int) -> _Answer:
    given, generation, members = _assignments(columns, number)
    return given, {"generation": generation, "members": members} if members else None


def _init_producer(columns: Columns, number: int) -> _Answer:
    for _, producer, epoch in _entries(columns.initialised, number):
        fields = _producer(columns, producer, epoch)
        return {"producer": fields.pop("producer")}, fields
    return None, None


def _question(columns: Columns, number: int) -> _Answer:
    rows = _rows(columns.metadata_operation, number)
    answer = {columns.keys.names[columns.metadata_key[row]]: columns.metadata_offset[row] for row in rows}
    if not rows:
        return None, None
    kind, *details = columns.questions.names[columns.metadata_question[rows[0]]].split(" ")
    if kind != "list-offsets":
        return list(answer), answer
    return {"keys": list(answer), "at": " ".join(details[:-1]), "isolation": details[-1]}, answer


def _leader(columns: Columns, number: int) -> _Answer:
    found = {columns.keys.names[key]: [leader, epoch] for _, key, leader, epoch in _entries(columns.leaders, number)}
    return list(found) or None, found or None


def _nothing(columns: Columns, number: int) -> _Answer:
    return None, None


_FACTS: dict[str, Callable[[Columns, int], _Answer]] = {
    "assign": _subscription,
    "subscribe": _subscription,
    "unsubscribe": _nothing,
    "seek": _seek,
    "process": _process,
    "commit": _commit,
    "committed": _committed,
    "join": _join,
    "describe-group": _describe_group,
    "init-producer": _init_producer,
    "high-watermark": _question,
    "last-stable-offset": _question,
    "list-offsets": _question,
    "leader": _leader,
    "crash": _nothing,
    "debug-topic-partitions": _nothing,
}
