"""Which function decides what about brokers, replicas and features.

The part of `controller` that only a cluster of several brokers needs; imported with the first such command.
"""

from __future__ import annotations

from typing import Any, assert_never

from raftlog.metadata import broker_states, features, partition_control, reassignments
from raftlog.metadata.cluster_commands import (
    AlterPartitions,
    AlterReassignments,
    AssignDirectories,
    BrokerHeartbeat,
    ClusterCommand,
    ElectLeaders,
    FenceBrokers,
    RebalanceLeaders,
    UnregisterBroker,
    UpdateFeatures,
)
from raftlog.metadata.decision import Decision, Environment
from raftlog.metadata.image import MetadataImage


def decide_about_cluster(image: MetadataImage, command: ClusterCommand, environment: Environment) -> Decision[Any]:
    """See controller.decide."""
    match command:
        case BrokerHeartbeat():
            return broker_states.heartbeat(image, command, environment)
        case AlterPartitions():
            return partition_control.alter_partitions(image, command, environment)
        case FenceBrokers():
            return broker_states.fence_brokers(image, command, environment)
        case ElectLeaders():
            return partition_control.elect_leaders(image, command, environment)
        case RebalanceLeaders():
            return partition_control.rebalance_leaders(image, command, environment)
        case AlterReassignments():
            return reassignments.alter_reassignments(image, command, environment)
        case AssignDirectories():
            return broker_states.assign_directories(image, command, environment)
        case UnregisterBroker():
            return broker_states.unregister(image, command, environment)
        case UpdateFeatures():
            return features.update_features(image, command, environment)
        case _:
            assert_never(command)
