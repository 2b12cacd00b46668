"""One history told in several ways: what is found does not depend on how it is cut up or in which order it comes."""

from __future__ import annotations

import copy
import random
from collections import Counter

import pytest

from raftlog.linearizability.checker.history import History
from raftlog.linearizability.checker.kafka import KafkaOptions, KafkaReport, analyze
from raftlog.linearizability.checker.kafka.columns import intake
from tests.effort import at_least
from tests.linearizability.checker.kafka.service import Service
from tests.linearizability.checker.kafka.test_against_naive import damage, micro_operations, poll_own

HISTORIES = at_least(12)  # in each part
MODES = ("assign", "subscribe", "mixed")


def faulty(seed: int) -> History:
    """A history of a few hundred operations in which a few things went wrong."""
    draw = random.Random(seed)
    history = Service(seed, mode=MODES[seed % 3]).run(250)
    damage(history, draw)
    poll_own(history, draw)
    return history


def counts(report: KafkaReport) -> Counter[tuple[str, str]]:
    return Counter({(one.name, one.judgement.value): one.count for one in report.anomalies})


def one_record_a_poll(history: History) -> History:
    """The same operations, with each polled record in a poll of its own."""
    operations = [copy.copy(one) for one in history.operations]
    for operation in operations:
        if operation.function not in ("poll", "txn") or not operation.output:
            continue
        parts: list[object] = []
        for micro in micro_operations(operation):
            if micro[0] != "poll":
                parts.append(micro)
                continue
            for key, pairs in micro[1].items():  # type: ignore[attr-defined]
                parts += [["poll", {key: [pair]}] for pair in pairs]
            parts.append(["poll", {}, *micro[2:]])
        told = operation.output
        operation.output = {**told, "ops": parts} if isinstance(told, dict) else parts
    return History.of(operations, time_unit=history.time_unit)


@pytest.mark.parametrize("part", range(3))
def test_records_polled_together_or_one_by_one_show_the_same(part: int) -> None:
    met: Counter[tuple[str, str]] = Counter()
    for seed in range(part * HISTORIES, (part + 1) * HISTORIES):
        history = faulty(seed)
        expected, found = counts(analyze(history)), counts(analyze(one_record_a_poll(history)))
        for judgement in ("error", "allowed"):  # what a poll jumped over inside its run of a key needs the run
            del expected["torn-transaction", judgement], found["torn-transaction", judgement]
        assert found == expected, f"seed {seed}"
        met += expected
    assert len(met) > 10


@pytest.mark.parametrize("part", range(3))
def test_operations_may_come_in_any_order(part: int) -> None:
    for seed in range(part * HISTORIES, (part + 1) * HISTORIES):
        history = faulty(seed)
        options = KafkaOptions(max_staleness=1_000_000)
        shuffled = random.Random(seed).sample(history.operations, len(history.operations))
        assert counts(analyze(iter(shuffled), options)) == counts(analyze(history, options)), f"seed {seed}"


def test_blocks_of_any_size_give_the_same_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    history = faulty(5)
    expected = analyze(history).to_json()
    for block in (1, 2, 7):
        monkeypatch.setattr(intake, "_BLOCK", block)
        assert analyze(history).to_json() == expected
