"""One client's connection: bytes in, frames to the dispatcher, replies out in the order of the requests.

Requests are parsed where the kernel put them: in a buffer shared by all connections, or, for a large request
that arrives in pieces, in a buffer of its own that goes back to a pool. That buffer grows with what has come, so
that a length which lies costs its sender as much as us. A frame that the dispatcher gets is valid only during the
call.

Back-pressure: while replies cannot be written, or too many are outstanding, the connection is not read.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING

from raftlog.broker.core.connection.reply import Buffer, PendingReply, Piece, RepeatMatcher
from raftlog.broker.server.limits import (
    BUFFERS_PER_SEND_MAX,
    INFLIGHT_REQUESTS_PER_CONNECTION_MAX,
    SEND_BYTES_PER_TURN,
    UNSENT_BYTES_PER_CONNECTION_MAX,
)
from raftlog.wire.errors import InvariantViolation, RemoteProtocolError

if TYPE_CHECKING:
    from raftlog.broker.server.listener import Server

log = logging.getLogger("raftlog.connection")

_SIZE = Struct(">i")
# The smallest request header, v0: API key, version, correlation id.
_FRAME_BYTES_MIN = 8
# A frame of which so much has come, and which is not whole yet, moves to a buffer of its own.
_OWN_BUFFER_FROM_BYTES = 32 * 1024
# The least size of such a buffer, which most producers' batches never outgrow, and by what it grows.
_OWN_BUFFER_BYTES = 1024 * 1024
_GROWTH = 4
_MEMORY = (bytes, bytearray, memoryview)
# Linux holds the packet back until the file range that follows; elsewhere the flag does not exist.
_MORE: int = getattr(socket, "MSG_MORE", 0)


class Connection:
    """States: open (reading or paused), closed. All calls come from the event loop's thread.

    Invariants: a reader is registered exactly when the connection is open and not paused, a writer when `_out` is not
    empty after a flush; replies leave in the order in which `reply` and `park` were called; `arriving_since` is set
    exactly when a part of a request is kept, in `_stash` or `_arriving`.
    """

    __slots__ = (
        "_arriving",
        "_arriving_filled",
        "_arriving_size",
        "_corked",
        "_fd",
        "_out",
        "_paused",
        "_places",
        "_sent_of_first",
        "_server",
        "_socket",
        "_stash",
        "_unsent_bytes",
        "_writer",
        "arriving_since",
        "closed",
        "facts",
        "is_heard",
        "last_active",
        "listener_name",
        "local_address",
        "peer_host",
        "peer_port",
        "produce_templates",
        "repeat_matcher",
    )

    def __init__(self, sock: socket.socket, peer: tuple[str, int], local: tuple[str, int], server: Server) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._server = server
        self.peer_host, self.peer_port = peer
        self.local_address = local
        self.listener_name = "PLAINTEXT"
        self.closed = False
        self.last_active = server.now()
        self.is_heard = False  # something has come or gone since the sweep last wrote `last_active`
        # Since when an incomplete request is being received, 0.0 when there is none.
        self.arriving_since = 0.0
        # What a client said about itself (client software), by name.
        self.facts: dict[str, str] = {}
        # Asked first about what is received while nothing else is under way.
        self.repeat_matcher: RepeatMatcher | None = None
        # What a handler wants to find again when the next request comes.
        self.produce_templates: object = None
        self._stash = b""
        self._arriving: bytearray | None = None
        self._arriving_size = 0
        self._arriving_filled = 0
        # A list: most connections have one place or none, and a deque takes six hundred bytes for that.
        self._places: list[PendingReply] = []
        self._out: deque[Piece] = deque()
        self._sent_of_first = 0
        self._unsent_bytes = 0
        self._corked = False
        self._paused = False
        self._writer = False
        server.loop.add_reader(self._fd, self._on_readable)

    def __repr__(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"

    # ── in ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_readable(self) -> None:
        try:
            self._receive()
        except Exception as error:  # noqa: BLE001 - sorted out in one place
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """A peer's fault ends this connection, a fault of ours is told and ends it too."""
        if isinstance(error, RemoteProtocolError):
            self._end_for(error)
        elif isinstance(error, ConnectionError | TimeoutError):
            self.close(f"connection lost: {error.strerror or error}")
        elif isinstance(error, InvariantViolation):
            self._server.stop_for(error)
        else:
            log.error("connection=%r a bug in serving a request", self, exc_info=error)
            self.close("internal error, see the trace above", level=logging.ERROR)

    def _end_for(self, error: RemoteProtocolError) -> None:
        """The peer broke the protocol. What it asked before that, and was answered, it still gets."""
        try:
            self._flush()
        except (OSError, RemoteProtocolError):
            pass
        self.close(str(error), level=logging.WARNING)

    def _receive(self) -> None:
        server, arriving = self._server, self._arriving
        try:
            if not self.arriving_since:
                count = self._socket.recv_into(server.receive_view)
            elif arriving is not None:
                with memoryview(arriving) as view:
                    count = self._socket.recv_into(view[self._arriving_filled : self._arriving_end])
            else:
                stash = len(self._stash)
                server.receive_view[:stash] = self._stash
                count = self._socket.recv_into(server.receive_view[stash:])
        except BlockingIOError:
            return
        if not count:
            self.close("closed by the client")
            return
        self.is_heard = True
        if arriving is not None:
            self._arriving_filled += count
            if self._arriving_filled == self._arriving_size:
                self._arrived(arriving)
            elif self._arriving_filled == self._arriving_end:
                self._grow(arriving)
            return
        repeat_matcher = self.repeat_matcher
        if repeat_matcher is not None and not (self.arriving_since or self._places or self._writer):
            place = repeat_matcher.serve_repeat(server.receive_view, count)
            if place is not None:
                self._places.append(place)
                return
        end = len(self._stash) + count
        self._stash = b""
        self._consume(end)

    @property
    def _arriving_end(self) -> int:
        """How far the buffer of its own may be filled."""
        return min(self._arriving_size, len(self._arriving or b""))

    def _grow(self, buffer: bytearray) -> None:
        """The large frame has filled its buffer and is not whole: a larger one, now or when there is memory."""
        larger = self._server.take_buffer(self, min(self._arriving_size, len(buffer) * _GROWTH))
        if larger is None:
            self._pause()
            self._server.wait_for_buffer(self)
            return
        larger[: len(buffer)] = buffer
        self._arriving = larger
        self._server.give_buffer_back(buffer)

    def _arrived(self, buffer: bytearray) -> None:
        """The large frame is whole."""
        size = self._arriving_size
        self._arriving = None
        self.arriving_since = 0.0
        self._corked = True
        try:
            with memoryview(buffer) as view, view[_SIZE.size : size] as frame:
                self._server.dispatch(self, frame)
        finally:
            self._corked = False
            self._server.give_buffer_back(buffer, holder=self)
        self._flush()
        self._consider_pausing()

    def _consume(self, end: int) -> None:
        """Serve the whole frames in the first `end` bytes of the shared buffer; keep the rest."""
        server = self._server
        view = server.receive_view
        request_bytes_max = server.limits.request_bytes_max
        position = 0
        size = 0
        self._corked = True
        try:
            while end - position >= 4:
                (size,) = _SIZE.unpack_from(view, position)
                if not _FRAME_BYTES_MIN <= size <= request_bytes_max:
                    raise RemoteProtocolError(
                        f"a frame of {size} bytes: requests have {_FRAME_BYTES_MIN} to {request_bytes_max} bytes "
                        "(socket.request.max.bytes); is this client speaking Kafka's protocol, without TLS?"
                    )
                stop = position + 4 + size
                if stop > end or self._at_limit():
                    break
                server.dispatch(self, view[position + 4 : stop])
                if self.closed:
                    return
                position = stop
        finally:
            self._corked = False
        if position == end:
            self.arriving_since = 0.0
        else:
            self._keep_rest(position, end, size)
        if self._out:
            self._flush()
        self._consider_pausing()

    def _keep_rest(self, position: int, end: int, size: int) -> None:
        rest = end - position
        view = self._server.receive_view
        if position or not self.arriving_since:
            self.arriving_since = self._server.now()
        if _OWN_BUFFER_FROM_BYTES <= rest < size + 4:
            buffer = self._server.take_buffer(self, min(size + 4, max(_OWN_BUFFER_BYTES, rest * _GROWTH)))
            if buffer is not None:
                buffer[:rest] = view[position:end]
                self._arriving, self._arriving_size, self._arriving_filled = buffer, size + 4, rest
                return
            if size + 4 > len(view):
                # No memory for it now: wait, with what has come, until another large request is done.
                self._stash = bytes(view[position:end])
                self._pause()
                self._server.wait_for_buffer(self)
                return
        self._stash = bytes(view[position:end])

    def _at_limit(self) -> bool:
        return (
            len(self._places) >= INFLIGHT_REQUESTS_PER_CONNECTION_MAX
            or self._unsent_bytes > UNSENT_BYTES_PER_CONNECTION_MAX
        )

    def _consider_pausing(self) -> None:
        if not self._paused and (self._out or self._at_limit()):
            self._pause()

    def _pause(self) -> None:
        if not self._paused and not self.closed:
            self._paused = True
            self._server.loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Read again, beginning with what was kept. Never called from inside another connection's turn."""
        try:
            self._resume()
        except Exception as error:  # noqa: BLE001 - sorted out in one place
            self._failed(error)

    def _resume(self) -> None:
        if self.closed or not self._paused or self._out or self._at_limit():
            return
        self._paused = False
        self._server.loop.add_reader(self._fd, self._on_readable)
        if self.arriving_since:
            # While it was not read, the rest could not arrive.
            self.arriving_since = self._server.now()
        if self._arriving is not None and self._arriving_filled == len(self._arriving):
            self._grow(self._arriving)
        elif self._stash:
            stash, self._stash = self._stash, b""
            self._server.receive_view[: len(stash)] = stash
            self._consume(len(stash))

    # ── out ───────────────────────────────────────────────────────────────────────────────────────────────

    def reply(self, pieces: Sequence[Piece]) -> None:
        """Send after all replies that are outstanding."""
        self._count_unsent(pieces)
        if self._places:
            place = PendingReply(self)
            place.pieces = pieces
            self._places.append(place)
            self._complete_early()
        else:
            self._out.extend(pieces)
            if not self._corked:
                self._flush()

    def park(self) -> PendingReply:
        """A place for a reply that comes later."""
        place = PendingReply(self)
        self._places.append(place)
        return place

    def park_in(self, place: PendingReply) -> None:
        """The same with a place that was made for this connection."""
        self._places.append(place)

    def reply_ready(self, pieces: Sequence[Piece]) -> None:
        """A place was filled: send what is now at the head. May be called from any connection's turn."""
        places = self._places
        if len(places) == 1 == len(pieces) and not (self._writer or self._corked or self._paused):
            piece = pieces[0]
            if isinstance(piece, _MEMORY):
                places.pop()
                self._send_alone(piece)
                return
        self._count_unsent(pieces)
        if self.closed or not places:
            return
        if places[0].pieces is None:
            self._complete_early()
            return
        while places and (head := places[0].pieces) is not None:
            self._out.extend(head)
            del places[0]
        if not self._corked:
            self._flush_guarded()
            if self._paused and not self._out:
                self._server.loop.call_soon(self.resume)

    def _complete_early(self) -> None:
        """A reply is known before others that it waits for: none of those shall wait without need."""
        known = max((at for at, place in enumerate(self._places) if place.pieces is not None), default=0)
        for place in self._places[:known]:
            if place.pieces is None:
                place.complete_early()

    def _send_alone(self, piece: Buffer) -> None:
        """Send the only reply that is outstanding; the queue is for what the socket does not take."""
        sent = 0
        try:
            sent = self._socket.send(piece)
        except BlockingIOError:
            pass
        except OSError as error:
            self._failed(error)
            return
        if sent != len(piece):
            self._out.append(piece)
            self._sent_of_first = sent
            self._unsent_bytes += len(piece)
            self._set_writer(True)
            self._consider_pausing()

    def _count_unsent(self, pieces: Sequence[Piece]) -> None:
        # From when a reply is known: behind one that is not, it takes as much memory as in the queue.
        for piece in pieces:
            if isinstance(piece, _MEMORY):
                self._unsent_bytes += len(piece)

    def _flush_guarded(self) -> None:
        try:
            self._flush()
        except Exception as error:  # noqa: BLE001 - sorted out in one place
            self._failed(error)

    def _flush(self) -> None:
        out = self._out
        if not out or self.closed:
            return
        budget = SEND_BYTES_PER_TURN
        try:
            while out and budget > 0:
                first = out[0]
                if not isinstance(first, _MEMORY):
                    start = self._sent_of_first
                    sent = os.sendfile(self._fd, first.fileno(), first.position + start, first.length - start)
                    if sent == 0:
                        raise RemoteProtocolError("the log was cut below a range that was being sent")
                elif len(out) == 1:
                    sent = self._socket.send(self._rest_of(first))
                    if sent == len(first):
                        # The usual case: one reply, taken whole.
                        out.clear()
                        self._unsent_bytes -= sent
                        break
                else:
                    sent = self._send_gathered(first)
                budget -= sent
                self._drop_sent(sent)
        except BlockingIOError:
            pass
        if self._writer or out:
            self._set_writer(bool(out))

    def _rest_of(self, first: Buffer) -> Buffer:
        return memoryview(first)[self._sent_of_first :] if self._sent_of_first else first

    def _send_gathered(self, first: Buffer) -> int:
        buffers: list[Buffer] = []
        flags = 0
        for piece in self._out:
            if not isinstance(piece, _MEMORY):
                flags = _MORE
                break
            if len(buffers) == BUFFERS_PER_SEND_MAX:
                break
            buffers.append(piece)
        buffers[0] = self._rest_of(first)
        return self._socket.sendmsg(buffers, (), flags)

    def _drop_sent(self, sent: int) -> None:
        out = self._out
        sent += self._sent_of_first
        while out:
            piece = out[0]
            is_memory = isinstance(piece, _MEMORY)
            length = len(piece) if is_memory else piece.length  # type: ignore[arg-type, union-attr]
            if sent < length:
                break
            sent -= length
            if is_memory:
                self._unsent_bytes -= length
            out.popleft()
        self._sent_of_first = sent

    def _set_writer(self, wanted: bool) -> None:
        if wanted != self._writer:
            self._writer = wanted
            if wanted:
                self._server.loop.add_writer(self._fd, self._on_writable)
            else:
                self._server.loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        self.is_heard = True
        self._flush_guarded()
        if not self.closed and not self._out and self._paused:
            self.resume()

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────────

    def close(self, reason: str, *, level: int = logging.DEBUG) -> None:
        """End the connection; outstanding replies are dropped. Safe to call twice."""
        if self.closed:
            return
        self.closed = True
        loop = self._server.loop
        loop.remove_reader(self._fd)
        loop.remove_writer(self._fd)
        if self._arriving is not None:
            self._server.give_buffer_back(self._arriving, holder=self)
            self._arriving = None
        places, self._places = self._places, []
        self._out.clear()
        self._stash = b""
        repeat_matcher, self.repeat_matcher = self.repeat_matcher, None
        self._socket.close()
        log.log(level, "connection=%r closed reason=%r", self, reason)
        self._server.forget(self)
        for place in places:
            place.abandon()
        if repeat_matcher is not None:
            repeat_matcher.disconnected()

    @property
    def is_idle(self) -> bool:
        """Nothing is being received, worked on or sent."""
        return not self._places and not self._out and self._arriving is None

    @property
    def is_unread(self) -> bool:
        """The client leaves replies unread."""
        return bool(self._out)

    @property
    def is_arriving(self) -> bool:
        """Part of a request has come, and the rest is being waited for."""
        return self.arriving_since > 0.0 and not self._paused
