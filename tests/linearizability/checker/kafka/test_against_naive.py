"""The log anomalies counted by the analysis and, on the same faulty histories, by their plain definitions."""

from __future__ import annotations

import copy
import random

import pytest

from raftlog.linearizability.checker.history import FAIL, INFO, OK, History
from raftlog.linearizability.checker.kafka import KafkaOptions, analyze
from tests.effort import at_least
from tests.linearizability.checker.kafka.naive import naive_counts
from tests.linearizability.checker.kafka.service import Service

HISTORIES = at_least(25)  # in each part, of a hundred operations and more

COMPARED = {
    "duplicate",
    "lost-write",
    "unseen",
    "G1a",
    "precommitted-read",
    "int-poll-skip",
    "int-nonmonotonic-poll",
    "int-send-skip",
    "int-nonmonotonic-send",
    "poll-skip",
    "nonmonotonic-poll",
    "nonmonotonic-send",
    "realtime-append",
}


def micro_operations(operation: object) -> list[list[object]]:
    output = operation.output  # type: ignore[attr-defined]
    return (output.get("ops") if isinstance(output, dict) else output) or []


def exchange(history: History, names: dict[object, object]) -> None:
    """Put other values in the places of some, wherever they were acknowledged or polled; None takes them away."""
    for operation in history.operations:
        operation.output = copy.deepcopy(operation.output)
        for micro in micro_operations(operation):
            if micro[0] == "poll":
                for pairs in micro[1].values():  # type: ignore[attr-defined]
                    pairs[:] = [[offset, names.get(value, value)] for offset, value in pairs]
                    pairs[:] = [pair for pair in pairs if pair[1] is not None]


def reorder(history: History, draw: random.Random) -> None:
    """Let two sends to one key have each other's offsets, and polls have it so."""
    by_key: dict[object, list[list[object]]] = {}
    for operation in history.operations:
        for micro in micro_operations(operation):
            if micro[0] == "send" and micro[2][0] is not None and operation.outcome is OK:  # type: ignore[index]
                by_key.setdefault(micro[1], []).append(micro[2])  # type: ignore[arg-type]
    for pairs in by_key.values():
        if len(pairs) > 1 and draw.random() < 0.5:
            one, other = draw.sample(pairs, 2)
            one[0], other[0] = other[0], one[0]
            exchange(history, {one[1]: other[1], other[1]: one[1]})
            return


def damage(history: History, draw: random.Random) -> None:
    """Change answers and outcomes here and there, without ever putting two values at one offset."""
    if draw.random() < 0.5:
        reorder(history, draw)
    if draw.random() < 0.5:
        values = sorted(
            {micro[2][1] for one in history.operations for micro in micro_operations(one) if micro[0] == "send"}
        )  # type: ignore[index]
        exchange(history, dict.fromkeys(draw.sample(values, min(3, len(values)))))
    for operation in history.operations:
        if operation.function not in ("send", "poll", "txn") or draw.random() > 0.08:
            continue
        operation.output = copy.deepcopy(operation.output)
        kind = draw.choice(["outcome", "drop", "swap", "repeat", "double"])
        if kind == "outcome" and operation.returned is not None:
            operation.outcome = draw.choice([OK, FAIL, INFO])
            continue
        for micro in micro_operations(operation):
            if micro[0] != "poll" or not micro[1]:
                continue
            pairs = micro[1][draw.choice(sorted(micro[1]))]  # type: ignore[index,arg-type,call-overload]
            if kind == "drop" and pairs:
                pairs.pop(draw.randrange(len(pairs)))
            elif kind == "swap":
                draw.shuffle(pairs)
            elif kind == "repeat" and pairs:
                pairs.append(draw.choice(pairs))
            elif kind == "double" and pairs:
                pairs.append([1_000_000 + draw.randrange(1_000_000), draw.choice(pairs)[1]])


def poll_own(history: History, draw: random.Random) -> None:
    """Let a transaction poll what it sent."""
    for operation in history.operations:
        sends = [micro for micro in micro_operations(operation) if micro[0] == "send"]
        if operation.function == "txn" and sends and draw.random() < 0.1:
            micro = draw.choice(sends)
            micro_operations(operation).append(["poll", {micro[1]: [list(micro[2])]}])  # type: ignore[call-overload]


def without_sessions(history: History) -> History:
    """Drop what the plain definitions do not know: assigns, which make places be forgotten, and visible ends."""
    kept = [one for one in history.operations if one.function in ("send", "poll", "txn")]
    for operation in kept:
        operation.output = copy.deepcopy(operation.output)
        for micro in micro_operations(operation):
            del micro[2 + (micro[0] == "send") :]
    return History.of(kept)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_the_counts_are_those_of_the_plain_definitions(part: int) -> None:
    met = set()
    for seed in range(part * HISTORIES, part * HISTORIES + HISTORIES):
        history = without_sessions(Service(seed).run(250))
        draw = random.Random(seed)
        damage(history, draw)
        poll_own(history, draw)
        expected = {name: count for name, count in naive_counts(history).items() if name in COMPARED}
        report = analyze(history, KafkaOptions(subscription_modes=frozenset({"assign"})))
        found = {one.name: one.count for one in report.anomalies if one.name in COMPARED}
        assert found == expected, f"seed {seed}\n{report.text()}"
        met |= found.keys()
    assert met == COMPARED
