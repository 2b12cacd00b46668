from __future__ import annotations

import pytest

from raftlog.cli.topic import commas, created_line
from tests.raftlog.cli.conftest import Run


def test_a_topic_is_created_listed_described_and_deleted(on_broker: Run, name: str) -> None:
    created = on_broker("topic", "create", name, "-p", "2", "-c", "retention.ms=86400000")
    assert (created.code, created.out) == (0, f"{name} created with 2 partitions and 1 replica\n")
    listed = on_broker("topic", "list", "--json").json["topics"]
    assert {"name": name, "partitions": 2, "replication_factor": 1} in listed
    assert f"\n{name} " in on_broker("topic", "list").out
    (described,) = on_broker("topic", "describe", name, "--json").json["topics"]
    assert described["name"] == name and described["configs"]["retention.ms"] == "86400000"
    assert [each["partition"] for each in described["partitions"]] == [0, 1]
    assert all(each["isr"] == each["replicas"] and each["leader"] in each["isr"] for each in described["partitions"])
    text = on_broker("topic", "describe", name).out
    assert described["id"] in text and "retention.ms=86400000" in text
    assert on_broker("topic", "delete", name).out == f"{name} with up to 0 records deleted\n"
    assert name not in on_broker("topic", "list").out


def test_a_topic_that_exists_is_only_accepted_when_told_so(on_broker: Run, topic: str) -> None:
    again = on_broker("topic", "create", topic, "--json")
    assert (
        again.code == 1 and again.error["code"] == "TOPIC_ALREADY_EXISTS" and "--if-not-exists" in again.error["hint"]
    )
    accepted = on_broker("topic", "create", topic, "--if-not-exists", "--json")
    assert accepted.code == 0 and accepted.json == {"topics": [{"name": topic, "created": False}]}


def test_topics_that_were_made_before_one_was_refused_are_told(on_broker: Run, topic: str) -> None:
    name = f"{topic}-new"
    made = on_broker("topic", "create", name, topic)
    assert made.code == 1 and made.out == f"{name} created with 1 partition and 1 replica\n"
    on_broker("topic", "delete", name)
    made = on_broker("topic", "create", name, topic, "--json")
    assert made.code == 1 and made.error["code"] == "TOPIC_ALREADY_EXISTS"
    assert [each["name"] for each in made.json["topics"]] == [name]


def test_a_dry_run_creates_nothing(on_broker: Run, name: str) -> None:
    planned = on_broker("topic", "create", name, "-p", "4", "--dry-run")
    assert planned.out == f"{name} would be created with 4 partitions and 1 replica\n"
    assert on_broker("topic", "describe", name).code == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["a/b"], "INVALID_TOPIC_EXCEPTION"),
        (["{name}", "-r", "3"], "INVALID_REPLICATION_FACTOR"),
        (["{name}", "-c", "no.such.config=1"], "INVALID_CONFIG"),
        (["{name}", "-c", "retention.ms=soon"], "INVALID_CONFIG"),
    ],
)
def test_what_the_broker_refuses_is_told_with_advice(
    on_broker: Run, name: str, arguments: list[str], code: str
) -> None:
    refused = on_broker("topic", "create", *(each.format(name=name) for each in arguments), "--json")
    assert refused.code == 1 and refused.error["code"] == code and refused.error["hint"]


def test_an_unknown_topic_offers_the_nearest_one(on_broker: Run, topic: str) -> None:
    missing = topic.replace("cli", "cil")
    outcome = on_broker("topic", "describe", missing)
    assert outcome.code == 1
    assert outcome.err.startswith(f"raftlog: there is no topic {missing!r}\n  did you mean 'c")
    assert on_broker("topic", "delete", missing).code == 1
    assert on_broker("topic", "delete", missing, "--if-exists").code == 0


def test_partitions_can_be_added_but_not_removed(on_broker: Run, topic: str) -> None:
    assert on_broker("topic", "alter", topic, "-p", "5").code == 0
    (described,) = on_broker("topic", "describe", topic, "--json").json["topics"]
    assert len(described["partitions"]) == 5
    fewer = on_broker("topic", "alter", topic, "-p", "2", "--json")
    assert fewer.code == 1 and fewer.error["code"] == "INVALID_PARTITIONS"


def test_settings_are_changed_and_taken_back(on_broker: Run, topic: str) -> None:
    assert on_broker("topic", "alter", topic, "-c", "segment.bytes=1048576", "-c", "retention.ms=5000").code == 0
    assert on_broker("topic", "alter", topic, "--delete-config", "retention.ms").code == 0
    (described,) = on_broker("topic", "describe", topic, "--json").json["topics"]
    assert described["configs"]["segment.bytes"] == "1048576" and described["configs"].get("retention.ms") != "5000"


