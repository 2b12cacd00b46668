"""Decisions about settings: AlterConfigs and IncrementalAlterConfigs for topics, groups, brokers and all brokers
together.

What values are allowed is in `configs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from raftlog.metadata.commands import AlterConfigs, AlterResource, ConfigChange, ConfigOperation, ConfigsAltered
from raftlog.metadata.configs import (
    DEFAULT_BROKER,
    MIN_ISR,
    SUPPORTED_BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigType,
    InvalidConfig,
    check_dynamic_broker_configs,
    check_topic_configs,
)
from raftlog.metadata.decision import Decision, Environment, repeated
from raftlog.metadata.group_configs import GROUP_CONFIGS, broker_synonym, check_group_configs
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.metadata.records import NO_LEADER, ConfigRecord, PartitionChangeRecord, Record, ResourceType
from raftlog.metadata.topic_control import Refused
from raftlog.metadata.topic_names import topic_name_error
from raftlog.wire.errors import ErrorCode

PER_IP = "max.connections.per.ip"
NAMED_TWICE = "Each resource must appear at most once."

VALUE_BYTES_MAX = 32_767
"""Appending could make a longer one, and then no answer could hold it."""

_BROKER_ID = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)

ELECTORAL = frozenset({MIN_ISR, "unclean.leader.election.enable"})
"""Settings that may change who leads, or who may."""


def alter_configs(image: MetadataImage, command: AlterConfigs, environment: Environment) -> Decision[ConfigsAltered]:
    """Decide AlterConfigs: each resource changes as a whole or not at all."""
    records: list[Record] = []
    altered = False
    results: list[tuple[int, str, ErrorCode, str | None]] = []
    twice = repeated(resource[:2] for resource in command.resources)
    for resource in command.resources:
        try:
            if resource[:2] in twice:
                raise Refused(ErrorCode.INVALID_REQUEST, NAMED_TWICE)
            record = _alter_resource(image, resource, environment)
            if record is not None:
                records.append(record)
                altered |= not ELECTORAL.isdisjoint(record.changes)
            results.append((resource.resource_type, resource.name, ErrorCode.NONE, None))
        except Refused as refused:
            results.append((resource.resource_type, resource.name, refused.error, refused.message))
    response = ConfigsAltered(tuple(results))
    if command.validate_only:
        return Decision((), response)
    if altered and image.topics:
        records += _elections_after(image, records, environment)
    return Decision(tuple(records), response)


def _elections_after(
    image: MetadataImage, records: list[Record], environment: Environment
) -> Iterator[PartitionChangeRecord]:
    """Eligible leaders go where min.insync.replicas was lowered to what the ISR has: more gets committed there from now
    on, and they do not have that (KIP-966). Moves that waited for as many end. And where unclean elections are allowed
    now, the leaderless get a leader.
    """
    # Imported here: elections belong to clusters of several brokers.
    from raftlog.metadata.delta import MetadataDelta
    from raftlog.metadata.elections import Electorate
    from raftlog.metadata.partition_records import change_partitions

    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    after = delta.apply(image.version)
    electorate = Electorate(after, environment)

    def touched(state: PartitionState) -> bool:
        moves = state.adding_replicas or state.removing_replicas
        return bool(state.eligible_leader_replicas or moves) or state.leader == NO_LEADER

    yield from change_partitions(after, electorate, touched)


def _alter_resource(image: MetadataImage, resource: AlterResource, environment: Environment) -> ConfigRecord | None:
    kind = _check_resource(image, resource)
    current = image.configs_of(kind, resource.name)
    wanted = {} if resource.replace else dict(current)
    named: set[str] = set()
    for change in resource.changes:
        if change.name in named:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {change.name}")
        named.add(change.name)
        value = _changed_value(image, kind, change, current, environment)
        if value is None:
            wanted.pop(change.name, None)
        elif len(value.encode()) > VALUE_BYTES_MAX:
            text = f"The configuration value cannot be added because it exceeds {VALUE_BYTES_MAX} bytes."
            raise Refused(ErrorCode.INVALID_CONFIG, text)
        else:
            wanted[change.name] = value
    _check_values(image, resource, wanted, named, environment)
    if kind is ResourceType.BROKER:
        _check_broker_configs(resource.name, current, wanted, named)
    changes: dict[str, str | None] = {name: None for name in current if name not in wanted}
    changes.update({name: value for name, value in wanted.items() if current.get(name) != value})
    return ConfigRecord(kind, resource.name, changes) if changes else None


def _check_resource(image: MetadataImage, resource: AlterResource) -> ResourceType:
    name = resource.name
    match resource.resource_type:
        case ResourceType.TOPIC:
            if not name:
                raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            problem = topic_name_error(name)
            if problem is not None:
                raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            if name not in image.topics:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            return ResourceType.TOPIC
        case ResourceType.BROKER:
            if name != DEFAULT_BROKER:
                _check_broker(image, name)
            return ResourceType.BROKER
        case ResourceType.BROKER_LOGGER:
            message = "log levels are changed by IncrementalAlterConfigs, and by the broker that they belong to"
        case ResourceType.GROUP:
            if not name:
                raise Refused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            return ResourceType.GROUP
        case ResourceType.CLIENT_METRICS:
            message = "raftlog has no configs for resources of type CLIENT_METRICS yet"
        case _:
            message = f"Unknown resource type {resource.resource_type}"
    raise Refused(ErrorCode.INVALID_REQUEST, message)


def _check_broker(image: MetadataImage, name: str) -> None:
    # Kafka's own spelling of an id only: "01" would be another resource for the same broker.
    if _BROKER_ID.fullmatch(name) is None:
        message = f"Node id must be an integer, but it is: '{name}'"
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    if int(name) not in image.brokers:
        raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} is registered.")


def _changed_value(
    image: MetadataImage,
    kind: ResourceType,
    change: ConfigChange,
    current: Mapping[str, str],
    environment: Environment,
) -> str | None:
    match change.operation:
        case ConfigOperation.DELETE:
            return None
        case ConfigOperation.SET | ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
            if change.value is None:
                raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
        case _:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.operation}")
    if change.operation == ConfigOperation.SET:
        return change.value
    definitions = {ResourceType.TOPIC: TOPIC_CONFIGS, ResourceType.GROUP: GROUP_CONFIGS}
    definition = definitions.get(kind, SUPPORTED_BROKER_CONFIGS).get(change.name)
    operation = ConfigOperation(change.operation).name
    if definition is None or definition.type is not ConfigType.LIST:
        message = f"Can't {operation} to key {change.name} because its type is not LIST."
        raise Refused(ErrorCode.INVALID_CONFIG, message)
    before = current.get(change.name)
    elements = _elements(before) if before is not None else _inherited(image, kind, change.name, environment)
    given = dict.fromkeys(_elements(change.value))
    if operation == "APPEND":
        return ",".join(dict.fromkeys([*elements, *given]))
    return ",".join([element for element in elements if element not in given])


def _elements(text: str) -> list[str]:
    return [element.strip() for element in text.split(",") if element.strip()]


def _inherited(image: MetadataImage, kind: ResourceType, name: str, environment: Environment) -> list[str]:
    resolver = environment.resolver
    if kind is ResourceType.TOPIC:
        value = resolver.with_overrides(image, {})[name]
    else:
        value = resolver.broker_value(image, name)
    return list(value) if isinstance(value, tuple) else []


def _check_broker_configs(name: str, current: Mapping[str, str], wanted: Mapping[str, str], named: set[str]) -> None:
    """What hangs on other settings, or on which broker it is."""
    if PER_IP in named and PER_IP in wanted and int(wanted[PER_IP]) == 0 and not wanted.get(f"{PER_IP}.overrides"):
        message = f"{PER_IP} can be set to zero only if {PER_IP}.overrides property is set."
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    if name != DEFAULT_BROKER and MIN_ISR in named:
        message = f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
    elif name == DEFAULT_BROKER and MIN_ISR in current and MIN_ISR not in wanted:
        message = f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
    else:
        return
    raise Refused(ErrorCode.INVALID_CONFIG, message)


def _check_values(
    image: MetadataImage, resource: AlterResource, wanted: Mapping[str, str], named: set[str], environment: Environment
) -> None:
    kind = resource.resource_type
    try:
        if kind == ResourceType.TOPIC:
            check_topic_configs(wanted, environment.resolver.with_overrides(image, {}))
        elif kind == ResourceType.GROUP:
            check_group_configs(wanted, lambda name: environment.resolver.broker_value(image, name))
        else:
            # Only what is asked for now: a value that an older version accepted must not block every change.
            asked = {name: value for name, value in wanted.items() if name in named}
            check_dynamic_broker_configs(asked, of_all=resource.name == DEFAULT_BROKER)
            groups = {name: asked[own] for name in GROUP_CONFIGS if (own := broker_synonym(name)) in asked}
            check_group_configs(groups, lambda name: environment.resolver.broker_value(image, name))
    except InvalidConfig as error:
        # Kafka's brokers check their own settings before the controller does, with another code.
        code = ErrorCode.INVALID_REQUEST if kind == ResourceType.BROKER else ErrorCode.INVALID_CONFIG
        raise Refused(code, str(error)) from error
