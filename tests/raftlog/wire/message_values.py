"""Random messages for the tests of the codec: every field of a version, with values that the version can carry."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from raftlog.wire.apis import APIS
from raftlog.wire.errors import ErrorCode
from raftlog.wire.internal.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from raftlog.wire.internal.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from raftlog.wire.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from raftlog.wire.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from raftlog.wire.internal.transaction_log import TransactionLogKey, TransactionLogValue
from raftlog.wire.schema import OWN_TAGS_FROM, Field, Kind, Message, Struct

INTERNAL: tuple[type[Message], ...] = (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
)
REQUESTS = tuple(api.request for api in APIS.values())
RESPONSES = tuple(api.response for api in APIS.values())
API_MESSAGES = REQUESTS + RESPONSES

ERROR_CODES = st.sampled_from([int(code) for code in ErrorCode])
# Around the lengths where a varint grows, and text of one to four bytes a character.
TEXTS = st.text(max_size=12) | st.sampled_from(["a" * 126, "a" * 127, "ä" * 200, "\U0001f600" * 40])
BINARIES = st.binary(max_size=12) | st.sampled_from([bytes(127), b"\xff" * 128, bytes(5000)])
_VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOL: st.booleans(),
    Kind.INT8: st.integers(-(2**7), 2**7 - 1),
    Kind.INT16: st.integers(-(2**15), 2**15 - 1),
    Kind.UINT16: st.integers(0, 2**16 - 1),
    Kind.INT32: st.integers(-(2**31), 2**31 - 1),
    Kind.INT64: st.integers(-(2**63), 2**63 - 1),
    Kind.FLOAT64: st.floats(allow_nan=False),
    Kind.UUID: st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
    Kind.STRING: TEXTS,
    Kind.BYTES: BINARIES,
    Kind.RECORDS: BINARIES,
}


def versions_of(*classes: type[Message]) -> list[tuple[type[Message], int]]:
    return [(cls, version) for cls in classes for version in range(cls.versions.first, cls.versions.last + 1)]


def name_of(case: object) -> str:
    return case.__name__ if isinstance(case, type) else f"v{case}"


def present_fields(cls: type[Struct], version: int) -> list[Field]:
    """Those that Kafka defines."""
    fields = [field for field in cls.__fields__ if field.versions.hold(version)]
    return [field for field in fields if field.tag is None or field.tag < OWN_TAGS_FROM]


@cache
def structs(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Values of all fields that the version has; the others keep their defaults."""
    fields = {field.name: _field_values(field, version) for field in present_fields(cls, version)}
    return st.fixed_dictionaries(fields).map(lambda values: cls(**values))


def _field_values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _values_not_null(field, version)
    return st.none() | values if field.nullable.hold(version) else values


def _values_not_null(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.kind is Kind.STRUCT:
        assert field.struct is not None
        return structs(field.struct, version)
    if field.kind is not Kind.ARRAY:
        return ERROR_CODES if field.name.endswith("error_code") else _VALUES[field.kind]
    if field.element is Kind.STRUCT:
        assert field.struct is not None
        return st.lists(structs(field.struct, version), max_size=2)
    assert field.element is not None
    return st.lists(_VALUES[field.element], max_size=4)


def map_structs(value: Any, change: Callable[[Field, Any], Any]) -> None:
    """Replaces in place every value of a message, structs inside included, by what `change` makes of it."""
    for field in value.__fields__:
        setattr(value, field.name, change(field, getattr(value, field.name)))
        inner = getattr(value, field.name)
        for struct in inner if isinstance(inner, list) else [inner]:
            if isinstance(struct, Struct):
                map_structs(struct, change)
