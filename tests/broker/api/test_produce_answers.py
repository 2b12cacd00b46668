"""When a produce request is answered: by the time that its client gives, and with acks=0 not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from raftlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.brokers import TOPIC, Client, Cluster, batch, run
from tests.waiting import until

VERSION = 9
LIST_VERSION = 9


def produce(acks: int, timeout_ms: int = 8000, index: int = 0) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=batch("x"))
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


async def outcome(client: Client, request: ProduceRequest) -> tuple[ErrorCode, int]:
    answer = await client.ask(request, VERSION)
    told = answer.responses[0].partition_responses[0]
    return ErrorCode(told.error_code), told.base_offset


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_who_gives_followers_no_time_is_answered_at_once(tmp_path: Path, timeout_ms: int) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("x")
            await until(cluster.is_replicated)
            cluster[3].replication.close()
            async with Client(cluster[1]) as client:
                told = await outcome(client, produce(-1, timeout_ms))
                assert told == (ErrorCode.REQUEST_TIMED_OUT, -1)
                assert await outcome(client, produce(1, timeout_ms)) == (ErrorCode.NONE, 2)

    run(story)


def test_a_request_whose_time_is_up_leaves_nothing_behind_where_nothing_is_committed(tmp_path: Path) -> None:
    """A follower is gone, and the quorum too, so that it stays in the ISR: requests that time out go on coming."""

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("x")
            await until(cluster.is_replicated)
            cluster[3].replication.close()
            wanted = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
            async with Client(cluster[1]) as client:
                assert (await outcome(client, produce(-1, 20)))[0] is ErrorCode.REQUEST_TIMED_OUT
                answer = await client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=20), 2)
                assert answer.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
            partition = cluster[1].partition()
            assert partition.watchers(Mark.LOW_WATERMARK) == 0
            assert partition.watchers(Mark.HIGH_WATERMARK) == 2, "more than the followers' sessions"

    run(story)


def test_who_gives_no_time_hears_of_success_where_nobody_else_is_needed(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 1, topic={"flush.messages": "1"}) as cluster:
            cluster.create_topic((1,))
            async with Client(cluster[1]) as client:
                for offset, acks in enumerate((-1, 1)):
                    assert await outcome(client, produce(acks, 0)) == (ErrorCode.NONE, offset)

    run(story)


def test_what_was_answered_before_an_error_with_acks_0_still_arrives(tmp_path: Path) -> None:
    """Both requests came in one piece, and the connection was closed before the first reply had left."""

    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic((1,))
            partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
            topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
            listing = ListOffsetsRequest(replica_id=-1, topics=[topic])
            async with Client(cluster[1]) as client:
                await client.ask(listing, LIST_VERSION)
                await client.send(listing, LIST_VERSION)
                await client.send(produce(0, index=9), VERSION)
                answer: Any = await client.receive(listing, LIST_VERSION)
                assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
                with pytest.raises(asyncio.IncompleteReadError):
                    await client.receive(listing, LIST_VERSION)

    run(story)
