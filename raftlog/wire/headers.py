"""Request and response headers: what stands between the length of a frame and the message itself."""

from __future__ import annotations

from struct import Struct as Packing
from struct import error as StructError
from typing import NamedTuple

from raftlog.wire.apis import APIS, Api
from raftlog.wire.errors import Malformed, RemoteProtocolError
from raftlog.wire.primitives import skip_tagged_fields
from raftlog.wire.varint import Buffer

_REQUEST = Packing(">hhih")  # API key, API version, correlation id, length of the client id
_CORRELATION_ID = Packing(">i")
_NO_TAGGED_FIELDS = b"\0"


class RequestHeader(NamedTuple):
    """What every request begins with. `body_offset` is where in the frame the body begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def parse_request_header(frame: Buffer) -> RequestHeader:
    """Reads the header of a request, of any version of an API that is known.

    The version may be one that does not exist: the caller decides what to answer (ApiVersions gets an answer
    even then, KIP-511). Raises RemoteProtocolError for an unknown API and for malformed bytes.
    """
    try:
        api_key, api_version, correlation_id, size = _REQUEST.unpack_from(frame, 0)
        api = _api(api_key)
        position = _REQUEST.size
        client_id = None
        if size >= 0:
            # Never compact, not even in header version 2.
            end = position + size
            if end > len(frame):
                raise RemoteProtocolError(f"{api.name} request header: the client id ends after the frame")
            client_id = str(frame[position:end], "utf-8")
            position = end
        if api.is_flexible(api_version):
            position, _ = skip_tagged_fields(frame, position + 1, len(frame), frame[position])
    except (StructError, IndexError, UnicodeDecodeError, Malformed) as error:
        raise RemoteProtocolError(f"malformed request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header to put in front of a request body."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    tagged_fields = _NO_TAGGED_FIELDS if APIS[api_key].is_flexible(api_version) else b""
    return _REQUEST.pack(api_key, api_version, correlation_id, size) + name + tagged_fields


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """The header to put in front of a response body."""
    has_tagged_fields = APIS[api_key].response_header_version(api_version) > 0
    return _CORRELATION_ID.pack(correlation_id) + (_NO_TAGGED_FIELDS if has_tagged_fields else b"")


def parse_response_header(api_key: int, api_version: int, data: Buffer) -> tuple[int, int]:
    """The correlation id, and where the body begins. Raises RemoteProtocolError for malformed bytes."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(data, 0)
        position = _CORRELATION_ID.size
        if APIS[api_key].response_header_version(api_version) > 0:
            position, _ = skip_tagged_fields(data, position + 1, len(data), data[position])
    except (StructError, IndexError, Malformed) as error:
        raise RemoteProtocolError(f"malformed response header: {error}") from error
    return correlation_id, position


def _api(api_key: int) -> Api:
    try:
        return APIS[api_key]
    except KeyError:
        raise RemoteProtocolError(f"unknown API key {api_key}") from None
