"""Questions about transactions: offsets in them, lists of them, producers, markers and batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.messages import describe_producers
from raftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from raftlog.wire.messages.delete_groups import DeleteGroupsRequest
from raftlog.wire.messages.describe_transactions import DescribeTransactionsRequest
from raftlog.wire.messages.end_txn import EndTxnRequest
from raftlog.wire.messages.list_transactions import ListTransactionsRequest
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raftlog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.system.answers.asking import Asker
from tests.system.answers.consumer_groups import Heartbeats, prepare
from tests.system.answers.offsets import NO_TOPIC, Offsets, Topics
from tests.system.traps.batches import TIME_MS
from tests.waiting import wait_until

WITH_EPOCH_OF_ITS_OWN = 5
"""The version of EndTxn from which on each transaction has one."""

WHERE = ("error_message", "name", "topic_id", "index", "current_leader")
"""What is not told of a batch: each version has partitions of its own."""


class Producer:
    """A transactional producer, and what it asks."""

    def __init__(self, asker: Asker, what: str, topic: str) -> None:
        self.asker, self.topic = asker, topic
        self.name = asker.name(what)
        self.producer_id, self.epoch = asker.producer(self.name)

    def end(self, version: int, *, committed: bool) -> None:
        """End the transaction, and wait until its markers are written."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer = self.asker.quietly(request, version)
        assert answer.error_code == 0
        if version >= WITH_EPOCH_OF_ITS_OWN:
            self.epoch = answer.producer_epoch
        described = DescribeTransactionsRequest(transactional_ids=[self.name])

        def is_over() -> bool:
            (found,) = self.asker.quietly(described, 0).transaction_states
            return str(found.transaction_state).startswith("Complete")

        wait_until(is_over, "the transaction has ended")

    def commit(self, label: str, version: int, topics: Topics | None = None, **fields: Any) -> None:
        """Offset 3 of partition 0 in the transaction, if nothing else is said."""
        ours = {
            "transactional_id": self.name,
            "group_id": self.asker.name("tg"),
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        wanted = [
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=3, committed_metadata="")
                    for index in indexes
                ],
            )
            for name, indexes in topics or [(self.topic, [0])]
        ]
        request = TxnOffsetCommitRequest(topics=wanted, **{**ours, **fields})
        self.asker.ask(f"commit in version {version}, {label}", request, version)

    def add(self, *partitions: int) -> None:
        topics = [AddPartitionsToTxnTopic(name=self.topic, partitions=list(partitions))]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        self.asker.ask(f"add partitions {list(partitions)}", request, 3)

    def send(self, label: str, version: int, index: int, sequence: int, **options: Any) -> None:
        """One record to a partition; `options`: name, producer_id, epoch, acks, and those of the batch."""
        name, acks = options.pop("name", self.name), options.pop("acks", -1)
        identity = {
            "producer_id": options.pop("producer_id", self.producer_id),
            "producer_epoch": options.pop("epoch", self.epoch),
        }
        batch = encode_batch(
            [Record(0, TIME_MS, None, b"v")],
            base_sequence=sequence,
            transactional=options.pop("transactional", True),
            **identity,
            **options,
        )
        data = TopicProduceData(
            name=self.topic,
            topic_id=self.asker.topic_id(self.topic),
            partition_data=[PartitionProduceData(index=index, records=batch)],
        )
        request = ProduceRequest(transactional_id=name, acks=acks, timeout_ms=5000, topic_data=[data])
        self.asker.ask(f"send in version {version}, {label}", request, version, without=WHERE)


