"""Questions of operators: how many partitions a request may make, the configs of groups, the levels of features."""

from __future__ import annotations

from typing import Any

from raftlog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raftlog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raftlog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raftlog.wire.messages.list_config_resources import ListConfigResourcesRequest
from raftlog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.system.answers.asking import Asker
from tests.system.answers.consumer_groups import ASSIGNMENTS, GROUP_RESOURCE

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SET, DELETE, APPEND = range(3)
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
FEATURE = "transaction.version"

Change = tuple[str, int, str | None]


def topics(asker: Asker) -> None:
    """How much one request may make, and which names go together."""

    def create(label: str, *wanted: tuple[str, int], validate_only: bool = True) -> None:
        made = [
            CreatableTopic(name=asker.name(name), num_partitions=count, replication_factor=1) for name, count in wanted
        ]
        request = CreateTopicsRequest(topics=made, timeout_ms=30_000, validate_only=validate_only)
        asker.ask(f"create, {label}", request, 7, without=("topic_id", "configs"))

    create("nearly as many as one request may", ("t", 9_990), ("u", 1))
    create("one more", ("t", 9_999), ("u", 2))
    create("too many in one topic", ("t", 10_001))
    create("too many, and others that cannot be", ("t", 10_001), ("bad name", 1), ("u", 0), ("twice", 1), ("twice", 2))
    create("too many, but twice the same", ("t", 2), ("twice", 9_000), ("twice", 9_000))
    create("the same name in metrics", ("c.d", 1), ("c_d", 1))
    create("a name", ("a.b", 1), validate_only=False)
    create("the same name in metrics later", ("a_b", 1))
    create("some", ("s", 1), ("t", 1), ("u", 1), validate_only=False)

    def grow(label: str, *wanted: tuple[str, int]) -> None:
        more = [CreatePartitionsTopic(name=asker.name(name), count=count, assignments=None) for name, count in wanted]
        request = CreatePartitionsRequest(topics=more, timeout_ms=30_000, validate_only=True)
        asker.ask(f"grow, {label}", request, 3)

    grow("as many as one request may", ("s", 10_000), ("t", 2))
    grow("too many in one topic", ("s", 10_002))


def group_configs(asker: Asker) -> None:
    group = asker.name("g")

    def alter(label: str, *changes: Change, name: str = group, validate_only: bool = False) -> None:
        configs = [AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        asker.ask(f"alter, {label}", request, 1)

    alter("a session", (SESSION, SET, "50000"))
    alter("too low", (SESSION, SET, "10"))
    alter("too high", (SESSION, SET, "9999999"))
    alter("no number", (SESSION, SET, "x"))
    alter("no value", (SESSION, SET, None))
    alter("an unknown key", ("foo", SET, "1"))
    alter("append to a number", (SESSION, APPEND, "1"))
    alter("delete what is not set", (HEARTBEAT, DELETE, None))
    alter("delete an unknown key", ("foo", DELETE, None))
    alter("no name", (SESSION, SET, "50000"), name="")
    alter("heartbeats and sessions", (HEARTBEAT, SET, "15000"), (SESSION, SET, "45000"))
    alter("heartbeats", (HEARTBEAT, SET, "6000"))
    alter("a group that is not there", (HEARTBEAT, SET, "6000"), name=asker.name("another"))
    alter("only looking", (HEARTBEAT, SET, "7000"), validate_only=True)
    alter("an unknown operation", (HEARTBEAT, 9, "7000"))
    alter("a key twice", (HEARTBEAT, SET, "7000"), (HEARTBEAT, SET, "8000"))
    alter("nothing")
    alter("the interval of assignments", (ASSIGNMENTS, SET, "0"))
    _describe_configs(asker, group)

    def only_ours(answer: Any) -> None:
        answer.config_resources = [each for each in answer.config_resources if asker.is_ours(each.resource_name)]

    asker.ask("list", ListConfigResourcesRequest(resource_types=[GROUP_RESOURCE]), 1, trim=only_ours)


def _describe_configs(asker: Asker, group: str) -> None:
    def only_consumers(answer: Any) -> None:
        for result in answer.results:
            result.configs = [each for each in result.configs if each.name.startswith("consumer.")]

    def describe(label: str, name: str, *keys: str) -> None:
        resource = DescribeConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=name, configuration_keys=list(keys) or None
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        asker.ask(f"describe, {label}", request, 4, trim=only_consumers)

    describe("the group", group)
    describe("a group that has none", asker.name("none"))
    describe("no name", "")
    describe("some keys", group, SESSION, "foo")


def features(asker: Asker) -> None:
    for version in (1, 2):
        _features(asker, version)


def _features(asker: Asker, version: int) -> None:
    """Only questions: nothing is changed."""

    def update(label: str, *updates: tuple[str, int, int]) -> None:
        keys = [
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=how) for name, level, how in updates
        ]
        request = UpdateFeaturesRequest(feature_updates=keys, validate_only=True)
        asker.ask(f"update in version {version}, {label}", request, version)

    update("the same level", (FEATURE, 2, UPGRADE))
    update("too high", (FEATURE, 3, UPGRADE))
    update("down by accident", (FEATURE, 1, UPGRADE))
    update("down", (FEATURE, 1, SAFE_DOWNGRADE))
    update("down to the end", (FEATURE, 0, UNSAFE_DOWNGRADE))
    update("an unknown one", ("foo", 1, UPGRADE))
    update("nothing")
    update("no name", ("", 1, UPGRADE))
    update("below zero", (FEATURE, -1, UPGRADE))
    update("an unknown way", (FEATURE, 1, 9))
    update("no way", (FEATURE, 1, 0))
    update("twice", (FEATURE, 1, SAFE_DOWNGRADE), (FEATURE, 0, SAFE_DOWNGRADE))
    update("twice, the first is wrong", (FEATURE, 9, UPGRADE), (FEATURE, 2, UPGRADE))
    update("twice, the second is wrong", (FEATURE, 2, UPGRADE), (FEATURE, 9, UPGRADE))
    update("a good one and a bad one", (FEATURE, 1, SAFE_DOWNGRADE), ("foo", 1, UPGRADE))
    update("groups down", ("group.version", 0, SAFE_DOWNGRADE))
    update("the same level, downwards", (FEATURE, 2, SAFE_DOWNGRADE))
