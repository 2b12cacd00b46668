"""From operations to columns: everything that is not a send, a poll or a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from raftlog.linearizability.checker.history import Operation, Outcome
from raftlog.linearizability.checker.kafka.columns.columns import (
    ASSIGN,
    CRASH,
    NOWHERE,
    SEEK,
    SUBSCRIBE,
    Columns,
    Subscription,
)
from raftlog.linearizability.checker.kafka.columns.fields import (
    EPOCHS,
    BadField,
    integer,
    items,
    named,
    offset_of,
    sequence,
    show,
    text,
)

KeyNumber: TypeAlias = Callable[[Any], int]
Reader: TypeAlias = Callable[[Columns, KeyNumber, int, Operation], None]

_SUBSCRIPTION = frozenset({"keys", "group", "isolation", "position"})
_POSITIONS = ("beginning", "committed", "end")
_COMMIT = frozenset({"group", "offsets", "member", "generation", "reset"})
_FETCH = frozenset({"group", "keys"})
_JOIN_INPUT = frozenset({"group", "member", "protocol"})
_DESCRIBE_INPUT = frozenset({"group", "protocol"})
_PROTOCOLS = ("classic", "consumer")
_JOIN_OUTPUT = frozenset({"member", "generation", "keys"})
_DESCRIBE_OUTPUT = frozenset({"generation", "members"})
_PRODUCER = frozenset({"producer", "producer_id", "epoch"})
_LIST_OFFSETS = frozenset({"keys", "at", "isolation"})
_LEADER = frozenset({"leader", "epoch"})


def isolation(value: Any) -> str:
    """An isolation level's name."""
    if value not in ("read_committed", "read_uncommitted"):
        raise BadField(f"isolation is {show(value)}, not read_committed or read_uncommitted")
    return str(value)


def rebalanced(value: Any) -> list[Any]:
    """The keys in a rebalance log: a list of keys, or of [event, keys]."""
    found: list[Any] = []
    for entry in sequence(value, "rebalance"):
        if isinstance(entry, list | tuple) and len(entry) == 2 and isinstance(entry[1], list | tuple):
            found.extend(entry[1])
        else:
            found.append(entry)
    return found


def producer_of(columns: Columns, fields: Any) -> tuple[int, int]:
    """(producer, epoch) of fields that name them; a later producer id counts as a later epoch."""
    if fields.get("producer") is None or fields.get("epoch") is None:
        raise BadField('"producer" and "epoch" must come together')
    epoch = integer(fields["epoch"], "epoch")
    identity = integer(fields.get("producer_id"), "producer_id", 0)
    if not 0 <= epoch < EPOCHS or not 0 <= identity < 2**46:
        raise BadField(f"producer id {identity} with epoch {epoch} is out of range")
    return columns.producers.number(text(fields["producer"], "producer")), identity * EPOCHS + epoch


def commit_rows(columns: Columns, key: KeyNumber, number: int, commit: tuple[str, Any, str, int]) -> None:
    """One row for every key of a commit of (group, offsets, member, generation). Only a reset takes an offset away."""
    group_name, offsets, member_name, generation = commit
    group = columns.groups.number(group_name)
    member = columns.members.number(member_name)
    for name, value in items(offsets, "offsets"):
        offset = offset_of(value)
        if offset is None and number not in columns.resets:
            raise BadField(f"the offset committed for {show(name)} is {show(value)}")
        columns.commit_operation.append(number)
        columns.commit_group.append(group)
        columns.commit_key.append(key(name))
        columns.commit_offset.append(NOWHERE if offset is None else offset)
        columns.commit_member.append(member)
        columns.commit_generation.append(generation)


