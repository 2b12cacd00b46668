"""One end of a simulated TCP connection, and the pipe that carries one direction of it.

As asyncio's transports: order, windows, pausing, ends of streams, resets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from raftlog.linearizability.simulator.machine.links import Links
from raftlog.linearizability.simulator.machine.loop import SimulatedLoop

HIGH_WATER_BYTES = 256 * 1024
"""So much may be on its way or unread before the sender is told to pause: its own buffer and the two sockets'."""
LOW_WATER_BYTES = 64 * 1024
READ_BYTES_MAX = 256 * 1024
"""What asyncio reads from a socket at once."""

END = b""


class Reset:
    """In a pipe: the connection is broken from here on."""


_RESET = Reset()
Chunk = bytes | Reset


class Pipe:
    """One direction of a connection.

    Invariants: chunks arrive in the order in which they were sent; while the link is cut none arrives.
    """

    __slots__ = ("_last_arrival", "_links", "_moving", "_stalled", "sink", "source")

    def __init__(self, links: Links, source: Endpoint, sink: Endpoint) -> None:
        self._links = links
        self.source = source
        self.sink = sink
        self._moving: deque[Chunk] = deque()
        self._last_arrival = 0.0
        self._stalled = False

    def send(self, chunk: Chunk, when: float) -> None:
        """Carry a chunk that leaves at `when`."""
        links = self._links
        self._moving.append(chunk)
        if self._stalled:
            return
        source, target = self.source.loop.node, self.sink.loop.node
        if source == target:
            arrival = when + links.delays.low
        else:
            arrival = when + links.link(source, target).delays.draw(links.random)
        self._last_arrival = max(self._last_arrival, arrival)
        links.scheduler.at(self._last_arrival, self._arrive)

    def _arrive(self) -> None:
        if self._stalled or not self._moving:
            return
        links = self._links
        source, target = self.source.loop.node, self.sink.loop.node
        if source != target and links.blocked(source, target):
            self._stalled = True
            links.link(source, target).stalled.append(self.resume)
            timeout = links.unacknowledged_seconds_max * (0.5 + links.random.random())
            links.scheduler.at(links.scheduler.now + timeout, self._give_up)
            return
        self.sink.arrived(self._moving.popleft())

    def resume(self, when: float) -> None:
        """The link works again: what was held back arrives at `when`, in order."""
        if self._stalled:
            self._stalled = False
            self._last_arrival = max(self._last_arrival, when)
            for _ in self._moving:
                self._links.scheduler.at(self._last_arrival, self._arrive)

    def _give_up(self) -> None:
        """Nothing was acknowledged for too long."""
        if self._stalled:
            self.source.broken(TimeoutError(110, "Connection timed out"))

    def clear(self) -> None:
        """Drop what is on its way."""
        self._moving.clear()


