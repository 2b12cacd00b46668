"""DescribeConfigs, AlterConfigs, ListConfigResources, DescribeCluster and InitProducerId, in every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raftlog.broker.api import context, pieces
from raftlog.broker.api.metadata import CLUSTER_OPERATIONS
from raftlog.broker.runtime.controller import CHANGES_TOGETHER
from raftlog.metadata.commands import ConfigOperation
from raftlog.metadata.configs import MIN_ISR, SUPPORTED_BROKER_CONFIGS, TOPIC_CONFIGS, ConfigSource, ConfigType
from raftlog.metadata.records import ResourceType
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages import alter_configs, incremental_alter_configs
from raftlog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raftlog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.wire.messages.describe_cluster import DescribeClusterRequest
from raftlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest
from raftlog.wire.messages.list_config_resources import ListConfigResourcesRequest
from raftlog.wire.schema import Message
from tests.broker.runtime.admin_world import ADVERTISED, CLUSTER_ID, AdminWorld, versions

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def describe(*resources: tuple[int, str], keys: list[str] | None = None, full: bool = True) -> DescribeConfigsRequest:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name in resources
        ]
    )
    request.include_synonyms = full
    return request


async def set_incrementally(world: AdminWorld, kind: int, name: str, version: int = 1, **values: str) -> ErrorCode:
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name)
    resource.configs = [
        incremental_alter_configs.AlterableConfig(
            name=key.replace("_", "."), config_operation=ConfigOperation.SET, value=value
        )
        for key, value in values.items()
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    response = await world.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, version)
    (result,) = response.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert bool(result.error_message) == bool(result.error_code)
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
async def test_settings_are_described_in_every_version(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path, log_retention_hours="1") as world:
        await world.create("t")
        await set_incrementally(world, TOPIC, "t", retention_ms="5")
        request = describe((TOPIC, "t"), (BROKER, "1"), (BROKER, ""))
        request.include_documentation = version >= 3
        response = await world.call(ApiKey.DESCRIBE_CONFIGS, request, version)
        of_topic, of_broker, of_all = response.results
        values = {config.name: config for config in of_topic.configs}
        assert list(values) == sorted(TOPIC_CONFIGS)
        retention = values["retention.ms"]
        assert (retention.value, retention.config_source, retention.read_only) == ("5", ConfigSource.TOPIC, False)
        assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
            ("retention.ms", "5", ConfigSource.TOPIC),
            ("log.retention.hours", "1", ConfigSource.STATIC_BROKER),
        ]
        assert retention.config_type == (ConfigType.LONG if version >= 3 else 0)
        assert bool(retention.documentation) == (version >= 3)
        assert {config.name for config in of_broker.configs} == set(SUPPORTED_BROKER_CONFIGS)
        # As in Kafka with eligible leader replicas (KIP-966).
        (shared,) = of_all.configs
        assert (shared.name, shared.value, shared.config_source) == (MIN_ISR, "1", ConfigSource.DEFAULT_BROKER)
        for described in (values[MIN_ISR], next(each for each in of_broker.configs if each.name == MIN_ISR)):
            assert (described.value, described.config_source) == ("1", ConfigSource.DEFAULT_BROKER)
            sources = [synonym.source for synonym in described.synonyms]
            assert sources == [ConfigSource.DEFAULT_BROKER, ConfigSource.DEFAULT]


async def test_only_the_keys_asked_for_come_back_and_synonyms_only_on_request(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create("t")
        request = describe((TOPIC, "t"), keys=["segment.ms", "nope"], full=False)
        (result,) = (await world.call(ApiKey.DESCRIBE_CONFIGS, request, 4)).results
        assert [(config.name, config.synonyms, config.documentation) for config in result.configs] == [
            ("segment.ms", [], None)
        ]
        everything = describe((TOPIC, "t"), keys=[])
        (result,) = (await world.call(ApiKey.DESCRIBE_CONFIGS, everything, 4)).results
        assert len(result.configs) == len(TOPIC_CONFIGS)


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "7", ErrorCode.INVALID_REQUEST),
        (ResourceType.GROUP, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.CLIENT_METRICS, "m", ErrorCode.NONE),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_resources_that_cannot_be_described_say_so(
    tmp_path: Path, kind: int, name: str, error: ErrorCode
) -> None:
    async with AdminWorld(tmp_path) as world:
        (result,) = (await world.call(ApiKey.DESCRIBE_CONFIGS, describe((kind, name)), 4)).results
        assert result.error_code == error and result.configs == []
        assert (result.resource_type, result.resource_name) == (kind, name)


async def test_a_groups_settings_are_described_whether_there_is_such_a_group_or_not(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        await set_incrementally(world, ResourceType.GROUP, "g", consumer_heartbeat_interval_ms="6000")
        (result,) = (await world.call(ApiKey.DESCRIBE_CONFIGS, describe((ResourceType.GROUP, "g")), 4)).results
        assert {each.name: (each.value, each.config_source, each.read_only) for each in result.configs} == {
            "consumer.assignment.interval.ms": ("1000", ConfigSource.DEFAULT, False),
            "consumer.heartbeat.interval.ms": ("6000", ConfigSource.GROUP, False),
            "consumer.session.timeout.ms": ("45000", ConfigSource.DEFAULT, False),
        }


async def test_a_resource_is_described_once_for_each_set_of_keys_that_is_asked_for(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create("t")
        asked = (["segment.ms"], ["retention.ms"], ["segment.ms", "segment.ms"], None, [])
        resources = [resource for keys in asked for resource in describe((TOPIC, "t"), keys=keys).resources]
        request = DescribeConfigsRequest(resources=resources)
        results = (await world.call(ApiKey.DESCRIBE_CONFIGS, request, 4)).results
        assert [len(result.configs) for result in results] == [1, 1, len(TOPIC_CONFIGS)]
        assert [result.configs[0].name for result in results[:2]] == ["segment.ms", "retention.ms"]


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
async def test_the_settings_of_many_topics_are_encoded_a_few_topics_at_a_time(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a thousand took a quarter of a second, in which nobody else was served."""
    encoded: list[int] = []

    def counting(message: Any, version: int) -> bytes:
        encoded.append(len(message.results))
        return encode(message, version)

    for module in (context, pieces):
        monkeypatch.setattr(module, "encode", counting, raising=False)
    async with AdminWorld(tmp_path) as world:
        names = [f"t{number}" for number in range(150)]  # a length of two bytes
        await world.create(*names)
        request = describe(*[(TOPIC, name) for name in names], (TOPIC, "nope"))
        results = (await world.call(ApiKey.DESCRIBE_CONFIGS, request, version)).results
        assert [result.resource_name for result in results] == [*names, "nope"]
        assert [len(result.configs) for result in results] == [len(TOPIC_CONFIGS)] * len(names) + [0]
        assert sum(encoded) == len(results) and max(encoded) <= 8


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
async def test_settings_change_one_by_one_in_every_version(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create("t")
        assert await set_incrementally(world, TOPIC, "t", version, retention_ms="5") is ErrorCode.NONE
        assert await set_incrementally(world, TOPIC, "t", version, flush_ms="6") is ErrorCode.NONE
        assert await set_incrementally(world, TOPIC, "t", version, flush_ms="x") is ErrorCode.INVALID_CONFIG
        assert await set_incrementally(world, BROKER, "", version, log_roll_ms="7") is ErrorCode.NONE
        assert world.image.configs_of(TOPIC, "t") == {"retention.ms": "5", "flush.ms": "6"}
        assert world.config.resolver.topic_values(world.image, "t")["segment.ms"] == 7


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
async def test_settings_are_replaced_as_a_whole_in_every_version(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create("t")
        await set_incrementally(world, TOPIC, "t", retention_ms="5", flush_ms="6")
        for validate_only, expected in ((True, {"retention.ms": "5", "flush.ms": "6"}), (False, {"flush.ms": "7"})):
            resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="t")
            resource.configs = [alter_configs.AlterableConfig(name="flush.ms", value="7")]
            request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
            response = await world.call(ApiKey.ALTER_CONFIGS, request, version)
            assert response.responses[0].error_code == ErrorCode.NONE
            assert world.image.configs_of(TOPIC, "t") == expected


async def test_the_log_tells_who_changed_what(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "raftlog.changes")
    async with AdminWorld(tmp_path) as world:

        async def ask(key: ApiKey, request: Message, version: int) -> None:
            await world.call(key, request, version)

        wanted = [CreatableTopic(name=f"t{number}", num_partitions=2, replication_factor=1) for number in range(12)]
        for validate_only in (True, False):
            request = CreateTopicsRequest(topics=wanted, validate_only=validate_only)
            await ask(ApiKey.CREATE_TOPICS, request, 7)
        await set_incrementally(world, TOPIC, "t1", retention_ms="5", flush_ms="x" * 200)
        await set_incrementally(world, TOPIC, "t1", retention_ms="5")
        await set_incrementally(world, BROKER, "", log_roll_ms="7")
        more = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in ("t1", "nope")]
        await ask(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest(topics=more), 3)
        await ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t1")]), 6)
    ten = ", ".join(f"t{number} partitions=2" for number in range(10))
    assert [record.getMessage().removeprefix("client=127.0.0.1 name='test' ") for record in caplog.records] == [
        f"topics created: {ten} and 2 more",
        "settings changed: topic t1: retention.ms=5",
        "settings changed: broker defaults: log.roll.ms=7",
        "partitions added: t1 partitions=3",
        "topics deleted: t1",
    ]


