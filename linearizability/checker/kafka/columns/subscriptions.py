"""Under which isolation level, subscription mode and group each operation ran."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from raftlog.linearizability.checker.kafka.columns.columns import (
    ASSIGN,
    ASSIGNED,
    CRASH,
    FAIL,
    READ_UNCOMMITTED,
    SEEK,
    SUBSCRIBE,
    SUBSCRIBED,
    Columns,
)
from raftlog.linearizability.checker.kafka.columns.gather import places_of, put_first, take
from raftlog.linearizability.checker.kafka.options import KafkaOptions


def shows_subscribe(columns: Columns, options: KafkaOptions) -> bool:
    """Whether subscribe is among the ways in which consumers of this history get their keys."""
    if options.subscription_modes is not None:
        return "subscribe" in options.subscription_modes
    if SUBSCRIBE in columns.function:
        return True
    return ASSIGN not in columns.function and bool(columns.rebalanced or columns.assignments)


def mark_subscriptions(columns: Columns, options: KafkaOptions, by_call: Sequence[int]) -> None:
    """Write into the flags of each operation how its process reads at that time."""
    default = READ_UNCOMMITTED if options.isolation == "read_uncommitted" else 0
    if not columns.subscriptions and not columns.own_isolation and not default:
        return
    current = [default] * len(columns.processes)
    flags, process_of = columns.flags, columns.process
    for number in by_call:
        process = process_of[number]
        subscription = columns.subscriptions.get(number)
        if subscription is not None and columns.outcome[number] != FAIL:
            now = SUBSCRIBED if columns.function[number] == SUBSCRIBE else ASSIGNED
            if subscription.isolation == "read_uncommitted" or (subscription.isolation is None and default):
                now |= READ_UNCOMMITTED
            current[process] = now
        now = current[process]
        own = columns.own_isolation.get(number)
        if own is not None:
            now = now | READ_UNCOMMITTED if own == "read_uncommitted" else now & ~READ_UNCOMMITTED
        flags[number] |= now


def interruptions(columns: Columns) -> Iterator[int]:
    """The operations after which a process may go on elsewhere: assigns, subscribes, seeks and crashes."""
    for kind in (ASSIGN, SUBSCRIBE, SEEK, CRASH):
        for number in places_of(kind, columns.function):
            if kind == CRASH or columns.outcome[number] != FAIL:
                yield number


def groups_of(columns: Columns, options: KafkaOptions, by_call: Sequence[int]) -> array[int]:
    """For every operation the group of its process at that time.

    It is the group that the last subscription named, else the one the process commits to, else the default.
    """
    current = array("i", [columns.groups.number(options.group)]) * len(columns.processes)
    put_first(current, take(columns.process, columns.commit_operation), columns.commit_group)
    found = take(current, columns.process)
    if all(subscription.group is None for subscription in columns.subscriptions.values()):
        return found
    process_of, subscriptions = columns.process, columns.subscriptions
    for number in by_call:
        process = process_of[number]
        if number in subscriptions:
            named = subscriptions[number].group
            if named is not None:
                current[process] = columns.groups.number(named)
        found[number] = current[process]
    return found
