"""Faults to put into correct histories, one for each anomaly: what a broken service would have answered.

Each injector changes a history of `service.Service` in one place and answers whether it found a place to do so. The
histories are rebuilt by the caller, so that changed intervals and added operations are in order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from raftlog.linearizability.checker.history import FAIL, INFO, OK, Operation, Outcome

Injector = Callable[[list[Operation], random.Random], bool]
STRANGER = 900  # the number of processes that only a fault brings into a history


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and what it must show as; `also` may come with it, because one fault can break several promises."""

    name: str
    mode: str
    inject: Injector
    also: frozenset[str] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)


FAULTS: list[Fault] = []


def fault(name: str, mode: str = "assign", also: str = "", **options: Any) -> Callable[[Injector], Injector]:
    """Register an injector under the anomaly that it must show as."""

    def register(inject: Injector) -> Injector:
        FAULTS.append(Fault(name, mode, inject, frozenset(also.split()), options))
        return inject

    return register


# Looking into a history


def micros(operation: Operation, kind: str) -> list[Any]:
    """The answered micro-operations of one kind."""
    output = operation.output.get("ops") if isinstance(operation.output, dict) else operation.output
    return [micro for micro in output or [] if micro[0] == kind]


def ended(operations: list[Operation], function: str, outcome: Outcome = OK) -> list[Operation]:
    """The operations of a function that ended so."""
    return [one for one in operations if one.function == function and one.outcome is outcome]


def segments(operations: list[Operation]) -> Iterator[tuple[Operation, str, list[Any]]]:
    """Every run of records that an ok operation polled of a key."""
    for operation in operations:
        if operation.outcome is OK and operation.function in ("poll", "txn"):
            for micro in micros(operation, "poll"):
                for key, pairs in micro[1].items():
                    yield operation, key, pairs


def sends(operations: list[Operation]) -> Iterator[tuple[Operation, str, list[Any]]]:
    """Every acknowledged send of an ok operation with its [offset, value]."""
    for operation in operations:
        if operation.outcome is OK:
            for micro in micros(operation, "send") if operation.function in ("send", "txn") else ():
                yield operation, micro[1], micro[2]


def readers(operations: list[Operation]) -> dict[Any, list[Operation]]:
    """Value -> the ok operations that polled it."""
    found: dict[Any, list[Operation]] = {}
    for operation, _, pairs in segments(operations):
        for _, value in pairs:
            found.setdefault(value, []).append(operation)
    return found


def highest(operations: list[Operation], wanted: str) -> int:
    """The greatest offset seen in a key."""
    offsets = [pair[0] for _, key, pairs in segments(operations) for pair in pairs if key == wanted]
    offsets += [pair[0] for _, key, pair in sends(operations) if key == wanted and pair[0] is not None]
    return max(offsets, default=-1)


def add(operations: list[Operation], process: int, function: str, given: Any, output: Any, **more: Any) -> Operation:
    """An operation after all others; `at` gives its interval from there on."""
    now = max(one.returned or one.call for one in operations) + 1
    start, end = more.get("at", (0, 1))
    operation = Operation(process, function, given, output, None, now + start, now + end, more.get("outcome", OK))
    operations.append(operation)
    return operation


def pick(draw: random.Random, found: list[Any]) -> Any:
    return draw.choice(found) if found else None


def before(operations: list[Operation], later: Operation) -> list[Operation]:
    """The ok operations that were over before one began."""
    return [one for one in operations if one.outcome is OK and one.returned is not None and one.returned < later.call]


# Values


@fault("inconsistent-offsets")
def another_value_at_an_offset(operations: list[Operation], draw: random.Random) -> bool:
    known = readers(operations)
    pair = pick(draw, [pair for _, _, pairs in segments(operations) for pair in pairs if len(known[pair[1]]) > 1])
    if pair is None:
        return False
    pair[1] = "corrupt"
    return True


@fault("duplicate")
def a_value_appended_twice(operations: list[Operation], draw: random.Random) -> bool:
    chosen = pick(draw, [(key, pair) for _, key, pairs in segments(operations) for pair in pairs])
    if chosen is None:
        return False
    key, (_, value) = chosen
    add(operations, STRANGER, "poll", [["poll"]], [["poll", {key: [[highest(operations, key) + 5, value]]}]])
    return True


def forget(operations: list[Operation], value: Any) -> None:
    """Take a value out of all polls."""
    for operation in operations:
        for micro in micros(operation, "poll") if operation.function in ("poll", "txn") else ():
            for pairs in micro[1].values():
                pairs[:] = [pair for pair in pairs if pair[1] != value]


