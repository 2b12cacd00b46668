"""One connection between two nodes: frames of msgpack in both directions, a greeting first, everything bounded.

A frame is `length: u32 | crc32c(length and body): u32 | body`, little-endian; the body is an array that begins with
what it is (`Kind`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, Protocol, cast

import msgpack

from raftlog.raft.core.errors import PeerViolation
from raftlog.raft.core.ids import NodeId
from raftlog.raft.silent_peers import end_when_silent
from raftlog.wire.checksum import crc32c

_HEADER = Struct("<II")
_LENGTH = Struct("<I")
GREETING_BYTES_MAX = 64 * 1024
"""Before the greeting anybody may be talking: a browser, a port scanner, a Kafka client."""
FRAME_BYTES_MAX = 64 * 1024 * 1024
"""The largest entry and something around it; what comes of a larger length is memory at the word of a peer."""
WRITE_QUEUE_BYTES_MAX = 96 * 1024 * 1024
"""A peer that leaves more than this unread is cut off, and starts again from what it has when it comes back."""


class Kind(IntEnum):
    """What a frame is; a number is never given to another kind."""

    HELLO = 0
    WELCOME = 1
    REFUSED = 2
    RAFT = 3
    REQUEST = 4
    ANSWER = 5
    PING = 6


class ChannelOwner(Protocol):
    """Who a channel reports to."""

    def channel_opened(self, channel: Channel) -> None:
        """The connection is there; nothing was said."""

    def channel_frame(self, channel: Channel, kind: int, values: Sequence[Any]) -> None:
        """A frame came. May raise PeerViolation, which closes the channel."""

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """The connection is gone. Called once."""


class Channel(asyncio.Protocol):
    """See the module. `node_id` is -1 until the greeting."""

    def __init__(self, owner: ChannelOwner, dialled: int = -1) -> None:
        """`dialled`: the node that was called, -1 when the other side called."""
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._reason = "the other side closed the connection"
        self.dialled = dialled
        self.node_id = NodeId(-1)
        self.incarnation = 0
        self.address = ""
        self.heard_at = self.greeted_at = 0.0
        self.directory = b""
        self.closed = False

    # -- asyncio -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        end_when_silent(transport.get_extra_info("socket"))
        name = transport.get_extra_info("peername")
        self.address = f"{name[0]}:{name[1]}" if name else "?"
        self._owner.channel_opened(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self.closed:
            return
        self._buffer += data
        try:
            used = self._take_frames()
        except PeerViolation as error:
            self.close(str(error))
            return
        del self._buffer[:used]

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if exc is not None and not self.closed:
            self._reason = str(exc)
        self._end()

    @property
    def host(self) -> str:
        """The other side's address without the port."""
        return self.address.rpartition(":")[0]

    @property
    def descriptor(self) -> int:
        """The socket's, or -1 where there is none (any more)."""
        sock = None if self._transport is None or self.closed else self._transport.get_extra_info("socket")
        return -1 if sock is None else int(sock.fileno())

    # -- frames ------------------------------------------------------------------------------------

    def _take_frames(self) -> int:
        """Handle all whole frames; how many bytes they took."""
        position = 0
        available = len(self._buffer)
        while available - position >= _HEADER.size and not self.closed:
            length, checksum = _HEADER.unpack_from(self._buffer, position)
            if length > (FRAME_BYTES_MAX if self.node_id >= 0 else GREETING_BYTES_MAX):
                raise PeerViolation(f"a frame of {length} bytes: is this a raftlog peer port?")
            end = position + _HEADER.size + length
            if available < end:
                break
            body = bytes(memoryview(self._buffer)[position + _HEADER.size : end])
            if crc32c(body, crc32c(_LENGTH.pack(length))) != checksum:
                raise PeerViolation("a frame with a wrong checksum")
            kind, values = _unpack(body)
            self._owner.channel_frame(self, kind, values)
            position = end
        return position

    def send(self, kind: Kind, *values: Any) -> bool:
        """Send a frame; False when the channel is closed, or is being closed because the peer does not read."""
        if self.closed or self._transport is None:
            return False
        body = cast(bytes, msgpack.packb((int(kind), *values)))
        length = len(body)
        if length > FRAME_BYTES_MAX:
            raise PeerViolation(f"{length} bytes in one frame, and at most {FRAME_BYTES_MAX} are taken")
        checksum = crc32c(body, crc32c(_LENGTH.pack(length)))
        self._transport.write(_HEADER.pack(length, checksum) + body)
        if self._transport.get_write_buffer_size() > WRITE_QUEUE_BYTES_MAX:
            self.close(f"{self.address} has left {WRITE_QUEUE_BYTES_MAX} bytes unread", at_once=True)
            return False
        return True

    def close(self, reason: str, *, at_once: bool = False) -> None:
        """Close the connection; what was sent before still goes out unless `at_once`."""
        if self.closed:
            return
        self._reason = reason
        transport = self._transport
        self._end()
        if transport is not None:
            if at_once:
                transport.abort()
            else:
                transport.close()

    def _end(self) -> None:
        if not self.closed:
            self.closed = True
            self._buffer.clear()
            self._owner.channel_closed(self, self._reason)


def _unpack(body: bytes) -> tuple[int, Sequence[Any]]:
    try:
        values = msgpack.unpackb(body, use_list=False)
    except ValueError as error:
        raise PeerViolation("a frame that cannot be read") from error
    if type(values) is not tuple or not values or type(values[0]) is not int:
        raise PeerViolation("a frame that is no message")
    return values[0], values[1:]
