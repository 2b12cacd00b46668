"""What a correct service did is never called wrong."""

from __future__ import annotations

import pytest

from raftlog.linearizability.checker.kafka import Judgement, KafkaOptions, analyze
from raftlog.linearizability.checker.verdict import Status
from tests.effort import at_least
from tests.linearizability.checker.kafka.service import Service

MODES = ("assign", "subscribe", "mixed", "exactly-once")


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted", "both"])
def test_a_correct_service_is_always_clean(mode: str, isolation: str) -> None:
    if mode == "exactly-once" and isolation != "read_committed":
        return  # a copier reads committed data
    for seed in range(at_least(40)):
        history = Service(seed, mode=mode, isolation=isolation).run()
        report = analyze(
            history, KafkaOptions(isolation="read_uncommitted" if isolation == "read_uncommitted" else "read_committed")
        )
        assert report.status is Status.VALID, f"seed {seed}\n{report.text()}"
        assert not any(anomaly.judgement is Judgement.UNDECIDED for anomaly in report.anomalies)
