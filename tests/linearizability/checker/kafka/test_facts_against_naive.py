"""Metadata, groups, producers and consumption counted by the analysis and, on the same faulty histories, naively."""

from __future__ import annotations

import copy
import random

import pytest

from raftlog.linearizability.checker.history import FAIL, INFO, OK, History, Operation
from raftlog.linearizability.checker.kafka import KafkaOptions, analyze
from tests.effort import at_least
from tests.linearizability.checker.kafka.naive_facts import METADATA, counts_of_facts
from tests.linearizability.checker.kafka.service import Service

HISTORIES = at_least(20)  # in each part

COMPARED = {
    *METADATA.values(),
    "two-leaders",
    "two-owners",
    "nonmonotonic-commit",
    "fenced-commit",
    "commit-past-processed",
    "consumed-twice",
    "epoch-reused",
    "fenced-producer",
}


def damage(operation: Operation, draw: random.Random) -> None:
    """Change one answer, or what was asked and acknowledged, a little."""
    match operation.function:
        case "high-watermark" | "last-stable-offset" | "list-offsets" if operation.outcome is OK:
            key = draw.choice(sorted(operation.output))
            operation.output[key] = max(0, operation.output[key] + draw.randint(-4, 1))
        case "leader" if operation.outcome is OK:
            operation.output["k0"] = {"leader": draw.randint(1, 3), "epoch": draw.randint(4, 6)}
        case "join" if operation.outcome is OK:
            operation.output["keys"] = draw.sample(["k0", "k1"], draw.randint(0, 2))
            operation.output["generation"] += draw.choice([-1, 0, 0, 1])
        case "commit" if operation.returned is not None:
            operation.outcome = draw.choice([OK, FAIL, INFO])
            key = draw.choice(sorted(operation.input["offsets"]))
            operation.input["offsets"][key] = max(0, operation.input["offsets"][key] + draw.randint(-4, 4))
            operation.input["generation"] += draw.choice([-1, 0, 0, 1])
        case "init-producer" if operation.outcome is OK:
            operation.output = {"epoch": max(0, operation.output["epoch"] - 1)}
        case "txn" if isinstance(operation.input, dict):
            operation.input["epoch"] = max(0, operation.input["epoch"] + draw.choice([-1, 0, 1]))
            if operation.outcome is FAIL and operation.output:
                operation.outcome = OK


@pytest.mark.parametrize("mode", ["mixed", "exactly-once"])
@pytest.mark.parametrize("part", range(2))
def test_the_counts_are_those_of_the_plain_definitions(mode: str, part: int) -> None:
    met = set()
    for seed in range(part * HISTORIES, part * HISTORIES + HISTORIES):
        draw = random.Random(seed)
        operations = [
            copy.deepcopy(one)
            for one in Service(seed, mode=mode).run(300)
            if one.function not in ("committed", "assign")
        ]
        for operation in operations:
            if draw.random() < 0.3:
                damage(operation, draw)
        history = History.of(operations)
        expected = {name: count for name, count in counts_of_facts(history).items() if name in COMPARED}
        report = analyze(history, KafkaOptions(transaction_visibility=0, group="nobody"))
        found: dict[str, int] = {}
        for one in report.anomalies:
            if one.name in COMPARED:
                found[one.name] = found.get(one.name, 0) + one.count
        assert found == expected, f"seed {seed}\n{report.text(50)}"
        met |= found.keys()
    assert len(met) >= 6
