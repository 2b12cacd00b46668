"""Small requests that ask for a lot: the answer, its memory and its time stay in proportion to the question."""

from __future__ import annotations

import itertools
import struct

import pytest

from raftlog.broker.api.group_descriptions import TOLD_MAX
from raftlog.broker.core.fetch import session
from raftlog.testing import Cluster
from raftlog.wire.apis import ApiKey
from raftlog.wire.batch import BatchHeader, assemble_batch
from raftlog.wire.compression import Compression, compress
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import encode_request_header
from raftlog.wire.messages import describe_producers, describe_topic_partitions
from raftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raftlog.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from raftlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raftlog.wire.messages.describe_groups import DescribeGroupsRequest
from raftlog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raftlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from raftlog.wire.messages.produce import PartitionProduceData
from raftlog.wire.schema import Message
from tests.system.fuzz.test_bad_batches import minimal_records
from tests.system.fuzz.watch import MIB, Watch, resident_bytes
from tests.system.traps.batches import TIME_MS, plain_batch, send
from tests.system.traps.raw import RawConnection, create_topic, framed, request_frame
from tests.system.traps.sensible import Names, produce, sensible_request

TIMES = 10_000
PARTITIONS = 100
REPLY_RATIO_MAX = 16
REPLY_BYTES_FREE = 100_000
GROWTH_BYTES_MAX = 100 * MIB
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def wide(brokers: Cluster) -> Names:
    """A topic of many partitions and a group with a long commit, so that one answer is large."""
    topic_id = create_topic(brokers.bootstrap_servers, "wide", partitions=PARTITIONS)
    names = Names("wide", topic_id, "wide-group")
    with RawConnection(brokers.bootstrap_servers) as connection:
        connection.ask(sensible_request(ApiKey.FIND_COORDINATOR, 0, names), 0)
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="m" * 1000)
            for index in range(PARTITIONS)
        ]
        commit = OffsetCommitRequest(
            group_id=names.group, topics=[OffsetCommitRequestTopic(name="wide", partitions=partitions)]
        )
        answer = connection.ask(commit, 8)
        assert {partition.error_code for partition in answer.topics[0].partitions} == {ErrorCode.NONE}
    return names


def repeated(kind: str, names: Names) -> tuple[Message, int]:
    """The same thing asked for again and again in one request, and its version."""
    match kind:
        case "Metadata by name":
            return MetadataRequest(topics=[MetadataRequestTopic(name=names.topic)] * TIMES), 12
        case "Metadata by id":
            return MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=names.topic_id)] * TIMES), 12
        case "DescribeConfigs":
            resource = DescribeConfigsResource(resource_type=2, resource_name=names.topic, configuration_keys=None)
            return DescribeConfigsRequest(resources=[resource] * TIMES, include_documentation=True), 4
        case "DescribeGroups":
            return DescribeGroupsRequest(groups=[names.group] * TIMES), 6
        case "FindCoordinator":
            return FindCoordinatorRequest(coordinator_keys=[names.group] * TIMES), 6
        case "OffsetFetch of groups":
            group = OffsetFetchRequestGroup(group_id=names.group, topics=None)
            return OffsetFetchRequest(groups=[group] * TIMES), 8
        case "OffsetFetch of partitions":
            topic = OffsetFetchRequestTopics(name=names.topic, partition_indexes=[0] * TIMES)
            group = OffsetFetchRequestGroup(group_id=names.group, topics=[topic] * 2)
            return OffsetFetchRequest(groups=[group]), 8
        case "DescribeProducers":
            topic_request = describe_producers.TopicRequest(name=names.topic, partition_indexes=[0] * TIMES)
            return describe_producers.DescribeProducersRequest(topics=[topic_request] * 2), 0
        case "DescribeTopicPartitions":
            wanted = [describe_topic_partitions.TopicRequest(name=names.topic)] * TIMES
            return describe_topic_partitions.DescribeTopicPartitionsRequest(topics=wanted), 0
        case "DescribeLogDirs":
            wanted_logs = DescribableLogDirTopic(topic=names.topic, partitions=[0] * TIMES)
            return DescribeLogDirsRequest(topics=[wanted_logs] * 2), 4
        case "ListOffsets":
            offsets = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * TIMES
            return ListOffsetsRequest(topics=[ListOffsetsTopic(name=names.topic, partitions=offsets)]), 8
        case _:
            partitions = [FetchPartition(partition=0, partition_max_bytes=MIB)] * TIMES
            topic_of_fetch = FetchTopic(topic=names.topic, partitions=partitions)
            return FetchRequest(max_bytes=50 * MIB, topics=[topic_of_fetch]), 12