def test_nothing_is_altered_when_a_part_of_it_is_wrong_or_in_a_dry_run(on_broker: Run, topic: str) -> None:
    assert on_broker("topic", "alter", topic, "-p", "9", "-c", "no.such.config=1").code == 1
    assert on_broker("topic", "alter", topic, "-p", "9", "--dry-run").code == 0
    (described,) = on_broker("topic", "describe", topic, "--json").json["topics"]
    assert len(described["partitions"]) == 3


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "alter", "TOPIC", "--delete-config", "retention.m"),
        ("config", "unset", "--topic", "TOPIC", "retention.m"),
        ("config", "unset", "--broker", "default", "log.retention.m"),
    ],
)
def test_a_setting_that_does_not_exist_cannot_be_taken_back(on_broker: Run, topic: str, words: tuple[str, ...]) -> None:
    outcome = on_broker(*(topic if word == "TOPIC" else word for word in words), "--json")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.error["code"] == "INVALID_CONFIG" and outcome.error["hint"].endswith("retention.ms?")


def test_altering_nothing_is_a_mistake(on_broker: Run, topic: str) -> None:
    assert on_broker("topic", "alter", topic).code == 2


def test_a_setting_cannot_be_set_and_taken_back_at_once(on_broker: Run, topic: str) -> None:
    refused = on_broker("topic", "alter", topic, "-c", "retention.ms=5", "--delete-config", "retention.ms")
    assert refused.code == 2 and "retention.ms cannot be set and taken back at once" in refused.err


def test_a_topic_that_is_named_twice_is_deleted_once(on_broker: Run, topic: str) -> None:
    assert on_broker("topic", "delete", topic, topic).out == f"{topic} with up to 0 records deleted\n"


def test_a_dry_run_of_delete_says_how_much_would_go_and_leaves_it(on_broker: Run, topic: str) -> None:
    assert on_broker("produce", topic, stdin="a\nb\nc\n").code == 0
    planned = on_broker("topic", "delete", topic, "--dry-run")
    assert planned.out == f"{topic} with up to 3 records would be deleted\n"
    assert on_broker("topic", "describe", topic).code == 0


def test_no_partition_of_a_healthy_broker_is_under_replicated(on_broker: Run, topic: str) -> None:
    outcome = on_broker("topic", "describe", topic, "--under-replicated-partitions", "--json")
    assert outcome.json == {"topics": []}


def test_lines_for_people_are_grammatical() -> None:
    topic = {"name": "t", "partitions": 1, "replication_factor": 3}
    assert created_line(topic, dry_run=False) == "t created with 1 partition and 3 replicas"
    assert commas([1, 2]) == "1,2"


def test_settings_are_listed_with_where_they_come_from(on_broker: Run, topic: str) -> None:
    assert on_broker("config", "set", "--topic", topic, "retention.ms=777000").out == "retention.ms is 777000\n"
    listed = on_broker("config", "list", "--topic", topic, "--json").json["configs"]
    (retention,) = [each for each in listed if each["name"] == "retention.ms"]
    assert (retention["value"], retention["source"]) == ("777000", "topic")
    everything = on_broker("config", "list", "--topic", topic, "--all", "--json").json["configs"]
    assert len(everything) > len(listed)
    assert on_broker("config", "unset", "--topic", topic, "retention.ms").code == 0
    assert "777000" not in on_broker("config", "list", "--topic", topic, "--all").out


def test_a_groups_settings_are_set_before_there_is_such_a_group(on_broker: Run) -> None:
    session = "consumer.session.timeout.ms"
    assert on_broker("config", "set", "--group", "later", f"{session}=50000").out == f"{session} is 50000\n"
    (listed,) = on_broker("config", "list", "--group", "later", "--json").json["configs"]
    assert (listed["name"], listed["value"], listed["source"]) == (session, "50000", "group")
    assert on_broker("config", "set", "--group", "later", f"{session}=1").code == 1
    assert on_broker("config", "unset", "--group", "later", "consumer.session.timeout").code == 1
    assert on_broker("config", "unset", "--group", "later", session).code == 0


def test_a_brokers_settings_are_asked_from_that_broker(on_broker: Run) -> None:
    names = [each["name"] for each in on_broker("config", "list", "--broker", "1", "--all", "--json").json["configs"]]
    assert "log.retention.ms" in names
    missing = on_broker("config", "list", "--broker", "77")
    assert missing.code == 1 and "there is no broker 77" in missing.err
    assert on_broker("config", "list", "--broker", "one").code == 2
