"""Producing and fetching with the project's codec, one batch at a time."""

from __future__ import annotations

import itertools
import time
from typing import Any

from raftlog.wire.batch import Record, decode_batch, encode_batch, iterate_batches
from raftlog.wire.compression import Compression
from raftlog.wire.messages.fetch import FetchRequest, PartitionData
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest
from raftlog.wire.messages.produce import PartitionProduceResponse
from raftlog.wire.schema import Message
from tests.system.traps.raw import RawConnection
from tests.system.traps.sensible import Names, fetch, produce

PRODUCE_VERSION = 12
"""The newest with topic names."""
FETCH_VERSION = 12
TIME_MS = time.time_ns() // 1_000_000
"""The time of all records: today's, for a broker forgets producers whose last record is a day old."""


class Producer:
    """An idempotent producer's identity, and the batches it would send."""

    def __init__(self, producer_id: int, epoch: int = 0) -> None:
        self.producer_id = producer_id
        self.epoch = epoch

    @classmethod
    def register(cls, connection: RawConnection) -> Producer:
        """One with an id from the broker."""
        response = connection.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert response.error_code == 0, response
        return cls(response.producer_id, response.producer_epoch)

    def batch(self, sequence: int, count: int = 1, **options: Any) -> bytes:
        return encode_batch(
            [Record(number, TIME_MS, b"k", b"%d" % (sequence + number)) for number in range(count)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            **options,
        )


def plain_batch(
    *values: bytes, time_ms: int = TIME_MS, compression: Compression = Compression.NONE, **options: Any
) -> bytes:
    """Records of these values, all at one time."""
    records = [Record(number, time_ms, None, value) for number, value in enumerate(values)]
    return encode_batch(records, compression=compression, **options)


def send(
    connection: RawConnection,
    names: Names,
    records: bytes | None,
    *,
    index: int = 0,
    version: int = PRODUCE_VERSION,
    acks: int = 1,
) -> PartitionProduceResponse:
    """Produce to a partition; its answer."""
    request = produce(version, names, records=b"" if records is None else records, acks=acks)
    request.topic_data[0].partition_data[0].index = index
    if records is None:
        request.topic_data[0].partition_data[0].records = None
    response = connection.ask(request, version)
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    assert isinstance(partition, PartitionProduceResponse)
    return partition


def read(
    connection: RawConnection, names: Names, *, index: int = 0, version: int = FETCH_VERSION, **options: Any
) -> PartitionData:
    """Fetch a partition; its answer."""
    request = fetch(version, names, **options)
    request.topics[0].partitions[0].partition = index
    return only_partition(connection.ask(request, version))


def only_partition(response: Message) -> PartitionData:
    (topic,) = response.responses  # type: ignore[attr-defined]
    (partition,) = topic.partitions
    assert isinstance(partition, PartitionData)
    return partition


def values_of(records: Any) -> list[bytes | None]:
    """The values of all records in what was fetched."""
    view = memoryview(records)
    batches = (decode_batch(view[position:]) for position, _ in iterate_batches(view))
    return [record.value for record in itertools.chain.from_iterable(batches)]


def everything(connection: RawConnection, names: Names) -> list[bytes | None]:
    """The values in partition 0 from its start to its end."""
    found: list[bytes | None] = []
    offset = 0
    while True:
        partition = read(connection, names, offset=offset)
        assert partition.error_code == 0, partition
        if not partition.records:
            return found
        found += values_of(partition.records)
        *_, (_, last) = iterate_batches(memoryview(partition.records))
        offset = last.next_offset


def session_request(
    names: Names, *, session_id: int = 0, epoch: int = 0, partitions: bool = True, version: int = FETCH_VERSION
) -> FetchRequest:
    """A fetch of partition 0 in a session; without `partitions` one that only asks for news."""
    request = fetch(version, names)
    request.session_id, request.session_epoch = session_id, epoch
    if not partitions:
        request.topics = []
    return request
