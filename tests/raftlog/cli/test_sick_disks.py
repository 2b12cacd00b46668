"""What commands say of logs that are offline and of disks that fill up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.cli.arguments import BOOTSTRAP_VARIABLE
from raftlog.testing import BrokerProcess
from tests.raftlog.cli.conftest import Run

TOPIC = "orders"


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    """One that warns of every disk that is not empty."""
    settings = {"raftlog.disk.free.warning.percent": "100"}
    process = BrokerProcess(1, tmp_path / "data", settings=settings, log_file=tmp_path / "log")
    process.start()
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, process.address)
    yield process
    process.kill()


def damage_second_record(broker: BrokerProcess) -> None:
    """One bit of it flips on the disk while the broker is down."""
    broker.stop()
    log = broker.data_dir / f"{TOPIC}-0" / f"{0:020}.log"
    found = bytearray(log.read_bytes())
    found[found.index(b"second")] ^= 1
    log.write_bytes(found)
    broker.start()


@pytest.mark.long
def test_a_partition_whose_records_are_damaged_is_told_by_all_who_meet_it(run: Run, broker: BrokerProcess) -> None:
    run("topic", "create", TOPIC)
    for value in ("first", "second", "third"):
        assert run("produce", TOPIC, stdin=f"{value}\n").code == 0
    damage_second_record(broker)
    consumed = run("consume", TOPIC, "-e", "--timeout", "4")
    assert (consumed.code, consumed.out) == (1, "")
    lines = consumed.err.splitlines()
    assert len(lines) == 3, consumed.err
    told, failed, hint = lines
    assert told.startswith(f"raftlog: {TOPIC}[0] cannot be read for now (KAFKA_STORAGE_ERROR): the partition is off")
    assert failed == f"raftlog: {TOPIC}[0]: The disk failed under the log of this partition."
    assert "the broker's log says why and what to do" in hint
    assert "the batch of offset 1 does not match its checksum" in broker.log()
    produced = run("produce", TOPIC, "--timeout", "1", stdin="fourth\n")
    assert produced.code == 1 and "The disk failed under the log of this partition" in produced.err
    status = run("cluster", "status").out
    assert "1 partition, 0 under-replicated, 1 offline" in status and "1, its log is offline" in status
    assert run("cluster", "status", "--json").json["partitions"]["offline"][0]["log_offline"]
    assert f"error    partitions: 1 offline, of topics like {TOPIC}" in run("doctor").out


@pytest.mark.long
def test_a_disk_that_fills_up_is_told_by_the_brokers_own_limits(run: Run, broker: BrokerProcess) -> None:
    status = run("cluster", "status").out
    assert f"broker 1: {broker.data_dir} has " in status and "% of its disk left" in status
    (disk,) = run("cluster", "status", "--json").json["brokers"][0]["disks"]
    assert (disk["path"], disk["state"]) == (str(broker.data_dir), "warning")
    assert f"warning  broker 1: {broker.data_dir} has " in run("doctor").out
