"""Administration: topics, their settings, consumer groups and their offsets, as plain values.

Every function raises KafkaError; Rejected carries the broker's error code and message. It is `in_doubt` where an
earlier attempt, which was not answered, may have done what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from raftlog.client.core.errors import Rejected, check
from raftlog.client.router import ANY_BROKER, Router
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from raftlog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from raftlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from raftlog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from raftlog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

BROKER_DEFAULT = -1
"""Leave the number of partitions or replicas to the broker (KIP-464)."""


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


class ConfigSource(IntEnum):
    """Where the value of a config comes from (KIP-226), as DescribeConfigs says."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    GROUP = 8


SET, DELETE = 0, 1


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    partitions: int
    replication_factor: int


def owner(kind: ResourceType, name: str) -> int:
    """The broker to ask: a broker's own settings only it knows, anything else all brokers know."""
    return int(name) if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name else ANY_BROKER


class TopicAdmin:
    """Topics, and the configs of topics and brokers."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic, or with `validate_only` only check that it could be; says what it has (or would have)."""
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication_factor, configs=settings
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=int(self._router.timeout * 1000), validate_only=validate_only
        )

        async def attempt() -> CreatedTopic:
            (result,) = (await self._router.ask(request, CreateTopicsResponse)).topics
            check(result.error_code, f"topic {name!r}", result.error_message)
            return CreatedTopic(name, result.num_partitions, result.replication_factor)

        return await self._router.changing(attempt)

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=int(self._router.timeout * 1000))

        async def attempt() -> None:
            (result,) = (await self._router.ask(request, DeleteTopicsResponse)).responses
            check(result.error_code, f"topic {name!r}", result.error_message)

        await self._router.changing(attempt)

    async def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Give a topic `count` partitions in all; fewer than it has is refused by the broker."""
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        timeout_ms = int(self._router.timeout * 1000)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=validate_only)

        async def attempt() -> None:
            (result,) = (await self._router.ask(request, CreatePartitionsResponse)).results
            check(result.error_code, f"topic {name!r}", result.error_message)

        await self._router.changing(attempt)

    async def describe_configs(
        self, kind: ResourceType, names: Sequence[str], only: Sequence[str] | None = None
    ) -> list[DescribeConfigsResult]:
        """The configs of each resource, in the order of `names`: all with what they mean, or `only` those without. A
        broker's are asked from that broker.
        """
        keys = None if only is None else list(only)
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names
        ]
        request = DescribeConfigsRequest(resources=resources, include_documentation=only is None)
        node = owner(kind, names[0])
        results = (
            await self._router.retrying(lambda: self._router.ask(request, DescribeConfigsResponse, node=node))
        ).results
        for result in results:
            check(result.error_code, f"{kind.name.lower()} {result.resource_name!r}", result.error_message)
        return results

    async def alter_configs(
        self,
        kind: ResourceType,
        name: str,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set each config, or take it back to its default (None).

        Those of a broker that is down are waiting for it when it comes back.
        """
        configs = [
            AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)

        async def attempt() -> None:
            try:
                answer = await self._router.ask(request, IncrementalAlterConfigsResponse, node=owner(kind, name))
            except Rejected as refused:
                if refused.code != ErrorCode.BROKER_NOT_AVAILABLE:
                    raise
                # Kafka's brokers take only their own; ours take them for each other.
                answer = await self._router.ask(request, IncrementalAlterConfigsResponse)
            (result,) = answer.responses
            subject = f"{kind.name.lower()} {name!r}" if name else f"all {kind.name.lower()}s"
            check(result.error_code, subject, result.error_message)

        await self._router.retrying(attempt)