def offsets_in_transactions(asker: Asker) -> None:
    topic, other, live = asker.topic("a", 3), asker.topic("b", 3), asker.name("g")
    prepare(asker, live, topic)
    Heartbeats(asker, live, topic)("m1 joins")
    producer = Producer(asker, "tx", topic)
    for version in (0, 2, 3, 4, 5):
        _commits_that_are_refused(producer, version, live, other)
    producer.commit("the first", 5)
    producer.commit("one that is not there beside one that is", 5, [(topic, [1, 9])])
    producer.commit("one topic without partitions", 5, [(topic, [1]), (other, [])])
    group, offsets = asker.name("tg"), Offsets(asker, topic)
    for version in (7, 9):
        offsets.fetch("stable", version, group, stable=True)
    offsets.fetch("whatever is there", 9, group)
    offsets.fetch("everything that is stable", 9, group, None, stable=True)
    offsets.commit("beside the transaction", 9, group)
    delete = DeleteGroupsRequest(groups_names=[group])
    asker.ask("delete the group", delete, 2)
    asker.ask("delete the group again", delete, 2)
    offsets.fetch("stable, once the group is deleted", 9, group, stable=True)
    producer.end(5, committed=True)
    offsets.fetch("stable, once it is committed", 9, group, stable=True)


def _commits_that_are_refused(producer: Producer, version: int, live: str, other: str) -> None:
    commit, asker = producer.commit, producer.asker
    if version < 5:
        commit("not in the transaction", version)
    commit("an epoch of the future", version, producer_epoch=producer.epoch + 5)
    commit("another producer id", version, producer_id=producer.producer_id + 999)
    commit("a transaction that is not there", version, transactional_id=asker.name("none"))
    commit("no transaction", version, transactional_id="")
    commit("no group", version, group_id="")
    commit("a topic that is not there", version, [(NO_TOPIC, [0])])
    commit("partitions that are not there", version, [(producer.topic, [9]), (other, [9])])
    commit("no partitions", version, [(producer.topic, [])])
    if version >= 3:
        commit("a generation of a group that is not there", version, generation_id=3, member_id="q")
        commit("a member without a generation", version, member_id="q")
        commit("nobody, to a group with members", version, group_id=live)
        commit("a member that is not there", version, group_id=live, generation_id=1, member_id="zz")
        commit("an old epoch", version, group_id=live, generation_id=1, member_id="m1")


def listed_transactions(asker: Asker) -> None:
    topic = asker.topic("a", 3)
    producer = Producer(asker, "tx", topic)
    producer.commit("the first", 5)

    def only_ours(answer: Any) -> None:
        answer.transaction_states = [each for each in answer.transaction_states if asker.is_ours(each.transactional_id)]

    def ask(label: str, version: int, **fields: Any) -> None:
        request = ListTransactionsRequest(**fields)
        asker.ask(f"list in version {version}, {label}", request, version, trim=only_ours)

    ask("all", 0)
    for states in (["Ongoing"], ["Foo"], ["ongoing"], ["Foo", "Ongoing", ""], ["Dead", "PrepareEpochFence"]):
        ask(f"states {states}", 0, state_filters=states)
    ask("by producer id", 0, producer_id_filters=[producer.producer_id])
    ask("by producer id -1", 0, producer_id_filters=[-1])
    for duration in (0, 10**9, -5):
        ask(f"longer than {duration} ms", 1, duration_filter=duration)
    for pattern in ("tx.*", "tx", "", "(", "(?=t).*"):
        ask(f"pattern {pattern!r}", 2, transactional_id_pattern=pattern)
    ask("a wrong pattern and a wrong state", 2, transactional_id_pattern="(", state_filters=["Foo"])
    named = DescribeTransactionsRequest(transactional_ids=[producer.name, asker.name("none"), ""])

    def without_internals(answer: Any) -> None:
        """In which partition the offsets of a group are is a matter of its name."""
        for found in answer.transaction_states:
            for each in found.topics:
                each.partitions = []

    asker.ask("describe", named, 0, trim=without_internals)
    producer.end(5, committed=False)


def described_producers(asker: Asker) -> None:
    topic = asker.topic("a", 3)
    producer = Producer(asker, "tx", topic)
    producer.send("the first", 12, 0, 0)

    def ask(label: str, *topics: tuple[str, Sequence[int]]) -> None:
        wanted = [describe_producers.TopicRequest(name=name, partition_indexes=list(which)) for name, which in topics]
        request = describe_producers.DescribeProducersRequest(topics=wanted)
        asker.ask(f"describe producers, {label}", request, 0, without=("error_message", "current_txn_start_offset"))

    ask("a partition with one", (topic, [0]))
    ask("a partition without", (topic, [1]))
    ask("not there", (topic, [9]), (NO_TOPIC, [0]))
    ask("a partition below 0", (topic, [-1]))
    ask("no partition", (topic, []))
    ask("a partition twice", (topic, [0, 0]))
    for name in ("..", ".", "", "a b", "x" * 250):
        ask(f"topic {name[:9]!r}", (name, [0]))
    producer.end(5, committed=True)
    ask("after the transaction", (topic, [0]))


