"""The settings of a broker that raftlog obeys, by Kafka's names.

The many that Kafka has and raftlog has not are in `unsupported_broker_configs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from raftlog.metadata.config_definition import (
    CONNECTIONS_BY_HOST,
    INT_MAX,
    LONG_MAX,
    ConfigDefinition,
    ConfigType,
    Value,
    at_least,
    between,
    between_or,
    dynamic,
    elements_of,
    fixed,
    one_of,
    one_of_any_case,
)
from raftlog.metadata.log_configs import LOG_CONFIGS
from raftlog.metadata.topic_configs import COMPRESSION_TYPES
from raftlog.metadata.transaction_configs import TRANSACTION_CONFIGS

_BOOLEAN, _STRING, _INT, _SHORT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.SHORT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST


class DifferentDefault(NamedTuple):
    """A default that differs from Kafka's on purpose."""

    kafka: Value
    reason: str


DIFFERENT_DEFAULTS: Mapping[str, DifferentDefault] = {
    "log.dir": DifferentDefault(
        ("/tmp/kafka-logs",), "data does not belong where the system cleans up: a directory has to be named"
    ),
    "process.roles": DifferentDefault(None, "every node is both, and nobody should have to say so"),
    "controller.listener.names": DifferentDefault(None, "a broker alone needs no listener for a quorum"),
    "metadata.log.max.record.bytes.between.snapshots": DifferentDefault(
        20_971_520, "a start reads what follows the snapshot, and a start has to be quick"
    ),
    "broker.session.timeout.ms": DifferentDefault(
        9000, "clients of a stopped broker should not wait longer than they must"
    ),
    "broker.heartbeat.interval.ms": DifferentDefault(2000, "several heartbeats have to fit into the shorter session"),
    "metadata.log.segment.bytes": DifferentDefault(
        1_073_741_824, "snapshots cut the metadata log long before it has that size"
    ),
}
"""Every supported setting whose default is not Kafka's, and why."""


_NODE = (
    fixed("node.id", _INT, None, at_least(0), "The number of this node; no two nodes of a cluster share one."),
    fixed("broker.id", _INT, -1, None, "The older name of node.id."),
    fixed(
        "process.roles", _LIST, ("broker", "controller"), elements_of("broker", "controller"),
        "What this process is. A raftlog node is always a broker and a controller.",
    ),
    fixed(
        "broker.rack", _STRING, None, None,
        "Where this broker stands; replicas of a partition are spread over racks.",
    ),
    fixed(
        "controller.quorum.voters", _LIST, (), None,
        "The nodes that vote on metadata, as id@host:port; empty for a broker alone.",
    ),
    fixed(
        "controller.quorum.bootstrap.servers", _LIST, (), None,
        "Where nodes that vote on metadata are found, as host:port. Only those of controller.quorum.voters and this"
        " node itself may be named: raftlog asks nobody who is in the quorum.",
    ),
    fixed(
        "metadata.log.dir", _STRING, None, None,
        "The directory of the metadata log; by default it lies in the first data directory.",
    ),
    fixed(
        "metadata.log.max.record.bytes.between.snapshots", _LONG, 4_194_304, at_least(1),
        "After how many bytes of metadata records a snapshot is taken.",
    ),
    fixed(
        "metadata.log.segment.bytes", _INT, 8_388_608, at_least(8 * 1024 * 1024),
        "At which size a new segment of the metadata log begins.",
    ),
)  # fmt: skip

_MEMBERSHIP = (
    fixed(
        "broker.session.timeout.ms", _INT, 2000, None,
        "A broker that the controller has not heard for this long is fenced: others lead its partitions.",
    ),
    fixed(
        "broker.heartbeat.interval.ms", _INT, 300, None,
        "How often a broker tells the controller that it is there.",
    ),
    fixed(
        "controlled.shutdown.enable", _BOOLEAN, True, None,
        "Whether a broker that is told to stop has its partitions led by others first.",
    ),
    fixed(
        "auto.leader.rebalance.enable", _BOOLEAN, True, None,
        "Whether partitions go back to their preferred leaders by themselves.",
    ),
    fixed(
        "leader.imbalance.check.interval.seconds", _LONG, 300, at_least(1),
        "How often the controller looks for partitions that are not led by their preferred leaders.",
    ),
)  # fmt: skip

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
REPLICA_SELECTORS = ("org.apache.kafka.common.replica.LeaderSelector", RACK_AWARE_SELECTOR)

