"""Messages to bytes and back, without header and frame: the only door to the compiled encoders and decoders."""

from __future__ import annotations

from collections.abc import Generator
from struct import error as StructError
from sys import maxsize
from types import coroutine
from typing import Any, TypeVar

from raftlog.wire.errors import Malformed, NotEncodable, RemoteProtocolError, UnsupportedVersionField
from raftlog.wire.schema import Message
from raftlog.wire.source import field_path
from raftlog.wire.varint import Buffer

__all__ = [
    "Buffer",
    "NotEncodable",
    "UnsupportedVersionField",
    "decode",
    "decode_in_steps",
    "encode",
    "encode_in_steps",
    "encode_parts",
]

M = TypeVar("M", bound=Message)

_NOT_ENCODABLE = (NotEncodable, StructError, TypeError, AttributeError, OverflowError, UnicodeEncodeError)
_MALFORMED = (Malformed, StructError, IndexError, UnicodeDecodeError)


def encode(message: Message, version: int, prefix: bytes = b"") -> bytes:
    """The body of a message, without its header, behind `prefix` (a header, say).

    Raises NotEncodable for a version that the message does not have and for a value that has no form on the
    wire, UnsupportedVersionField for a value that this version cannot carry.
    """
    parts = encode_parts(message, version, prefix)
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


def encode_parts(message: Message, version: int, prefix: bytes = b"") -> list[Any]:
    """The same as a list of buffers. Large byte fields are in it as they are in the message, uncopied.

    A byte field may hold an object that is no buffer but has a length in bytes, a range of a file for
    instance: it comes out as a part of its own. Raises what `encode` raises.
    """
    encoder = message.__encoders__.get(version) or _encoder(type(message), version)
    parts: list[Any] = []
    try:
        parts.append(encoder(message, parts, bytearray(prefix)))
    except UnsupportedVersionField:
        raise
    except _NOT_ENCODABLE as error:
        raise _not_encodable(type(message), version, error) from error
    return parts


@coroutine
def encode_in_steps(message: Message, version: int) -> Generator[None, None, bytes]:
    """`encode` that gives way to others now and then."""
    cls = type(message)
    encoder = cls.__step_encoders__.get(version) or _encoder(cls, version, in_steps=True)
    parts: list[Any] = []
    try:
        parts.append((yield from encoder(message, parts, bytearray())))
    except UnsupportedVersionField:
        raise
    except _NOT_ENCODABLE as error:
        raise _not_encodable(cls, version, error) from error
    return b"".join(parts)


def decode(
    cls: type[M], version: int, data: Buffer, offset: int = 0, *, exact: bool = True, elements_max: int = maxsize
) -> M:
    """The message in `data` from `offset` to the end.

    Not `exact`: bytes behind the message are passed over. Kafka does so in requests, and librdkafka needs it (see
    docs/NON_OBVIOUS.md).

    Byte fields are memoryviews of `data`: they live as long as it does, and see what is written into it.
    Raises RemoteProtocolError if the version does not exist, the bytes are not exactly one such message, or its arrays
    have more than `elements_max` elements together.
    Memory is allocated in proportion to the bytes that are there, whatever the lengths in them say.
    """
    decoder = cls.__decoders__.get(version) or _decoder(cls, version)
    try:
        message: M = decoder(data, offset, exact, elements_max)
    except _MALFORMED as error:
        raise _malformed(cls, version, error) from error
    return message


@coroutine
def decode_in_steps(
    cls: type[M], version: int, data: Buffer, offset: int = 0, *, exact: bool = True, elements_max: int = maxsize
) -> Generator[None, None, M]:
    """`decode` that gives way to others now and then."""
    decoder = cls.__step_decoders__.get(version) or _decoder(cls, version, in_steps=True)
    try:
        message: M = yield from decoder(data, offset, exact, elements_max)
    except _MALFORMED as error:
        raise _malformed(cls, version, error) from error
    return message


def _not_encodable(cls: type[Message], version: int, error: Exception) -> NotEncodable:
    field = field_path(error.__traceback__)
    what = str(error)
    if isinstance(error, AttributeError) and error.name == "encode":
        what = f"{type(error.obj).__name__} in place of text"
    return NotEncodable(f"{cls.__name__} v{version}, {field or 'message'}: {what}")


def _malformed(cls: type[Message], version: int, error: Exception) -> RemoteProtocolError:
    field = field_path(error.__traceback__)
    return RemoteProtocolError(f"{cls.__name__} v{version}, {field or 'end'}: {_describe(error)}")


def _encoder(cls: type[Message], version: int, *, in_steps: bool = False) -> Any:
    if not cls.versions.hold(version):
        raise NotEncodable(f"{cls.__name__} has no version {version}, only {_range(cls)}")
    from raftlog.wire.encoder_compiler import compile_encoder  # a broker starts without it

    encoders = cls.__step_encoders__ if in_steps else cls.__encoders__
    encoders[version] = encoder = compile_encoder(cls, version, in_steps=in_steps)
    return encoder


def _decoder(cls: type[Message], version: int, *, in_steps: bool = False) -> Any:
    if not cls.versions.hold(version):
        raise RemoteProtocolError(f"{cls.__name__} has no version {version}, only {_range(cls)}")
    from raftlog.wire.decoder_compiler import compile_decoder

    decoders = cls.__step_decoders__ if in_steps else cls.__decoders__
    decoders[version] = decoder = compile_decoder(cls, version, in_steps=in_steps)
    return decoder


def _range(cls: type[Message]) -> str:
    return f"{cls.versions.first} to {cls.versions.last}"


def _describe(error: Exception) -> str:
    if isinstance(error, Malformed):
        return str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start}"
    return "the message ends too early"
