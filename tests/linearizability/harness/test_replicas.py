"""What replicas hold when a run is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from raftlog.client.core.errors import KafkaError, Rejected, TimedOut
from raftlog.linearizability.harness import replicas as module
from raftlog.linearizability.harness.replicas import Batch, judge_replicas, read_log
from raftlog.linearizability.harness.systems.system import System
from raftlog.wire.batch import encode_batch, parse_header
from raftlog.wire.errors import ErrorCode
from raftlog.wire.records import Record

BATCHES = [
    encode_batch([Record(offset, 0, None, b"%d" % offset)], base_offset=offset, partition_leader_epoch=3)
    for offset in range(3)
]


class Replicas:
    """Brokers 1 and 2, both in sync in the only partition, whose high watermark is 3."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.admin = self
        self.refusals: dict[str, KafkaError] = {}

    def write(self, broker: int, data: bytes, segment: int = 0) -> None:
        folder = self.folder / str(broker) / "t-0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{segment:020}.log").write_bytes(data)

    def data_directory(self, broker: int) -> Path:
        return self.folder / str(broker)

    def described(self, topic: str) -> dict[int, dict[str, Any]]:
        if "described" in self.refusals:
            raise self.refusals["described"]
        return {0: {"replicas": [1, 2], "isr": [1, 2]}}

    def offsets_at(self, partitions: object, at: int, *, read_committed: bool) -> dict[tuple[str, int], int]:
        if "offsets_at" in self.refusals:
            raise self.refusals["offsets_at"]
        return {("t", 0): 3}

    def judged(self) -> dict[str, Any]:
        return judge_replicas(cast(System, self), {"t": 1}, compares=True)

    def found(self) -> list[str]:
        return [example["text"] for each in self.judged()["anomalies"] for example in each["examples"]]


def test_replicas_with_the_same_batches_are_no_error_whatever_was_deleted(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.write(1, b"".join(BATCHES))
    replicas.write(2, b"", segment=3)
    assert replicas.found() == []


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_replica_in_sync_has_all_up_to_the_high_watermark(tmp_path: Path, kept: int) -> None:
    replicas = Replicas(tmp_path)
    replicas.write(1, b"".join(BATCHES))
    replicas.write(2, b"".join(BATCHES[:kept]))
    assert replicas.found() == [f"t-0 on broker 2 ends at {kept}, below the high watermark 3"]


def test_a_batch_that_is_not_what_its_checksum_says_is_missing(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.write(1, b"".join(BATCHES))
    replicas.write(2, BATCHES[0] + BATCHES[1][:-1] + b"\x7f" + BATCHES[2])
    assert replicas.found() == ["t-0 on broker 2 ends at 1, below the high watermark 3"]


@pytest.mark.parametrize("call", ["described", "offsets_at"])
def test_replicas_that_nobody_answers_for_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(module, "IN_SYNC_SECONDS_MAX", 0.0)
    replicas = Replicas(tmp_path)
    replicas.write(1, b"".join(BATCHES))
    replicas.write(2, b"".join(BATCHES))
    replicas.refusals[call] = TimedOut("the brokers did not answer within 5 s")
    check = replicas.judged()
    assert (check["status"], check["anomalies"]) == ("unknown", [])
    assert "the brokers did not answer within 5 s" in check["reason"]


def test_a_topic_that_is_gone_when_all_is_over_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_SYNC_SECONDS_MAX", 0.0)
    replicas = Replicas(tmp_path)
    replicas.refusals["described"] = Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't'")
    assert [each["name"] for each in replicas.judged()["anomalies"]] == ["replica-not-in-sync"]


@pytest.mark.parametrize("torn", [0, 5])
def test_batches_are_read_up_to_one_that_is_torn(tmp_path: Path, torn: int) -> None:
    batches = [
        encode_batch([Record(offset, 0, None, b"%d" % offset)], base_offset=offset, partition_leader_epoch=3)
        for offset in (0, 4)
    ]
    data = b"".join(batches)
    (tmp_path / "0.log").write_bytes(data[: len(data) - torn])
    first, second = (parse_header(batch).crc for batch in batches)
    assert first != second
    assert list(read_log(tmp_path)) == [Batch(0, 3, first, 0), Batch(4, 3, second, 4)][: 1 if torn else 2]
