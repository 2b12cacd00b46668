"""From a command to a decision: the one door through which metadata changes.

Pure: reads an image, changes nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from raftlog.metadata import broker_control, config_control, topic_control
from raftlog.metadata.commands import (
    NO_EPOCH,
    AllocateProducerIds,
    AlterConfigs,
    BrokerRegistered,
    ClusterInitialized,
    Command,
    ConfigsAltered,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    InitializeCluster,
    PartitionsCreated,
    ProducerIdsAllocated,
    RegisterBroker,
    TopicDeleted,
    TopicResult,
    TopicsCreated,
    TopicsDeleted,
)
from raftlog.metadata.decision import Decision, Environment
from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import ErrorCode

__all__ = ["Decision", "Environment", "decide", "refuse"]

R = TypeVar("R")


def decide(image: MetadataImage, command: Command[R], environment: Environment) -> Decision[R]:
    """The records that carry out a command on `image`, and its answer once they are committed.

    Never raises for what a client may ask: every refusal is an error code in the answer.
    """
    return cast("Decision[R]", _decide(image, command, environment))


def _decide(image: MetadataImage, command: Command[Any], environment: Environment) -> Decision[Any]:
    match command:
        case CreateTopics():
            return topic_control.create_topics(image, command, environment)
        case DeleteTopics():
            return topic_control.delete_topics(image, command)
        case CreatePartitions():
            return topic_control.create_partitions(image, command, environment)
        case AlterConfigs():
            return config_control.alter_configs(image, command, environment)
        case AllocateProducerIds():
            return broker_control.allocate_producer_ids(image, command)
        case RegisterBroker():
            return broker_control.register_broker(image, command, environment)
        case InitializeCluster():
            return broker_control.initialize_cluster(image, command, environment)
        case _:
            # Imported here: a broker that is the whole cluster starts without what only several brokers need.
            from raftlog.metadata.cluster_control import decide_about_cluster

            return decide_about_cluster(image, command, environment)


def refuse(command: Command[R], error: ErrorCode, message: str) -> R:
    """The answer to a command that could not be decided or committed at all."""
    return cast(R, _refuse(command, error, message))


def _refuse(command: Command[Any], error: ErrorCode, message: str) -> object:
    match command:
        case CreateTopics():
            return TopicsCreated(tuple(TopicResult(topic.name, error, message) for topic in command.topics))
        case DeleteTopics():
            return TopicsDeleted(tuple(_refused_deletion(topic, error, message) for topic in command.topics))
        case CreatePartitions():
            return PartitionsCreated(tuple((topic.name, error, message) for topic in command.topics))
        case AlterConfigs():
            return ConfigsAltered(tuple((r.resource_type, r.name, error, message) for r in command.resources))
        case AllocateProducerIds():
            return ProducerIdsAllocated(error, -1, 0)
        case RegisterBroker():
            return BrokerRegistered(error, message, NO_EPOCH)
        case InitializeCluster():
            return ClusterInitialized("")
        case _:
            from raftlog.metadata.cluster_control import refuse_about_cluster

            return refuse_about_cluster(command, error, message)


def _refused_deletion(topic: str | bytes, error: ErrorCode, message: str) -> TopicDeleted:
    if isinstance(topic, str):
        return TopicDeleted(topic, bytes(16), error, message)
    return TopicDeleted(None, topic, error, message)
