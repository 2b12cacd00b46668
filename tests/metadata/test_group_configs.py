"""The settings of groups: what can be set, to what, and what a group goes by."""

from __future__ import annotations

import pytest

from raftlog.metadata.commands import ConfigOperation
from raftlog.metadata.configs import ConfigResolver, ConfigSource
from raftlog.metadata.group_configs import ConsumerGroupSettings
from raftlog.metadata.records import ResourceType
from raftlog.wire.errors import ErrorCode
from tests.metadata.world import World

GROUP, BROKER = ResourceType.GROUP, ResourceType.BROKER
SET, DELETE, APPEND = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


def settings(world: World, group_id: str, **static: str) -> ConsumerGroupSettings:
    resolver = ConfigResolver(1, {name.replace("_", "."): text for name, text in static.items()})
    return resolver.group_settings(world.image, group_id)


def test_a_group_goes_by_its_own_settings_and_others_by_the_brokers() -> None:
    world = World()
    assert settings(world, "g") == ConsumerGroupSettings(45_000, 5_000, 1_000)
    assert world.alter(GROUP, "g", (SESSION, SET, "50000"), (HEARTBEAT, SET, "6000")) == (ErrorCode.NONE, None)
    assert settings(world, "g") == ConsumerGroupSettings(50_000, 6_000, 1_000)
    assert settings(world, "other") == ConsumerGroupSettings(45_000, 5_000, 1_000)
    assert world.alter(GROUP, "g", (SESSION, DELETE, None)) == (ErrorCode.NONE, None)
    assert settings(world, "g", group_consumer_session_timeout_ms="55000").session_timeout_ms == 55_000


def test_a_brokers_setting_that_changes_while_it_runs_is_every_groups_from_then_on() -> None:
    world = World()
    resolver = ConfigResolver(1, {})
    assert resolver.group_settings(world.image, "g").assignment_interval_ms == 1_000
    world.alter(BROKER, "", ("group.consumer.assignment.interval.ms", SET, "2000"))
    assert resolver.group_settings(world.image, "g").assignment_interval_ms == 2_000
    assert resolver.group_settings(world.image, "g") is resolver.group_settings(world.image, "other")


def test_a_value_outside_the_limits_of_today_counts_as_the_nearest_one_inside() -> None:
    world = World()
    world.alter(GROUP, "g", (SESSION, SET, "60000"), (HEARTBEAT, SET, "5000"))
    limits = {"group_consumer_max_session_timeout_ms": "50000", "group_consumer_min_heartbeat_interval_ms": "7000"}
    assert settings(world, "g", **limits) == ConsumerGroupSettings(50_000, 7_000, 1_000)


AT_LEAST, AT_MOST = "must be greater than or equal to", "must be less than or equal to"
SHARE, STREAMS = "share.session.timeout.ms", "streams.num.standby.replicas"


@pytest.mark.parametrize(
    ("name", "operation", "value", "message"),
    [
        (SESSION, SET, "44999", f"{SESSION} {AT_LEAST} group.consumer.min.session.timeout.ms"),
        (SESSION, SET, "60001", f"{SESSION} {AT_MOST} group.consumer.max.session.timeout.ms"),
        (HEARTBEAT, SET, "1", f"{HEARTBEAT} {AT_LEAST} group.consumer.min.heartbeat.interval.ms"),
        (HEARTBEAT, SET, "15001", f"{HEARTBEAT} {AT_MOST} group.consumer.max.heartbeat.interval.ms"),
        (ASSIGNMENT, SET, "15001", f"{ASSIGNMENT} {AT_MOST} group.consumer.max.assignment.interval.ms"),
        (SESSION, SET, "0", f"Invalid value 0 for configuration {SESSION}: Value must be at least 1"),
        (SESSION, SET, "x", f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        (SESSION, APPEND, "5", f"Can't APPEND to key {SESSION} because its type is not LIST."),
        ("nope", SET, "1", "Unknown group config name: nope"),
        (SHARE, SET, "50000", f"{SHARE} is not supported by raftlog: it has no share groups"),
        (STREAMS, SET, "1", f"{STREAMS} is not supported by raftlog: it has no streams groups"),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_kafkas_words(name: str, operation: int, value: str, message: str) -> None:
    world = World()
    before = world.image
    assert world.alter(GROUP, "g", (name, operation, value)) == (ErrorCode.INVALID_CONFIG, message)
    assert world.image is before


def test_all_groups_together_cannot_be_set() -> None:
    expected = (ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    assert World().alter(GROUP, "", (SESSION, SET, "50000")) == expected


def test_a_groups_settings_are_described_with_where_they_come_from() -> None:
    world = World()
    world.alter(GROUP, "g", (SESSION, SET, "+50000"))
    described = {entry.name: entry for entry in ConfigResolver(1, {}).describe_group(world.image, "g")}
    assert {name: (entry.value, entry.source) for name, entry in described.items()} == {
        ASSIGNMENT: ("1000", ConfigSource.DEFAULT),
        HEARTBEAT: ("5000", ConfigSource.DEFAULT),
        SESSION: ("50000", ConfigSource.GROUP),
    }
    assert [(place.name, place.value, place.source) for place in described[SESSION].synonyms] == [
        (SESSION, "50000", ConfigSource.GROUP),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
    ]
