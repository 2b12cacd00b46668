"""One client's connection as a state machine: bytes in, frames to the dispatcher, replies out in the order of requests.

A transport puts what it reads into `receive_buffer()` and says so with `received`, and takes what it is given to send.
There is no socket here, no event loop and no clock: the broker's transport is `broker/server/transport.py`, the
simulator brings its own.

Requests are parsed where the transport put them: in a buffer shared by all connections, or, for a large request that
arrives in pieces, in a buffer of its own that goes back to a pool. A frame that the dispatcher gets is valid only
during the call. Back-pressure: while replies cannot be sent, or too many are outstanding, the connection is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from mmap import mmap
from struct import Struct
from typing import TypeAlias

from raftlog.broker.core.connection.limits import (
    FRAME_BYTES_MIN,
    INFLIGHT_REQUESTS_PER_CONNECTION_MAX,
    OWN_BUFFER_FROM_BYTES,
    REQUEST_ARRIVAL_SECONDS_MAX,
    UNSENT_BYTES_PER_CONNECTION_MAX,
)
from raftlog.broker.core.connection.reply import Buffer, PendingReply, Piece, RepeatMatcher
from raftlog.broker.core.connection.send_queue import MEMORY, SendQueue
from raftlog.broker.core.connection.server_side import NotYet, ServerSide
from raftlog.broker.core.connection.transport import CLOSED, Fault, Transport, is_unreachable
from raftlog.wire.errors import InvariantViolation, RemoteProtocolError

_SIZE = Struct(">i")

Address: TypeAlias = tuple[str, int]


class Connection:
    """States: open (read or paused), closed. All calls come from one thread.

    Invariants, between two calls:
    - replies leave in the order in which `reply`, `reserve_place` and `add_place` were called, each byte once: the
      first place is one whose reply is not known, and `_queue` holds what was known before it;
    - while something is not sent, nothing is read;
    - `arriving_since` is set exactly when a part of a request is kept, in `_stash` or `_arriving`.
    """

    __slots__ = (
        "_arriving",
        "_arriving_filled",
        "_arriving_size",
        "_corked",
        "_paused",
        "_places",
        "_places_max",
        "_queue",
        "_side",
        "_stash",
        "_transport",
        "arriving_since",
        "closed",
        "is_heard",
        "last_active",
        "listener_name",
        "local_address",
        "on_end",
        "peer_host",
        "peer_port",
        "repeat_matcher",
        "software",
    )

    def __init__(
        self, side: ServerSide, transport: Transport, peer: Address, local: Address, listener_name: str = "PLAINTEXT"
    ) -> None:
        self._side = side
        self._transport = transport
        self.peer_host, self.peer_port = peer
        self.local_address = local
        self.listener_name = listener_name
        self.closed = False
        self.last_active = side.now()
        self.is_heard = False  # something has come or gone since `check_times` last wrote `last_active`
        # Since when an incomplete request is being received, 0.0 when there is none.
        self.arriving_since = 0.0
        # What the client says it is, and its version (KIP-511).
        self.software = ""
        # Asked first about what is received while nothing else is under way.
        self.repeat_matcher: RepeatMatcher | None = None
        # Called once, when the connection has ended.
        self.on_end: Callable[[], None] | None = None
        self._stash = b""
        self._arriving: mmap | None = None
        self._arriving_size = 0
        self._arriving_filled = 0
        # A list: most connections have one place or none, and a deque takes six hundred bytes for that.
        self._places: list[PendingReply] = []
        self._places_max = INFLIGHT_REQUESTS_PER_CONNECTION_MAX
        self._queue = SendQueue(transport)
        self._corked = False
        self._paused = False

    def __repr__(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"

    # ── in ────────────────────────────────────────────────────────────────────────────────────────────────

    def receive_buffer(self) -> memoryview:
        """Where the next bytes belong. Until `received` nothing else may be done with any connection."""
        arriving = self._arriving
        if arriving is not None:
            return memoryview(arriving)[self._arriving_filled : self._arriving_size]
        offered = self._side.memory.offered
        stash = self._stash
        if not stash:
            return offered
        offered[: len(stash)] = stash
        return offered[len(stash) :]

    def received(self, count: int) -> None:
        """So many bytes were put into the receive buffer; none means that the peer has ended the connection."""
        if not count:
            self.close("closed by the client")
            return
        self.is_heard = True
        try:
            if self._arriving is not None:
                self._arrived(self._arriving, count)
            elif self.repeat_matcher is None or not self._is_repeated(self.repeat_matcher, count):
                end = len(self._stash) + count
                if self._stash:
                    self._keep(b"")
                self._consume(end)
        except Exception as error:  # noqa: BLE001 - sorted out in one place
            self.fail(error)

    def _is_repeated(self, matcher: RepeatMatcher, count: int) -> bool:
        """Whether it was the request that the matcher expects, and is served."""
        if self.arriving_since or self._places or self._queue.pieces:
            return False
        place = matcher.serve_repeat(self._side.memory.shared, count)
        if place is None:
            return False
        self._places.append(place)
        return True

    def _arrived(self, buffer: mmap, count: int) -> None:
        """More of the large frame has come."""
        self._arriving_filled += count
        if self._arriving_filled == self._arriving_size:
            self._serve_arrived(buffer)

    @property
    def arrived_bytes(self) -> int:
        """How much of a large frame is in its buffer."""
        return self._arriving_filled if self._arriving is not None else 0

    def lose_memory(self) -> None:
        """The large frame arrives too slowly for the memory that it takes, and others wait for that."""
        if self._arriving_filled == self._arriving_size:
            return  # it waits for its turn
        reason = (
            f"a large request came too slowly, {self.arrived_bytes} bytes so far, while others waited for memory"
            " (queued.max.request.bytes)"
        )
        self.close(reason, fault=Fault.THE_PEERS)

    def _serve_arrived(self, buffer: mmap) -> None:
        """The large frame is whole."""
        self._corked = True
        try:
            with memoryview(buffer) as view, view[_SIZE.size : self._arriving_size] as frame:
                self._side.dispatch(self, frame)
        except NotYet:
            self._pause()
            return
        finally:
            self._corked = False
        self._arriving = None
        self.arriving_since = 0.0
        self._side.memory.give_back(self)
        self._queue.flush()
        self._consider_pausing()

    def _consume(self, end: int) -> None:
        """Serve the whole frames in the first `end` bytes of the shared buffer; keep the rest."""
        side = self._side
        view, dispatch, request_bytes_max = side.memory.shared, side.dispatch, side.request_bytes_max
        position = 0
        size = 0
        is_interrupted = False
        self._corked = True
        try:
            while end - position >= 4:
                (size,) = _SIZE.unpack_from(view, position)
                if not FRAME_BYTES_MIN <= size <= request_bytes_max:
                    self._refuse_size(size)
                stop = position + 4 + size
                is_interrupted = self._at_limit() or (position > 0 and stop <= end and side.is_turn_over())
                if stop > end or is_interrupted:
                    break
                dispatch(self, view[position + 4 : stop])
                if self.closed:
                    return
                position = stop
        except NotYet:
            self._pause()
        finally:
            self._corked = False
        if position == end:
            self.arriving_since = 0.0
        else:
            self._keep_rest(position, end, size)
        if self._queue.pieces:
            self._queue.flush()
        self._consider_pausing()
        if is_interrupted and not self._paused:
            # Nobody else would look at what is kept: others have their turn, or what was in the way has left at once.
            self._pause()
            self._transport.call_soon(self.resume)

    def _refuse_size(self, size: int) -> None:
        raise RemoteProtocolError(
            f"a frame of {size} bytes: requests have {FRAME_BYTES_MIN} to {self._side.request_bytes_max} bytes "
            "(socket.request.max.bytes); is this client speaking Kafka's protocol, without TLS?"
        )

    def _keep_rest(self, position: int, end: int, size: int) -> None:
        """Keep what is not served: part of a frame of `size` bytes, or frames beyond the limit."""
        rest = end - position
        memory = self._side.memory
        if position or not self.arriving_since:
            self.arriving_since = self._side.now()
        if OWN_BUFFER_FROM_BYTES <= rest < size + 4 and not self._at_limit():
            buffer = memory.take(self, size + 4)
            if buffer is not None:
                buffer[:rest] = memory.shared[position:end]
                self._arriving, self._arriving_size, self._arriving_filled = buffer, size + 4, rest
                return
            # Wait, with what has come, for its turn.
            self._pause()
        self._keep(bytes(memory.shared[position:end]))

    def _keep(self, rest: bytes) -> None:
        self._side.memory.keep(len(rest) - len(self._stash))
        self._stash = rest

    def _at_limit(self) -> bool:
        return (
            len(self._places) >= self._places_max
            or self._queue.unsent_bytes > UNSENT_BYTES_PER_CONNECTION_MAX
        )

    def _consider_pausing(self) -> None:
        if not self._paused and (self._queue.pieces or self._at_limit()):
            self._pause()

    def _pause(self) -> None:
        if not self._paused and not self.closed:
            self._paused = True
            self._transport.pause_reading()

    def hold(self) -> None:
        """Look at no further request until `release`: what was asked last must have its effect first."""
        self._places_max = 0
        if not self._corked:
            self._consider_pausing()

    def release(self) -> None:
        """Go on with what was asked meanwhile, in a later turn."""
        self._places_max = INFLIGHT_REQUESTS_PER_CONNECTION_MAX
        if self._paused:
            self._transport.call_soon(self.resume)

    @property
    def later(self) -> Callable[[Callable[[], None]], None]:
        """Calls what it is given in a later turn of this client, even if the connection has ended by then."""
        return self._transport.call_soon

    def resume(self) -> None:
        """Read again if nothing is in the way, beginning with what was kept.

        Never called from inside another connection's turn.
        """
        if self.closed or not self._paused or self._queue.pieces or self._at_limit():
            return
        try:
            self._resume()
        except Exception as error:  # noqa: BLE001 - sorted out in one place
            self.fail(error)

    def _resume(self) -> None:
        self._paused = False
        self._transport.resume_reading()
        if self.arriving_since:
            # While it was not read, the rest could not arrive.
            self.arriving_since = self._side.now()
        arriving = self._arriving
        if arriving is not None and self._arriving_filled == self._arriving_size:
            self._serve_arrived(arriving)
        elif self._stash:
            stash = self._stash
            self._keep(b"")
            self._side.memory.shared[: len(stash)] = stash
            self._consume(len(stash))

    # ── out ───────────────────────────────────────────────────────────────────────────────────────────────

    def reply(self, pieces: Sequence[Piece]) -> None:
        """Send after all replies that are outstanding."""
        queue = self._queue
        queue.count(pieces)
        if self._places:
            place = PendingReply(self)
            place.pieces = pieces
            self._places.append(place)
            self._complete_early()
        else:
            queue.pieces.extend(pieces)
            if not self._corked:
                self._flush_guarded()

    def watch_broker(self, on_end: Callable[[], None]) -> None:
        """Another broker is at the other end: its silence ends the connection, and `on_end` is called then."""
        self.on_end = on_end
        self._transport.end_when_silent()

    @property
    def newest_place(self) -> PendingReply | None:
        """Where the last reply goes that has not left; None when all have."""
        return self._places[-1] if self._places else None

    def call_when_sent(self, callback: Callable[[], None]) -> None:
        """Call it when what `is_unread` has left. Only the last one that is given counts, and none if the connection
        ends before."""
        self._queue.on_empty = callback

    def reserve_place(self) -> PendingReply:
        """A place for a reply that comes later."""
        place = PendingReply(self)
        self._places.append(place)
        return place

    def add_place(self, place: PendingReply) -> None:
        """The same with a place that was made for this connection."""
        self._places.append(place)

    def replace_place(self, place: PendingReply, by: PendingReply) -> None:
        """Another reply comes in this place. Does nothing once the connection has ended."""
        if not self.closed:
            self._places[self._places.index(place)] = by

    def reply_ready(self, pieces: Sequence[Piece]) -> None:
        """A place was filled: send what is now at the head. May be called from any connection's turn."""
        places = self._places
        if len(places) == 1 == len(pieces) and not (self._queue.is_watching or self._corked or self._paused):
            piece = pieces[0]
            if isinstance(piece, MEMORY):
                self._send_alone(piece)
                return
        self._queue.count(pieces)
        if places and places[0].pieces is None:
            self._complete_early()
        while places and (head := places[0].pieces) is not None:
            self._queue.pieces.extend(head)
            del places[0]
        if not self._corked:
            self._flush_guarded()
            if self._paused and not self._queue.pieces:
                self._transport.call_soon(self.resume)

    def _complete_early(self) -> None:
        """A reply is known before others that it waits for: none of those shall wait without need."""
        known = max((at for at, place in enumerate(self._places) if place.pieces is not None), default=0)
        for place in self._places[:known]:
            if place.pieces is None:
                place.complete_early()

    def _send_alone(self, piece: Buffer) -> None:
        """Send the only reply that is outstanding; the queue is for what the transport does not take."""
        self._places.pop()
        sent = 0
        try:
            sent = self._transport.send(piece)
        except BlockingIOError:
            pass
        except OSError as error:
            self.fail(error)
            return
        if sent != len(piece):
            self._queue.keep_unsent(piece, sent)
            self._consider_pausing()

    def _flush_guarded(self) -> None:
        try:
            self._queue.flush()
            self._consider_pausing()
        except Exception as error:  # noqa: BLE001 - sorted out in one place
            self.fail(error)

    def writable(self) -> None:
        """Something can be sent again."""
        self.is_heard = True
        self._flush_guarded()
        if not self._queue.pieces:
            self.resume()

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────────

    def fail(self, error: Exception) -> None:
        """End the connection for what was raised in serving it: the peer's fault, a lost connection, or a bug."""
        if isinstance(error, RemoteProtocolError):
            self._end_for(error)
        elif isinstance(error, ConnectionError | TimeoutError) or is_unreachable(error):
            self.close(f"connection lost: {error.strerror or error}")
        else:
            self._transport.bug(error)
            self.close("internal error, see the trace above", fault=Fault.OURS)

    def _end_for(self, error: RemoteProtocolError) -> None:
        """The peer broke the protocol. What it asked before that, and was answered, it still gets."""
        try:
            self._queue.flush()
        except (OSError, RemoteProtocolError):
            pass
        self.close(str(error), fault=Fault.THE_PEERS)

    def close(self, reason: str, *, fault: Fault = Fault.NOBODYS) -> None:
        """End the connection; outstanding replies are dropped. Safe to call twice."""
        if self.closed:
            return
        self.closed = True
        transport, self._transport = self._transport, CLOSED
        self._queue.transport = CLOSED
        self._arriving = None
        self._side.memory.give_back(self)
        places, self._places = self._places, []
        self._queue.clear()
        self._keep(b"")
        matcher, self.repeat_matcher = self.repeat_matcher, None
        transport.close(reason, fault)
        for place in places:
            place.abandon()
        if matcher is not None:
            matcher.disconnected()
        if self.on_end is not None:
            self.on_end()

    def check_times(self, now: float, idle_seconds_max: float) -> None:
        """End the connection if it takes too long over a request or a reply, or is idle; called now and then.

        `idle_seconds_max` below zero: it may be idle for ever.
        """
        if self.is_heard:
            self.is_heard, self.last_active = False, now
        if self.is_arriving and now - self.arriving_since > REQUEST_ARRIVAL_SECONDS_MAX:
            reason = f"a request did not arrive whole within {REQUEST_ARRIVAL_SECONDS_MAX} s"
            self.close(reason, fault=Fault.THE_PEERS)
        elif idle_seconds_max < 0 or now - self.last_active <= idle_seconds_max:
            return
        elif self.is_idle:
            self.close("idle for longer than connections.max.idle.ms")
        elif self.is_unread:
            reason = "replies lie unread for longer than connections.max.idle.ms"
            self.close(reason, fault=Fault.THE_PEERS)
        elif self._paused:
            # Who is not read could have gone long ago, and nobody would hear of it.
            reason = "as many requests as one may have wait for longer than connections.max.idle.ms"
            self.close(reason, fault=Fault.THE_PEERS)

    @property
    def is_idle(self) -> bool:
        """Nothing is being received, worked on or sent."""
        return not self._places and not self._queue.pieces and self._arriving is None

    @property
    def is_unread(self) -> bool:
        """The client leaves replies unread."""
        return bool(self._queue.pieces)

    @property
    def is_arriving(self) -> bool:
        """Part of a request has come, and the rest is being waited for."""
        return self.arriving_since > 0.0 and not self._paused

    def check_invariants(self) -> None:
        """Raises InvariantViolation. Not to be called while a request is being dispatched."""
        self._queue.check_invariants([piece for place in self._places for piece in place.pieces or ()])
        keeps_part = bool(self._stash) or self._arriving is not None
        if self.closed:
            wrong = {"closed, and something is kept": bool(self._places or self._queue.pieces or keeps_part)}
        else:
            wrong = {
                "the first place is filled, and waits": bool(self._places) and self._places[0].pieces is not None,
                "read though replies are unsent": bool(self._queue.pieces) and not self._paused,
                "read though the limit is reached": self._at_limit() and not self._paused,
                "nobody knows since when a part arrives": keeps_part != (self.arriving_since > 0.0),
            }
        for what, is_so in wrong.items():
            if is_so:
                raise InvariantViolation(f"connection={self!r}: {what}")