def batches(asker: Asker) -> None:
    """Batches of a producer that is right or wrong about where it is. A version has partitions of its own."""
    topic = asker.topic("a", 10)
    for number, version in enumerate((9, 11, 12, 13)):
        _batches(Producer(asker, f"p{version}", topic), version, 2 * number)


def _batches(producer: Producer, version: int, at: int) -> None:
    def send(label: str, sequence: int, index: int = at, **options: Any) -> None:
        producer.send(label, version, index, sequence, **options)

    if adds := version < 12:
        send("not added", 0)
        producer.add(at)
        send("first sequence 5", 5)
    send("first", 0)
    send("first again", 0)
    send("a gap", 7)
    send("next", 1)
    send("an epoch before", 2, epoch=producer.epoch - 1)
    send("outside of the transaction", 2, transactional=False)
    send("without the id of the transaction", 2, name=None)
    send("with another id of a transaction", 2, name=producer.asker.name("zz"))
    send("an unknown producer", 0, producer_id=producer.producer_id + 5555)
    send("a control batch", 3, control=True)
    send("acks 1", 3, acks=1)
    send("sequence -1", -1)
    send("an epoch of the future", 0, epoch=producer.epoch + 1)
    send("next, after an epoch of the future", 4)
    send("outside, after an epoch of the future", 5, transactional=False)
    send("no producer id", -1, producer_id=-1, epoch=-1)
    old = producer.epoch
    producer.end(4 if adds else 5, committed=True)
    send("ended, the old epoch", 5, epoch=old)
    send("ended, sequence 3", 3)
    send("ended, sequence 0", 0)
    send("ended, outside of a transaction", 1, transactional=False)
    send("ended, another partition, sequence 9", 9, at + 1)
    send("ended, another partition, sequence 0", 0, at + 1)
    if not adds:
        producer.end(5, committed=False)


def markers(asker: Asker) -> None:
    topic = asker.topic("a", 2)
    producer = Producer(asker, "tx", topic)
    producer.send("the first", 12, 0, 0)
    epoch = producer.epoch

    def write(label: str, partitions: Iterable[int] = (0,), **fields: Any) -> None:
        """Version 2 and transaction version 2, coordinator epoch 3 and a commit, if nothing else is said."""
        version, name = fields.pop("version", 2), fields.pop("topic", topic)
        usual = {"producer_id": producer.producer_id, "transaction_version": 2, "coordinator_epoch": 3}
        marker = WritableTxnMarker(
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=list(partitions))],
            **{"transaction_result": True, "producer_epoch": epoch + 1, **usual, **fields},  # type: ignore[arg-type]
        )
        asker.ask(f"write markers, {label}", WriteTxnMarkersRequest(markers=[marker]), version)

    abort = {"transaction_result": False}
    write("the same epoch", producer_epoch=epoch, coordinator_epoch=0, **abort)
    write("epoch -1", producer_epoch=-1, transaction_version=0, **abort)
    write("epoch -1 where nothing is", [88], producer_epoch=-1, transaction_version=0)
    write("producer -1", producer_id=-1)
    write("the next epoch")
    write("again")
    write("the other end", **abort)
    write("an older coordinator", producer_epoch=epoch + 2, coordinator_epoch=1)
    write("an unknown producer", producer_id=producer.producer_id + 999)
    write("a partition that is not there", [88], coordinator_epoch=0)
    write("a topic that is not there", topic=NO_TOPIC)
    write("no partition", [])
    write("in version 1", version=1, transaction_version=0)
    write("offsets of groups", topic="__consumer_offsets")
