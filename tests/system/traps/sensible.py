"""One sensible request of each API, in every version: small, and naming things that exist.

The fuzz target starts from these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from raftlog.wire.apis import ApiKey
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.internal import encode_internal
from raftlog.wire.internal.consumer_protocol import ConsumerProtocolSubscription
from raftlog.wire.messages import alter_configs, create_topics, describe_topic_partitions, incremental_alter_configs
from raftlog.wire.messages.api_versions import ApiVersionsRequest
from raftlog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raftlog.wire.messages.delete_groups import DeleteGroupsRequest
from raftlog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from raftlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.wire.messages.describe_cluster import DescribeClusterRequest
from raftlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raftlog.wire.messages.describe_groups import DescribeGroupsRequest
from raftlog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from raftlog.wire.messages.describe_producers import DescribeProducersRequest
from raftlog.wire.messages.describe_producers import TopicRequest as ProducersTopic
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raftlog.wire.messages.list_config_resources import ListConfigResourcesRequest
from raftlog.wire.messages.list_groups import ListGroupsRequest
from raftlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raftlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from raftlog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from raftlog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.wire.messages.sync_group import SyncGroupRequest
from raftlog.wire.schema import Message
from tests.system.traps.sensible_cluster import CLUSTER_BUILDERS
from tests.system.traps.sensible_transactions import TRANSACTION_BUILDERS

TOPIC_RESOURCE = 2
TIMEOUT_MS = 10_000


class Names(NamedTuple):
    """What the requests talk about. The topic has one partition and some records, the group need not exist."""

    topic: str
    topic_id: bytes
    group: str


def sensible_request(key: ApiKey, version: int, names: Names) -> Message:
    """A request that a client could have sent."""
    return BUILDERS[key](version, names)


def produce(version: int, names: Names, *, records: bytes | None = None, acks: int = 1) -> ProduceRequest:
    """One batch for partition 0; a record of this century by default."""
    if records is None:
        records = encode_batch([Record(0, 1_760_000_000_000, b"key", b"value")])
    partitions = [PartitionProduceData(index=0, records=records)]
    named = {"topic_id": names.topic_id} if version >= 13 else {"name": names.topic}
    topic = TopicProduceData(**named, partition_data=partitions)  # type: ignore[arg-type]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])


def fetch(
    version: int,
    names: Names,
    *,
    offset: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
) -> FetchRequest:
    """Partition 0, without a session."""
    partitions = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes)]
    named = {"topic_id": names.topic_id} if version >= 13 else {"topic": names.topic}
    topic = FetchTopic(**named, partitions=partitions)  # type: ignore[arg-type]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[topic])


def _list_offsets(version: int, names: Names) -> Message:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=names.topic, partitions=partitions)])


def _metadata(version: int, names: Names) -> Message:
    return MetadataRequest(topics=[MetadataRequestTopic(name=names.topic)])


def _offset_commit(version: int, names: Names) -> Message:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="here")
    named = {"topic_id": names.topic_id} if version >= 10 else {"name": names.topic}
    topic = OffsetCommitRequestTopic(**named, partitions=[partition])  # type: ignore[arg-type]
    return OffsetCommitRequest(group_id=names.group, topics=[topic])


def _offset_fetch(version: int, names: Names) -> Message:
    if version < 8:
        topic = OffsetFetchRequestTopic(name=names.topic, partition_indexes=[0])
        return OffsetFetchRequest(group_id=names.group, topics=[topic])
    named = {"topic_id": names.topic_id} if version >= 10 else {"name": names.topic}
    topics = [OffsetFetchRequestTopics(**named, partition_indexes=[0])]  # type: ignore[arg-type]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=names.group, topics=topics)])


def _find_coordinator(version: int, names: Names) -> Message:
    if version < 4:
        return FindCoordinatorRequest(key=names.group)
    return FindCoordinatorRequest(coordinator_keys=[names.group])


def join_group(names: Names, member_id: str = "") -> JoinGroupRequest:
    """A member that subscribes to the topic."""
    subscription = encode_internal(ConsumerProtocolSubscription(topics=[names.topic]), 0)
    return JoinGroupRequest(
        group_id=names.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )


def _leave_group(version: int, names: Names) -> Message:
    if version < 3:
        return LeaveGroupRequest(group_id=names.group, member_id="nobody")
    return LeaveGroupRequest(group_id=names.group, members=[MemberIdentity(member_id="nobody")])


def _create_topics(version: int, names: Names) -> Message:
    topic = create_topics.CreatableTopic(name=names.topic, num_partitions=1, replication_factor=1)
    return create_topics.CreateTopicsRequest(topics=[topic], validate_only=True)


def _delete_topics(version: int, names: Names) -> Message:
    missing = f"{names.topic}-that-is-not-there"
    if version < 6:
        return DeleteTopicsRequest(topic_names=[missing], timeout_ms=TIMEOUT_MS)
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=missing)], timeout_ms=TIMEOUT_MS)


def _delete_records(version: int, names: Names) -> Message:
    partitions = [DeleteRecordsPartition(partition_index=0, offset=0)]
    topics = [DeleteRecordsTopic(name=names.topic, partitions=partitions)]
    return DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def _offset_for_leader_epoch(version: int, names: Names) -> Message:
    partitions = [OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=names.topic, partitions=partitions)])


def _describe_configs(version: int, names: Names) -> Message:
    keys = ["retention.ms", "cleanup.policy"]
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=names.topic, configuration_keys=keys
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=True)


def _alter_configs(version: int, names: Names) -> Message:
    config = alter_configs.AlterableConfig(name="retention.ms", value="60000")
    resource = alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=names.topic, configs=[config]
    )
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=True)


def _incremental_alter_configs(version: int, names: Names) -> Message:
    config = incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=0, value="60000")
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=names.topic, configs=[config]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def _describe_topic_partitions(version: int, names: Names) -> Message:
    topics = [describe_topic_partitions.TopicRequest(name=names.topic)]
    return describe_topic_partitions.DescribeTopicPartitionsRequest(topics=topics)


def _create_partitions(version: int, names: Names) -> Message:
    topics = [CreatePartitionsTopic(name=names.topic, count=2, assignments=None)]
    return CreatePartitionsRequest(topics=topics, validate_only=True, timeout_ms=TIMEOUT_MS)


def _offset_delete(version: int, names: Names) -> Message:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    return OffsetDeleteRequest(
        group_id=names.group, topics=[OffsetDeleteRequestTopic(name=names.topic, partitions=partitions)]
    )


def _describe_log_dirs(version: int, names: Names) -> Message:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=names.topic, partitions=[0])])


def _describe_producers(version: int, names: Names) -> Message:
    return DescribeProducersRequest(topics=[ProducersTopic(name=names.topic, partition_indexes=[0])])


BUILDERS: dict[ApiKey, Callable[[int, Names], Message]] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    # A member id that nobody has, so that the request is answered at once in every version.
    ApiKey.JOIN_GROUP: lambda version, names: join_group(names, "nobody"),
    ApiKey.HEARTBEAT: lambda version, names: HeartbeatRequest(group_id=names.group, member_id="nobody"),
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.SYNC_GROUP: lambda version, names: SyncGroupRequest(
        group_id=names.group, member_id="nobody", protocol_type="consumer", protocol_name="range"
    ),
    ApiKey.DESCRIBE_GROUPS: lambda version, names: DescribeGroupsRequest(groups=[names.group]),
    ApiKey.LIST_GROUPS: lambda version, names: ListGroupsRequest(),
    ApiKey.API_VERSIONS: lambda version, names: ApiVersionsRequest(
        client_software_name="raw", client_software_version="1.0"
    ),
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: lambda version, names: InitProducerIdRequest(transactional_id=None),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_GROUPS: lambda version, names: DeleteGroupsRequest(groups_names=[f"{names.group}-not-there"]),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_CLUSTER: lambda version, names: DescribeClusterRequest(),
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.LIST_CONFIG_RESOURCES: lambda version, names: ListConfigResourcesRequest(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    **CLUSTER_BUILDERS,
    **TRANSACTION_BUILDERS,
}
