"""Whether a request is one that a fault is about."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from raftlog.testing.faults.spec import FaultSpec
from raftlog.wire.schema import Kind, Message, Struct
from raftlog.wire.uuids import uuid_to_text

ANY_API = "*"
_TOPICS = ("name", "topic", "topic_name")
_PARTITIONS = ("partition", "partition_index", "index")
_GROUPS = ("group_id", "group", "consumer_group_id")
_LISTS_OF_GROUPS = ("groups", "group_ids", "groups_names", "coordinator_keys")
_TRANSACTIONS = ("transactional_id", "v3_and_below_transactional_id")
_LISTS_OF_TRANSACTIONS = ("transactional_ids", "coordinator_keys")


def fits_client(spec: FaultSpec, client_id: str | None, *, from_broker: bool) -> bool:
    """Whether it is about this client. Other brokers are meant only by those that name a client."""
    if not spec.client:
        return not from_broker
    return fnmatchcase(client_id or "", spec.client)


def looks_inside(spec: FaultSpec) -> bool:
    """Whether a request has to be decoded to know."""
    return bool(spec.topic or spec.partition >= 0 or spec.group or spec.transactional_id)


def fits_request(spec: FaultSpec, request: Message) -> bool:
    """Whether the request names the fault's topic, partition, group and transactional id, as far as it has any."""
    if spec.group and spec.group not in _named(request, _GROUPS, _LISTS_OF_GROUPS):
        return False
    if spec.transactional_id and spec.transactional_id not in _named(request, _TRANSACTIONS, _LISTS_OF_TRANSACTIONS):
        return False
    if spec.topic:
        return any(_has_partition(topic, spec.partition) for topic in _topics(request, spec))
    return spec.partition < 0 or _has_partition(request, spec.partition)


def _structs(struct: Struct) -> Iterator[Struct]:
    yield struct
    for field in struct.__fields__:
        if field.struct is None:
            continue
        value = getattr(struct, field.name)
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                yield from _structs(each)


def _named(request: Message, names: tuple[str, ...], lists: tuple[str, ...]) -> set[Any]:
    found: set[Any] = set()
    for struct in _structs(request):
        for field in struct.__fields__:
            value = getattr(struct, field.name)
            if field.name in names or (field.name == "key" and "coordinator_keys" in lists):
                found.add(value if isinstance(value, str) else None)
            elif field.name in lists and field.element is Kind.STRING:
                found.update(value or ())
    return found


def _topics(request: Message, spec: FaultSpec) -> Iterator[Struct | None]:
    """The parts of the request that are about the topic; None for a bare name in a list."""
    identity = bytes.fromhex(spec.topic_id) if spec.topic_id else None
    for struct in _structs(request):
        values = {field.name: getattr(struct, field.name) for field in struct.__fields__}
        is_named = any(values.get(name) == spec.topic for name in _TOPICS)
        if is_named or (identity is not None and values.get("topic_id") == identity):
            yield struct
        for field in struct.__fields__:
            if field.element is Kind.STRING and "topic" in field.name and spec.topic in (values[field.name] or ()):
                yield None


def _has_partition(struct: Struct | None, partition: int) -> bool:
    if partition < 0 or struct is None:
        return True
    for each in _structs(struct):
        for field in each.__fields__:
            value = getattr(each, field.name)
            if field.name in _PARTITIONS and value == partition:
                return True
            if "partition" in field.name and field.element is Kind.INT32 and partition in (value or ()):
                return True
    return False


def names_in(request: Message) -> list[str]:
    """The partitions (or topics), groups and transactional ids that a request names, each once, in its order.

    A topic that it names by its id alone is that id, as Kafka writes it.
    """
    found: dict[str, None] = {}
    for struct in _structs(request):
        values = {field.name: getattr(struct, field.name) for field in struct.__fields__}
        for name in (*_GROUPS, *_TRANSACTIONS):
            if isinstance(values.get(name), str) and values[name]:
                found[values[name]] = None
        topic = next((values[name] for name in _TOPICS if isinstance(values.get(name), str) and values[name]), None)
        if topic is None and values.get("topic_id"):
            topic = uuid_to_text(values["topic_id"])
        if topic is not None:
            found.update(dict.fromkeys([f"{topic}-{partition}" for partition in _partitions(struct)] or [topic]))
    return list(found)


def _partitions(topic: Struct) -> list[int]:
    return [getattr(each, name) for each in _structs(topic) for name in _PARTITIONS if hasattr(each, name)]
