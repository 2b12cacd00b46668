"""What is versioned outside of requests: records of Kafka's internal topics, and metadata of group members.

Each of them begins with its version (int16). In the key of an internal record that number says what
kind of record it is: Kafka 4 speaks of the key's API key, older Kafka of its version, and the bytes are the same.
"""

from __future__ import annotations

from struct import Struct as Packing
from struct import error as StructError
from typing import TypeVar

from raftlog.wire.codec import Buffer, decode, encode
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.schema import Message

M = TypeVar("M", bound=Message)
_VERSION = Packing(">h")


def encode_internal(message: Message, version: int) -> bytes:
    """The version and the message in it. Raises what `raftlog.wire.codec.encode` raises."""
    return encode(message, version, _VERSION.pack(version))


def decode_internal(cls: type[M], data: Buffer) -> M:
    """The message behind the version that it begins with.

    Raises RemoteProtocolError for a version that we do not know, and for bytes that are not such a message.
    """
    return decode(cls, internal_version(data), data, _VERSION.size)


def internal_version(data: Buffer) -> int:
    """The version in front. Raises RemoteProtocolError if there is none."""
    try:
        (version,) = _VERSION.unpack_from(data, 0)
    except StructError as error:
        raise RemoteProtocolError(f"{len(data)} bytes have no version in front") from error
    return int(version)
