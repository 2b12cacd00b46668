"""Each setting of Kafka's own clients is used, taken, or refused with a reason; none is called a typo."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from raftlog.client.core.settings import ProducerOptions
from raftlog.pipeline.given import BadOption, Settings
from raftlog.pipeline.sink.options import SETTINGS as PRODUCER_SETTINGS
from raftlog.pipeline.sink.options import parse_sink
from raftlog.pipeline.source.options import SETTINGS as CONSUMER_SETTINGS
from raftlog.pipeline.source.options import parse_source

# What ConsumerConfig.configNames() and ProducerConfig.configNames() of Kafka 4.3.1 give.
SECURITY = """
sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url security.protocol security.providers ssl.cipher.suites ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""
CONSUMER = """
allow.auto.create.topics auto.commit.interval.ms auto.offset.reset bootstrap.servers check.crcs client.dns.lookup
client.id client.rack config.providers connections.max.idle.ms default.api.timeout.ms enable.auto.commit
enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer max.partition.fetch.bytes
max.poll.interval.ms max.poll.records metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
retry.backoff.max.ms retry.backoff.ms send.buffer.bytes session.timeout.ms share.acknowledgement.mode
share.acquire.mode socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms value.deserializer
"""
PRODUCER = """
acks batch.size bootstrap.servers buffer.memory client.dns.lookup client.id compression.gzip.level
compression.lz4.level compression.type compression.zstd.level config.providers connections.max.idle.ms
delivery.timeout.ms enable.idempotence enable.metrics.push interceptor.classes key.serializer linger.ms max.block.ms
max.in.flight.requests.per.connection max.request.size metadata.max.age.ms metadata.max.idle.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms transaction.timeout.ms
transaction.two.phase.commit.enable transactional.id value.serializer
"""

# A value that each of these can have; others are given a number.
VALUES = {
    "acks": "all",
    "bootstrap.servers": "h:1",
    "check.crcs": "true",
    "compression.type": "zstd",
    "isolation.level": "read_committed",
    "security.protocol": "PLAINTEXT",
}
Use: TypeAlias = Callable[[str, str], object]
SERVERS = {"kafka.bootstrap.servers": "h:1"}


def read(name: str, value: str) -> None:
    parse_source({**SERVERS, "subscribe": "t", f"kafka.{name}": value}, streaming=True)


def write(name: str, value: str) -> ProducerOptions:
    options = {**SERVERS, "topic": "t", f"kafka.{name}": value}
    return parse_sink(options, [("value", "binary")], streaming=True).producer


@pytest.mark.parametrize(
    ("names", "use", "ours"),
    [(CONSUMER, read, CONSUMER_SETTINGS), (PRODUCER, write, PRODUCER_SETTINGS)],
    ids=["source", "sink"],
)
def test_every_setting_of_kafka_is_taken_or_refused_with_a_reason(
    names: str, use: Use, ours: Settings
) -> None:
    refused = []
    for name in (*names.split(), *SECURITY.split()):
        try:
            use(name, VALUES.get(name, "5"))
        except BadOption as error:
            assert "there is no option" not in str(error), error
            assert str(error).startswith(f"kafka.{name}"), error
            refused.append(name)
    assert set(refused) == {*ours.refused, *SECURITY.split()} - {"security.protocol"}
    listed = [*ours.used, *ours.without_effect, *ours.refused]
    assert len(listed) == len(set(listed)) and set(names.split()) <= {*listed, *SECURITY.split()}
    # The names that only we have, or that the other client has.
    assert set(listed) - set(names.split()) <= {"security.protocol", "default.api.timeout.ms", "compression.level"}


@pytest.mark.parametrize(
    ("use", "name", "harmless", "other"),
    [
        (read, "exclude.internal.topics", "true", "false"),
        (write, "enable.idempotence", "True", "false"),
        (write, "partitioner.ignore.keys", "false", "true"),
        (write, "transaction.two.phase.commit.enable", "false", "true"),
        (write, "retries", "2147483647", "0"),
    ],
)
def test_a_value_that_changes_nothing_is_taken_and_another_refused(
    use: Use, name: str, harmless: str, other: str
) -> None:
    use(name, harmless)
    with pytest.raises(BadOption, match=f"^kafka.{name}"):
        use(name, other)


def test_a_typo_is_still_told() -> None:
    with pytest.raises(BadOption, match=r"did you mean kafka\.client\.dns\.lookup"):
        read("client.dns.lokup", "use_all_dns_ips")


def test_each_codec_has_a_level_of_its_own() -> None:
    options = {**SERVERS, "topic": "t", "kafka.compression.zstd.level": "7", "kafka.compression.gzip.level": "2"}
    for codec, level in (("zstd", 7), ("gzip", 2), ("lz4", None)):
        chosen = parse_sink({**options, "kafka.compression.type": codec}, [("value", "binary")], streaming=True)
        assert chosen.producer.get("compression_level") == level
    assert write("max.in.flight.requests.per.connection", "1")["max_in_flight"] == 1
