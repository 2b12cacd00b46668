"""Consumer groups of Kafka's own tools, and Kafka's reading of our `__consumer_offsets`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import java
from tests.system.clients.groups import broker_of_our_own, make_topic

pytestmark = java.marks

CLASSIC = ("--session-timeout", "6000")


def consume(servers: str, topic: str, group: str, count: int, *arguments: str) -> list[dict[str, Any]]:
    """The events of a consumer that reads `count` records in a group, commits and leaves."""
    out = java.run(
        "verifiable-consumer",
        *("--bootstrap-server", servers, "--topic", topic, "--group-id", group),
        *("--max-messages", str(count), "--reset-policy", "earliest", *arguments),
    )
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def groups(servers: str, *arguments: str) -> str:
    return java.run("consumer-groups", "--bootstrap-server", servers, *arguments)


def row(table: str, group: str) -> list[str]:
    """The first line of a table that is about the group."""
    return next(line.split() for line in table.splitlines() if line.startswith(group))


def test_a_java_consumer_the_group_tool_and_the_log_dumper_agree_with_us(tmp_path: Path) -> None:
    with broker_of_our_own(tmp_path, offsets_topic_num_partitions="1") as broker:
        servers, topic, group = broker.address, make_topic(broker.address, 1, records=10), "the-group"
        strategy = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
        events = consume(servers, topic, group, 10, *CLASSIC, "--assignment-strategy", strategy)
        assert [event["count"] for event in events if event["name"] == "records_consumed"] == [10]
        assert all(event["success"] for event in events if event["name"] == "offsets_committed")
        described = row(groups(servers, "--describe", "--group", group), group)
        assert described[:6] == [group, topic, "0", "10", "10", "0"]
        moved = groups(servers, "--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "4", "--execute")
        assert row(moved, group)[:4] == [group, topic, "0", "4"]
        broker.stop()
        log = tmp_path / "data" / "__consumer_offsets-0" / "00000000000000000000.log"
        out = java.run("dump-log", "--offsets-decoder", "--print-data-log", "--files", str(log))
    values = [line.partition("payload: ")[2] for line in out.splitlines() if line.startswith("| offset")]
    decoded = [json.loads(value) for value in values]
    assert "isvalid: false" not in out
    stable, *_, empty = [v["data"] for v in decoded if v["version"] == "3"]
    (member,) = stable["members"]
    assert (stable["protocolType"], stable["protocol"], stable["generation"]) == ("consumer", "cooperative-sticky", 1)
    assert member["subscription"]["topics"] == [topic]
    assert member["assignment"]["assignedPartitions"] == [{"topic": topic, "partitions": [0]}]
    assert (empty["generation"], empty["members"]) == (2, [])
    commits = [v["data"] for v in decoded if v["version"] == "4"]
    assert [commits[0]["offset"], commits[-1]["offset"]] == [10, 4]
    assert {len(commit["topicId"]) for commit in commits} == {22}


def test_a_java_consumer_of_the_consumer_protocol_and_the_group_tools_agree_with_us(tmp_path: Path) -> None:
    with broker_of_our_own(tmp_path) as broker:
        servers, topic, group = broker.address, make_topic(broker.address, 2, records=10), "the-group"
        events = consume(servers, topic, group, 20, "--group-protocol", "consumer", "--group-remote-assignor", "range")
        assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 20
        assert all(event["success"] for event in events if event["name"] == "offsets_committed")
        listed = java.run("groups", "--bootstrap-server", servers, "--list", "--group-type", "consumer")
        assert row(listed, group) == [group, "Consumer", "consumer"]
        states = groups(servers, "--list", "--state", "empty")
        assert row(states, group) == [group, "Empty"]
        described = groups(servers, "--describe", "--group", group)
        assert [line.split()[1:6] for line in described.splitlines() if line.startswith(group)] == [
            [topic, partition, "10", "10", "0"] for partition in ("0", "1")
        ]
