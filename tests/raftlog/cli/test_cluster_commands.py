"""`raftlog cluster`, `quorum` and `partition` against one broker, a cluster too; for three see tests/system/cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raftlog.testing.process import BrokerProcess
from tests.raftlog.cli.conftest import Run


def test_a_healthy_cluster_says_so(on_broker: Run, topic: str) -> None:
    described = on_broker("cluster", "status", "--json").json
    (broker,) = described["brokers"]
    assert (broker["id"], broker["fenced"], broker["quorum"], broker["metadata_lag"]) == (1, False, "leader", 0)
    assert broker["leaders"] >= 3 and broker["in_sync"] == broker["replicas"]
    assert described["quorum"]["leader"] == 1 and described["quorum"]["voters"] == [1]
    assert described["quorum"]["committed"] > 0
    assert described["partitions"]["offline"] == described["partitions"]["under_replicated"] == []
    text = on_broker("cluster", "status").out
    assert described["cluster_id"] in text and "0 under-replicated, 0 offline" in text
    assert f"quorum: broker 1 leads, term {described['quorum']['term']}, " in text


def test_a_broker_with_an_address_of_ipv6_is_shown_as_clients_write_it(run: Run, tmp_path: Path) -> None:
    broker = BrokerProcess(1, tmp_path / "data", host="::1", log_file=tmp_path / "log")
    broker.start()
    try:
        described = run("cluster", "status", "-b", broker.address, "--json").json
        assert [each["address"] for each in described["brokers"]] == [broker.address]
    finally:
        broker.stop()


def test_a_broker_that_nobody_knows_cannot_be_forgotten_nor_one_that_lives(on_broker: Run) -> None:
    unknown = on_broker("cluster", "unregister", "4711", "--json")
    assert unknown.code == 1 and unknown.error["code"] == "BROKER_ID_NOT_REGISTERED"
    assert "4711" in unknown.error["message"]


def test_the_quorum_is_shown(on_broker: Run) -> None:
    quorum = on_broker("quorum", "status", "--json").json
    (member,) = quorum["members"]
    assert (quorum["leader"], member["id"], member["role"], member["lag"]) == (1, 1, "leader", 0)
    assert on_broker("quorum", "status").out.startswith(f"broker 1 leads, term {quorum['term']}, committed ")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["add", "4"], 1, "--observer"),
        (["add", "four@h:1"], 2, "4@127.0.0.1:9492"),
        (["add", "4@h:x"], 2, "4@127.0.0.1:9492"),
        (["add", "1@127.0.0.1:1"], 1, "votes already"),
        (["remove", "1"], 1, "last voter"),
        (["remove", "7"], 1, "does not vote"),
        (["transfer"], 1, "no other voter"),
        (["transfer", "--to", "7"], 1, "the voters are 1"),
    ],
)
def test_a_change_of_the_quorum_that_cannot_be_is_refused_with_advice(
    on_broker: Run, arguments: list[str], code: int, said: str
) -> None:
    refused = on_broker("quorum", *arguments)
    assert refused.code == code and said in refused.err


def test_the_leader_needs_no_transfer_to_itself(on_broker: Run) -> None:
    assert on_broker("quorum", "transfer", "--to", "1").out == "broker 1 leads the quorum already\n"


def test_a_plan_on_one_broker_moves_nothing_and_can_be_executed(on_broker: Run, topic: str, tmp_path: Path) -> None:
    planned = on_broker("partition", "reassign", "--plan", "--topics", topic)
    assert planned.json == {"version": 1, "partitions": []}
    assert "0 partitions of 3 would change" in planned.err
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}))
    executed = on_broker("partition", "reassign", "--execute", str(plan), "--json").json
    assert executed["results"] == [{"topic": topic, "partition": 0, "error": "NONE", "message": None}]
    assert executed["before"]["partitions"] == [{"topic": topic, "partition": 0, "replicas": [1]}]
    assert on_broker("partition", "reassign", "--status", "--json").json["reassignments"] == []
    assert on_broker("partition", "reassign", "--cancel").err == "nothing is under way\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "is not a plan"),
        ('{"partitions": [{"topic": "{topic}"}]}', "is not a plan"),
        ('{"partitions": []}', "names no partitions"),
        ('{"partitions": [{"topic": "{topic}", "partition": 0, "replicas": "12"}]}', "'12' is no list"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}, '
            '{"topic": "t", "partition": 0, "replicas": [2]}]}',
            "names t[0] twice",
        ),
        ('{"partitions": [{"topic": "{topic}", "partition": 9, "replicas": [1]}]}', "has no partition 9"),
        ('{"partitions": [{"topic": "{topic}", "partition": 0, "replicas": [4711]}]}', "4711"),
        ('{"partitions": [{"topic": "no-such-topic", "partition": 0, "replicas": [1]}]}', "there is no topic"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(on_broker: Run, topic: str, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "plan.json").write_text(text.replace("{topic}", topic))
    refused = on_broker("partition", "reassign", "--execute", str(tmp_path / "plan.json"))
    assert refused.code == 1 and said in refused.err
    assert refused.out == "" and "on the way" not in refused.err


def test_a_plan_for_all_topics_has_the_brokers_own(on_broker: Run, topic: str) -> None:
    assert on_broker("produce", topic, stdin="one\n").code == 0
    assert on_broker("consume", topic, "-G", f"of-{topic}", "-c", "1").code == 0
    listed = on_broker("topic", "list", "--internal", "--json").json["topics"]
    assert any(each["name"] == "__consumer_offsets" for each in listed)
    partitions = sum(each["partitions"] for each in listed)
    assert f"0 partitions of {partitions:,} would change" in on_broker("partition", "reassign", "--plan").err


def test_a_plan_with_a_broker_that_is_not_there_changes_nothing(on_broker: Run, topic: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    moves = [{"topic": topic, "partition": 0, "replicas": [1, 4711]}]
    plan.write_text(json.dumps({"partitions": moves}))
    refused = on_broker("partition", "reassign", "--execute", str(plan), "--throttle", "1000")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("raftlog: there is no broker 4711\n")
    assert "throttle" not in on_broker("config", "list", "--topic", topic).out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["reassign"], 2, "--plan"),
        (["reassign", "--plan", "--brokers", "1,7"], 1, "there is no broker 7"),
        (["reassign", "--plan", "--replication-factor", "2"], 1, "2 replicas cannot lie on 1 brokers"),
        (["reassign", "--plan", "--replication-factor", "0"], 2, "'0' is not a positive whole number"),
        (["reassign", "--status", "--throttle", "5"], 2, "--throttle goes with --execute"),
        (["reassign", "--execute", "/no/such/plan"], 1, "no such file"),
        (["reassign", "--execute", "PLAN"], 1, "is not a plan: it has no 'partitions'"),
        (["reassign", "--execute", "PLAN", "--throttle", "10MB"], 2, "'10MB' is not a positive whole number"),
        (["elect", "--partitions", "1"], 2, "--partitions needs --topic"),
        (["elect", "--unclean"], 2, "--unclean needs --topic"),
    ],
)
def test_a_wrong_use_of_partition_is_refused(
    on_broker: Run, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    refused = on_broker("partition", *(str(plan) if each == "PLAN" else each for each in arguments))
    assert refused.code == code and said in refused.err


def test_leaders_that_lead_already_need_no_election(on_broker: Run, topic: str) -> None:
    assert on_broker("partition", "elect", "--topic", topic).err == "no election was needed\n"
    assert on_broker("partition", "elect", "--json").json == {"results": []}


def test_a_logger_is_named_as_in_the_log_or_whole(on_broker: Run) -> None:
    for name in ("replication", "raftlog.replication"):
        assert on_broker("config", "set", "--logger", "1", f"{name}=DEBUG").code == 0
        listed = on_broker("config", "list", "--logger", "1", "--json").json["configs"]
        assert {each["name"]: each["value"] for each in listed}["raftlog.replication"] == "DEBUG"
        assert on_broker("config", "unset", "--logger", "1", name).code == 0


@pytest.mark.parametrize("kind", ["--logger", "--broker"])
def test_a_broker_that_is_not_there_is_not_asked_for_its_settings(on_broker: Run, kind: str) -> None:
    refused = on_broker("config", "list", kind, "9", "--json")
    assert refused.code == 1 and refused.error["message"] == "there is no broker 9"
    assert on_broker("config", "list", kind, "01").code == 0
