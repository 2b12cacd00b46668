"""Decisions about the cluster and its brokers: its id, who is in it, and blocks of producer ids.

Knows registration (KIP-631) and epochs. Refuses to know heartbeats: who is alive is the leader's to say.
"""

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
from raftlog.metadata.decision import Decision
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import (
    ClusterRecord,
    FeatureLevelRecord,
    NewLeaderEpochsRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
)
from raftlog.wire.errors import ErrorCode

PRODUCER_IDS_PER_BLOCK = 1000
"""Kafka's block size: one metadata commit for a thousand producers."""

LAST_PRODUCER_ID = 2**63 - 1


def initialize_cluster(image: MetadataImage, command: InitializeCluster) -> Decision[ClusterInitialized]:
    """Decide InitializeCluster: the first one wins."""
    if image.cluster_id:
        return Decision((), ClusterInitialized(image.cluster_id))
    levels = tuple(FeatureLevelRecord(name, level) for name, level in sorted(command.features.items()))
    return Decision((ClusterRecord(command.cluster_id), *levels), ClusterInitialized(command.cluster_id))


def register_broker(image: MetadataImage, command: RegisterBroker) -> Decision[BrokerRegistered]:
    """Decide RegisterBroker.

    A broker that comes back without having shut down cleanly may have lost the end of its logs, so the partitions
    that it leads get a new leader epoch: clients and followers then see that the log may have ended earlier
    (KIP-101, KIP-320).
    """
    if command.cluster_id is not None and command.cluster_id != image.cluster_id:
        message = f"The broker belongs to cluster {command.cluster_id}, and this is cluster {image.cluster_id}."
        return Decision((), BrokerRegistered(ErrorCode.INCONSISTENT_CLUSTER_ID, message, NO_EPOCH))
    known = image.brokers.get(command.broker_id)
    if known is not None and known.incarnation_id == command.incarnation_id:
        return Decision((), BrokerRegistered(ErrorCode.NONE, None, known.epoch))
    if known is not None and command.previous_is_alive:
        message = f"Another broker is running with id {command.broker_id}: every broker needs an id of its own."
        return Decision((), BrokerRegistered(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message, NO_EPOCH))
    epoch = image.last_broker_epoch + 1
    registration = RegisterBrokerRecord(
        broker_id=command.broker_id,
        incarnation_id=command.incarnation_id,
        epoch=epoch,
        endpoints=command.endpoints,
        rack=command.rack,
        fenced=command.fenced,
        directories=command.directories,
    )
    clean = known is not None and known.epoch == command.previous_broker_epoch
    epochs = () if known is None or clean else (NewLeaderEpochsRecord(command.broker_id),)
    return Decision((registration, *epochs), BrokerRegistered(ErrorCode.NONE, None, epoch))


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