@fault("lost-write")
def a_part_of_an_unknown_transaction_is_lost(operations: list[Operation], draw: random.Random) -> bool:
    """Its part in one key is read, so that its part in the other must have been there when a later value was read."""
    seen, lost, later = ([highest(operations, key) + gap, name] for key, gap, name in _PARTS)
    given = [["send", "k1", "seen"], ["send", "k0", "lost"]]
    add(operations, STRANGER, "txn", given, [["send", "k1", seen], ["send", "k0", lost]], outcome=INFO)
    add(operations, STRANGER + 1, "send", [["send", "k0", "later"]], [["send", "k0", later]])
    add(operations, STRANGER + 2, "poll", [["poll"]], [["poll", {"k1": [seen], "k0": [later]}]])
    return True


_PARTS = (("k1", 5, "seen"), ("k0", 5, "lost"), ("k0", 7, "later"))


@fault("lost-write", also="unseen int-poll-skip poll-skip torn-transaction")
def a_value_lost_from_the_middle(operations: list[Operation], draw: random.Random) -> bool:
    known = readers(operations)
    found = [pair for _, key, pair in sends(operations) if pair[1] in known and pair[0] != highest(operations, key)]
    pair = pick(draw, [pair for pair in found if pair[0] is not None])
    if pair is None:
        return False
    forget(operations, pair[1])
    return True


@fault("unseen")
def the_last_value_lost(operations: list[Operation], draw: random.Random) -> bool:
    known = readers(operations)
    tail = [
        pair
        for operation, key, pair in sends(operations)
        if operation.function == "send" and pair[1] in known and pair[0] == highest(operations, key)
    ]
    pair = pick(draw, tail)
    if pair is None:
        return False
    forget(operations, pair[1])
    return True


@fault("unwritten-read", forbid=frozenset({"unwritten-read"}))
def a_value_from_nowhere(operations: list[Operation], draw: random.Random) -> bool:
    add(operations, STRANGER, "poll", [["poll"]], [["poll", {"k0": [[highest(operations, "k0") + 5, "garbage"]]}]])
    return True


def neighbours(operations: list[Operation]) -> list[tuple[Any, Any]]:
    """Plain sends to one key with nothing in between, the second called after the first had ended, read only later."""
    first_read = {value: min(one.call for one in found) for value, found in readers(operations).items()}
    plain = {
        (key, pair[0]): (one, pair)
        for one, key, pair in sends(operations)
        if one.function == "send" and pair[0] is not None and pair[1] in first_read
    }
    found = []
    for (key, offset), (one, pair) in plain.items():
        other, next_pair = plain.get((key, offset + 1), (one, pair))
        seen = min(first_read[pair[1]], first_read[next_pair[1]])
        if one.returned is not None and one.returned < other.call and (other.returned or 0) < seen:
            found.append(((one, pair), (other, next_pair)))
    return found


@fault("realtime-append")
def two_appends_in_the_wrong_order(operations: list[Operation], draw: random.Random) -> bool:
    found = [pair for pair in neighbours(operations) if pair[0][0].process != pair[1][0].process]
    chosen = pick(draw, found)
    if chosen is None:
        return False
    swap(operations, chosen[0][1], chosen[1][1])
    return True


def swap(operations: list[Operation], one: list[Any], other: list[Any]) -> None:
    """Let two acknowledged values have each other's place, wherever they were seen."""
    names = {one[1]: other[1], other[1]: one[1]}
    for operation in operations:
        for micro in micros(operation, "poll") if operation.function in ("poll", "txn") else ():
            for pairs in micro[1].values():
                for pair in pairs:
                    pair[1] = names.get(pair[1], pair[1])
    one[0], other[0] = other[0], one[0]


@fault("G1a")
def a_failed_send_is_read(operations: list[Operation], draw: random.Random) -> bool:
    known = readers(operations)
    failed = [one for one, _, pair in sends(operations) if one.function == "send" and pair[1] in known]
    chosen = pick(draw, failed)
    if chosen is None:
        return False
    chosen.outcome, chosen.output, chosen.error = FAIL, None, "NOT_ENOUGH_REPLICAS"
    return True


@fault("precommitted-read")
def a_transaction_reads_its_own(operations: list[Operation], draw: random.Random) -> bool:
    place = highest(operations, "k0") + 5
    records = {"k0": [[place, "mine"]]}
    answer = [["send", "k0", [place, "mine"]], ["poll", records]]
    add(operations, STRANGER, "txn", [["send", "k0", "mine"], ["poll"]], answer)
    add(operations, STRANGER + 1, "poll", [["poll"]], [["poll", records]])
    return True


# Order


@fault("int-poll-skip", also="torn-transaction")
def a_poll_leaves_one_out(operations: list[Operation], draw: random.Random) -> bool:
    known = readers(operations)
    chosen = pick(
        draw, [pairs for _, _, pairs in segments(operations) if len(pairs) > 2 and len(known[pairs[1][1]]) > 1]
    )
    if chosen is None:
        return False
    del chosen[1]
    return True


