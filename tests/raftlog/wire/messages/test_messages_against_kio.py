"""kio, a codec generated from Kafka's own definitions, reads what we write and writes what we read."""

from __future__ import annotations

import dataclasses
import datetime
import io
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import classify_field, is_optional

from raftlog.wire.apis import APIS
from raftlog.wire.codec import decode, encode
from raftlog.wire.schema import ZERO_UUID, Field, Kind, Message, Struct
from tests.raftlog.wire.message_values import API_MESSAGES, map_structs, name_of, present_fields, samples, versions_of

pytestmark = pytest.mark.long

SAMPLES = 6
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# kio gives times as datetime and timedelta, whose ranges are smaller than an int64.
TIME_MAX = 2**46


def kio_package(cls: type[Message], version: int) -> str:
    """Where kio has a message at a version, if it does."""
    assert cls.api_key is not None
    return f"kio.schema.{APIS[cls.api_key].key.name.lower()}.v{version}"


def has_kio_class(cls: type[Message], version: int) -> bool:
    """Whether there is one; it is not imported, for all of them together take a second."""
    package = kio_package(cls, version)
    return find_spec(package.rpartition(".")[0]) is not None and find_spec(package) is not None


def kio_class(cls: type[Message], version: int) -> Any:
    """kio's class for a message at a version."""
    side = "request" if cls.__name__.endswith("Request") else "response"
    return getattr(import_module(f"{kio_package(cls, version)}.{side}"), cls.__name__)


CASES = [(cls, version) for cls, version in versions_of(*API_MESSAGES) if has_kio_class(cls, version)]


def to_kio(struct: Struct, theirs: Any, version: int) -> Any:
    values = {}
    pairs = zip(present_fields(type(struct), version), dataclasses.fields(theirs), strict=True)
    for field, their_field in pairs:
        values[their_field.name] = value_to_kio(getattr(struct, field.name), field, their_field, version)
    return theirs(**values)


def value_to_kio(value: Any, field: Field, their_field: Any, version: int) -> Any:
    if isinstance(value, list):
        return tuple(one_to_kio(each, field.element, their_field, version) for each in value)
    return one_to_kio(value, field.kind, their_field, version)


def one_to_kio(value: Any, kind: Kind | None, their_field: Any, version: int) -> Any:
    if value is None:
        return None
    if kind is Kind.STRUCT:
        return to_kio(value, classify_field(their_field).type_, version)
    match their_field.metadata["kafka_type"]:
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 and is_optional(their_field) else EPOCH + datetime.timedelta(milliseconds=value)
        case "uuid":
            return None if value == ZERO_UUID else UUID(bytes=value)
    return value


def from_kio(theirs: Any, cls: type[Struct], version: int) -> Struct:
    values = {}
    for field, their_field in zip(present_fields(cls, version), dataclasses.fields(theirs), strict=True):
        values[field.name] = value_from_kio(getattr(theirs, their_field.name), field, version)
    return cls(**values)


def value_from_kio(value: Any, field: Field, version: int) -> Any:
    if isinstance(value, tuple):
        return [value_from_kio(each, field, version) for each in value]
    if dataclasses.is_dataclass(value):
        assert field.struct is not None
        return from_kio(value, field.struct, version)
    if value is None and Kind.UUID in (field.kind, field.element):
        return ZERO_UUID
    if value is None and field.kind is Kind.INT64:
        return -1
    return plain(value)


def plain(value: Any) -> Any:
    """A scalar of kio's as we have it."""
    match value:
        case UUID():
            return value.bytes
        case datetime.datetime():
            return plain(value - EPOCH)
        case datetime.timedelta():
            return round(value.total_seconds() * 1000)
    return value


def within_kio(field: Field, value: Any) -> Any:
    """A value that kio can hold. Its times are recognized by our names for them."""
    is_time = field.kind is Kind.INT64 and field.name.endswith(("timestamp", "_ms", "timestamp_ms"))
    is_unknown = value == field.default == -1
    return abs(value) % TIME_MAX if is_time and not is_unknown else value


@pytest.mark.parametrize("cls, version", CASES, ids=name_of)
def test_kio_and_we_understand_each_other(cls: type[Message], version: int) -> None:
    theirs = kio_class(cls, version)
    write, read = entity_writer(theirs), entity_reader(theirs)

    for message in samples(cls, version, SAMPLES):
        map_structs(message, within_kio)
        ours = encode(message, version)
        entity, end = read(memoryview(ours), 0)
        assert end == len(ours)
        assert from_kio(entity, cls, version) == message
        buffer = io.BytesIO()
        write(buffer, to_kio(message, theirs, version))
        assert decode(cls, version, buffer.getvalue()) == message


def test_kio_knows_nearly_everything_that_we_know() -> None:
    unknown = {cls.__name__ for cls, version in versions_of(*API_MESSAGES) if kio_class(cls, version) is None}
    assert len(CASES) > 400, unknown
