"""Which broker settings can be changed while brokers run: those of Kafka, or there is a reason."""

from __future__ import annotations

import pytest

from raftlog.metadata.broker_configs import SUPPORTED_BROKER_CONFIGS
from raftlog.metadata.config_definition import ConfigType
from raftlog.metadata.configs import ConfigSource, UpdateMode, broker_definition
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.records import ConfigRecord, ResourceType
from raftlog.wire.errors import ErrorCode
from tests.metadata.world import DELETE, SET, World

BROKER = ResourceType.BROKER

KAFKA_CHANGES = (
    "background.threads",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "config.providers",
    "cordoned.log.dirs",
    "follower.fetch.last.tiered.offset.enable",
    "group.consumer.assignment.interval.ms",
    "group.coordinator.cached.buffer.max.bytes",
    "group.share.assignment.interval.ms",
    "group.streams.assignment.interval.ms",
    "listener.security.protocol.map",
    "listeners",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleaner.threads",
    "log.cleanup.policy",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.index.interval.bytes",
    "log.index.size.max.bytes",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.type",
    "log.preallocate",
    "log.retention.bytes",
    "log.retention.ms",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "log.segment.bytes",
    "log.segment.delete.delay.ms",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "message.max.bytes",
    "metric.reporters",
    "min.insync.replicas",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "principal.builder.class",
    "producer.id.expiration.ms",
    "remote.fetch.max.wait.ms",
    "remote.list.offsets.request.timeout.ms",
    "remote.log.index.file.cache.total.size.bytes",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.mechanism.inter.broker.protocol",
    "share.coordinator.cached.buffer.max.bytes",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.key.password",
    "ssl.keymanager.algorithm",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "transaction.partition.verification.enable",
    "unclean.leader.election.enable",
)
"""What Kafka 4.3.1 describes as not read-only: taken for one broker, for all, or by listener."""

NOT_DESCRIBED = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "listener.name.plaintext.max.connection.creation.rate",
    "listener.name.plaintext.max.connections",
    "listener.name.plaintext.ssl.keystore.location",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""What it takes besides, and describes only once it is set."""

REASONS = {
    "it has no TLS yet": ("ssl.",),
    "it has no authentication and no access control yet": ("sasl.", "principal.builder.class"),
    "it runs no Java classes": ("config.providers",),
    "it has no metrics reporters": ("metric.reporters",),
    "a broker is given them when it is started": ("listeners", "listener.security.protocol.map"),
    "of one listener among several it takes max.connection.creation.rate": (
        "listener.name.plaintext.max.connections",
        "listener.name.plaintext.ssl.",
    ),
}
"""What raftlog refuses of them, and why."""

SAMPLES = {
    ConfigType.BOOLEAN: "true",
    ConfigType.INT: "1000",
    ConfigType.LONG: "1000",
    ConfigType.DOUBLE: "0.7",
    ConfigType.SHORT: "5",
    ConfigType.LIST: "a",
}


def sample(name: str) -> str:
    if name.startswith("listener.name."):
        return "10"
    definition = broker_definition(name)
    default = definition.default_text
    return SAMPLES.get(definition.type, "x") if default is None else default


def reason(name: str) -> str | None:
    found = [why for why, beginnings in REASONS.items() if name.startswith(beginnings)]
    return found[0] if found else None


@pytest.mark.parametrize("name", [*KAFKA_CHANGES, *NOT_DESCRIBED])
@pytest.mark.parametrize("resource", ["1", ""], ids=["one", "all"])
def test_what_kafka_changes_while_it_runs_is_changed_here_or_refused_with_a_reason(name: str, resource: str) -> None:
    world = World()
    error, message = world.alter(BROKER, resource, (name, SET, sample(name)))
    why = reason(name)
    if why is not None:
        assert error is ErrorCode.INVALID_REQUEST and message is not None and message.endswith(why)
    elif name == "cordoned.log.dirs" and not resource:
        assert error is ErrorCode.INVALID_REQUEST
        assert message is not None and message.startswith("Cannot update these configs at default cluster level")
    elif name == "min.insync.replicas" and resource:
        assert error is ErrorCode.INVALID_CONFIG
    else:
        assert (error, message) == (ErrorCode.NONE, None)


def test_nothing_else_is_changed_while_brokers_run() -> None:
    dynamic = {name for name, each in SUPPORTED_BROKER_CONFIGS.items() if each.update_mode is not UpdateMode.READ_ONLY}
    assert dynamic <= {*KAFKA_CHANGES, *NOT_DESCRIBED}


def test_what_has_no_effect_is_kept_and_described_with_its_source() -> None:
    world = World()
    assert "log.cleaner.threads" not in {entry.name for entry in world.resolver.describe_broker(world.image)}
    world.alter(BROKER, "", ("log.cleaner.threads", SET, "2"))
    (told,) = world.resolver.describe_default_broker(world.image)
    (entry,) = [each for each in world.resolver.describe_broker(world.image) if each.name == "log.cleaner.threads"]
    assert (told.value, entry.value, entry.source) == ("2", "2", ConfigSource.DEFAULT_BROKER)
    assert not entry.is_read_only and [tuple(each) for each in entry.synonyms] == [
        ("log.cleaner.threads", "2", ConfigSource.DEFAULT_BROKER),
        ("log.cleaner.threads", "1", ConfigSource.DEFAULT),
    ]
    world.alter(BROKER, "", ("log.cleaner.threads", DELETE, None))
    assert not world.image.configs


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cordoned.log.dirs", "*,/a"),
        ("max.connections", "0"),
        ("max.connection.creation.rate", "0"),
        ("listener.name.plaintext.max.connection.creation.rate", "0"),
        ("listener.name.plaintext.max.connection.creation.rate", "x"),
        ("max.connections.per.ip.overrides", "x"),
        ("max.connections.per.ip", "0"),
        ("log.retention.ms", "0"),
        ("log.roll.ms", "0"),
        ("log.roll.jitter.ms", "-1"),
        ("log.cleaner.threads", "many"),
        ("log.cleaner.io.max.bytes.per.second", "NaN"),
        ("log.segment.bytes", "100"),
        ("num.partitions", "5"),
        # With fewer no key fits, and compaction gives the log up until the broker starts again.
        ("log.cleaner.dedupe.buffer.size", "1000000"),
        # More than group.consumer.max.assignment.interval.ms.
        ("group.consumer.assignment.interval.ms", "15001"),
    ],
)
def test_what_kafka_refuses_while_it_runs_is_refused(name: str, text: str) -> None:
    world = World()
    assert world.alter(BROKER, "", (name, SET, text))[0] is ErrorCode.INVALID_REQUEST
    assert not world.image.configs


def test_a_value_that_an_earlier_version_took_is_still_read() -> None:
    world = World()
    delta = MetadataDelta(world.image)
    delta.replay(ConfigRecord(BROKER, "", {"log.retention.ms": "0", "of.a.newer.version": "x"}))
    world.image = delta.apply(1)
    assert world.resolver.topic_values(world.image, "t")["retention.ms"] == 0
    described = {entry.name: entry.value for entry in world.resolver.describe_broker(world.image)}
    assert described["log.retention.ms"] == "0" and "of.a.newer.version" not in described
    assert [entry.name for entry in world.resolver.describe_default_broker(world.image)] == ["log.retention.ms"]