KINDS = [
    *("Metadata by name", "Metadata by id", "DescribeConfigs", "DescribeGroups", "FindCoordinator"),
    *("OffsetFetch of groups", "OffsetFetch of partitions", "DescribeProducers", "DescribeTopicPartitions"),
    *("DescribeLogDirs", "ListOffsets", "Fetch"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_thing_asked_for_ten_thousand_times_in_one_request_is_not_answered_as_often(
    watch: Watch, connection: RawConnection, wide: Names, kind: str
) -> None:
    send(connection, wide, plain_batch(bytes(1000)))
    before = resident_bytes(watch.process.pid)
    frame = request_frame(*repeated(kind, wide))
    connection.send(frame)
    reply = connection.receive_frame()
    assert len(reply) <= REPLY_RATIO_MAX * len(frame) + REPLY_BYTES_FREE, "the answer is out of proportion"
    assert resident_bytes(watch.process.pid) - before < GROWTH_BYTES_MAX


def test_a_group_that_is_asked_for_several_times_is_answered_once_with_all_that_was_asked(
    connection: RawConnection, wide: Names
) -> None:
    groups = [
        OffsetFetchRequestGroup(
            group_id=wide.group, topics=[OffsetFetchRequestTopics(name=wide.topic, partition_indexes=[index])]
        )
        for index in (0, 1, 0)
    ]
    (answer,) = connection.ask(OffsetFetchRequest(groups=groups), 8).groups
    (topic,) = answer.topics
    assert [partition.partition_index for partition in topic.partitions] == [0, 1]
    groups.append(OffsetFetchRequestGroup(group_id=wide.group, topics=None))
    (answer,) = connection.ask(OffsetFetchRequest(groups=groups), 8).groups
    (topic,) = answer.topics
    assert len(topic.partitions) == PARTITIONS


def test_a_group_that_is_described_several_times_is_told_ten_times_at_the_most(
    connection: RawConnection, wide: Names
) -> None:
    for times, told in ((2, 2), (TIMES, TOLD_MAX)):
        names = [wide.group] * times + ["another"]
        for request, version in (
            (DescribeGroupsRequest(groups=names), 6),
            (ConsumerGroupDescribeRequest(group_ids=names), 1),
        ):
            groups = connection.ask(request, version).groups
            assert [group.group_id for group in groups] == [wide.group] * told + ["another"]


def test_partitions_that_nobody_could_pay_for_are_refused(connection: RawConnection) -> None:
    for count in (2**31 - 1, 1_000_000):
        topics = [CreatableTopic(name="too-many", num_partitions=count, replication_factor=1)]
        (result,) = connection.ask(CreateTopicsRequest(topics=topics), 7).topics
        assert result.error_code != ErrorCode.NONE
    assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in range(30_000)]
    topics = [CreatableTopic(name="x", num_partitions=-1, replication_factor=-1, assignments=assignments)]
    (result,) = connection.ask(CreateTopicsRequest(topics=topics), 7).topics
    assert result.error_code != ErrorCode.NONE


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("kind", ["topics", "partitions"])
def test_a_produce_request_may_be_large_for_its_records_and_not_for_its_list(
    watch: Watch, kind: str, version: int
) -> None:
    count = 2_000_000
    flexible = version >= 9
    array = b"\x81\x89\x7a" if flexible else struct.pack(">i", count)  # a compact length is one more
    topic, none = (b"\x01", b"\x01") if flexible else (b"\0\0", bytes(4))
    partition = (bytes(4) + b"\0\0") if flexible else struct.pack(">ii", 0, -1)
    end = b"\0" if flexible else b""
    one = b"\x02" if flexible else struct.pack(">i", 1)
    body = (b"\0" if flexible else b"\xff\xff") + struct.pack(">hi", 1, 1000)
    if kind == "topics":
        body += array + (topic + none + end) * count + end
    else:
        body += one + topic + array + partition * count + end + end
    before = resident_bytes(watch.process.pid)
    with RawConnection(watch.address) as connection:
        connection.send(framed(encode_request_header(ApiKey.PRODUCE, version, 1, "large") + body))
        assert connection.wait_until_closed() == b""
    watch.log.wait_for_closed_lines(1)
    assert any("topics and partitions" in line for line in watch.process.log().splitlines()[-3:])
    assert resident_bytes(watch.process.pid) - before < GROWTH_BYTES_MAX


def test_tagged_fields_without_end_are_refused(watch: Watch) -> None:
    header = encode_request_header(ApiKey.PRODUCE, 9, 1, "tags")[:-1]
    with RawConnection(watch.address) as connection:
        connection.send(framed(header + b"\x81\x89\x7a" + b"\0\0" * 2_000_000))
        assert connection.wait_until_closed() == b""
    watch.log.wait_for_closed_lines(1)


def test_refused_records_are_listed_up_to_a_bound_for_the_whole_request(
    watch: Watch, connection: RawConnection, names: Names
) -> None:
    late, count = TIME_MS + 2 * HOUR_MS, 900
    header = BatchHeader(0, 0, -1, 2, 0, int(Compression.ZSTD), count - 1, late, late, -1, -1, -1, count)
    batch = assemble_batch(header, compress(Compression.ZSTD, minimal_records(count)))
    request = produce(9, names)
    request.topic_data[0].partition_data = [PartitionProduceData(index=0, records=batch) for _ in range(200)]
    before = resident_bytes(watch.process.pid)
    (topic,) = connection.ask(request, 9).responses
    assert {partition.error_code for partition in topic.partition_responses} == {ErrorCode.INVALID_TIMESTAMP}
    assert sum(len(partition.record_errors) for partition in topic.partition_responses) == 1000
    assert resident_bytes(watch.process.pid) - before < GROWTH_BYTES_MAX


def test_fetch_sessions_remember_a_bounded_number_of_partitions_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PARTITIONS_MAX", 100)
    sessions = session.FetchSessions(1000, itertools.count(1).__next__)

    def told(session_id: int, epoch: int, count: int, topic_id: bytes = b"\1" * 16) -> session.FetchSession | ErrorCode:
        partitions = [FetchPartition(partition=index) for index in range(count)]
        topics = [FetchTopic(topic_id=topic_id, partitions=partitions)]
        request = FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)
        made = sessions.apply(request, 17, 0, selects_replicas=False)
        sessions.check_invariants()
        return made

    def opened(count: int) -> session.FetchSession:
        made = told(session.NO_SESSION, session.INITIAL_EPOCH, count)
        assert isinstance(made, session.FetchSession)
        return made

    first, second = opened(60), opened(40)
    third = opened(1)
    assert (first.session_id, second.session_id, third.session_id) == (1, 2, session.NO_SESSION)
    assert len(third.partitions) == 1, "the request itself is still answered in full"
    sessions.close(first.session_id)
    fourth = opened(60)
    assert fourth.session_id == 4, "closed sessions still count"
    assert told(4, 1, 1, b"\2" * 16) is fourth
    assert fourth.session_id == session.NO_SESSION, "a session that grows is not looked at"
    assert told(4, 2, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_member_of_a_group_may_not_bring_any_number_of_protocols_for_nothing(
    watch: Watch, connection: RawConnection, wide: Names
) -> None:
    protocols = [JoinGroupRequestProtocol(name=f"p{number}", metadata=b"") for number in range(TIMES)]
    before = resident_bytes(watch.process.pid)
    for number in range(5):
        request = JoinGroupRequest(
            group_id=f"{wide.group}-{number}",
            protocol_type="consumer",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocols=protocols,
        )
        connection.ask(request, 3)
    assert resident_bytes(watch.process.pid) - before < GROWTH_BYTES_MAX