_REPLICATION = (
    fixed(
        "replica.lag.time.max.ms", _LONG, 30_000, None,
        "A follower that has not caught up with its leader for this long is in sync no more.",
    ),
    fixed(
        "replica.fetch.wait.max.ms", _INT, 500, None,
        "How long a follower's fetch waits for records; shorter than replica.lag.time.max.ms.",
    ),
    fixed("replica.fetch.min.bytes", _INT, 1, None, "For how many bytes a follower's fetch waits."),
    fixed(
        "replica.fetch.max.bytes", _INT, 1_048_576, at_least(0),
        "How many bytes a follower fetches of one partition at a time; a larger batch comes alone.",
    ),
    fixed(
        "replica.fetch.response.max.bytes", _INT, 10_485_760, at_least(0),
        "How many bytes a follower fetches at a time.",
    ),
    fixed(
        "replica.fetch.backoff.ms", _INT, 1000, at_least(0),
        "The longest time between two attempts to fetch a partition that failed, or to reach a broker.",
    ),
    fixed(
        "replica.socket.timeout.ms", _INT, 30_000, None,
        "A follower that has waited so long for an answer makes a new connection.",
    ),
    fixed(
        "replica.selector.class", _STRING, None, None,
        "How a leader chooses the replica that a consumer reads from: RackAwareReplicaSelector, or none.",
    ),
    dynamic(
        "leader.replication.throttled.rate", _LONG, LONG_MAX, at_least(0),
        "How many bytes a second this broker sends to throttled replicas that are not in sync.",
    ),
    dynamic(
        "follower.replication.throttled.rate", _LONG, LONG_MAX, at_least(0),
        "How many bytes a second this broker fetches for throttled replicas that are not in sync.",
    ),
)  # fmt: skip

