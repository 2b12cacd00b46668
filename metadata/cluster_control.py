"""Which function decides what about brokers, replicas and features, and how each is refused.

The part of `controller` that only a cluster of several brokers needs; imported with the first such command.
"""

from __future__ import annotations

from typing import Any

from raftlog.metadata import broker_states, features, partition_control, reassignments
from raftlog.metadata.cluster_commands import (
    AlterPartitions,
    AlterReassignments,
    AssignDirectories,
    BrokerHeartbeat,
    BrokersFenced,
    BrokerUnregistered,
    DirectoriesAssigned,
    ElectLeaders,
    FeaturesUpdated,
    FenceBrokers,
    HeartbeatAnswer,
    LeadersElected,
    PartitionsAltered,
    ReassignmentsAltered,
    RebalanceLeaders,
    UnregisterBroker,
    UpdateFeatures,
)
from raftlog.metadata.commands import Command
from raftlog.metadata.decision import Decision, Environment
from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import ErrorCode, InvariantViolation


def decide_about_cluster(image: MetadataImage, command: Command[Any], environment: Environment) -> Decision[Any]:
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
            raise InvariantViolation(f"nobody decides {type(command).__name__}")


def refuse_about_cluster(command: Command[Any], error: ErrorCode, message: str) -> object:
    """See controller.refuse."""
    match command:
        case BrokerHeartbeat():
            return HeartbeatAnswer(error, message)
        case AlterPartitions():
            return PartitionsAltered(error)
        case FenceBrokers():
            return BrokersFenced(error)
        case ElectLeaders() | RebalanceLeaders():
            return LeadersElected(error)
        case AlterReassignments():
            return ReassignmentsAltered(error, message)
        case AssignDirectories():
            return DirectoriesAssigned(error)
        case UnregisterBroker():
            return BrokerUnregistered(error, message)
        case UpdateFeatures():
            return FeaturesUpdated(error, message)
        case _:
            raise InvariantViolation(f"nobody refuses {type(command).__name__}")
