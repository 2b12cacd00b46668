"""`raftlog txn` on a running broker: what is listed, described, found hanging, and ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.conftest import Broker
from tests.raftlog.cli.conftest import Run
from tests.system.clients.groups import broker_of_our_own
from tests.system.cluster.transactions import hang

DEADLINE_SECONDS = 45


def producer(address: str, transactional_id: str) -> Producer:
    client = Producer({"bootstrap.servers": address, "transactional.id": transactional_id})
    client.init_transactions(DEADLINE_SECONDS)
    return client


def write(client: Producer, topic: str, partitions: int) -> None:
    client.begin_transaction()
    for partition in range(partitions):
        client.produce(topic, b"x", partition=partition)
    assert client.flush(DEADLINE_SECONDS) == 0


@pytest.fixture
def open_one(on_broker: Run, broker: Broker, topic: str) -> Iterator[Producer]:
    """A transaction in two partitions; its id is the topic's name."""
    client = producer(broker.bootstrap_servers, topic)
    write(client, topic, 2)
    yield client
    on_broker("txn", "abort", topic)


def test_a_transaction_is_listed_by_what_it_does(on_broker: Run, topic: str, open_one: Producer) -> None:
    def listed(*filters: str) -> list[str]:
        found = on_broker("txn", "list", "--json", *filters).json["transactions"]
        return [each["transactional_id"] for each in found]

    assert topic in listed() and topic in listed("--state", "Ongoing", "--state", "Empty")
    assert topic not in listed("--state", "CompleteCommit")
    assert listed("--id", f"{topic}.*") == [topic] and listed("--id", "no such id") == []
    (found,) = on_broker("txn", "list", "--json", "--id", topic).json["transactions"]
    assert found["state"] == "Ongoing" and found["coordinator"] == 1
    assert listed("--producer-id", str(found["producer_id"])) == [topic]
    assert topic not in listed("--longer-than", "1h")
    assert [topic, "Ongoing"] in [line.split()[:2] for line in on_broker("txn", "list").out.splitlines()]
    open_one.commit_transaction(DEADLINE_SECONDS)
    assert topic not in listed("--state", "Ongoing")


def test_a_transaction_is_described_with_its_partitions(on_broker: Run, topic: str, open_one: Producer) -> None:
    (described,) = on_broker("txn", "describe", topic, "--json").json["transactions"]
    assert described["state"] == "Ongoing" and described["timeout_ms"] == 60_000 and described["open_for_ms"] >= 0
    assert described["partitions"] == [{"topic": topic, "partition": index} for index in range(2)]
    text = on_broker("txn", "describe", topic).out
    assert f"{topic}  Ongoing, producer {described['producer_id']} epoch 0, coordinator 1, time-out 60 s" in text
    open_one.commit_transaction(DEADLINE_SECONDS)
    (described,) = on_broker("txn", "describe", topic, "--json").json["transactions"]
    assert described["open_for_ms"] is None


def test_an_abort_by_id_undoes_the_transaction_and_fences_its_producer(
    on_broker: Run, topic: str, open_one: Producer
) -> None:
    dry = on_broker("txn", "abort", topic, "--dry-run")
    assert f"{topic} with 2 partitions would be aborted" in dry.out
    assert "Ongoing" in on_broker("txn", "describe", topic).out
    assert f"{topic} with 2 partitions aborted" in on_broker("txn", "abort", topic).out
    with pytest.raises(KafkaException) as raised:
        open_one.commit_transaction(DEADLINE_SECONDS)
    assert raised.value.args[0].fatal()
    assert on_broker("consume", topic, "-e").out == ""
    again = on_broker("txn", "abort", topic)
    assert again.code == 0 and f"{topic} has no transaction to abort" in again.err


