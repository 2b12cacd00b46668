"""Both ends of a client's connection in a simulated cluster.

The broker's end carries the shipped Connection, as `broker/server/transport.py` does on sockets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from errno import EAGAIN
from struct import Struct
from typing import Any

from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.reply import Buffer, FileRange
from raftlog.broker.core.connection.server_side import ServerSide
from raftlog.broker.core.connection.transport import Fault
from raftlog.linearizability.simulator.machine.loop import SimulatedLoop
from raftlog.linearizability.simulator.machine.world import Machine
from raftlog.wire.apis import APIS
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.headers import encode_request_header, parse_response_header
from raftlog.wire.schema import Message

_SIZE = Struct(">i")
FRAME_BYTES_MAX = 64 * 1024 * 1024
PARTIAL_SENDS = 0.02
"""How often a send takes only a part of what it is given."""


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


class SimulatedTransport(asyncio.Protocol):
    """The broker's end: a Transport on the simulated network.

    What the connection does not read stays here, as in a socket's buffer; file ranges are read when they leave.
    """

    def __init__(self, side: ServerSide, machine: Machine, local: tuple[str, int]) -> None:
        self._side = side
        self._machine = machine
        self._local = local
        self._transport: Any = None
        self._unread = bytearray()
        self._is_reading = True
        self._can_send = True
        self._watching = False
        self.connection: Connection | None = None

    @property
    def is_busy(self) -> bool:
        """A request is being worked on, or a reply is on its way out."""
        return self.connection is not None and not self.connection.is_idle

    # What the network does to it -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = transport
        self.connection = Connection(self._side, self, transport.get_extra_info("peername"), self._local)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._unread += data
        self._read()

    def _read(self) -> None:
        connection = self.connection
        while connection is not None and self._unread and self._is_reading:
            buffer = connection.receive_buffer()
            count = min(len(buffer), len(self._unread))
            buffer[:count] = self._unread[:count]
            del self._unread[:count]
            connection.received(count)
            connection.check_invariants()
            connection = self.connection

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        if self.connection is not None:
            self.connection.close("lost")

    def pause_writing(self) -> None:
        """See asyncio."""
        self._can_send = False

    def resume_writing(self) -> None:
        """See asyncio."""
        self._can_send = True
        self._write()

    def _write(self) -> None:
        connection = self.connection
        if connection is not None and self._watching and self._can_send:
            connection.writable()
            connection.check_invariants()

    # What the connection does with it --------------------------------------------------------------------------

    def send(self, buffer: Buffer) -> int:
        """See Transport. Now and then only a part is taken, as a socket does."""
        if not self._can_send:
            raise BlockingIOError(EAGAIN, "the other end reads no more")
        random = self._machine.random
        taken = len(buffer)
        if random.random() < PARTIAL_SENDS:
            taken = 1 + int(random.random() * taken)
        self._transport.write(bytes(buffer[:taken]))
        return taken

    def send_gathered(self, buffers: Sequence[Buffer], *, more: bool) -> int:
        """See Transport."""
        return self.send(b"".join(buffers))

    def send_file(self, file: FileRange, start: int) -> int:
        """See Transport."""
        data = self._machine.disk.read_at(file.fileno(), file.length - start, file.position + start)
        return self.send(data) if data else 0

    def watch_writable(self, wanted: bool) -> None:
        """See Transport."""
        self._watching = wanted
        self._machine.loop.call_soon(self._write)

    def pause_reading(self) -> None:
        """See Transport."""
        self._is_reading = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See Transport."""
        self._is_reading = True
        self._transport.resume_reading()
        self._machine.loop.call_soon(self._read)

    def end_when_silent(self) -> None:
        """The simulated network gives up by itself what is not acknowledged."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """See Transport."""
        self._machine.loop.call_soon(callback)

    def bug(self, error: Exception) -> None:
        """See Transport. It ends the run."""
        context = {"message": f"a bug in serving {self.connection!r}", "exception": error}
        self._machine.loop.call_exception_handler(context)

    def close(self, reason: str, fault: Fault) -> None:
        """See Transport."""
        self.connection = None
        self._transport.close()


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

    async def ask(self, request: Message, version: int, seconds: float) -> Any:
        """The reply. Raises Unanswered."""
        if self.closed:
            raise Unanswered("closed")
        assert request.api_key is not None
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
