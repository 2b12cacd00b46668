"""Writing records: one batch at a time to each partition, each at most once (KIP-98), in order.

Blocking and without linger: the caller decides what makes a batch.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlog.client.core.partitioner import partition_for_key
from raftlog.client.errors import Rejected
from raftlog.client.router import Client, check
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.compression import Compression
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerEpoch, ProducerId
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raftlog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ALL_REPLICAS = -1
SEQUENCE_MASK = 0x7FFFFFFF
EPOCH_MAX = 0x7FFF


class Placed(NamedTuple):
    """Where records went: `records` of them from `base_offset` on."""

    topic: str
    partition: int
    base_offset: int
    records: int


class Producer:
    """Idempotent: a batch that is sent again because the reply was lost is stored once.

    A send that failed may have been stored all the same. The records after it get a new producer epoch (KIP-360), and
    never its sequence numbers: the broker would take them for what it has, and drop them without a word.
    """

    def __init__(self, client: Client, *, compression: Compression = Compression.NONE) -> None:
        self._client = client
        self.compression = compression
        self._identity: tuple[ProducerId, ProducerEpoch] | None = None
        self._sequences: dict[tuple[str, int], int] = {}

    def choose(self, key: bytes | None, partitions: int, otherwise: int) -> int:
        """The partition for a record: by its key, or `otherwise` when it has none."""
        return otherwise % partitions if key is None else partition_for_key(key, partitions)

    def send(self, topic: str, partition: int, records: list[Record]) -> list[Placed]:
        """Append the records, in order, and return where they are. Raises ClientError; what came before stays, and
        unless the broker refused them they may be stored, too.

        When they are too many for one batch of this topic they go as several.
        """
        try:
            return [self._send_batch(topic, partition, records)]
        except Rejected as error:
            if error.code != ErrorCode.MESSAGE_TOO_LARGE or len(records) == 1:
                raise
        half = len(records) // 2
        return self.send(topic, partition, records[:half]) + self.send(topic, partition, records[half:])

    def _send_batch(self, topic: str, partition: int, records: list[Record]) -> Placed:
        if self._identity is None:
            self._identity = self._client.retrying(self._introduce)
        producer_id, epoch = self._identity
        sequence = self._sequences.get((topic, partition), 0)
        batch = encode_batch(
            [record._replace(offset=at) for at, record in enumerate(records)],
            compression=self.compression,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        try:
            offset = self._client.retrying(lambda: self._append(topic, partition, batch))
        except BaseException as error:
            is_too_large = isinstance(error, Rejected) and error.code == ErrorCode.MESSAGE_TOO_LARGE
            if not is_too_large:  # no attempt of what is too large was stored
                self._end_epoch()
            raise
        self._sequences[topic, partition] = sequence + len(records) & SEQUENCE_MASK
        return Placed(topic, partition, offset, len(records))

    def _end_epoch(self) -> None:
        """What comes next begins at sequence 0 of the next epoch; what is under way of this one comes too late."""
        assert self._identity is not None
        producer_id, epoch = self._identity
        self._identity = (producer_id, ProducerEpoch(epoch + 1)) if epoch < EPOCH_MAX else None
        self._sequences.clear()

    def _introduce(self) -> tuple[ProducerId, ProducerEpoch]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = self._client.ask(request, InitProducerIdResponse)
        check(answer.error_code, "asking for a producer id")
        return ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch)

    def _append(self, topic: str, partition: int, batch: bytes) -> int:
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(acks=ALL_REPLICAS, timeout_ms=int(self._client.timeout * 1000), topic_data=[data])
        node = self._client.leader(topic, partition)
        answer = self._client.ask(request, ProduceResponse, node=node)
        (result,) = answer.responses[0].partition_responses
        if result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return -1  # stored by an earlier attempt, too long ago for the broker to say where
        check(result.error_code, f"{topic}[{partition}]", result.error_message)
        return result.base_offset
