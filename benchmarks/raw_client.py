"""A client that costs next to nothing, for loads that no real client on the same two cores could make."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TypeVar

from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.codec import decode, encode
from raftlog.wire.headers import encode_request_header, parse_response_header
from raftlog.wire.schema import Message

M = TypeVar("M", bound=Message)

SECONDS_MAX = 90.0
"""How long a connection that blocks waits for an answer."""


def frame(key: ApiKey, version: int, correlation_id: int, message: Message) -> bytes:
    """A whole request."""
    header = encode_request_header(key, version, correlation_id, "bench")
    body = encode(message, version)
    return struct.pack(">i", len(header) + len(body)) + header + body


class RawClient(asyncio.Protocol):
    """One connection; requests are answered in order."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiting: list[asyncio.Future[bytes]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_exception(error or ConnectionError("closed by the broker"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            (size,) = struct.unpack_from(">i", self._buffer)
            if len(self._buffer) < size + 4:
                return
            reply = bytes(self._buffer[4 : size + 4])
            del self._buffer[: size + 4]
            self._waiting.pop(0).set_result(reply)

    def send(self, request: bytes) -> asyncio.Future[bytes]:
        """Send a framed request; its reply frame comes through the future."""
        assert self.transport is not None
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.transport.write(request)
        return future

    async def call(self, key: ApiKey, version: int, message: Message, response: type[M]) -> M:
        """Send a message and decode the answer."""
        reply = await self.send(frame(key, version, 1, message))
        _, offset = parse_response_header(key, version, reply)
        assert APIS[key].response is response
        return decode(response, version, reply, offset)


async def connect(bootstrap: str) -> RawClient:
    """Open a connection to `host:port`."""
    host, _, port = bootstrap.rpartition(":")
    _, client = await asyncio.get_running_loop().create_connection(RawClient, host, int(port))
    return client


def opened(bootstrap: str, source: str = "") -> socket.socket:
    """A connection, from an address of its own if `source` is one."""
    host, _, port = bootstrap.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=SECONDS_MAX, source_address=(source, 0))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Asking:
    """One connection that sends frames and waits for each answer."""

    def __init__(self, bootstrap: str, source: str = "") -> None:
        self.socket = opened(bootstrap, source)
        self.socket.settimeout(SECONDS_MAX)

    def ask(self, request: bytes) -> bytes:
        self.socket.sendall(request)
        return self.receive()

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            received += self.socket.recv(count - len(received)) or _closed()
        return bytes(received)


def _closed() -> bytes:
    raise ConnectionError("closed by the broker")
