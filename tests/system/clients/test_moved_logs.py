"""Kafka's own tool moves replicas between the directories of a broker, with a throttle, while clients use them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from raftlog.testing import BrokerProcess
from tests import java
from tests.system.clients.confluent import produce, read_all
from tests.system.traps.raw import create_topic
from tests.waiting import wait_until

pytestmark = java.marks
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
RECORDS = 300


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker alone with two directories, and a topic of which the log lies in one of them."""
    settings = {"log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}", "metadata.log.dir": str(tmp_path / "metadata")}
    started = BrokerProcess(1, tmp_path / "one", settings=settings, log_file=tmp_path / "log")
    started.start()
    try:
        create_topic(started.address, "t", settings={"segment.bytes": "1048576", "file.delete.delay.ms": "0"})
        produce(started.address, "t", [{"value": b"%05d" % number + bytes(10_000)} for number in range(RECORDS)])
        yield started
    finally:
        started.kill()


def rate(broker: BrokerProcess) -> str:
    admin = AdminClient({"bootstrap.servers": broker.address})
    (described,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    return str(described.result(30)[RATE].value)


def test_a_log_is_moved_with_a_throttle_while_it_is_written(broker: BrokerProcess, tmp_path: Path) -> None:
    one, two = tmp_path / "one" / "t-0", tmp_path / "two" / "t-0"
    assert one.is_dir() and not two.exists()
    plan = tmp_path / "plan.json"
    moved = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [str(two.parent)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    ask = ("--bootstrap-server", broker.address, "--reassignment-json-file", str(plan))

    java.run("reassign-partitions", *ask, "--execute", "--replica-alter-log-dirs-throttle", "100000")
    assert rate(broker) == "100000"
    assert "is still in progress" in java.run("reassign-partitions", *ask, "--verify", "--preserve-throttles")
    broker.kill()
    broker.start()
    assert rate(broker) == "100000" and list(two.parent.glob("t-0.*-future")), "it goes on after a restart"
    stop = threading.Event()
    sent: list[bytes] = []

    def write() -> None:
        while not stop.is_set():
            values = [b"%05d" % (RECORDS + len(sent) + number) for number in range(20)]
            produce(broker.address, "t", [{"value": value} for value in values])
            sent.extend(values)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        faster = ("--execute", "--additional", "--replica-alter-log-dirs-throttle", "9999999")
        java.run("reassign-partitions", *ask, *faster)
        wait_until(lambda: not one.exists(), "the old directory has another name")
    finally:
        stop.set()
        writer.join()
    assert "completed successfully" in java.run("reassign-partitions", *ask, "--verify")
    assert rate(broker) != "9999999", "the tool has taken its throttle away"
    count = RECORDS + len(sent)
    values = [(message.value() or b"")[:5] for message in read_all(broker.address, "t", count)]
    assert values == [b"%05d" % number for number in range(count)] and sent
    # The metadata know where it lies: without the other directory it is served.
    wait_until(lambda: not list(one.parent.glob("t-0*")), "what is left in the old directory is removed")
    broker.stop()
    one.parent.rename(tmp_path / "elsewhere")
    broker.settings["log.dirs"] = str(two.parent)
    broker.start()
    assert len(read_all(broker.address, "t", count)) == count
