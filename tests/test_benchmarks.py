"""How rounds of a row are chosen (by what the host took, never by what came out), and what stands beside raftlog."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import brokers
from benchmarks.brokers import Kafka, beside_raftlog, start_kafka
from benchmarks.measure import Row, Sample, quietest, table


def test_of_more_rounds_than_asked_for_those_with_the_least_stolen_count_in_their_order() -> None:
    rounds = [(stolen, {"raftlog": Sample(value)}) for value, stolen in enumerate([0.3, 0.0, 0.2, 0.019, 0.1])]

    chosen = [round_["raftlog"].value for round_ in quietest(rounds, 3)]

    assert chosen == [1, 3, 4]


def test_among_rounds_that_were_quiet_enough_the_first_ones_count() -> None:
    rounds = [(stolen, {"raftlog": Sample(value)}) for value, stolen in enumerate([0.015, 0.01, 0.0])]

    chosen = [round_["raftlog"].value for round_ in quietest(rounds, 2)]

    assert chosen == [0, 1]


def test_another_checkout_takes_the_place_of_kafka_and_runs_its_own_code(tmp_path: Path) -> None:
    (kind,) = beside_raftlog(str(tmp_path))
    broker = kind(directory=tmp_path)

    assert kind is not Kafka
    assert broker.command()[:5] == [str(tmp_path / ".venv" / "bin" / "python"), "-P", "-E", "-m", "raftlog"]  # type: ignore[attr-defined]


def test_a_row_names_what_it_was_measured_beside() -> None:
    row = Row("work", "s", higher_is_better=False, samples={"raftlog": [Sample(1.0)], "other": [Sample(2.0)]})

    assert "raftlog ÷ other" in table([row])
    assert row.ratios() == [0.5]


def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: str) -> Path:
    """Stands for Kafka's: the first two times it fails with these words. What it was called with is in the file."""
    calls, program = tmp_path / "calls", tmp_path / "kafka"
    fail = f'echo "{complaint}" >&2; exit 1'
    script = f'echo "$@" >>{calls}; if [ $(wc -l <{calls}) -lt 3 ]; then {fail}; fi; echo here:1'
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(brokers, "KAFKA", program)
    return calls


def test_kafka_is_started_again_when_its_cluster_id_began_with_a_dash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = launcher(tmp_path, monkeypatch, "error: argument --cluster-id/-t: expected one argument")
    assert start_kafka("--dir", "d") == "here:1"
    assert calls.read_text() == "start --dir d\n" * 3


def test_kafka_that_cannot_start_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = launcher(tmp_path, monkeypatch, "no space left")
    with pytest.raises(RuntimeError, match="no space left"):
        start_kafka("--dir", "d")
    assert calls.read_text() == "start --dir d\n"
