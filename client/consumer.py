"""Reading partitions: fetch from each partition's leader, unpack, skip what readers must not see (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from raftlog.client.errors import ClientError
from raftlog.client.router import Client, check
from raftlog.wire.batch import BatchHeader, CorruptRecord, Record, TimestampType, decode_batch, iterate_batches
from raftlog.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from raftlog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from raftlog.wire.schema import Bytes

LATEST = -1
EARLIEST = -2
FETCH_BYTES_MAX = 16 * 1024 * 1024
PARTITION_BYTES_MAX = 1024 * 1024
READ_COMMITTED = 1

TopicPartition = tuple[str, int]


class Fetched(NamedTuple):
    topic: str
    partition: int
    record: Record
    timestamp_type: TimestampType
    node: int
    """The broker it came from."""


class DamagedRecords(ClientError):
    """A batch came over the wire damaged, or lies damaged in the log."""


class Consumer:
    """Positions of partitions and what to fetch next. `positions` may be read and changed between fetches."""

    def __init__(self, client: Client, *, read_committed: bool = True) -> None:
        self._client = client
        self._isolation = READ_COMMITTED if read_committed else 0
        self.positions: dict[TopicPartition, int] = {}

    def offsets_at(self, partitions: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """The first offset at or after `timestamp` (ms, or LATEST or EARLIEST); the end where there is none."""
        found = self._client.retrying(lambda: self._list_offsets(partitions, timestamp))
        missing = [partition for partition, offset in found.items() if offset < 0]
        if missing:
            found |= self.offsets_at(missing, LATEST)
        return found

    def fetch(self, wait_ms: int = 500) -> Iterator[Fetched]:
        """The records at the current positions, which move on as the iterator advances.

        Returns after at most about `wait_ms` milliseconds when there is nothing. Raises Rejected, for example with
        OFFSET_OUT_OF_RANGE, with the positions as they were.
        """
        # One attempt holds no generator open: what was read before an error is given out first.
        for topic, node, data in self._client.retrying(lambda: self._fetch_all(wait_ms)):
            try:
                yield from self._unpack(topic, node, data)
            except CorruptRecord as error:
                position = self.positions[topic, data.partition_index]
                raise DamagedRecords(
                    f"{topic}[{data.partition_index}]: the batch at offset {position} is damaged: {error}"
                ) from error

    def _list_offsets(self, partitions: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for node, theirs in self._by_leader(partitions).items():
            topics = [
                ListOffsetsTopic(
                    name=topic,
                    partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes],
                )
                for topic, indexes in theirs.items()
            ]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=self._isolation, topics=topics)
            answer = self._client.ask(request, ListOffsetsResponse, node=node)
            for topic_answer in answer.topics:
                for each in topic_answer.partitions:
                    check(each.error_code, f"{topic_answer.name}[{each.partition_index}]")
                    found[topic_answer.name, each.partition_index] = each.offset
        return found

    def _fetch_all(self, wait_ms: int) -> list[tuple[str, int, PartitionData]]:
        """One fetch from every leader at the same time."""
        leaders = self._by_leader(list(self.positions))
        patience = self._client.timeout + wait_ms / 1000
        try:
            for node, topics in leaders.items():
                request = FetchRequest(
                    max_wait_ms=wait_ms,
                    min_bytes=1,
                    max_bytes=FETCH_BYTES_MAX,
                    isolation_level=self._isolation,
                    topics=[self._fetch_topic(topic, indexes) for topic, indexes in topics.items()],
                )
                self._client.connection(node).send(request, self._client.timeout)
            answers = [(node, self._client.connection(node).receive(FetchResponse, patience)) for node in leaders]
        except BaseException:
            for node in leaders:  # replies may be left over in any of them, also after a signal
                self._client.disconnect(node)
            raise
        found = []
        for node, answer in answers:
            check(answer.error_code, f"fetch from broker {node}")
            for topic in answer.responses:
                for data in topic.partitions:
                    check(data.error_code, f"{topic.topic}[{data.partition_index}]")
                    found.append((topic.topic, node, data))
        return found

    def _fetch_topic(self, topic: str, indexes: list[int]) -> FetchTopic:
        partitions = [
            FetchPartition(
                partition=index,
                fetch_offset=self.positions[topic, index],
                partition_max_bytes=PARTITION_BYTES_MAX,
            )
            for index in indexes
        ]
        return FetchTopic(topic=topic, partitions=partitions)

    def _by_leader(self, partitions: list[TopicPartition]) -> dict[int, dict[str, list[int]]]:
        leaders: dict[int, dict[str, list[int]]] = {}
        for topic, index in partitions:
            leaders.setdefault(self._client.leader(topic, index), {}).setdefault(topic, []).append(index)
        return leaders

    def _unpack(self, topic: str, node: int, data: PartitionData) -> Iterator[Fetched]:
        """The records from the position on, which moves along. Raises CorruptRecord."""
        where = (topic, data.partition_index)
        records = data.records if data.records is not None else b""
        aborted = Aborted(data.aborted_transactions or [])
        for at, header in iterate_batches(records):
            batch = records[at : at + header.size]
            for record in [] if aborted.hides(header, batch) else decode_batch(batch):
                if record.offset >= self.positions[where]:
                    # Before the record is given out: whoever stops here has had it.
                    self.positions[where] = record.offset + 1
                    yield Fetched(topic, data.partition_index, record, header.timestamp_type, node)
            self.positions[where] = max(self.positions[where], header.next_offset)


class Aborted:
    """Which batches of one fetch reply belong to aborted transactions.

    The broker lists (producer, first offset) of each; a transaction is over at its abort marker.
    """

    def __init__(self, transactions: list[AbortedTransaction]) -> None:
        self._ahead = sorted((each.first_offset, each.producer_id) for each in transactions)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, batch: Bytes) -> bool:
        """Whether readers must not see this batch: control batches never are for them."""
        while self._ahead and self._ahead[0][0] <= header.last_offset:
            self._open.add(self._ahead.pop(0)[1])
        if header.is_control:
            (marker, *_) = decode_batch(batch)
            if marker.key is not None and marker.key[2:4] == b"\x00\x00":
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open