@fault("int-nonmonotonic-poll")
def a_poll_repeats_one(operations: list[Operation], draw: random.Random) -> bool:
    chosen = pick(draw, [pairs for _, _, pairs in segments(operations) if pairs])
    if chosen is None:
        return False
    chosen.append(list(chosen[-1]))
    return True


@fault("int-nonmonotonic-send")
def a_transactions_sends_in_the_wrong_order(operations: list[Operation], draw: random.Random) -> bool:
    chosen = []
    for operation in ended(operations, "txn"):
        found = micros(operation, "send")
        chosen += [
            (one[2], other[2]) for one in found for other in found if one[1] == other[1] and one[2][0] < other[2][0]
        ]
    pair = pick(draw, chosen)
    if pair is None:
        return False
    swap(operations, *pair)
    return True


def following(operations: list[Operation]) -> list[tuple[list[Any], list[Any]]]:
    """Pairs of what a process polled of a key in one ok poll and in the next that had any of it."""
    last: dict[tuple[Any, str], list[Any]] = {}
    found = []
    for operation in sorted(operations, key=lambda one: one.call):
        if operation.function == "assign":
            last = {name: pairs for name, pairs in last.items() if name[0] != operation.process}
        if operation.function == "poll" and operation.outcome is OK:
            for _, key, pairs in segments([operation]):
                if pairs and (operation.process, key) in last:
                    found.append((last[operation.process, key], pairs))
                if pairs:
                    last[operation.process, key] = pairs
    return found


@fault("poll-skip", also="torn-transaction")
def the_next_poll_begins_too_late(operations: list[Operation], draw: random.Random) -> bool:
    known = readers(operations)
    places = [later for _, later in following(operations) if len(later) > 1 and len(known[later[0][1]]) > 1]
    chosen = pick(draw, places)
    if chosen is None:
        return False
    del chosen[0]
    return True


@fault("nonmonotonic-poll")
def the_next_poll_begins_too_early(operations: list[Operation], draw: random.Random) -> bool:
    chosen = pick(draw, following(operations))
    if chosen is None:
        return False
    earlier, later = chosen
    later.insert(0, list(earlier[-1]))
    return True


@fault("nonmonotonic-send", also="realtime-append")
def a_process_sends_in_the_wrong_order(operations: list[Operation], draw: random.Random) -> bool:
    """The first send's answer gets lost, so that its offset is not known before the second."""
    found = [pair for pair in neighbours(operations) if pair[0][0].process == pair[1][0].process]
    chosen = pick(draw, found)
    if chosen is None:
        return False
    (first, one), (_, other) = chosen
    swap(operations, one, other)
    first.outcome, first.output = INFO, None
    return True


# Cycles


def strangers(operations: list[Operation], intervals: list[tuple[int, int]]) -> None:
    """Two transactions that each polled what the other sent, and somebody who polled the first one's."""
    one, other = ({key: [[highest(operations, key) + 5, f"circle {key}"]]} for key in ("k0", "k1"))
    now = max(operation.returned or operation.call for operation in operations)
    for number, (sent, polled) in enumerate(((one, other), (other, one))):
        ((key, pairs),) = sent.items()
        given = [["send", key, pairs[0][1]], ["poll"]]
        answer = [["send", key, list(pairs[0])], ["poll", polled]]
        operation = add(operations, STRANGER + number, "txn", given, answer)
        operation.call, operation.returned = (now + 1 + moment for moment in intervals[number])


@fault("G1c")
def transactions_that_read_each_other(operations: list[Operation], draw: random.Random) -> bool:
    strangers(operations, [(0, 9), (0, 9)])
    return True


@fault("G1c-realtime")
def a_transaction_reads_what_came_after_it_was_read(operations: list[Operation], draw: random.Random) -> bool:
    """It polled `late` and sent `early`; `early` was polled, and only then `late` was sent."""
    early, late = ([highest(operations, key) + 5, name] for key, name in (("k0", "early"), ("k1", "late")))
    answer = [["send", "k0", early], ["poll", {"k1": [late]}]]
    add(operations, STRANGER, "txn", [["send", "k0", "early"], ["poll"]], answer, at=(0, 20))
    add(operations, STRANGER + 1, "poll", [["poll"]], [["poll", {"k0": [early]}]], at=(-18, -16))
    add(operations, STRANGER + 2, "send", [["send", "k1", "late"]], [["send", "k1", late]], at=(-14, -12))
    return True


@fault("G1c-process")
def a_process_reads_what_it_sends_next(operations: list[Operation], draw: random.Random) -> bool:
    """Its stamps are too coarse to show the order in real time."""
    records = {"k0": [[highest(operations, "k0") + 5, "early"]]}
    poll = add(operations, STRANGER, "poll", [["poll"]], [["poll", records]])
    send = add(operations, STRANGER, "send", [["send", "k0", "early"]], [["send", "k0", list(records["k0"][0])]])
    send.call = poll.returned or 0
    return True
