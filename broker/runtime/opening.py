"""Builds the controller of a broker: on a log of its own, or on the log that a quorum keeps."""

from __future__ import annotations

import os

from raftlog.broker.config import BrokerConfig
from raftlog.broker.core.coordinator.shared import GROUP_TOPIC, TRANSACTION_TOPIC
from raftlog.broker.platform import Platform
from raftlog.broker.runtime.controller import Controller, InternalTopic
from raftlog.metadata.commands import NewTopic
from raftlog.metadata.controller import Environment
from raftlog.metadata.feature_levels import SUPPORTED_FEATURES
from raftlog.raft.local import LocalLog
from raftlog.raft.seam import MetadataLog

_RESERVED_IDS = 2
"""Ids 0 (none) and 1 (the metadata log itself) belong to no topic in Kafka."""


def random_id() -> bytes:
    """16 random bytes for a topic, a directory, an incarnation. Never a reserved id, and its text form never begins
    with "-", which command-line tools would take for an option.
    """
    while True:
        identifier = os.urandom(16)
        if int.from_bytes(identifier, "big") >= _RESERVED_IDS and identifier[0] >> 2 != _MINUS:
            return identifier


_MINUS = 62
"""The value of "-" in base64url: the first character is the first six bits."""


def open_controller(config: BrokerConfig, platform: Platform | None = None) -> Controller:
    """The controller of a broker, with or without peers. Raises JournalDamaged, JournalLocked, OSError."""
    platform = platform or Platform()
    environment = Environment(
        new_id=random_id,
        resolver=config.resolver,
        num_partitions=config["num.partitions"],
        default_replication_factor=config["default.replication.factor"],
        features=SUPPORTED_FEATURES,
        node_id=config.node_id,
    )
    metadata_log = _quorum_log(config, platform) if config.has_peers else _local_log(config, platform)
    internal_topics = {topic.topic.name: topic for topic in (_offsets_topic(config), _transaction_topic(config))}
    return Controller(metadata_log, environment, internal_topics, alone=not config.has_peers)


def _local_log(config: BrokerConfig, platform: Platform) -> MetadataLog:
    return LocalLog(
        config.metadata_directory,
        node_id=config.node_id,
        disk=platform.disk,
        segment_bytes=config["metadata.log.segment.bytes"],
        snapshot_bytes=config["metadata.log.max.record.bytes.between.snapshots"],
        monotonic=platform.clock.monotonic,
    )


def _quorum_log(config: BrokerConfig, platform: Platform) -> MetadataLog:
    from raftlog.raft.quorum import QuorumLog

    return QuorumLog(
        config.metadata_directory,
        node_id=config.node_id,
        peers={voter.node_id: (voter.host, voter.port) for voter in config.voters},
        listen=config.peer_listen,
        monotonic=platform.clock.monotonic,
        disk=platform.disk,
        random=platform.rng,
        segment_bytes=config["metadata.log.segment.bytes"],
        snapshot_bytes=config["metadata.log.max.record.bytes.between.snapshots"],
    )


def _offsets_topic(config: BrokerConfig) -> InternalTopic:
    configs = {"compression.type": "producer"}
    return _internal_topic(config, GROUP_TOPIC, "offsets.topic", configs)


def _transaction_topic(config: BrokerConfig) -> InternalTopic:
    configs = {
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
        "unclean.leader.election.enable": "false",
    }
    return _internal_topic(config, TRANSACTION_TOPIC, "transaction.state.log", configs)


def _internal_topic(config: BrokerConfig, name: str, prefix: str, configs: dict[str, str]) -> InternalTopic:
    """A compacted topic, as the broker's settings with this prefix say."""
    replication_factor = f"{prefix}.replication.factor"
    configs |= {"cleanup.policy": "compact", "segment.bytes": str(config[f"{prefix}.segment.bytes"])}
    topic = NewTopic(
        name=name,
        num_partitions=config[f"{prefix}.num.partitions"],
        replication_factor=config[replication_factor],
        configs=tuple(sorted(configs.items())),
    )
    return InternalTopic(topic, cap_replication=not config.is_given(replication_factor))