async def test_resources_with_settings_are_listed(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create("b", "a")

        async def listed(version: int, *types: int) -> list[tuple[int, str]]:
            request = ListConfigResourcesRequest(resource_types=list(types))
            response = await world.call(ApiKey.LIST_CONFIG_RESOURCES, request, version)
            assert response.error_code == ErrorCode.NONE
            return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]

        assert await listed(0) == []
        assert await listed(1, TOPIC) == [(TOPIC, "a"), (TOPIC, "b")]
        assert await listed(1) == [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1"), (ResourceType.BROKER_LOGGER, "1")]
        await set_incrementally(world, ResourceType.GROUP, "g", consumer_session_timeout_ms="50000")
        assert await listed(1, ResourceType.GROUP) == [(ResourceType.GROUP, "g")]
        assert await listed(0) == []
        unknown = ListConfigResourcesRequest(resource_types=[99])
        response = await world.call(ApiKey.LIST_CONFIG_RESOURCES, unknown, 1)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
async def test_the_cluster_is_described_in_every_version(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.add_broker(2, "r2", fenced=True)
        await world.add_broker(3, host="", fenced=True)
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await world.call(ApiKey.DESCRIBE_CLUSTER, request, version)
        assert (response.error_code, response.cluster_id, response.controller_id) == (0, CLUSTER_ID, 1)
        assert [(b.broker_id, b.host, b.port, b.rack) for b in response.brokers] == [(1, *ADVERTISED, "r1")]
        assert response.cluster_authorized_operations == CLUSTER_OPERATIONS
        if version >= 2:
            request = DescribeClusterRequest(include_fenced_brokers=True)
            response = await world.call(ApiKey.DESCRIBE_CLUSTER, request, version)
            assert [(b.broker_id, b.is_fenced) for b in response.brokers] == [(1, False), (2, True), (3, True)]
            assert [b.host for b in response.brokers] == [ADVERTISED[0], "broker-2.test", ADVERTISED[0]]
        if version >= 1:
            for kind, error in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
                request = DescribeClusterRequest(endpoint_type=kind)
                assert (await world.call(ApiKey.DESCRIBE_CLUSTER, request, version)).error_code == error


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
async def test_every_producer_gets_an_id_of_its_own(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        given = set()
        for _ in range(3):
            request = InitProducerIdRequest(transactional_id=None)
            response = await world.call(ApiKey.INIT_PRODUCER_ID, request, version)
            assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
            given.add(response.producer_id)
        assert len(given) == 3
        if version >= 3:
            again = InitProducerIdRequest(transactional_id=None, producer_id=max(given), producer_epoch=4)
            response = await world.call(ApiKey.INIT_PRODUCER_ID, again, version)
            assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
            assert response.producer_id not in given


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (InitProducerIdRequest(transactional_id=None, producer_id=5), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(transactional_id=None, producer_epoch=5), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_ids_that_cannot_be_given_are_refused(
    tmp_path: Path, request_: InitProducerIdRequest, error: ErrorCode
) -> None:
    async with AdminWorld(tmp_path) as world:
        response = await world.call(ApiKey.INIT_PRODUCER_ID, request_, 5)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (error, -1, -1)


@pytest.mark.parametrize("incremental", [True, False])
async def test_many_resources_are_altered_in_steps_and_answered_together(tmp_path: Path, incremental: bool) -> None:
    """20,000 groups with a setting that is not there took the broker six seconds, in which it did nothing else."""
    messages = incremental_alter_configs if incremental else alter_configs
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS if incremental else ApiKey.ALTER_CONFIGS
    request = getattr(messages, "IncrementalAlterConfigsRequest" if incremental else "AlterConfigsRequest")()
    groups = [f"g{number}" for number in range(2 * CHANGES_TOGETHER + 7)]
    for group in ("twice", *groups, "twice", ""):
        setting = messages.AlterableConfig(name="consumer.session.timeout.ms", value="50000")
        kind = ResourceType.GROUP
        resource = messages.AlterConfigsResource(resource_type=kind, resource_name=group, configs=[setting])
        request.resources.append(resource)
    async with AdminWorld(tmp_path) as world:
        before = world.image.version
        response = await world.call(key, request, 1)
        assert [each.resource_name for each in response.responses] == ["twice", *groups, "twice", ""]
        errors = [ErrorCode(each.error_code) for each in response.responses]
        refused = ErrorCode.INVALID_REQUEST
        assert errors == [refused, *[ErrorCode.NONE] * len(groups), refused, refused]
        assert {name for kind, name in world.image.configs if kind is ResourceType.GROUP} == set(groups)
        assert world.image.version - before >= 3, "one entry of the log for all of them"
