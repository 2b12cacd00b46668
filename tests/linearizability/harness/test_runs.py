"""Whole runs on real brokers: the short form of the standard matrix, and losses that must be found."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from benchmarks.brokers import KAFKA, kafka_is_here
from raftlog.cli.main import main
from raftlog.testing.waiting import wait_until

SECONDS = 60.0


def verify(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """A run's exit code, and what its folder says."""
    code = main(["verify", *arguments, "--output", str(folder)])
    return code, json.loads((folder / "run.json").read_text())


def faults_in(folder: Path) -> list[dict[str, Any]]:
    """What was done to the system, as far as it is written down."""
    file = folder / "faults.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.mark.long
def test_appended_records_survive_kills_pauses_partitions_and_votes_taken(tmp_path: Path) -> None:
    faults = ["kill", "pause", "partition", "voters"]
    # With this seed the partition is one of brokers: from a broker that leads nothing clients may be cut unnoticed.
    seeded = ["--time", "12", "--clients", "3", "--seed", "1666369389"]
    given = ["--workload", "append", "--fault", ",".join(faults), *seeded]
    code, run = verify(tmp_path / "run", *given)
    assert code == 0, run["verdict"]
    lines = faults_in(tmp_path / "run")
    effective = {line["number"] for line in lines if line["type"] == "end" and line["effect"]}
    assert {line["fault"] for line in lines if line.get("number") in effective and line["type"] == "begin"} == {*faults}
    assert run["status"] == "done" and run["verdict"]["status"] == "valid"
    assert run["verdict"]["checks"][0]["measurements"]["operations"]["send"]["ok"] > 20


@pytest.mark.long
def test_a_run_that_is_stopped_heals_and_judges_what_there_is(tmp_path: Path) -> None:
    def stop() -> None:
        wait_until(
            lambda: any(each["type"] == "end" for each in faults_in(tmp_path / "run")),
            SECONDS,
            lambda: "a fault has had its turn",
        )
        os.kill(os.getpid(), signal.SIGINT)

    stopping = threading.Thread(target=stop)
    stopping.start()
    given = ["--workload", "append", "--fault", "pause", "--time", "600", "--clients", "2", "--libraries", "raftlog"]
    code, run = verify(tmp_path / "run", *given)
    stopping.join()
    assert code == 0, run["verdict"]
    assert run["seconds"] < 600 and [each["name"] for each in run["phases"]][-2:] == ["heal", "final"]


@pytest.mark.slow
def test_a_leader_that_acknowledges_alone_and_dies_loses_records_and_that_is_found(tmp_path: Path) -> None:
    code, run = verify(tmp_path / "run", "--workload", "append", "--fault", "isr-of-one", "--time", "60", "--seed", "3")
    found = {each["name"] for each in run["verdict"]["checks"][0]["anomalies"] if each["judgement"] == "error"}
    assert code == 1 and found & {"lost-write", "unseen", "inconsistent-offsets"}


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.skipif(not kafka_is_here(), reason="needs Java and the folder with Kafka's jars")
def test_the_same_is_found_in_apache_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAFTLOG_KAFKA", str(KAFKA.parent))
    code, run = verify(
        tmp_path / "run", "--workload", "append", "--fault", "isr-of-one", "--time", "60", "--system", "kafka"
    )
    found = {each["name"] for each in run["verdict"]["checks"][0]["anomalies"] if each["judgement"] == "error"}
    assert code == 1 and found & {"lost-write", "unseen", "inconsistent-offsets"}


def test_what_cannot_be_run_is_told_with_what_could_be(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (("--workload", "apend"), "did you mean append?"),
        (("--workload", "share-groups"), "raftlog has no share groups yet"),
        (("--workload", "append", "--fault", "kil"), "did you mean kill?"),
        (("--workload", "append", "--fault", "zombie-writer"), "take workload transactions"),
        (("--workload", "append", "--fault", "clock", "--system", "kafka"), "cannot be put into kafka"),
        (("--workload", "append", "--option", "acks=2"), "all or 1 or 0"),
        (("--workload", "append", "--system", "nowhere"), "HOST:PORT"),
    ):
        assert main(["verify", *arguments]) == 64
        assert words in capsys.readouterr().err
