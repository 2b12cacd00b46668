"""Random messages for the tests of the codec: every field of a version, with values that the version can carry."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

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

S = TypeVar("S", bound=Struct)

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

# Around the lengths where a varint grows, and text of one to four bytes a character.
TEXTS = ["", "a", "topic-1", "ä€", "\U0001f600\0", "a" * 126, "a" * 127, "ä" * 200, "\U0001f600" * 40]
BINARIES = [b"", b"\0", b"\xff\x80", bytes(12), bytes(127), b"\xff" * 128, bytes(5000)]
FLOATS = [0.0, -0.0, 1.5, -1e308, 5e-324, float("inf"), float("-inf")]


def _integers(lowest: int, highest: int) -> Callable[[Random], int]:
    """Of all sizes, and the ends themselves."""
    edges = [lowest, lowest + 1, max(lowest, -1), 0, 1, highest - 1, highest]

    def draw(random: Random) -> int:
        if random.random() < 0.4:
            return random.choice(edges)
        size = random.randrange(highest.bit_length() + 1)
        number = random.getrandbits(size) if size else 0
        return -number if lowest and random.random() < 0.5 else number

    return draw


def _texts(random: Random) -> str:
    if random.random() < 0.6:
        return random.choice(TEXTS)
    alphabet = "abc-_.\0\nüß€漢\U0001f600"
    return "".join(random.choices(alphabet, k=random.randrange(13)))


def _binaries(random: Random) -> bytes:
    return random.choice(BINARIES) if random.random() < 0.6 else random.randbytes(random.randrange(13))


_VALUES: dict[Kind, Callable[[Random], Any]] = {
    Kind.BOOL: lambda random: random.random() < 0.5,
    Kind.INT8: _integers(-(2**7), 2**7 - 1),
    Kind.INT16: _integers(-(2**15), 2**15 - 1),
    Kind.UINT16: _integers(0, 2**16 - 1),
    Kind.INT32: _integers(-(2**31), 2**31 - 1),
    Kind.INT64: _integers(-(2**63), 2**63 - 1),
    Kind.FLOAT64: lambda random: random.choice(FLOATS) if random.random() < 0.4 else random.uniform(-1e9, 1e9),
    Kind.UUID: lambda random: bytes(16) if random.random() < 0.2 else random.randbytes(16),
    Kind.STRING: _texts,
    Kind.BYTES: _binaries,
    Kind.RECORDS: _binaries,
}
ERROR_CODES = [int(code) for code in ErrorCode]


def versions_of(*classes: type[Message]) -> list[tuple[type[Message], int]]:
    return [(cls, version) for cls in classes for version in range(cls.versions.first, cls.versions.last + 1)]


def name_of(case: object) -> str:
    return case.__name__ if isinstance(case, type) else f"v{case}"


def present_fields(cls: type[Struct], version: int) -> list[Field]:
    """Those that Kafka defines."""
    fields = [field for field in cls.__fields__ if field.versions.hold(version)]
    return [field for field in fields if field.tag is None or field.tag < OWN_TAGS_FROM]


def samples(cls: type[S], version: int, count: int) -> list[S]:
    """`count` messages, the same ones in every run: all fields that the version has; the others keep their defaults."""
    random = Random(f"{cls.__name__} {version}")
    return [random_struct(cls, version, random) for _ in range(count)]


def random_struct(cls: type[S], version: int, random: Random) -> S:
    return cls(**{field.name: _field_value(field, version, random) for field in present_fields(cls, version)})


def _field_value(field: Field, version: int, random: Random) -> Any:
    if field.nullable.hold(version) and random.random() < 0.25:
        return None
    if field.kind is Kind.STRUCT:
        assert field.struct is not None
        return random_struct(field.struct, version, random)
    if field.kind is not Kind.ARRAY:
        return random.choice(ERROR_CODES) if field.name.endswith("error_code") else _VALUES[field.kind](random)
    assert field.element is not None
    if field.element is not Kind.STRUCT:
        return [_VALUES[field.element](random) for _ in range(random.randrange(5))]
    assert field.struct is not None
    return [random_struct(field.struct, version, random) for _ in range(random.randrange(3))]


def map_structs(value: Any, change: Callable[[Field, Any], Any]) -> None:
    """Replaces in place every value of a message, structs inside included, by what `change` makes of it."""
    for field in value.__fields__:
        setattr(value, field.name, change(field, getattr(value, field.name)))
        inner = getattr(value, field.name)
        for struct in inner if isinstance(inner, list) else [inner]:
            if isinstance(struct, Struct):
                map_structs(struct, change)
