"""What is not about the log, once more as directly as it is defined: metadata, groups, producers, consumption.

Every definition looks at all pairs of operations. For histories without resets, seeks and fetched offsets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from raftlog.linearizability.checker.history import INFO, OK, History, Operation
from tests.linearizability.checker.kafka.naive import polls, sends

Fact = tuple[Operation, Any, int]  # an operation showed a number about something

METADATA = {
    "high-watermark": "nonmonotonic-high-watermark",
    "last-stable-offset": "nonmonotonic-last-stable-offset",
    "list-offsets": "nonmonotonic-list-offsets",
}


def counts_of_facts(history: History) -> Counter[str]:
    """How many instances of each anomaly."""
    operations = list(history)
    counts: Counter[str] = Counter()
    for function, name in METADATA.items():
        counts[name] = below(list(answers(operations, function)))
    leaders = {(key, said["epoch"], said["leader"]) for _, key, said in pairs(operations, "leader")}
    counts["two-leaders"] = len(leaders) - len({one[:2] for one in leaders})
    owners = {
        (one.input["group"], one.output["generation"], key, one.output["member"])
        for one in operations
        if one.function == "join" and one.outcome is OK
        for key in one.output["keys"]
    }
    counts["two-owners"] = len(owners) - len({one[:3] for one in owners})
    committed = list(commits(operations))
    counts["nonmonotonic-commit"] = below([(one, key, offset) for one, key, offset in committed if one.outcome is OK])
    counts["fenced-commit"] = fenced_commits(operations, committed)
    counts["commit-past-processed"] = past_processed(operations, committed)
    counts["consumed-twice"] = consumed_twice(operations)
    epochs = [(one, one.input["producer"], one.output["epoch"]) for one in operations if initialises(one)]
    counts["epoch-reused"] = len(epochs) - len({one[1:] for one in epochs})
    counts["fenced-producer"] = fenced_producers(operations, epochs)
    return +counts


def below(facts: list[Fact]) -> int:
    """How many facts are less than one about the same thing that was shown before they began."""
    return sum(
        any(same == thing and before(earlier, later) and more > number for earlier, same, more in facts)
        for later, thing, number in facts
    )


def before(earlier: Operation, later: Operation) -> bool:
    return earlier.outcome is OK and earlier.returned is not None and earlier.returned < later.call


def pairs(operations: list[Operation], function: str) -> Iterator[tuple[Operation, str, Any]]:
    for one in operations:
        if one.function == function and one.outcome is OK:
            for key, said in one.output.items():
                yield one, key, said


def answers(operations: list[Operation], function: str) -> Iterator[Fact]:
    yield from pairs(operations, function)


def commits(operations: list[Operation]) -> Iterator[Fact]:
    """Every offset that was committed or may have been, of the only group."""
    for one in operations:
        if one.outcome is OK or one.outcome is INFO:
            if one.function == "commit":
                for key, offset in one.input["offsets"].items():
                    yield one, key, offset
            for micro in micros(one) if one.function == "txn" else ():
                if micro[0] == "commit":
                    for key, offset in micro[2].items():
                        yield one, key, offset


def micros(operation: Operation) -> list[Any]:
    output = operation.output.get("ops") if isinstance(operation.output, dict) else operation.output
    return output or []


def fenced_commits(operations: list[Operation], committed: list[Fact]) -> int:
    plain = [
        (one, one.input["generation"]) for one, _, _ in committed if one.function == "commit" and one.outcome is OK
    ]
    signs = plain + [
        (one, one.output["generation"]) for one in operations if one.function == "join" and one.outcome is OK
    ]
    return sum(any(before(sign, one) and newer > generation for sign, newer in signs) for one, generation in plain)


def past_processed(operations: list[Operation], committed: list[Fact]) -> int:
    members = {one.process for one in operations if one.function == "subscribe"}
    members |= {one.process for one, _, _ in committed}
    read = {(key, value) for one in operations if one.outcome is OK for key, value, _ in data(one, polls)}
    sure = [one for one in operations if one.outcome is OK or any(pair[:2] in read for pair in data(one, sends))]
    visible: dict[str, set[int]] = defaultdict(set)
    place = {(key, value): offset for one in operations for key, value, offset in data(one, polls)}
    for one in sure:
        for key, value, offset in data(one, sends) if one.outcome in (OK, INFO) else ():
            known = offset if offset is not None else place.get((key, value))
            if known is not None:
                visible[key].add(known)
    found = 0
    for one, key, offset in committed:
        if one.outcome is OK and one.returned is not None:
            reached = [
                at
                for other in operations
                if other.process in members and other.call <= one.returned
                for name, _, at in data(other, polls)
                if name == key
            ]
            found += bool(reached) and any(max(reached) < at < offset for at in visible[key])
    return found


def data(operation: Operation, reader: Any) -> list[Any]:
    return reader(operation) if operation.function in ("send", "poll", "txn") else []


def consumed_twice(operations: list[Operation]) -> int:
    """Consumption of a record by transactions after the first: of what they polled what lies before their commits."""
    first: dict[tuple[str, Any], Operation] = {}
    read = {(key, value) for one in operations if one.outcome is OK for key, value, _ in data(one, polls)}
    found = 0
    for one in operations:
        told = [micro[2] for micro in micros(one) if micro[0] == "commit"] if one.function == "txn" else []
        ends = {key: offset for offsets in told for key, offset in dict(offsets).items()}
        seen = one.outcome is INFO and any(pair[:2] in read for pair in data(one, sends))
        if ends and (one.outcome is OK or seen):
            for key, value, offset in polls(one):
                if offset < ends.get(key, offset + 1):
                    found += first.setdefault((key, value), one) is not one
    return found


def initialises(operation: Operation) -> bool:
    return operation.function == "init-producer" and operation.outcome is OK


def fenced_producers(operations: list[Operation], epochs: list[Fact]) -> int:
    read = {(key, value) for one in operations if one.outcome is OK for key, value, _ in data(one, polls)}
    claims = list(epochs)
    logs: dict[str, dict[int, tuple[str, int]]] = defaultdict(dict)
    place = {(key, value): offset for one in operations for key, value, offset in data(one, polls)}
    for one in operations:
        if one.function != "txn" or not isinstance(one.input, dict):
            continue
        owner = (one.input["producer"], one.input["epoch"])
        sure = one.outcome is OK or (one.outcome is INFO and any(pair[:2] in read for pair in sends(one)))
        if sure:
            claims.append((one, *owner))
        for key, value, offset in sends(one):
            known = place.get((key, value), offset if sure else None)
            if known is not None:
                logs[key][known] = owner
    found = below(claims)
    for log in logs.values():
        newest: dict[str, int] = {}
        for offset in sorted(log):
            producer, epoch = log[offset]
            found += epoch < newest.get(producer, -1)
            newest[producer] = max(epoch, newest.get(producer, -1))
    return found
