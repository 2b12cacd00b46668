"""Decisions about the cluster and its brokers: its id, who is in it, and blocks of producer ids (KIP-631)."""

from __future__ import annotations

from raftlog.metadata.commands import (
    NO_EPOCH,
    AllocateProducerIds,
    BrokerRegistered,
    ClusterInitialized,
    InitializeCluster,
    ProducerIdsAllocated,
    RegisterBroker,
)
from raftlog.metadata.config_definition import value_text
from raftlog.metadata.configs import DEFAULT_BROKER, MIN_ISR
from raftlog.metadata.decision import Decision, Environment
from raftlog.metadata.delta import registered_broker
from raftlog.metadata.image import BrokerRegistration, MetadataImage
from raftlog.metadata.records import (
    ClusterRecord,
    ConfigRecord,
    CordonRecord,
    FeatureLevelRecord,
    NewLeaderEpochsRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    ResourceType,
)
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerEpoch

PRODUCER_IDS_PER_BLOCK = 1000
"""Kafka's block size: one metadata commit for a thousand producers."""

LAST_PRODUCER_ID = 2**63 - 1


def initialize_cluster(
    image: MetadataImage, command: InitializeCluster, environment: Environment
) -> Decision[ClusterInitialized]:
    """Decide InitializeCluster: the first one wins. A cluster of an earlier version gets what it has not."""
    shared = shared_min_isr(image, environment)
    if image.cluster_id:
        return Decision(shared, ClusterInitialized(image.cluster_id))
    levels = tuple(FeatureLevelRecord(name, level) for name, level in sorted(command.features.items()))
    return Decision((ClusterRecord(command.cluster_id), *levels, *shared), ClusterInitialized(command.cluster_id))


def shared_min_isr(image: MetadataImage, environment: Environment) -> tuple[ConfigRecord, ...]:
    """What makes `min.insync.replicas` one for all brokers: who may be elected, and what is committed, both hang on it
    (KIP-966). As in Kafka, the value of the node that decides becomes that of the cluster, and no broker has its own.
    """
    if MIN_ISR in image.configs_of(ResourceType.BROKER, DEFAULT_BROKER):
        return ()
    value = value_text(environment.resolver.broker_value(image, MIN_ISR))
    brokers = {name: values for (kind, name), values in image.configs.items() if kind is ResourceType.BROKER}
    own = sorted(name for name, values in brokers.items() if MIN_ISR in values)
    return (
        ConfigRecord(ResourceType.BROKER, DEFAULT_BROKER, {MIN_ISR: value}),
        *(ConfigRecord(ResourceType.BROKER, name, {MIN_ISR: None}) for name in own),
    )


def register_broker(
    image: MetadataImage, command: RegisterBroker, environment: Environment
) -> Decision[BrokerRegistered]:
    """Decide RegisterBroker.

    A broker alone that comes back without having shut down cleanly may have lost the end of its logs, so the
    partitions that it leads get a new leader epoch: clients then see that the log may have ended earlier (KIP-320).
    A broker among others leads nothing until it has caught up.
    """
    if command.cluster_id is not None and command.cluster_id != image.cluster_id:
        message = f"The broker belongs to cluster {command.cluster_id}, and this is cluster {image.cluster_id}."
        return Decision((), BrokerRegistered(ErrorCode.INCONSISTENT_CLUSTER_ID, message, NO_EPOCH))
    known = image.brokers.get(command.broker_id)
    if known is not None and known.incarnation_id == command.incarnation_id:
        return Decision((), BrokerRegistered(ErrorCode.NONE, None, known.epoch))
    if known is not None and command.previous_is_alive:
        message = (
            f"Another broker is running with id {command.broker_id}, at {_addresses(known)}: stop that one, or start"
            " this one with a node.id of its own."
        )
        return Decision((), BrokerRegistered(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message, NO_EPOCH))
    problem = _foreign_directory(image, command)
    if problem is not None:
        return Decision((), BrokerRegistered(ErrorCode.INVALID_REGISTRATION, problem, NO_EPOCH))
    problem = _level_unknown_to(image, command)
    if problem is not None:
        return Decision((), BrokerRegistered(ErrorCode.UNSUPPORTED_VERSION, problem, NO_EPOCH))
    epoch = BrokerEpoch(image.last_broker_epoch + 1)
    registration = RegisterBrokerRecord(
        broker_id=command.broker_id,
        incarnation_id=command.incarnation_id,
        epoch=epoch,
        endpoints=command.endpoints,
        rack=command.rack,
        fenced=command.fenced,
        directories=command.directories,
        features=command.features,
    )
    changes = _after_return(image, command, registration, environment)
    cordoned = tuple(each for each in command.directories if each in command.cordoned_directories)
    if cordoned:
        changes = (CordonRecord(command.broker_id, epoch, cordoned), *changes)
    return Decision((registration, *changes), BrokerRegistered(ErrorCode.NONE, None, epoch))


