"""Transactions of Kafka's own Java clients, which speak transaction.version 2, and what Kafka's tools say of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests import java
from tests.system.clients.confluent import producer, read_all
from tests.system.clients.groups import broker_of_our_own, fresh_name, make_topic
from tests.system.cluster.transactions import hang

pytestmark = java.marks
RECORDS = 200


def test_a_copy_in_transactions_is_exact_and_kafkas_tools_understand_it(tmp_path: Path) -> None:
    settings = {"transaction_state_log_num_partitions": "1", "offsets_topic_num_partitions": "1"}
    with broker_of_our_own(tmp_path, **settings) as broker:
        servers = broker.address
        source, target = make_topic(servers, 1, records=RECORDS), make_topic(servers, 1)
        name, group = fresh_name("copier"), fresh_name("group")
        out = java.run(
            "transactional-message-copier",
            *("--broker-list", servers, "--transactional-id", name, "--consumer-group", group),
            *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
            *("--transaction-size", "50", "--enable-random-aborts"),
        )
        last = json.loads([line for line in out.splitlines() if line.startswith("{")][-1])
        assert last["remaining"] == 0
        copied = read_all(servers, target, RECORDS, isolation_level="read_committed")
        assert [int(message.value()) for message in copied] == list(range(RECORDS))
        listed = java.run("transactions", "--bootstrap-server", servers, "list")
        assert re.search(rf"^{name}\s+1\s+\d+\s+(CompleteCommit|CompleteAbort|Empty)", listed, re.MULTILINE), listed
        broker.stop()
        log = tmp_path / "data" / "__transaction_state-0" / "00000000000000000000.log"
        dumped = java.run("dump-log", "--transaction-log-decoder", "--print-data-log", "--files", str(log))
    assert "isvalid: false" not in dumped
    values = [json.loads(line.partition("payload: ")[2]) for line in dumped.splitlines() if "payload: {" in line]
    assert {value["version"] for value in values} == {"1"}
    states = [value["data"]["transactionStatus"] for value in values]
    assert {1, 2, 4} <= set(states) and states[0] == 0
    # An epoch for each transaction, and its markers carry the next one.
    prepared = [value["data"] for value in values if value["data"]["transactionStatus"] in (2, 3)]
    assert [each["producerEpoch"] for each in prepared] == list(range(1, len(prepared) + 1))
    assert all(each["clientTransactionVersion"] == 2 for each in prepared)


def test_kafkas_tool_tells_of_transactions_finds_those_that_hang_and_ends_them(tmp_path: Path) -> None:
    with broker_of_our_own(tmp_path, transaction_partition_verification_enable="false") as broker:
        topic, name = make_topic(broker.address, 1), fresh_name("id")
        known = producer(broker.address, transactional_id=name)
        known.init_transactions(30)
        known.begin_transaction()
        known.produce(topic, b"known")
        assert known.flush(30) == 0
        hang(broker.address, topic, 7_000)

        def begin(*command: str) -> java.Tool:
            return java.Tool("transactions", "--bootstrap-server", broker.address, *command)

        place = ("--topic", topic, "--partition", "0")
        looks = [
            begin("describe", "--transactional-id", name),
            begin("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"),
        ]
        described, found = (tool.finish() for tool in looks)
        assert re.search(rf"^1\s+{name}\s+\d+\s+\d+\s+Ongoing\s.*{topic}-0", described, re.MULTILINE), described
        hanging = [line.split()[:3] for line in found.splitlines() if line.startswith(topic)]
        assert hanging == [[topic, "0", "7000"]], found
        ends = [
            begin("abort", *place, "--start-offset", "1"),
            begin("forceTerminateTransaction", "--transactionalId", name),
        ]
        for tool in ends:
            tool.finish()
        with pytest.raises(KafkaException):
            known.commit_transaction(30)
        # Nothing is open any more, and nothing counts of what was.
        plain = producer(broker.address)
        plain.produce(topic, b"after")
        assert plain.flush(30) == 0
        (seen,) = read_all(broker.address, topic, 1, isolation_level="read_committed")
        assert seen.value() == b"after"
