"""The settings of a group (KIP-848, KIP-1043), with the broker settings that stand in and that are their limits.

Kafka has others, of share groups and of streams groups; they are refused, because there are no such groups here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from raftlog.metadata.config_definition import ConfigDefinition, ConfigType, InvalidConfig, Value, at_least, nearest

_INT = ConfigType.INT

GROUP_CONFIGS: Mapping[str, ConfigDefinition] = {
    definition.name: definition
    for definition in (
        ConfigDefinition(
            "consumer.assignment.interval.ms", _INT, 1000,
            "How long the group goes without a new assignment after one.",
            at_least(0),
        ),
        ConfigDefinition(
            "consumer.heartbeat.interval.ms", _INT, 5000,
            "How often the members are told to send heartbeats.",
            at_least(1),
        ),
        ConfigDefinition(
            "consumer.session.timeout.ms", _INT, 45_000,
            "After how long without a heartbeat a member is gone.",
            at_least(1),
        ),
    )
}  # fmt: skip
"""By name, in the order of names."""

_ELSEWHERE: Mapping[str, frozenset[str]] = {
    "share groups": frozenset(
        {
            "share.assignment.interval.ms",
            "share.auto.offset.reset",
            "share.delivery.count.limit",
            "share.heartbeat.interval.ms",
            "share.isolation.level",
            "share.partition.max.record.locks",
            "share.record.lock.duration.ms",
            "share.renew.acknowledge.enable",
            "share.session.timeout.ms",
        }
    ),
    "streams groups": frozenset(
        {
            "streams.assignment.interval.ms",
            "streams.heartbeat.interval.ms",
            "streams.initial.rebalance.delay.ms",
            "streams.num.standby.replicas",
            "streams.session.timeout.ms",
        }
    ),
}


class ConsumerGroupSettings(NamedTuple):
    """What of a consumer group can be set, in ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


def broker_synonym(name: str) -> str:
    """The broker setting that gives groups the value that they do not set: group.consumer.session.timeout.ms."""
    return f"group.{name}"


def limits_of(name: str) -> tuple[str, str]:
    """The broker settings that are its lowest and highest value: group.consumer.min.session.timeout.ms and max."""
    kind, _, rest = name.partition(".")
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


BrokerValue = Callable[[str], Value]
"""A broker setting's value by name."""


def check_group_configs(values: Mapping[str, str], broker_value: BrokerValue) -> None:
    """Raise InvalidConfig unless these settings of one group are known, and within the broker's limits."""
    parsed = {name: _definition(name).parse(text) for name, text in values.items()}
    for name, value in parsed.items():
        assert isinstance(value, int)
        lowest, highest = limits_of(name)
        if value < _number(broker_value(lowest)):
            raise InvalidConfig(f"{name} must be greater than or equal to {lowest}")
        if value > _number(broker_value(highest)):
            raise InvalidConfig(f"{name} must be less than or equal to {highest}")


def consumer_group_settings(overrides: Mapping[str, str], broker_value: BrokerValue) -> ConsumerGroupSettings:
    """The effective settings of a group with these overrides. One that was set when the broker had other limits counts
    as the nearest value that is allowed now.
    """
    return ConsumerGroupSettings(
        session_timeout_ms=_effective("consumer.session.timeout.ms", overrides, broker_value),
        heartbeat_interval_ms=_effective("consumer.heartbeat.interval.ms", overrides, broker_value),
        assignment_interval_ms=_effective("consumer.assignment.interval.ms", overrides, broker_value),
    )


def _effective(name: str, overrides: Mapping[str, str], broker_value: BrokerValue) -> int:
    text = overrides.get(name)
    if text is None:
        return _number(broker_value(broker_synonym(name)))
    lowest, highest = limits_of(name)
    value = _number(GROUP_CONFIGS[name].read(text))
    return max(_number(broker_value(lowest)), min(value, _number(broker_value(highest))))


def _definition(name: str) -> ConfigDefinition:
    found = GROUP_CONFIGS.get(name)
    if found is not None:
        return found
    for groups, names in _ELSEWHERE.items():
        if name in names:
            raise InvalidConfig(f"{name} is not supported by raftlog: it has no {groups}")
    close = nearest(name, list(GROUP_CONFIGS))
    raise InvalidConfig(f"Unknown group config name: {name}" + (f" (did you mean {close}?)" if close else ""))


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value