_LISTENERS = (
    fixed(
        "listeners", _LIST, ("PLAINTEXT://:9092",), None,
        "Where the broker listens, as NAME://host:port; an empty host is every address of IPv4, [::] of IPv6 as well,"
        " port 0 a free port.",
    ),
    fixed(
        "advertised.listeners", _LIST, None, None,
        "Which address clients are told, as NAME://host:port; by default the one that the client connected to.",
    ),
    fixed(
        "listener.security.protocol.map", _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None,
        "The security protocol of each listener name. Only PLAINTEXT is there yet.",
    ),
    fixed(
        "controller.listener.names", _LIST, (), None,
        "The names of those listeners that serve the metadata quorum and no clients.",
    ),
    fixed(
        "inter.broker.listener.name", _STRING, None, None, "The listener that other brokers use.",
    ),
    fixed(
        "security.inter.broker.protocol", _STRING, "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "The security protocol between brokers. Only PLAINTEXT is there yet.",
    ),
    fixed(
        "raftlog.health.listener", _STRING, None, None,
        "Where /health, /ready, /version and /metrics are served, as host:port; by default nowhere. Not in Kafka.",
    ),
    fixed(
        "raftlog.metrics.listener", _STRING, None, None,
        "One more place where the same is served, for Prometheus. Kafka has no such setting.",
    ),
    fixed(
        "raftlog.disk.free.warning.percent", _INT, 10, between(0, 100),
        "With less of a data directory's disk free than this the broker warns. Not in Kafka.",
    ),
    fixed("raftlog.log.format", _STRING, "text", one_of("text", "json"), "How log lines look."),
    fixed("raftlog.disk.free.critical.percent", _INT, 3, between(0, 100), "With less than this it logs an error."),
    fixed(
        "raftlog.standstill.timeout.ms", _INT, 1000, at_least(0),
        "How long a broker of a cluster may stand still (stopped by a signal or a debugger) before its clients are let"
        " go, so that they find the new leaders; 0 means for ever. Kafka has no such setting.",
    ),
    fixed(
        "socket.request.max.bytes", _INT, 104_857_600, at_least(1),
        "The largest request; a connection that announces a larger one is closed.",
    ),
    fixed(
        "queued.max.request.bytes", _LONG, -1, None,
        "Memory for requests that are large or arrive in pieces, over all connections: who finds none left waits, and"
        " whose request hardly moves then is closed. -1 means 256 MiB; in Kafka it means no bound.",
    ),
    fixed("socket.listen.backlog.size", _INT, 50, at_least(1), "How many connections may wait to be accepted."),
    dynamic("max.connections", _INT, INT_MAX, at_least(0), "How many connections are open at most."),
    dynamic("max.connections.per.ip", _INT, INT_MAX, at_least(0), "The same for one address."),
    dynamic(
        "max.connections.per.ip.overrides", _STRING, "", CONNECTIONS_BY_HOST,
        "The same for single hosts, as host:count,host:count.",
    ),
    dynamic(
        "max.connection.creation.rate", _INT, INT_MAX, at_least(0),
        "How many connections a second are let in; others wait. Listeners may have their own.",
    ),
    fixed("quota.window.num", _INT, 11, at_least(1), "Of how many samples that rate is."),
    fixed("quota.window.size.seconds", _INT, 1, at_least(1), "How long each of these samples is."),
    fixed("connections.max.idle.ms", _LONG, 600_000, None, "A connection that is idle for so long is closed."),
    fixed(
        "fetch.max.bytes", _INT, 57_671_680, at_least(1024),
        "The largest reply to a fetch, whatever the client asks for.",
    ),
    fixed(
        "max.incremental.fetch.session.cache.slots", _INT, 1000, at_least(0),
        "How many incremental fetch sessions are kept (KIP-227).",
    ),
    fixed(
        "max.request.partition.size.limit", _INT, 2000, at_least(1),
        "The most partitions in one reply to DescribeTopicPartitions (KIP-966).",
    ),
)  # fmt: skip

_TOPICS = (
    fixed(
        "auto.create.topics.enable", _BOOLEAN, True, None,
        "Whether a client that asks for a topic that is not there makes it.",
    ),
    fixed("delete.topic.enable", _BOOLEAN, True, None, "Whether topics may be deleted."),
    fixed("num.partitions", _INT, 1, at_least(1), "How many partitions a topic has when nobody says."),
    fixed("default.replication.factor", _INT, 1, None, "How many replicas a topic has when nobody says."),
    dynamic(
        "min.insync.replicas", _INT, 1, at_least(1),
        "How many in-sync replicas must have a record before a producer with acks=all hears so.",
    ),
    dynamic(
        "unclean.leader.election.enable", _BOOLEAN, False, None,
        "Whether a replica that is not in sync may become leader when no other is left.",
    ),
    dynamic("message.max.bytes", _INT, 1_048_588, at_least(0), "The largest record batch in bytes."),
    dynamic(
        "compression.type", _STRING, "producer", one_of(*COMPRESSION_TYPES),
        "How records are compressed on disk; producer keeps what the producer sent.",
    ),
    dynamic("compression.gzip.level", _INT, -1, between_or(1, 9, -1), "How hard gzip tries."),
    dynamic("compression.lz4.level", _INT, 9, between(1, 17), "How hard lz4 tries."),
    dynamic("compression.zstd.level", _INT, 3, between(-131072, 22), "How hard zstd tries."),
)  # fmt: skip