def _subscription(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    given = operation.input
    fields = named(given if isinstance(given, Mapping) else {"keys": given}, _SUBSCRIPTION, "the input")
    position = fields.get("position")
    if position is not None and position not in _POSITIONS:
        raise BadField(f"position is {show(position)}, not one of {', '.join(_POSITIONS)}")
    columns.subscriptions[number] = Subscription(
        frozenset(key(name) for name in sequence(fields.get("keys"), "keys")),
        None if fields.get("group") is None else text(fields["group"], "group"),
        None if fields.get("isolation") is None else isolation(fields["isolation"]),
        position,
    )


def _unsubscribe(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    columns.subscriptions[number] = Subscription(frozenset())


def _seek(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    columns.seeks[number] = tuple(
        (key(name), NOWHERE if offset is None else offset)
        for name, value in items(operation.input, "seek")
        for offset in [offset_of(value)]
    )


def _process(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    pairs = items(operation.input, "process")
    columns.processed[number] = tuple((key(name), integer(offset, "offset")) for name, offset in pairs)


def _commit(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    fields = named(operation.input, _COMMIT, "the input")
    if fields.get("reset"):
        columns.resets.add(number)
    commit_rows(
        columns,
        key,
        number,
        (
            text(fields.get("group", ""), "group"),
            fields.get("offsets"),
            text(fields.get("member", ""), "member"),
            integer(fields.get("generation"), "generation", -1),
        ),
    )


def _committed(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    fields = named(operation.input, _FETCH, "the input")
    group = columns.groups.number(text(fields.get("group", ""), "group"))
    if operation.outcome is not Outcome.OK:
        return
    for name, value in items(operation.output, "the output"):
        offset = offset_of(value)
        columns.fetch_operation.append(number)
        columns.fetch_group.append(group)
        columns.fetch_key.append(key(name))
        columns.fetch_offset.append(NOWHERE if offset is None else offset)


def _join(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    fields = named(operation.input, _JOIN_INPUT, "the input")
    group = _group(columns, fields)
    if operation.outcome is not Outcome.OK:
        return
    answer = named(operation.output, _JOIN_OUTPUT, "the output")
    member = text(answer.get("member", fields.get("member")), "member")
    generation = integer(answer.get("generation"), "generation")
    keys = tuple(key(name) for name in sequence(answer.get("keys"), "keys"))
    columns.assignments.append((number, group, generation, columns.members.number(member), keys))


def _group(columns: Columns, fields: Any) -> int:
    """The group of a question about its members, and whether generations are theirs or its own."""
    protocol = fields.get("protocol", "classic")
    if protocol not in _PROTOCOLS:
        raise BadField(f"protocol is {show(protocol)}, not one of {', '.join(_PROTOCOLS)}")
    group = columns.groups.number(text(fields.get("group", ""), "group"))
    if protocol == "consumer":
        columns.member_epochs.add(group)
    return group


def _describe_group(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    group = _group(columns, named(operation.input, _DESCRIBE_INPUT, "the input"))
    if operation.outcome is not Outcome.OK:
        return
    answer = named(operation.output, _DESCRIBE_OUTPUT, "the output")
    generation = integer(answer.get("generation"), "generation")
    for member, names in items(answer.get("members"), "members"):
        keys = tuple(key(name) for name in sequence(names, "keys"))
        columns.assignments.append((number, group, generation, columns.members.number(text(member, "member")), keys))


def _init_producer(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    fields = dict(named(operation.input, _PRODUCER, "the input"))
    if operation.outcome is not Outcome.OK:
        return
    fields.update(named(operation.output, _PRODUCER, "the output"))
    producer, epoch = producer_of(columns, fields)
    columns.initialised.append((number, producer, epoch))


def _question(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    """High watermark and last stable offset: which key, which offset."""
    if operation.outcome is Outcome.OK:
        _answers(columns, key, number, (operation.function, operation.output))


def _list_offsets(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    fields = named(operation.input, _LIST_OFFSETS, "the input")
    at = text(fields.get("at", "latest"), "at")
    if operation.outcome is Outcome.OK:
        level = isolation(fields.get("isolation", "read_uncommitted"))
        _answers(columns, key, number, (f"list-offsets {at} {level}", operation.output))


def _answers(columns: Columns, key: KeyNumber, number: int, answer: tuple[str, Any]) -> None:
    question = columns.questions.number(answer[0])
    for name, value in items(answer[1], "the output"):
        offset = offset_of(value)
        if offset is None:
            continue
        columns.metadata_operation.append(number)
        columns.metadata_key.append(key(name))
        columns.metadata_question.append(question)
        columns.metadata_offset.append(offset)


def _leader(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    if operation.outcome is not Outcome.OK:
        return
    for name, value in items(operation.output, "the output"):
        if isinstance(value, list | tuple) and len(value) == 2:
            leader, epoch = value
        else:
            fields = named(value, _LEADER, "a leader")
            leader, epoch = fields.get("leader"), fields.get("epoch")
        if leader is None or leader == -1:
            continue
        columns.leaders.append((number, key(name), text(leader, "leader"), integer(epoch, "epoch")))


def _ignore(columns: Columns, key: KeyNumber, number: int, operation: Operation) -> None:
    """Nothing to judge: it only stands in the history."""


READERS: dict[str, Reader] = {
    "assign": _subscription,
    "subscribe": _subscription,
    "unsubscribe": _unsubscribe,
    "seek": _seek,
    "process": _process,
    "commit": _commit,
    "committed": _committed,
    "join": _join,
    "describe-group": _describe_group,
    "init-producer": _init_producer,
    "high-watermark": _question,
    "last-stable-offset": _question,
    "list-offsets": _list_offsets,
    "leader": _leader,
    "crash": _ignore,
    "debug-topic-partitions": _ignore,
}
CODES = {"assign": ASSIGN, "subscribe": SUBSCRIBE, "unsubscribe": ASSIGN, "seek": SEEK, "crash": CRASH}