def test_an_id_that_nobody_knows_is_told_with_the_nearest_one(on_broker: Run, topic: str, open_one: Producer) -> None:
    for verb in ("describe", "abort"):
        failed = on_broker("txn", verb, f"{topic}x", "--json")
        assert failed.code == 1 and failed.error["code"] == "TRANSACTIONAL_ID_NOT_FOUND"
        assert failed.error["hint"] == f"did you mean {topic!r}?"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["abort"], "which transaction?"),
        (["abort", "id", "--topic", "t"], "an id, or a place in a partition"),
        (["abort", "--topic", "t", "--partition", "0"], "go together"),
        (["abort", "--topic", "t", "--partition", "0", "--start-offset", "x"], "not a whole number"),
        (["list", "--topic", "t"], "--topic goes with --hanging"),
        (["list", "--hanging", "--state", "Ongoing"], "--hanging goes with"),
        (["list", "--longer-than", "soon"], "not a duration"),
    ],
)
def test_what_does_not_go_together_is_said(run: Run, words: list[str], message: str) -> None:
    outcome = run("txn", *words, "-b", "127.0.0.1:1")
    assert outcome.code == 2 and message in outcome.err


def test_a_state_that_there_is_not_is_refused(on_broker: Run, topic: str, open_one: Producer) -> None:
    outcome = on_broker("txn", "list", "--state", "Running")
    assert outcome.code == 1 and "Running" in outcome.err and "there are Empty, Ongoing" in outcome.err


@pytest.mark.long
def test_a_transaction_that_no_coordinator_knows_is_found_and_ended(run: Run, tmp_path: Path) -> None:
    with broker_of_our_own(tmp_path, transaction_partition_verification_enable="false") as broker:
        here = ("-b", broker.address)
        assert run("topic", "create", "t", "-p", "2", *here).code == 0
        known = producer(broker.address, "known")
        write(known, "t", 2)
        hang(broker.address, "t", 7_000)
        assert "no transaction hangs" in run("txn", "list", "--hanging", *here).err, "it may be young"
        found = run("txn", "list", "--hanging", "--longer-than", "0s", "--json", *here).json["hanging"]
        (hanging,) = found
        assert (hanging["topic"], hanging["partition"], hanging["producer_id"]) == ("t", 0, 7_000)
        assert hanging["start_offset"] == 1
        shown = run("txn", "list", "--hanging", "--longer-than", "0s", "--topic", "t", *here)
        place = ("--topic", "t", "--partition", "0", "--start-offset", "1")
        assert hanging["decided"] is None
        unknown = run("txn", "commit", *place, *here)
        assert unknown.code == 1 and f"`raftlog txn abort {' '.join(place)}` ends it" in unknown.err
        assert f"`raftlog txn abort {' '.join(place)}` ends the first of them" in shown.err
        missed = run("txn", "abort", *place[:-1], "5", *here)
        assert missed.code == 1 and "some begin at 0, 1" in missed.err
        assert "would be aborted" in run("txn", "abort", *place, "--dry-run", *here).out
        assert "of producer 7000, is aborted there" in run("txn", "abort", *place, *here).out
        assert run("txn", "list", "--hanging", "--longer-than", "0s", "--json", *here).json == {"hanging": []}
        known.commit_transaction(DEADLINE_SECONDS)
        assert run("consume", "t", "-e", *here).out == "x\nx\n"


@pytest.mark.long
def test_a_transaction_is_ended_as_its_coordinator_has_decided(run: Run, tmp_path: Path) -> None:
    with broker_of_our_own(tmp_path, transaction_partition_verification_enable="false") as broker:
        here = ("-b", broker.address)
        assert run("topic", "create", "t", *here).code == 0
        known = producer(broker.address, "known")
        write(known, "t", 1)
        known.commit_transaction(DEADLINE_SECONDS)
        decided = run("txn", "describe", "known", "--json", *here).json["transactions"][0]
        assert (decided["state"], decided["producer_epoch"]) in (("CompleteCommit", 0), ("CompleteCommit", 1))
        assert run("topic", "create", "u", *here).code == 0
        hang(broker.address, "u", decided["producer_id"])
        found = run("txn", "list", "--hanging", "--longer-than", "0s", *here)
        place = ("--topic", "u", "--partition", "0", "--start-offset", "0")
        assert f"`raftlog txn commit {' '.join(place)}` ends the first of them" in found.err
        refused = run("txn", "abort", *place, *here)
        assert refused.code == 1 and "its records would be lost" in refused.err
        assert "would be committed" in run("txn", "commit", *place, "--dry-run", *here).out
        assert run("txn", "commit", *place, "--json", *here).json["committed"]["topic"] == "u"
        assert run("consume", "u", "-e", *here).out == "hanging\n"
