"""kafka-python's codec, which knows nothing of ours, reads what we write and writes what we read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kafka.protocol import admin, consumer, metadata, producer, sasl

from raftlog.wire.codec import decode, encode
from raftlog.wire.messages.api_versions import ApiVersionsResponse
from raftlog.wire.schema import ZERO_UUID, Field, Kind, Message, Struct
from tests.raftlog.wire.message_values import API_MESSAGES, name_of, present_fields, samples, versions_of

pytestmark = pytest.mark.long

SAMPLES = 6


def their_class(cls: type[Message]) -> Any:
    modules = (admin, consumer, metadata, producer, sasl)
    return next((getattr(module, cls.__name__) for module in modules if hasattr(module, cls.__name__)), None)


CASES = [(cls, version) for cls, version in versions_of(*API_MESSAGES) if their_class(cls) is not None]


def fields_of_both(cls: type[Struct], container: Any, version: int) -> list[tuple[Field, Any]]:
    """Their fields next to ours; some names differ."""
    theirs = [field for field in container._struct.fields.values() if field.for_version_q(version)]
    return list(zip(present_fields(cls, version), theirs, strict=True))


def to_theirs(struct: Struct, container: Any, version: int) -> Any:
    values = {}
    for field, their_field in fields_of_both(type(struct), container, version):
        value = getattr(struct, field.name)
        if isinstance(value, list):
            values[their_field.name] = [one_to_theirs(each, field.element, their_field, version) for each in value]
        else:
            values[their_field.name] = one_to_theirs(value, field.kind, their_field, version)
    return container(version=version, **values)


def one_to_theirs(value: Any, kind: Kind | None, their_field: Any, version: int) -> Any:
    if value is None:
        return None
    if kind is Kind.STRUCT:
        return to_theirs(value, their_field.data_class, version)
    if kind is Kind.UUID:
        return UUID(bytes=value)
    if their_field.type_str == "bitfield":
        return {bit for bit in range(32) if value >> bit & 1}
    return value


def from_theirs(theirs: Any, cls: type[Struct], version: int) -> Struct:
    values = {}
    for field, their_field in fields_of_both(cls, theirs, version):
        value = getattr(theirs, their_field.name)
        if isinstance(value, list):
            values[field.name] = [one_from_theirs(each, field, their_field, version) for each in value]
        elif value is None and field.tag is not None:
            continue  # not sent: our default
        else:
            values[field.name] = one_from_theirs(value, field, their_field, version)
    return cls(**values)


def one_from_theirs(value: Any, field: Field, their_field: Any, version: int) -> Any:
    if their_field.type_str == "bitfield":
        bits = {31} if value is None else value
        number = sum(1 << bit for bit in bits)
        return number - 2**32 if number >= 2**31 else number
    if value is None:
        return ZERO_UUID if Kind.UUID in (field.kind, field.element) else None
    if Kind.STRUCT in (field.kind, field.element):
        assert field.struct is not None
        return from_theirs(value, field.struct, version)
    return value.bytes if isinstance(value, UUID) else value


@pytest.mark.parametrize("cls, version", CASES, ids=name_of)
def test_kafka_python_and_we_understand_each_other(cls: type[Message], version: int) -> None:
    theirs = their_class(cls)

    for message in samples(cls, version, SAMPLES):
        if isinstance(message, ApiVersionsResponse):
            message.error_code = 0  # with an error it reads version 0, as the answer to an unknown version is
        ours = encode(message, version)
        assert from_theirs(theirs.decode(ours, version=version), cls, version) == message
        encoded = bytes(to_theirs(message, theirs, version).encode(version=version))
        assert decode(cls, version, encoded) == message


def test_kafka_python_knows_nearly_everything_that_we_know() -> None:
    assert len(CASES) > 400
