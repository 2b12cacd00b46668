"""How long messages take to encode and decode, beside kio where the comparison is fair.

Run with `python -m benchmarks.message_codec`. Prints the best of several rounds, in microseconds a message; rounds
alternate, so that a busy machine slows both down. No sockets, no brokers.
"""

from __future__ import annotations

import datetime
import io
import time
import uuid
from collections.abc import Callable

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.metadata.v12 import response as kio_metadata
from kio.serial import entity_reader, entity_writer

from raftlog.wire.codec import decode, encode
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.wire.schema import Message

TOPICS, PARTITIONS, BROKERS = 100, 12, 3
ROUNDS, ROUND_SECONDS = 5, 0.2


def metadata() -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            partition_index=index, leader_id=1, leader_epoch=5, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for index in range(PARTITIONS)
    ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host=f"host{node}", port=9092, rack="r") for node in range(BROKERS)
        ],
        cluster_id="abcdefghijklmnopqrstuv",
        controller_id=1,
        topics=[
            MetadataResponseTopic(name=f"topic-{topic}", topic_id=bytes(15) + b"x", partitions=partitions)
            for topic in range(TOPICS)
        ],
    )


def kio_metadata_response() -> kio_metadata.MetadataResponse:
    """The same message as `metadata` makes."""
    partitions = tuple(
        kio_metadata.MetadataResponsePartition(
            error_code=KioErrorCode.none, partition_index=index, leader_id=1, leader_epoch=5,
            replica_nodes=(1, 2, 3), isr_nodes=(1, 2, 3), offline_replicas=(),
        )
        for index in range(PARTITIONS)
    )  # fmt: skip
    return kio_metadata.MetadataResponse(
        throttle_time=datetime.timedelta(0),
        brokers=tuple(
            kio_metadata.MetadataResponseBroker(node_id=node, host=f"host{node}", port=9092, rack="r")
            for node in range(BROKERS)
        ),
        cluster_id="abcdefghijklmnopqrstuv",
        controller_id=1,
        topics=tuple(
            kio_metadata.MetadataResponseTopic(
                error_code=KioErrorCode.none, name=f"topic-{topic}", topic_id=uuid.UUID(bytes=bytes(15) + b"x"),
                is_internal=False, partitions=partitions, topic_authorized_operations=-(2**31),
            )
            for topic in range(TOPICS)
        ),
    )  # fmt: skip


def small_messages() -> list[tuple[Message, int]]:
    member = "consumer-1-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
    offsets = OffsetCommitRequestTopic(name="topic", partitions=[OffsetCommitRequestPartition(committed_offset=5)])
    produced = TopicProduceData(name="topic", partition_data=[PartitionProduceData(index=1, records=bytes(1000))])
    return [
        (HeartbeatRequest(group_id="group", generation_id=3, member_id=member), 4),
        (OffsetCommitRequest(group_id="group", member_id=member, topics=[offsets]), 8),
        (ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[produced]), 9),
        (FetchRequest(topics=[FetchTopic(topic_id=bytes(16), partitions=[FetchPartition(fetch_offset=5)])]), 16),
    ]


def microseconds(*actions: Callable[[], object]) -> list[float]:
    """The least time of each action."""
    best = [float("inf")] * len(actions)
    for _ in range(ROUNDS):
        best = [min(least, seconds_of(action) * 1e6) for least, action in zip(best, actions, strict=True)]
    return best


def seconds_of(action: Callable[[], object]) -> float:
    """The mean time of an action in one round."""
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < ROUND_SECONDS:
        for _ in range(10):
            action()
        count += 10
    return elapsed / count


def main() -> None:
    message, theirs = metadata(), kio_metadata_response()
    write, read = entity_writer(kio_metadata.MetadataResponse), entity_reader(kio_metadata.MetadataResponse)
    data = encode(message, 12)

    def write_kio() -> bytes:
        buffer = io.BytesIO()
        write(buffer, theirs)
        return buffer.getvalue()

    if write_kio() != data:
        raise SystemExit("kio and raftlog encode the same message differently")
    ours_out, theirs_out = microseconds(lambda: encode(message, 12), write_kio)
    ours_in, theirs_in = microseconds(lambda: decode(MetadataResponse, 12, data), lambda: read(memoryview(data), 0))
    print(f"MetadataResponse v12, {TOPICS} topics x {PARTITIONS} partitions, {len(data)} bytes")
    print(f"  encode {ours_out:9.1f} us   kio {theirs_out:9.1f} us   {theirs_out / ours_out:.1f} times")
    print(f"  decode {ours_in:9.1f} us   kio {theirs_in:9.1f} us   (kio's reader is native code)")
    for small, version in small_messages():
        body, cls = encode(small, version), type(small)
        out, back = microseconds(
            lambda small=small, version=version: encode(small, version),  # type: ignore[misc]
            lambda cls=cls, version=version, body=body: decode(cls, version, body),  # type: ignore[misc]
        )
        print(f"{cls.__name__} v{version}: encode {out:.1f} us, decode {back:.1f} us")


if __name__ == "__main__":
    main()