_GROUPS = (
    fixed(
        "group.initial.rebalance.delay.ms", _INT, 3000, None,
        "How long an empty group waits for more members before its first rebalance.",
    ),
    fixed("group.min.session.timeout.ms", _INT, 6000, None, "The shortest session time-out of a member."),
    fixed("group.max.session.timeout.ms", _INT, 1_800_000, None, "The longest session time-out of a member."),
    fixed("group.max.size", _INT, INT_MAX, at_least(1), "How many members a classic group has at most."),
    fixed(
        "group.consumer.session.timeout.ms", _INT, 45_000, at_least(1),
        "After how long without a heartbeat a member of a consumer group is gone. Groups may have their own.",
    ),
    fixed(
        "group.consumer.min.session.timeout.ms", _INT, 45_000, at_least(1),
        "The shortest session time-out that a consumer group may be given.",
    ),
    fixed(
        "group.consumer.max.session.timeout.ms", _INT, 60_000, at_least(1),
        "The longest session time-out that a consumer group may be given.",
    ),
    fixed(
        "group.consumer.heartbeat.interval.ms", _INT, 5000, at_least(1),
        "How often the members of a consumer group are told to send heartbeats. Groups may have their own.",
    ),
    fixed(
        "group.consumer.min.heartbeat.interval.ms", _INT, 5000, at_least(1),
        "The shortest heartbeat interval that a consumer group may be given.",
    ),
    fixed(
        "group.consumer.max.heartbeat.interval.ms", _INT, 15_000, at_least(1),
        "The longest heartbeat interval that a consumer group may be given.",
    ),
    dynamic(
        "group.consumer.assignment.interval.ms", _INT, 1000, at_least(0),
        "How long a consumer group goes without a new assignment after one. Groups may have their own.",
    ),
    fixed(
        "group.consumer.min.assignment.interval.ms", _INT, 0, at_least(0),
        "The shortest assignment interval that a consumer group may be given.",
    ),
    fixed(
        "group.consumer.max.assignment.interval.ms", _INT, 15_000, at_least(0),
        "The longest assignment interval that a consumer group may be given.",
    ),
    fixed(
        "group.consumer.max.size", _INT, INT_MAX, at_least(1), "How many members a consumer group has at most.",
    ),
    fixed(
        "group.consumer.assignors", _LIST, ("uniform", "range"),
        elements_of("uniform", "range")._replace(description=""),
        "The assignors that members of consumer groups can ask for; the first one serves those that ask for none.",
    ),
    fixed(
        "group.consumer.migration.policy", _STRING, "bidirectional",
        one_of_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        "Which way a group changes its protocol while its members are replaced: upgrade is from classic to consumer.",
    ),
    fixed(
        "group.consumer.regex.refresh.interval.ms", _INT, 600_000, at_least(10_000),
        "How often it is looked up which topics match the regular expressions of a consumer group, at least.",
    ),
    fixed(
        "offset.metadata.max.bytes", _INT, 4096, None, "The longest text that may go with a committed offset.",
    ),
    fixed(
        "offsets.retention.minutes", _INT, 10_080, at_least(1),
        "How long committed offsets are kept after their group has become empty.",
    ),
    fixed(
        "offsets.retention.check.interval.ms", _LONG, 600_000, at_least(1),
        "How often committed offsets are looked at for expiry.",
    ),
    fixed(
        "offsets.commit.timeout.ms", _INT, 5000, at_least(1),
        "How long a commit waits for its record to be replicated.",
    ),
    fixed(
        "offsets.topic.num.partitions", _INT, 50, at_least(1), "How many partitions __consumer_offsets is given.",
    ),
    fixed(
        "offsets.topic.replication.factor", _SHORT, 3, at_least(1),
        "How many replicas __consumer_offsets is given. Left at its default, as many as there are brokers, and no"
        " more than this.",
    ),
    fixed(
        "offsets.topic.segment.bytes", _INT, 104_857_600, at_least(1),
        "The segment size of __consumer_offsets.",
    ),
)  # fmt: skip

SUPPORTED_BROKER_CONFIGS: Mapping[str, ConfigDefinition] = {
    definition.name: definition
    for definition in sorted(
        (*_NODE, *_MEMBERSHIP, *_REPLICATION, *_LISTENERS, *_TOPICS, *LOG_CONFIGS, *_GROUPS, *TRANSACTION_CONFIGS),
        key=lambda d: d.name,
    )
}
"""All supported broker settings by name, in alphabetical order."""

BROKER_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.minutes": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.dirs": ("log.dirs", "log.dir"),
    "node.id": ("node.id", "broker.id"),
}
"""Broker settings for which another one stands in, in the order in which Kafka looks."""
