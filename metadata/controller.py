"""From a command to a decision: the one door through which metadata changes.

Pure: reads an image, changes nothing. The table goes on in `cluster_control`, which a broker alone never imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from raftlog.metadata import broker_control, config_control, topic_control
from raftlog.metadata.commands import (
    AllocateProducerIds,
    AlterConfigs,
    Command,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    InitializeCluster,
    RegisterBroker,
)
from raftlog.metadata.decision import Decision, Environment
from raftlog.metadata.image import MetadataImage

if TYPE_CHECKING:
    from raftlog.metadata.cluster_commands import ClusterCommand
    from raftlog.metadata.commands import BasicCommand

__all__ = ["Decision", "Environment", "decide"]

R = TypeVar("R")


def decide(image: MetadataImage, command: Command[R], environment: Environment) -> Decision[R]:
    """The records that carry out a command on `image`, and its answer once they are committed.

    Never raises for what a client may ask: every refusal is an error code in the answer.
    """
    return cast("Decision[R]", _decide(image, cast("BasicCommand | ClusterCommand", command), environment))


def _decide(image: MetadataImage, command: BasicCommand | ClusterCommand, environment: Environment) -> Decision[Any]:
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
            # Imported here: a broker alone starts 25 ms sooner without what only several brokers need.
            from raftlog.metadata.cluster_control import decide_about_cluster

            return decide_about_cluster(image, command, environment)