class Endpoint(asyncio.Transport):
    """One end. States: waiting (no protocol yet), open, closing (sends what it has, reads nothing), closed."""

    def __init__(
        self,
        links: Links,
        loop: SimulatedLoop,
        local: tuple[str, int],
        remote: tuple[str, int],
        forget: Callable[[Endpoint], None],
    ) -> None:
        """`forget` is called when this end is closed."""
        super().__init__({"peername": remote, "sockname": local, "socket": None})
        self.loop = loop
        self.peer: Endpoint | None = None
        self._links = links
        self._forget = forget
        self._pipe: Pipe | None = None
        self._protocol: Any = None
        self._inbox: deque[Chunk] = deque()
        self._unread = 0
        self._unacknowledged = 0
        self._reading = True
        self._read_scheduled = False
        self._write_paused = False
        self._high, self._low = HIGH_WATER_BYTES, LOW_WATER_BYTES
        self._closing = False
        self._lost = False
        self._eof_sent = False
        self._process_dead = False

    def join(self, other: Endpoint) -> None:
        """Make two ends one connection."""
        self.peer, other.peer = other, self
        self._pipe = Pipe(self._links, self, other)
        other._pipe = Pipe(self._links, other, self)

    def begin(self, protocol: Any) -> None:
        """The process takes the connection."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self._inbox:
            self._schedule_read()

    def begin_with(self, factory: Callable[[], Any]) -> None:
        """The process accepts the connection."""
        if not self._lost:
            self.begin(factory())

    # What the network does to it ------------------------------------------------------------------------------

    def arrived(self, chunk: Chunk) -> None:
        """The kernel has got something from the other end."""
        if self._lost or self._process_dead or self._closing:
            if self.peer is not None and not isinstance(chunk, Reset) and (chunk or self._process_dead):
                self._send_reset()
            return
        if isinstance(chunk, Reset):
            self.broken(ConnectionResetError(104, "Connection reset by peer"))
            return
        self._inbox.append(chunk)
        self._unread += len(chunk)
        self._schedule_read()

    def broken(self, error: Exception) -> None:
        """The connection is no more."""
        if self._lost or self._process_dead:
            return
        self._lost = True
        self._inbox.clear()
        if self._pipe is not None:
            self._pipe.clear()
        self._forget(self)
        if self._protocol is not None:
            self.loop.call_soon(self._protocol.connection_lost, error)

    def process_died(self, *, silent: bool) -> None:
        """The kernel closes the connection, unless the host is gone as well."""
        self._process_dead = True
        self._forget(self)
        if silent or self._pipe is None:
            if self._pipe is not None:
                self._pipe.clear()
            return
        if not self._closing and not self._lost:
            # With unread bytes in its buffer the kernel resets, otherwise it ends the stream.
            self._pipe.send(_RESET if self._unread else END, self.loop.scheduler.now)

    def _send_reset(self) -> None:
        if self._pipe is not None:
            self._pipe.clear()
            self._pipe.send(_RESET, self.loop.scheduler.now)

    def _schedule_read(self) -> None:
        if self._reading and not self._read_scheduled and self._protocol is not None:
            self._read_scheduled = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_scheduled = False
        if self._lost or self._closing or not self._reading or not self._inbox:
            return
        if self._inbox[0] == END:
            self._inbox.popleft()
            if not self._protocol.eof_received():
                self.close()
            return
        data = self._take()
        if self._inbox:
            self._schedule_read()
        if self.peer is not None:
            self.peer.acknowledged(len(data))
        self._deliver(data)

    def _take(self) -> bytes:
        """What a read of the socket gives: one chunk, several that have come since, or a part of one."""
        inbox = self._inbox
        parts: list[bytes] = []
        size = 0
        while inbox and inbox[0] != END and size < READ_BYTES_MAX:
            chunk = inbox.popleft()
            assert isinstance(chunk, bytes)
            parts.append(chunk)
            size += len(chunk)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        random = self._links.random
        limit = READ_BYTES_MAX
        if random.random() < self._links.delays.split:
            limit = 1 + int(random.random() * len(data))
        if len(data) > limit:
            inbox.appendleft(data[limit:])
            data = data[:limit]
        self._unread -= len(data)
        return data

    def _deliver(self, data: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        while data:
            buffer = memoryview(protocol.get_buffer(len(data)))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            protocol.buffer_updated(count)
            data = data[count:]

    def acknowledged(self, count: int) -> None:
        """The other process has read so many bytes."""
        self._unacknowledged -= count
        if self._write_paused and self._unacknowledged <= self._low and not self._lost and not self.loop.dead:
            self._write_paused = False
            self.loop.call_soon(self._protocol.resume_writing)

    # What asyncio code does with it ---------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See asyncio."""
        if self._lost or self._closing or self._eof_sent or not data or self.loop.dead:
            return
        chunk = bytes(data)
        assert self._pipe is not None and self.peer is not None
        self._links.sent(self.loop.node, self.peer.loop.node, chunk)
        self._unacknowledged += len(chunk)
        self._pipe.send(chunk, self.loop.time())
        if self._unacknowledged > self._high and not self._write_paused:
            self._write_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """See asyncio."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """See asyncio."""
        return True

    def write_eof(self) -> None:
        """See asyncio."""
        if not self._eof_sent and not self._lost and not self.loop.dead:
            self._eof_sent = True
            assert self._pipe is not None
            self._pipe.send(END, self.loop.time())

    def close(self) -> None:
        """See asyncio."""
        if self._closing or self._lost or self.loop.dead:
            return
        self.write_eof()
        self._closing = True
        self._forget(self)
        self.loop.call_soon(self._connection_lost, None)

    def abort(self) -> None:
        """See asyncio."""
        if self._lost or self.loop.dead:
            return
        already = self._closing
        self._closing = True
        self._forget(self)
        self._send_reset()
        if not already:
            self.loop.call_soon(self._connection_lost, None)

    def _connection_lost(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            if self._protocol is not None:
                self._protocol.connection_lost(error)

    def is_closing(self) -> bool:
        """See asyncio."""
        return self._closing or self._lost

    def is_reading(self) -> bool:
        """See asyncio."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """See asyncio."""
        self._reading = False

    def resume_reading(self) -> None:
        """See asyncio."""
        self._reading = True
        if self._inbox:
            self._schedule_read()

    def get_protocol(self) -> Any:
        """See asyncio."""
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        """See asyncio."""
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        """See asyncio."""
        return self._unacknowledged

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """See asyncio."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio."""
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low
