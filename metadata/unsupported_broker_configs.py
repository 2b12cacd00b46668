"""The settings of a Kafka broker that raftlog knows by name and does not obey, and why not.

A user's file may hold them: asking for the default asks for nothing and passes, anything else is refused with the
reason. What only sizes something that is not there (threads, internal topics) passes whatever it is, and the broker
says at its start that it has no effect. Imported only when such a name turns up.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.metadata.config_definition import (
    INT_MAX,
    LONG_MAX,
    ConfigDefinition,
    ConfigType,
    UpdateMode,
    Value,
)

_BOOLEAN, _STRING, _INT, _SHORT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.SHORT
_LONG, _DOUBLE, _LIST, _CLASS = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST, ConfigType.CLASS
_PASSWORD = ConfigType.PASSWORD

_Row = tuple[str, ConfigType, Value]

_TLS: tuple[_Row, ...] = (
    ("ssl.allow.dn.changes", _BOOLEAN, False),
    ("ssl.allow.san.changes", _BOOLEAN, False),
    ("ssl.cipher.suites", _LIST, ()),
    ("ssl.client.auth", _STRING, "none"),
    ("ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3")),
    ("ssl.endpoint.identification.algorithm", _STRING, "https"),
    ("ssl.engine.factory.class", _CLASS, None),
    ("ssl.key.password", _PASSWORD, None),
    ("ssl.keymanager.algorithm", _STRING, "SunX509"),
    ("ssl.keystore.certificate.chain", _PASSWORD, None),
    ("ssl.keystore.key", _PASSWORD, None),
    ("ssl.keystore.location", _STRING, None),
    ("ssl.keystore.password", _PASSWORD, None),
    ("ssl.keystore.type", _STRING, "JKS"),
    ("ssl.principal.mapping.rules", _STRING, "DEFAULT"),
    ("ssl.protocol", _STRING, "TLSv1.3"),
    ("ssl.provider", _STRING, None),
    ("ssl.secure.random.implementation", _STRING, None),
    ("ssl.trustmanager.algorithm", _STRING, "PKIX"),
    ("ssl.truststore.certificates", _PASSWORD, None),
    ("ssl.truststore.location", _STRING, None),
    ("ssl.truststore.password", _PASSWORD, None),
    ("ssl.truststore.type", _STRING, "JKS"),
)  # fmt: skip

_AUTHENTICATION: tuple[_Row, ...] = (
    ("authorizer.class.name", _STRING, ""),
    ("connection.failed.authentication.delay.ms", _INT, 100),
    ("connections.max.reauth.ms", _LONG, 0),
    ("delegation.token.expiry.check.interval.ms", _LONG, 3_600_000),
    ("delegation.token.expiry.time.ms", _LONG, 86_400_000),
    ("delegation.token.max.lifetime.ms", _LONG, 604_800_000),
    ("delegation.token.secret.key", _PASSWORD, None),
    (
        "principal.builder.class", _CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ),
    ("sasl.client.callback.handler.class", _CLASS, None),
    ("sasl.enabled.mechanisms", _LIST, ("GSSAPI",)),
    ("sasl.jaas.config", _PASSWORD, None),
    ("sasl.kerberos.kinit.cmd", _STRING, "/usr/bin/kinit"),
    ("sasl.kerberos.min.time.before.relogin", _LONG, 60000),
    ("sasl.kerberos.principal.to.local.rules", _LIST, ("DEFAULT",)),
    ("sasl.kerberos.service.name", _STRING, None),
    ("sasl.kerberos.ticket.renew.jitter", _DOUBLE, 0.05),
    ("sasl.kerberos.ticket.renew.window.factor", _DOUBLE, 0.8),
    ("sasl.login.callback.handler.class", _CLASS, None),
    ("sasl.login.class", _CLASS, None),
    ("sasl.login.connect.timeout.ms", _INT, None),
    ("sasl.login.read.timeout.ms", _INT, None),
    ("sasl.login.refresh.buffer.seconds", _SHORT, 300),
    ("sasl.login.refresh.min.period.seconds", _SHORT, 60),
    ("sasl.login.refresh.window.factor", _DOUBLE, 0.8),
    ("sasl.login.refresh.window.jitter", _DOUBLE, 0.05),
    ("sasl.login.retry.backoff.max.ms", _LONG, 10000),
    ("sasl.login.retry.backoff.ms", _LONG, 100),
    ("sasl.mechanism.controller.protocol", _STRING, "GSSAPI"),
    ("sasl.mechanism.inter.broker.protocol", _STRING, "GSSAPI"),
    ("sasl.oauthbearer.assertion.algorithm", _STRING, "RS256"),
    ("sasl.oauthbearer.assertion.claim.aud", _STRING, None),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", _INT, 300),
    ("sasl.oauthbearer.assertion.claim.iss", _STRING, None),
    ("sasl.oauthbearer.assertion.claim.jti.include", _BOOLEAN, False),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", _INT, 60),
    ("sasl.oauthbearer.assertion.claim.sub", _STRING, None),
    ("sasl.oauthbearer.assertion.file", _STRING, None),
    ("sasl.oauthbearer.assertion.private.key.file", _STRING, None),
    ("sasl.oauthbearer.assertion.private.key.passphrase", _PASSWORD, None),
    ("sasl.oauthbearer.assertion.template.file", _STRING, None),
    ("sasl.oauthbearer.client.credentials.client.id", _STRING, None),
    ("sasl.oauthbearer.client.credentials.client.secret", _PASSWORD, None),
    ("sasl.oauthbearer.clock.skew.seconds", _INT, 30),
    ("sasl.oauthbearer.expected.audience", _LIST, ()),
    ("sasl.oauthbearer.expected.issuer", _STRING, None),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", _LONG, 3_600_000),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _LONG, 10000),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _LONG, 100),
    ("sasl.oauthbearer.jwks.endpoint.url", _STRING, None),
    (
        "sasl.oauthbearer.jwt.retriever.class", _CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    ),
    (
        "sasl.oauthbearer.jwt.validator.class", _CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    ),
    ("sasl.oauthbearer.scope", _STRING, None),
    ("sasl.oauthbearer.scope.claim.name", _STRING, "scope"),
    ("sasl.oauthbearer.sub.claim.name", _STRING, "sub"),
    ("sasl.oauthbearer.token.endpoint.url", _STRING, None),
    ("sasl.server.callback.handler.class", _CLASS, None),
    ("sasl.server.max.receive.size", _INT, 524_288),
    ("security.providers", _STRING, None),
)  # fmt: skip

_QUOTAS: tuple[_Row, ...] = (
    ("alter.log.dirs.replication.quota.window.num", _INT, 11),
    ("alter.log.dirs.replication.quota.window.size.seconds", _INT, 1),
    ("client.quota.callback.class", _CLASS, None),
    ("controller.quota.window.num", _INT, 11),
    ("controller.quota.window.size.seconds", _INT, 1),
    ("remote.log.manager.copy.quota.window.num", _INT, 11),
    ("remote.log.manager.copy.quota.window.size.seconds", _INT, 1),
    ("remote.log.manager.fetch.quota.window.num", _INT, 11),
    ("remote.log.manager.fetch.quota.window.size.seconds", _INT, 1),
    ("replication.quota.window.num", _INT, 11),
    ("replication.quota.window.size.seconds", _INT, 1),
)  # fmt: skip

_SHARE_GROUPS: tuple[_Row, ...] = (
    ("group.share.assignment.interval.ms", _INT, 1000),
    ("group.share.assignors", _LIST, ("simple",)),
    ("group.share.delivery.count.limit", _INT, 5),
    ("group.share.heartbeat.interval.ms", _INT, 5000),
    ("group.share.max.assignment.interval.ms", _INT, 15000),
    ("group.share.max.delivery.count.limit", _INT, 10),
    ("group.share.max.heartbeat.interval.ms", _INT, 15000),
    ("group.share.max.partition.max.record.locks", _INT, 4000),
    ("group.share.max.record.lock.duration.ms", _INT, 60000),
    ("group.share.max.session.timeout.ms", _INT, 60000),
    ("group.share.max.share.sessions", _INT, 2000),
    ("group.share.max.size", _INT, 200),
    ("group.share.min.assignment.interval.ms", _INT, 0),
    ("group.share.min.delivery.count.limit", _INT, 2),
    ("group.share.min.heartbeat.interval.ms", _INT, 5000),
    ("group.share.min.partition.max.record.locks", _INT, 100),
    ("group.share.min.record.lock.duration.ms", _INT, 15000),
    ("group.share.min.session.timeout.ms", _INT, 45000),
    ("group.share.partition.max.record.locks", _INT, 2000),
    ("group.share.record.lock.duration.ms", _INT, 30000),
    ("group.share.session.timeout.ms", _INT, 45000),
    ("share.coordinator.append.linger.ms", _INT, -1),
    ("share.coordinator.cached.buffer.max.bytes", _INT, 1_048_588),
    ("share.coordinator.load.buffer.size", _INT, 5_242_880),
    ("share.coordinator.snapshot.update.records.per.snapshot", _INT, 500),
    ("share.coordinator.state.topic.compression.codec", _INT, 0),
    ("share.coordinator.state.topic.min.isr", _SHORT, 2),
    ("share.coordinator.state.topic.num.partitions", _INT, 50),
    ("share.coordinator.state.topic.replication.factor", _SHORT, 3),
    ("share.coordinator.state.topic.segment.bytes", _INT, 104_857_600),
    ("share.coordinator.threads", _INT, 1),
    ("share.coordinator.write.timeout.ms", _INT, 5000),
    ("share.fetch.purgatory.purge.interval.requests", _INT, 1000),
)  # fmt: skip

_STREAMS_GROUPS: tuple[_Row, ...] = (
    ("group.streams.assignment.interval.ms", _INT, 1000),
    ("group.streams.heartbeat.interval.ms", _INT, 5000),
    ("group.streams.initial.rebalance.delay.ms", _INT, 3000),
    ("group.streams.max.assignment.interval.ms", _INT, 15000),
    ("group.streams.max.heartbeat.interval.ms", _INT, 15000),
    ("group.streams.max.session.timeout.ms", _INT, 60000),
    ("group.streams.max.size", _INT, INT_MAX),
    ("group.streams.max.standby.replicas", _INT, 2),
    ("group.streams.min.assignment.interval.ms", _INT, 0),
    ("group.streams.min.heartbeat.interval.ms", _INT, 5000),
    ("group.streams.min.session.timeout.ms", _INT, 45000),
    ("group.streams.num.standby.replicas", _INT, 0),
    ("group.streams.session.timeout.ms", _INT, 45000),
)  # fmt: skip

_CONSUMER_GROUPS: tuple[_Row, ...] = (
    ("group.coordinator.append.linger.ms", _INT, -1),
    ("group.coordinator.cached.buffer.max.bytes", _INT, 1_048_588),
    ("group.coordinator.rebalance.protocols", _LIST, ("classic", "consumer", "streams")),
)  # fmt: skip

_TWO_PHASE_COMMIT: tuple[_Row, ...] = (
    ("transaction.two.phase.commit.enable", _BOOLEAN, False),
)  # fmt: skip

_TIERED_STORAGE: tuple[_Row, ...] = (
    ("follower.fetch.last.tiered.offset.enable", _BOOLEAN, False),
    ("log.local.retention.bytes", _LONG, -2),
    ("log.local.retention.ms", _LONG, -2),
    ("remote.fetch.max.wait.ms", _INT, 500),
    ("remote.list.offsets.request.timeout.ms", _LONG, 30000),
    ("remote.log.index.file.cache.total.size.bytes", _LONG, 1_073_741_824),
    ("remote.log.manager.copier.thread.pool.size", _INT, 10),
    ("remote.log.manager.copy.max.bytes.per.second", _LONG, LONG_MAX),
    ("remote.log.manager.expiration.thread.pool.size", _INT, 10),
    ("remote.log.manager.fetch.max.bytes.per.second", _LONG, LONG_MAX),
    ("remote.log.manager.follower.thread.pool.size", _INT, 2),
    ("remote.log.manager.task.interval.ms", _LONG, 30000),
    ("remote.log.manager.thread.pool.size", _INT, 2),
    ("remote.log.metadata.custom.metadata.max.bytes", _INT, 128),
    (
        "remote.log.metadata.manager.class.name", _STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    ),
    ("remote.log.metadata.manager.class.path", _STRING, None),
    ("remote.log.metadata.manager.impl.prefix", _STRING, "rlmm.config."),
    ("remote.log.metadata.manager.listener.name", _STRING, None),
    ("remote.log.reader.max.pending.tasks", _INT, 100),
    ("remote.log.reader.threads", _INT, 10),
    ("remote.log.storage.manager.class.name", _STRING, None),
    ("remote.log.storage.manager.class.path", _STRING, None),
    ("remote.log.storage.manager.impl.prefix", _STRING, "rsm.config."),
    ("remote.log.storage.system.enable", _BOOLEAN, False),
)  # fmt: skip

_THREADS: tuple[_Row, ...] = (
    ("background.threads", _INT, 10),
    ("group.coordinator.background.threads", _INT, 2),
    ("group.coordinator.threads", _INT, 4),
    ("num.io.threads", _INT, 8),
    ("num.network.threads", _INT, 3),
    ("num.replica.alter.log.dirs.threads", _INT, None),
    ("queued.max.requests", _INT, 500),
)  # fmt: skip

_RECOVERY: tuple[_Row, ...] = (
    ("num.recovery.threads.per.data.dir", _INT, 2),
)  # fmt: skip

_DELAYED_REQUESTS: tuple[_Row, ...] = (
    ("delete.records.purgatory.purge.interval.requests", _INT, 1),
    ("fetch.purgatory.purge.interval.requests", _INT, 1000),
    ("producer.purgatory.purge.interval.requests", _INT, 1000),
)  # fmt: skip

_METRICS: tuple[_Row, ...] = (
    ("kafka.metrics.polling.interval.secs", _INT, 10),
    ("kafka.metrics.reporters", _LIST, ()),
    ("metric.reporters", _LIST, ("org.apache.kafka.common.metrics.JmxReporter",)),
    ("metrics.num.samples", _INT, 2),
    ("metrics.recording.level", _STRING, "INFO"),
    ("metrics.sample.window.ms", _LONG, 30000),
    ("telemetry.max.bytes", _INT, 1_048_576),
)  # fmt: skip

_PLUGINS: tuple[_Row, ...] = (
    ("alter.config.policy.class.name", _CLASS, None),
    ("config.providers", _LIST, ()),
    ("create.topic.policy.class.name", _CLASS, None),
)  # fmt: skip

_QUORUM: tuple[_Row, ...] = (
    ("controller.quorum.append.linger.ms", _INT, 25),
    ("controller.quorum.auto.join.enable", _BOOLEAN, False),
    ("controller.quorum.election.backoff.max.ms", _INT, 1000),
    ("controller.quorum.election.timeout.ms", _INT, 1000),
    ("controller.quorum.fetch.max.bytes", _INT, 1_048_576),
    ("controller.quorum.fetch.snapshot.max.bytes", _INT, 1_048_576),
    ("controller.quorum.fetch.timeout.ms", _INT, 2000),
    ("controller.quorum.request.timeout.ms", _INT, 2000),
    ("controller.quorum.retry.backoff.ms", _INT, 20),
    ("controller.socket.timeout.ms", _INT, 30000),
    ("early.start.listeners", _LIST, None),
    ("initial.broker.registration.timeout.ms", _INT, 60000),
    ("metadata.log.max.snapshot.interval.ms", _LONG, 3_600_000),
    ("metadata.log.segment.ms", _LONG, 604_800_000),
    ("metadata.max.idle.interval.ms", _INT, 500),
    ("metadata.max.retention.bytes", _LONG, 104_857_600),
    ("metadata.max.retention.ms", _LONG, 604_800_000),
)  # fmt: skip

_REPLICATION: tuple[_Row, ...] = (
    ("log.dir.failure.timeout.ms", _LONG, 30000),
    ("num.replica.fetchers", _INT, 1),
    ("replica.socket.receive.buffer.bytes", _INT, 65536),
    ("request.timeout.ms", _INT, 30000),
)  # fmt: skip

_NETWORK: tuple[_Row, ...] = (
    ("socket.connection.setup.timeout.max.ms", _LONG, 30000),
    ("socket.connection.setup.timeout.ms", _LONG, 10000),
    ("socket.receive.buffer.bytes", _INT, 102_400),
    ("socket.send.buffer.bytes", _INT, 102_400),
)  # fmt: skip

_OFFSETS: tuple[_Row, ...] = (
    ("offsets.load.buffer.size", _INT, 5_242_880),
    ("offsets.topic.compression.codec", _INT, 0),
    ("transaction.state.log.load.buffer.size", _INT, 5_242_880),
)  # fmt: skip

_CLEANER: tuple[_Row, ...] = (
    ("log.cleaner.io.buffer.load.factor", _DOUBLE, 0.9),
    ("log.cleaner.io.buffer.size", _INT, 524_288),
    ("log.cleaner.threads", _INT, 1),
)  # fmt: skip

_REASONS: tuple[tuple[str, tuple[_Row, ...]], ...] = (
    ("it has no TLS yet", _TLS),
    ("it has no authentication and no access control yet", _AUTHENTICATION),
    ("it has no quotas yet", _QUOTAS),
    ("it has no share groups yet", _SHARE_GROUPS),
    ("it has no streams groups", _STREAMS_GROUPS),
    ("a coordinator writes at once, and serves both group protocols while group.version says so", _CONSUMER_GROUPS),
    ("transactions that another system commits (KIP-939) are not stable in Kafka either", _TWO_PHASE_COMMIT),
    ("it has no tiered storage", _TIERED_STORAGE),
    ("it serves all requests on one event loop", _THREADS),
    ("it recovers one log after the other", _RECOVERY),
    ("delayed requests need no purging", _DELAYED_REQUESTS),
    ("it has no metrics reporters", _METRICS),
    ("it runs no Java classes", _PLUGINS),
    ("its metadata quorum is tuned otherwise", _QUORUM),
    ("it replicates over one connection to each leader, with times of its own", _REPLICATION),
    ("it leaves this to the operating system, or has no such limit yet", _NETWORK),
    ("what coordinators keep is loaded and stored in one way only", _OFFSETS),
    ("compaction has a plan of its own", _CLEANER),
)

_CHANGED_AT_RUN_TIME = frozenset(
    {
        "background.threads",
        "follower.fetch.last.tiered.offset.enable",
        "group.coordinator.cached.buffer.max.bytes",
        "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.threads",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
        "share.coordinator.cached.buffer.max.bytes",
    }
)
"""Settings without effect that Kafka takes while a broker runs, and so does raftlog."""

_WITHOUT_EFFECT = _CHANGED_AT_RUN_TIME | (
    {
        *(name for name, *_ in (*_THREADS, *_RECOVERY, *_DELAYED_REQUESTS)),
        "offsets.load.buffer.size",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.segment.bytes",
        "transaction.state.log.load.buffer.size",
    }
)
"""They size what is not there; Kafka's own server.properties has some of them."""

UNSUPPORTED_BROKER_CONFIGS: Mapping[str, ConfigDefinition] = {
    name: ConfigDefinition(
        name,
        kind,
        default,
        f"{'Without effect' if name in _WITHOUT_EFFECT else 'Not supported'}: {reason}.",
        update_mode=UpdateMode.CLUSTER_WIDE if name in _CHANGED_AT_RUN_TIME else UpdateMode.READ_ONLY,
        unsupported=reason,
        without_effect=name in _WITHOUT_EFFECT,
    )
    for reason, rows in _REASONS
    for name, kind, default in rows
}
"""All settings of Kafka's broker that raftlog does not obey, by name."""