def _after_return(
    image: MetadataImage, command: RegisterBroker, registration: RegisterBrokerRecord, environment: Environment
) -> tuple[Record, ...]:
    known = image.brokers.get(command.broker_id)
    changes: tuple[Record, ...] = ()
    same = known is not None and not known.fenced and set(known.directories) == set(command.directories)
    if image.topics and (command.fenced or not same):
        from raftlog.metadata.broker_states import returned

        changes = returned(image, command, known, registered_broker(registration), environment)
    if known is None or command.fenced or known.epoch == command.previous_broker_epoch:
        return changes
    return (*changes, NewLeaderEpochsRecord(command.broker_id))


def _addresses(broker: BrokerRegistration) -> str:
    return ", ".join(f"{endpoint.host or '*'}:{endpoint.port}" for endpoint in broker.endpoints) or "an unknown address"


def _foreign_directory(image: MetadataImage, command: RegisterBroker) -> str | None:
    for directory in command.directories:
        if command.directories.count(directory) > 1:
            return (
                f"Two data directories of broker {command.broker_id} have the same id {directory.hex()}: one is a copy"
                " of the other. Remove the copy from log.dirs."
            )
        for other in image.brokers.values():
            if other.broker_id != command.broker_id and directory in other.directories:
                return (
                    f"The data directory {directory.hex()} of broker {command.broker_id} belongs to broker"
                    f" {other.broker_id}: the disks were swapped, or a directory was copied. Give each broker its own"
                    " log.dirs; a broker that shall begin empty needs an empty directory."
                )
    return None


def _level_unknown_to(image: MetadataImage, command: RegisterBroker) -> str | None:
    """What the cluster has switched on and the broker cannot do (KIP-584). One that says nothing of features has looked
    itself, or is of a version that had none.
    """
    known = {feature.name: feature for feature in command.features}
    for name, level in sorted(image.features.items()) if known else ():
        low, high = known[name][1:] if name in known else (0, 0)
        if not low <= level <= high:
            return (
                f"Unable to register because the broker does not support finalized version {level} of {name}."
                f" The broker wants a version between {low} and {high}, inclusive."
            )
    return None


def allocate_producer_ids(image: MetadataImage, command: AllocateProducerIds) -> Decision[ProducerIdsAllocated]:
    """Decide AllocateProducerIds. A broker of an old epoch gets none."""
    known = image.brokers.get(command.broker_id)
    if known is None or known.epoch != command.broker_epoch:
        return Decision((), ProducerIdsAllocated(ErrorCode.STALE_BROKER_EPOCH, -1, 0))
    first = image.next_producer_id
    following = first + PRODUCER_IDS_PER_BLOCK
    if following > LAST_PRODUCER_ID:
        return Decision((), ProducerIdsAllocated(ErrorCode.UNKNOWN_SERVER_ERROR, -1, 0))
    record = ProducerIdsRecord(command.broker_id, command.broker_epoch, following)
    return Decision((record,), ProducerIdsAllocated(ErrorCode.NONE, first, PRODUCER_IDS_PER_BLOCK))
