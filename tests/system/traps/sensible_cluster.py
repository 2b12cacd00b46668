"""Sensible requests about brokers, replicas and the quorum; see `sensible.py`. None of them changes anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from raftlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from raftlog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from raftlog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from raftlog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from raftlog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from raftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from raftlog.wire.messages.unregister_broker import UnregisterBrokerRequest
from raftlog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from raftlog.wire.schema import Message

if TYPE_CHECKING:
    from tests.system.traps.sensible import Names

NOBODY = 4711

# What they are answered with where it is not NONE.
CLUSTER_ERRORS: dict[ApiKey, set[ErrorCode]] = {
    ApiKey.ALTER_REPLICA_LOG_DIRS: {ErrorCode.LOG_DIR_NOT_FOUND},
    ApiKey.ELECT_LEADERS: {ErrorCode.ELECTION_NOT_NEEDED},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {ErrorCode.NO_REASSIGNMENT_IN_PROGRESS},
    ApiKey.UPDATE_FEATURES: {ErrorCode.INVALID_UPDATE_VERSION},
    ApiKey.UNREGISTER_BROKER: {ErrorCode.BROKER_ID_NOT_REGISTERED},
    ApiKey.ADD_RAFT_VOTER: {ErrorCode.DUPLICATE_VOTER},
    ApiKey.REMOVE_RAFT_VOTER: {ErrorCode.VOTER_NOT_FOUND},
}


def _alter_replica_log_dirs(_version: int, names: Names) -> Message:
    topic = AlterReplicaLogDirTopic(name=names.topic, partitions=[0])
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=[topic])])


def _elect_leaders(version: int, names: Names) -> Message:
    return ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=names.topic, partitions=[0])])


def _alter_partition_reassignments(version: int, names: Names) -> Message:
    partition = ReassignablePartition(partition_index=0, replicas=None)
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=names.topic, partitions=[partition])])


def _list_partition_reassignments(version: int, names: Names) -> Message:
    topics = [ListPartitionReassignmentsTopics(name=names.topic, partition_indexes=[0])]
    return ListPartitionReassignmentsRequest(topics=topics)


def _describe_quorum(version: int, names: Names) -> Message:
    partitions = [DescribeQuorumRequestPartitionData(partition_index=0)]
    return DescribeQuorumRequest(
        topics=[DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=partitions)]
    )


def _update_features(version: int, names: Names) -> Message:
    update = FeatureUpdateKey(feature="no.such.feature", max_version_level=1)
    return UpdateFeaturesRequest(feature_updates=[update])


def _unregister_broker(version: int, names: Names) -> Message:
    return UnregisterBrokerRequest(broker_id=NOBODY)


def _add_raft_voter(version: int, names: Names) -> Message:
    listeners = [Listener(name="CONTROLLER", host="127.0.0.1", port=9093)]
    return AddRaftVoterRequest(cluster_id=None, timeout_ms=1000, voter_id=1, listeners=listeners)


def _remove_raft_voter(version: int, names: Names) -> Message:
    return RemoveRaftVoterRequest(cluster_id=None, voter_id=NOBODY)


CLUSTER_BUILDERS: dict[ApiKey, Callable[[int, Names], Message]] = {
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_partition_reassignments,
    ApiKey.DESCRIBE_QUORUM: _describe_quorum,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.UNREGISTER_BROKER: _unregister_broker,
    ApiKey.ADD_RAFT_VOTER: _add_raft_voter,
    ApiKey.REMOVE_RAFT_VOTER: _remove_raft_voter,
}
