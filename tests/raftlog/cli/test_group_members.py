"""Consumers of one group, as processes, on one broker."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.conftest import Broker
from tests.raftlog.cli.conftest import Run
from tests.waiting import wait_until

DEADLINE_SECONDS = 20.0

Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def member(broker: Broker) -> Iterator[Start]:
    """`member(name)` starts a consumer of topic `name` in group `name`."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "raftlog", "consume", name, "-G", name, "-b", broker.bootstrap_servers]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def describe(on_broker: Run, group: str) -> dict[str, Any]:
    outcome = on_broker("group", "describe", group, "--json")
    return outcome.json["groups"][0] if outcome.code == 0 else {"state": "unknown", "members": []}


def wait_for(on_broker: Run, group: str, members: int) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    def is_there() -> bool:
        seen.update(describe(on_broker, group))
        return len(seen["members"]) == members and seen["state"] in ("Stable", "Empty")

    wait_until(is_there, f"{group} has {members} members")
    return seen


@pytest.mark.long
def test_members_share_the_partitions_and_hand_them_over(on_broker: Run, topic: str, member: Start) -> None:
    first = member(topic)
    alone = wait_for(on_broker, topic, 1)
    assert [each["assignment"] for each in alone["members"]] == [{topic: [0, 1, 2]}]
    second = member(topic)
    both = wait_for(on_broker, topic, 2)
    shares = sorted(each["assignment"][topic] for each in both["members"])
    assert shares == [[0, 1], [2]]

    refused = on_broker("group", "delete", topic, "--json")
    assert refused.code == 1 and refused.error["code"] == "NON_EMPTY_GROUP"
    refused = on_broker("group", "reset-offsets", topic, "--topic", topic, "--to-earliest", "--execute")
    assert refused.code == 1 and "is active (Stable)" in refused.err
    planned = on_broker("group", "reset-offsets", topic, "--topic", topic, "--to-earliest")
    assert planned.code == 0 and "would be refused now" in planned.err

    for partition in "012":
        assert on_broker("produce", topic, "-p", partition, stdin=f"in {partition}\n").code == 0
    printed = lines_of([first, second], 3)
    # SIGTERM and Ctrl-C both commit what was printed and leave the group at once: nothing is printed again.
    first.send_signal(signal.SIGTERM)
    assert first.wait(DEADLINE_SECONDS) == 0
    rest = wait_for(on_broker, topic, 1)
    assert [each["assignment"] for each in rest["members"]] == [{topic: [0, 1, 2]}]
    second.send_signal(signal.SIGINT)
    out, err = second.communicate(timeout=DEADLINE_SECONDS)
    assert (second.returncode, out, err) == (0, b"", b"")
    assert sorted(printed) == [b"in 0", b"in 1", b"in 2"]
    ended = wait_for(on_broker, topic, 0)
    assert [each["lag"] for each in ended["offsets"]] == [0, 0, 0]
    reasons = {each["generation"]: each["reason"] for each in ended["rebalances"]}
    assert "is new" in reasons[1] and "is new" in reasons[2] and reasons[3].startswith("members left: ")
    assert "LAST REBALANCES" in on_broker("group", "describe", topic).out


def lines_of(processes: list[subprocess.Popen[bytes]], count: int) -> list[bytes]:
    """The next `count` lines that any of them prints."""
    printed = b""
    while printed.count(b"\n") < count:
        ready = select.select([each.stdout for each in processes], [], [], DEADLINE_SECONDS)[0]
        assert ready, f"only {printed!r} was printed in time"
        for stream in ready:
            printed += stream.read(4096)
    return printed.splitlines()


def test_a_group_of_the_consumer_protocol_is_described_too(on_broker: Run, broker: Broker, topic: str) -> None:
    assert on_broker("produce", topic, "-p", "0", stdin="x\ny\n").code == 0
    settings = {"group.protocol": "consumer", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, **settings})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(DEADLINE_SECONDS)
        assert message is not None and message.error() is None
        consumer.commit(message, asynchronous=False)
        seen = wait_for(on_broker, topic, 1)
        assert (seen["type"], seen["members"][0]["assignment"]) == ("consumer", {topic: [0, 1, 2]})
        (read,) = [each for each in seen["offsets"] if each["committed"] is not None]
        assert (read["lag"], read["stable_lag"]) == (1, 1) and read["lag_seconds"] > 0
        assert seen["rebalances"] and all(each["reason"] for each in seen["rebalances"])
        listed = on_broker("group", "list", "--json").json["groups"]
        (here,) = [each for each in listed if each["group"] == topic]
        assert (here["type"], here["members"], here["lag"]) == ("consumer", 1, 1)
    finally:
        consumer.close()


@pytest.mark.long
@pytest.mark.parametrize("holder", ["classic", "consumer"])
def test_a_member_that_gets_no_partition_says_so_and_how_to_go_on(
    on_broker: Run, broker: Broker, name: str, member: Start, holder: str
) -> None:
    assert on_broker("topic", "create", name, "-p", "1").code == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": name, "group.protocol": holder})
    try:
        consumer.subscribe([name])
        wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "the only partition is assigned")
        late = [member(name), member(name)]
        said: list[bytes] = []

        def is_said() -> bool:
            consumer.poll(0.1)
            ready = select.select([each.stderr for each in late], [], [], 0)[0]
            said.extend(stream.readline() for stream in ready)
            return bool(said)

        wait_until(is_said, "one of the late ones has no partition")
        start = f"raftlog: group '{name}' has given this member no partition: others may have them all, as `raftlog"
        assert said[0].decode().startswith(start) and "or read without -G" in said[0].decode()
    finally:
        consumer.close()
