"""The Kafka listener of a simulated broker, and a client's end of such a connection.

In place of `broker/server/{listener,connection}` (raw sockets and sendfile), which are not simulated: frames come
over the simulated network and go to `Dispatcher.dispatch`, replies go back in the order of the requests. File ranges
are read when their reply leaves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from raftlog.broker.core.connection.reply import PendingReply, Piece, RepeatMatcher
from raftlog.linearizability.simulator.disk import FaultyDisk
from raftlog.linearizability.simulator.loop import SimulatedLoop
from raftlog.wire.apis import APIS
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.headers import encode_request_header, parse_response_header

_SIZE = Struct(">i")
FRAME_BYTES_MAX = 64 * 1024 * 1024


class Frames:
    """Cuts a stream of bytes into frames."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def take(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, without their sizes. Raises RemoteProtocolError for a size that is none."""
        buffer = self._buffer
        buffer += data
        frames = []
        position = 0
        while len(buffer) - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(buffer, position)
            if not 0 <= size <= FRAME_BYTES_MAX:
                raise RemoteProtocolError(f"a frame of {size} bytes")
            if len(buffer) - position - 4 < size:
                break
            frames.append(bytes(buffer[position + 4 : position + 4 + size]))
            position += 4 + size
        del buffer[:position]
        return frames


class KafkaConnection(asyncio.Protocol):
    """A client's connection as the broker's handlers see it."""

    def __init__(
        self, dispatch: Callable[[Any, memoryview], None], disk: FaultyDisk, local: tuple[str, int]
    ) -> None:
        self._dispatch = dispatch
        self._disk = disk
        self._transport: Any = None
        self._frames = Frames()
        self._places: deque[PendingReply] = deque()
        self.local_address = local
        self.peer_host = ""
        self.peer_port = 0
        self.listener_name = "PLAINTEXT"
        self.closed = False
        self.facts: dict[str, str] = {}
        self.repeat_matcher: RepeatMatcher | None = None
        self.produce_templates: object = None
        self.is_unread = False

    def __repr__(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"

    # The protocol ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = transport
        self.peer_host, self.peer_port = transport.get_extra_info("peername")

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        try:
            for frame in self._frames.take(data):
                if self.closed:
                    return
                whole = memoryview(_SIZE.pack(len(frame)) + frame)
                repeat_matcher = self.repeat_matcher if self.is_idle else None
                place = repeat_matcher.serve_repeat(whole, len(whole)) if repeat_matcher is not None else None
                if place is not None:
                    self._places.append(place)
                else:
                    self._dispatch(self, whole[_SIZE.size :])
        except RemoteProtocolError as error:
            self.close(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        self.close("lost")

    # What handlers do with it ----------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Nothing is being worked on."""
        return not self._places

    def reply(self, pieces: Sequence[Piece]) -> None:
        """See Connection."""
        if self._places:
            place = PendingReply(self)
            place.pieces = pieces
            self._places.append(place)
        else:
            self._send(pieces)

    def park(self) -> PendingReply:
        """See Connection."""
        place = PendingReply(self)
        self._places.append(place)
        return place

    def park_in(self, place: PendingReply) -> None:
        """See Connection."""
        self._places.append(place)

    def reply_ready(self, pieces: Sequence[Piece]) -> None:
        """See Connection."""
        while self._places and (head := self._places[0].pieces) is not None:
            self._places.popleft()
            self._send(head)

    def _send(self, pieces: Sequence[Piece]) -> None:
        if self.closed or not pieces:
            return
        parts: list[bytes] = []
        for piece in pieces:
            if isinstance(piece, bytes | bytearray | memoryview):
                parts.append(bytes(piece))
            else:
                parts.append(self._disk.read_at(piece.fileno(), piece.length, piece.position))
        self._transport.write(b"".join(parts))

    def close(self, reason: str, *, level: int = 0) -> None:
        """See Connection."""
        if self.closed:
            return
        self.closed = True
        repeat_matcher, self.repeat_matcher = self.repeat_matcher, None
        self._transport.close()
        places, self._places = self._places, deque()
        for place in places:
            place.abandon()
        if repeat_matcher is not None:
            repeat_matcher.disconnected()


class Unanswered(Exception):
    """The connection ended, or the time, before the reply came: nobody knows what became of the request."""


class KafkaClient(asyncio.Protocol):
    """A client's end: sends requests and awaits their replies, in order. Versions are chosen by the caller."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False
        self._transport: Any = None
        self._frames = Frames()
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Any]]] = deque()
        self._correlation_id = 0

    @classmethod
    async def open(cls, loop: SimulatedLoop, address: tuple[str, int], name: str, seconds: float) -> KafkaClient:
        """Connect within so many seconds. Raises OSError, TimeoutError."""
        async with asyncio.timeout(seconds):
            _, client = await loop.create_connection(lambda: cls(name), *address)
        assert isinstance(client, KafkaClient)
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        for frame in self._frames.take(data):
            key, version, correlation_id, future = self._waiting.popleft()
            got, offset = parse_response_header(key, version, frame)
            assert got == correlation_id, "replies out of order"
            if not future.done():
                future.set_result(decode(APIS[key].response, version, frame, offset))

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        self.closed = True
        waiting, self._waiting = self._waiting, deque()
        for *_, future in waiting:
            if not future.done():
                future.set_exception(Unanswered(str(error)))

    async def ask(self, request: Any, version: int, seconds: float) -> Any:
        """The reply. Raises Unanswered."""
        if self.closed:
            raise Unanswered("closed")
        key = int(request.api_key)
        self._correlation_id += 1
        header = encode_request_header(key, version, self._correlation_id, self.name)
        body = encode(request, version)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, version, self._correlation_id, future))
        self._transport.write(_SIZE.pack(len(header) + len(body)) + header + body)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError as error:
            self.close()
            raise Unanswered("no reply in time") from error

    def close(self) -> None:
        """Give the connection up."""
        if not self.closed:
            self._transport.abort()
            self.closed = True
