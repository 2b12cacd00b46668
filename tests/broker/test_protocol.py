"""What clients and followers are told by brokers that replicate, version by version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raftlog.broker.core.replica.selector import closest_replica
from raftlog.broker.server.limits import REMEMBERED_POLL_BYTES_MAX
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from raftlog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    LeaderIdAndEpoch,
)
from raftlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raftlog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.brokers import TOPIC, TOPIC_ID, Client, Cluster, batch, run
from tests.waiting import until


def produce(index: int, *values: str, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch(*values))]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])


def fetch(offset: int, *, epoch: int = -1, rack: str = "", wait_ms: int = 100) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        rack_id=rack,
        topics=[FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[wanted])],
    )


def list_offsets(timestamp: int = -1) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])])


def only(answer: Any) -> Any:
    """The one partition of an answer."""
    topics = getattr(answer, "responses", None) or answer.topics
    (topic,) = topics
    (partition,) = getattr(topic, "partition_responses", None) or topic.partitions
    return partition


def test_a_follower_says_who_leads(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster.set_state(leader=2)
            async with Client(cluster[3]) as client:
                for version in (9, 10, 12):
                    answer = await client.ask(produce(0, "x"), version)
                    told = only(answer)
                    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                    if version >= 10:
                        assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (2, 1)
                        (node,) = answer.node_endpoints
                        assert (node.node_id, node.host, node.port) == (2, "127.0.0.1", cluster[2].port)
                # Before v11 a consumer names no rack, and is served by leaders alone.
                assert only(await client.ask(fetch(0), 10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                answer = await client.ask(fetch(0, epoch=0), 17)
                assert only(answer).error_code == ErrorCode.FENCED_LEADER_EPOCH
                assert only(answer).current_leader == LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
                assert [node.node_id for node in answer.node_endpoints] == [2]
                assert only(await client.ask(list_offsets(), 7)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(story)


async def epoch_end(client: Client) -> Any:
    """What is answered about the end of epoch 0."""
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    topic = OffsetForLeaderTopic(topic=TOPIC, partitions=[wanted])
    answer = await client.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]), 4)
    return answer.topics[0].partitions[0]


def test_only_who_leads_for_certain_says_that_an_offset_is_out_of_range(tmp_path: Path) -> None:
    """`raftlog verify --fault part-kill`: readers began again at offset 0, as a follower had lost what it had."""

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            async with Client(cluster[2]) as client:
                assert only(await client.ask(fetch(7), 12)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            async with Client(cluster[1]) as client:
                assert only(await client.ask(fetch(7), 12)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                assert (await epoch_end(client)).end_offset == 1
                cluster[1].partitions.is_in_contact = lambda: False
                assert only(await client.ask(fetch(7), 12)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert (await epoch_end(client)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(story)


def test_acks_of_all_wait_for_the_followers_and_too_few_of_them_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, topic={"min.insync.replicas": "2"}) as cluster:
            cluster.create_topic((1, 2, 3))
            async with Client(cluster[1]) as client:
                told = only(await client.ask(produce(0, "a", "b"), 11))
                assert (told.error_code, told.base_offset) == (ErrorCode.NONE, 0)
                assert cluster[2].end() == cluster[3].end() == 2
                cluster.kill(2)
                cluster.kill(3)
                assert only(await client.ask(produce(0, "c"), 11)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
                assert only(await client.ask(produce(0, "c", acks=1), 11)).error_code == ErrorCode.NONE
                # What acks=1 appended nobody sees yet.
                assert only(await client.ask(list_offsets(), 7)).offset == 2

    run(story)


def test_a_new_leader_tells_no_end_before_it_can_vouch_for_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            cluster[2].partition()
            # 2 has a record of which it does not know that it is committed; 3 is silent.
            cluster[1].append("b")
            await until(lambda: cluster[2].end() == 2 and cluster[3].end() == 2)
            for node_id in (1, 3):
                cluster[node_id].replication.close()
                cluster[node_id].deaf = True
            cluster[2].partition().log.high_watermark = 1
            cluster.set_state(leader=2)
            async with Client(cluster[2]) as client:
                assert only(await client.ask(list_offsets(), 7)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
                assert only(await client.ask(list_offsets(), 4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
                assert only(await client.ask(list_offsets(-2), 7)).offset == 0
                told = only(await client.ask(fetch(1), 12))
                assert (told.error_code, bytes(told.records)) == (ErrorCode.NONE, b"")

    run(story)


def test_a_poll_with_much_behind_it_is_answered_and_not_remembered(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster, Client(cluster[1]) as client:
            cluster.create_topic((1,))
            opening = fetch(0)
            opening.session_epoch = 0
            session_id = (await client.ask(opening, 13)).session_id
            assert session_id
            (connection,) = cluster[1].server.connections
            for epoch, behind, remembered in ((1, REMEMBERED_POLL_BYTES_MAX, False), (2, 1, True), (3, 1, True)):
                poll = FetchRequest(max_wait_ms=1, min_bytes=1, session_id=session_id, session_epoch=epoch)
                await client.send(poll, 13, bytes(behind))
                answer = await client.receive(poll, 13)
                assert (answer.error_code, answer.session_id, answer.responses) == (ErrorCode.NONE, session_id, [])
                assert (connection.repeat_matcher is not None) is remembered

    run(story)


def test_a_consumer_reads_from_the_replica_in_its_rack(tmp_path: Path) -> None:
    async def story() -> None:
        racks = {1: "a", 2: "b", 3: "b"}
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("x")
            await until(cluster.is_replicated)
            cluster[1].fetches.consumers.rack_of = racks.get
            async with Client(cluster[1]) as leader, Client(cluster[2]) as follower:
                assert only(await leader.ask(fetch(0, rack="a"), 13)).preferred_read_replica == -1
                assert only(await leader.ask(fetch(0, rack="nowhere"), 13)).preferred_read_replica == -1
                told = only(await leader.ask(fetch(1, rack="b", wait_ms=60_000), 13))
                assert told.preferred_read_replica in (2, 3) and bytes(told.records) == b""
                assert told.high_watermark == 1
                told = only(await follower.ask(fetch(0, rack="b"), 13))
                assert bytes(told.records) == cluster[1].stored()
                assert told.high_watermark == 1
            leadership = cluster[1].partition().leadership
            assert leadership is not None
            leadership.followers[2].end_offset = 0
            assert closest_replica(leadership, "b", 0, leader_rack="a", rack_of=racks.get) == 3
            leadership.isr = (1, 2)
            assert closest_replica(leadership, "b", 0, leader_rack="a", rack_of=racks.get) == 2
            leadership.isr = (1, 2, 3)

    run(story)


def test_a_long_poll_at_a_follower_ends_when_it_hears_that_records_are_committed(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("x")
            await until(cluster.is_replicated)
            async with Client(cluster[2]) as follower:
                request = fetch(1, wait_ms=60_000)
                await follower.send(request, 13)
                cluster[1].append("y")
                told = only(await follower.receive(request, 13))
                assert told.high_watermark == 2 and len(told.records) > 0

    run(story)


@pytest.mark.parametrize("version", [12, 17])
def test_kafkas_tool_that_compares_replicas_can_read_each_of_them(tmp_path: Path, version: int) -> None:
    """It says that it is replica -2, and was taken for a follower that nobody knows."""

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("x")
            await until(cluster.is_replicated)
            for broker in cluster.brokers.values():
                await until(lambda broker=broker: broker.high_watermark() == 1)  # type: ignore[misc]
                request = fetch(0)
                (request if version < 15 else request.replica_state).replica_id = -2
                async with Client(broker) as client:
                    told = only(await client.ask(request, version))
                assert (told.error_code, told.high_watermark) == (ErrorCode.NONE, 1) and len(told.records) > 0

    run(story)


def test_deleted_records_are_gone_from_all_replicas_when_that_is_answered(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a", "b", "c")
            await until(cluster.is_replicated)
            wanted = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
            async with Client(cluster[1]) as client:
                told = only(await client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=8000), 2))
                assert (told.error_code, told.low_watermark) == (ErrorCode.NONE, 2)
                assert [broker.partition().log.log_start_offset for broker in cluster.brokers.values()] == [2, 2, 2]
                cluster[3].replication.close()
                wanted.partitions[0].offset = 3
                told = only(await client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=100), 2))
                assert (told.error_code, told.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 2)

    run(story)


def test_of_a_partition_whose_records_are_deleted_twice_in_a_request_the_last_one_counts(tmp_path: Path) -> None:
    """As in Kafka, and one answer for it."""

    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic((1,))
            cluster[1].append("a", "b", "c")
            wanted = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (9, 2, 1)]
            topics = [DeleteRecordsTopic(name=TOPIC, partitions=wanted[:1])]
            topics.append(DeleteRecordsTopic(name=TOPIC, partitions=wanted[1:]))
            async with Client(cluster[1]) as client:
                told = only(await client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=8000), 2))
                assert (told.error_code, told.low_watermark) == (ErrorCode.NONE, 1)
                assert cluster[1].partition().log.log_start_offset == 1

    run(story)


def test_a_follower_that_dies_is_not_waited_for_when_records_are_deleted(tmp_path: Path) -> None:
    """It was not in the ISR: that it is fenced changes nothing about the partition."""

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a", "b", "c")
            await until(cluster.is_replicated)
            cluster[3].replication.close()
            cluster.set_state(isr=(1, 2))
            wanted = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
            async with Client(cluster[1]) as client:
                request = DeleteRecordsRequest(topics=[wanted], timeout_ms=60_000)
                await client.send(request, 2)
                await until(lambda: cluster[2].partition().log.log_start_offset == 2)
                cluster.fence(3)
                told = only(await client.receive(request, 2))
                assert (told.error_code, told.low_watermark) == (ErrorCode.NONE, 2)

    run(story)


def test_only_minus_one_stands_for_no_leader_epoch(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic((1,))
            async with Client(cluster[1]) as client:
                for epoch, error in ((-1, ErrorCode.NONE), (0, ErrorCode.NONE), (-2, ErrorCode.FENCED_LEADER_EPOCH)):
                    request = list_offsets()
                    request.topics[0].partitions[0].current_leader_epoch = epoch
                    assert only(await client.ask(request, 9)).error_code == error
                    assert only(await client.ask(fetch(0, epoch=epoch), 12)).error_code == error

    run(story)
