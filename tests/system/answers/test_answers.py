"""Groups, offsets, transactions and configs, request by request, against what Apache Kafka 4.3.1 answered.

`kafka.txt` is Kafka's side. `make kafka-answers` starts a Kafka and writes it anew; with
RAFTLOG_TEST_BOOTSTRAP_SERVERS set to a Kafka, the test holds the file against that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.brokers import Kafka
from tests.conftest import ORACLE, Broker
from tests.system.answers import administration, consumer_groups, migration, offsets, transactions
from tests.system.answers.asking import Asker

ANSWERS = Path(__file__).with_name("kafka.txt")

CHAPTERS: tuple[Callable[[Asker], None], ...] = (
    consumer_groups.heartbeats,
    consumer_groups.static_members,
    consumer_groups.a_member_joins_again,
    offsets.commits,
    offsets.commits_of_older_epochs,
    offsets.fetches,
    offsets.groups,
    administration.topics,
    administration.group_configs,
    administration.features,
    transactions.offsets_in_transactions,
    transactions.listed_transactions,
    transactions.described_producers,
    transactions.batches,
    transactions.markers,
    migration.there_and_back,
    migration.newcomers,
    migration.empty_groups,
    migration.groups_that_cannot_be_changed,
    migration.instances,
)


class Different(NamedTuple):
    """Answers that are meant to be others than Kafka's: those of a chapter whose labels end so."""

    chapter: str
    labels: str
    here: str
    why: str


DIFFERENT = (
    Different(
        "topics",
        "create, the same name in metrics",
        "topics=[(c.d NONE NONE num_partitions=1 replication_factor=1), (c_d INVALID_TOPIC_EXCEPTION"
        " error_message=Topic 'c_d' collides with existing topic: c.d NONE)]",
        "Kafka refuses the second in a request of its own, and takes both in one",
    ),
    Different(
        "topics",
        "grow, too many in one topic",
        "results=[(s POLICY_VIOLATION error_message=Excessively large number of partitions per request.)]",
        "Kafka fails: UNKNOWN_SERVER_ERROR",
    ),
    Different(
        "a_member_joins_again",
        "joins again",
        "m1 NONE member_epoch=3 heartbeat_interval_ms=5000"
        " assignment=(topic_partitions=[(topic_id=a partitions=[0, 1, 2])])",
        "what it read before it joined again must not be committed any more",
    ),
    Different(
        "fetches",
        "nobody with an epoch",
        "NONE groups=[(g UNKNOWN_MEMBER_ID)]",
        "Kafka fails: UNKNOWN_SERVER_ERROR",
    ),
    Different(
        "group_configs",
        "an unknown operation",
        "responses=[(g INVALID_REQUEST error_message=Unknown operation type 9 resource_type=32)]",
        "Kafka fails: UNKNOWN_SERVER_ERROR",
    ),
    Different(
        "group_configs",
        "a key twice",
        "responses=[(g INVALID_REQUEST error_message=Error due to duplicate config keys:"
        " consumer.heartbeat.interval.ms resource_type=32)]",
        "says which key",
    ),
    Different(
        "described_producers",
        "a partition twice",
        "topics=[(a partitions=[(0 NONE active_producers=[(producer_epoch=0 last_sequence=0)])])]",
        "a small request must not be able to ask for a huge answer",
    ),
    Different(
        "batches",
        ", next, after an epoch of the future",
        "responses=[(partition_responses=[(NONE base_offset=4 log_start_offset=0)])]",
        "Kafka goes on measuring by a batch that the transaction's coordinator has refused",
    ),
    Different(
        "batches",
        "outside, after an epoch of the future",
        "responses=[(partition_responses=[(INVALID_TXN_STATE log_start_offset=0)])]",
        "as for the batch before, and refused as it is without an epoch of the future",
    ),
    Different(
        "batches",
        "no producer id",
        "responses=[(partition_responses=[(INVALID_RECORD log_start_offset=0)])]",
        "Kafka appends it: part of a transaction that nobody has",
    ),
    Different(
        "markers",
        "write markers, epoch -1",
        "markers=[(topics=[(a partitions=[(0 INVALID_REQUEST)])])]",
        "Kafka fails: UNKNOWN_SERVER_ERROR",
    ),
    Different(
        "markers",
        "write markers, producer -1",
        "markers=[(topics=[(a partitions=[(0 INVALID_REQUEST)])])]",
        "Kafka fails: UNKNOWN_SERVER_ERROR",
    ),
    Different(
        "there_and_back",
        "a subscription that cannot be read",
        "INCONSISTENT_GROUP_PROTOCOL",
        "Kafka fails: UNKNOWN_SERVER_ERROR",
    ),
    Different(
        "groups_that_cannot_be_changed",
        "heartbeat, into one that cannot be read",
        "GROUP_ID_NOT_FOUND error_message=Cannot upgrade classic group unreadable to consumer group because the"
        " embedded consumer protocol is malformed (1 bytes have no version in front)."
        " member_epoch=0 heartbeat_interval_ms=0",
        "says what cannot be read",
    ),
)


def tell(address: str, chapter: Callable[[Asker], None]) -> dict[str, str]:
    """What the broker at `address` answers to the questions of a chapter."""
    asker = Asker(address)
    try:
        chapter(asker)
    finally:
        asker.close()
    return asker.told


def kafka_told() -> dict[str, dict[str, str]]:
    """The file: answers by chapter and label."""
    told: dict[str, dict[str, str]] = {}
    for line in ANSWERS.read_text().splitlines():
        if line.startswith("# "):
            chapter = told.setdefault(line.removeprefix("# "), {})
        else:
            label, _, words = line.partition(": ")
            chapter[label] = words
    return told


def expected(chapter: str) -> dict[str, str]:
    """Kafka's answers, with those instead that are different here."""
    answers = kafka_told()[chapter]
    for different in () if ORACLE in os.environ else DIFFERENT:
        if different.chapter == chapter:
            labels = [label for label in answers if label.endswith(different.labels)]
            assert labels, f"nobody asks {different.labels}"
            for label in labels:
                assert answers[label] != different.here, f"{label}: Kafka says the same"
                answers[label] = different.here
    return answers


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.__name__)
def test_each_request_is_answered_as_by_kafka(broker: Broker, chapter: Callable[[Asker], None]) -> None:
    told, wanted = tell(broker.bootstrap_servers, chapter), expected(chapter.__name__)
    assert list(told) == list(wanted)
    wrong = [f"{each}\n  here:  {told[each]}\n  Kafka: {wanted[each]}" for each in told if told[each] != wanted[each]]
    assert not wrong, "\n".join(wrong)


def lines(address: str) -> Iterator[str]:
    """The file, as the broker at `address` tells it."""
    for chapter in CHAPTERS:
        yield f"# {chapter.__name__}"
        yield from (f"{label}: {words}" for label, words in tell(address, chapter).items())


def main() -> None:
    """Write the file anew. One partition of `__consumer_offsets`: then one coordinator knows what the others know."""
    with Kafka({"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}) as kafka:
        ANSWERS.write_text("".join(f"{line}\n" for line in lines(kafka.bootstrap)))


if __name__ == "__main__":
    main()
