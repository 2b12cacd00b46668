"""Replies on their way out: what a transport has not taken yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import EIO

from raftlog.broker.core.connection.limits import BUFFERS_PER_SEND_MAX, SEND_BYTES_PER_TURN
from raftlog.broker.core.connection.reply import Buffer, Piece
from raftlog.broker.core.connection.transport import Transport
from raftlog.wire.errors import InvariantViolation, RemoteProtocolError

MEMORY = (bytes, bytearray, memoryview)
"""What a piece is that is no range of a file."""


class SendQueue:
    """Pieces in order, of the first of which a part may have been sent.

    Invariants, between two calls:
    - each byte is given to the transport once, in order;
    - `unsent_bytes` counts the memory of all replies that are known and not sent, those that wait for earlier ones too;
    - the transport is watched exactly while there are pieces.
    """

    __slots__ = ("_sent_of_first", "is_watching", "on_empty", "pieces", "transport", "unsent_bytes")

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        # A list: most connections have one piece or none, and a deque takes six hundred bytes for that.
        self.pieces: list[Piece] = []
        self.unsent_bytes = 0
        self.is_watching = False
        # Called once, when what was kept for want of room at the transport has left.
        self.on_empty: Callable[[], None] | None = None
        self._sent_of_first = 0

    def count(self, pieces: Sequence[Piece]) -> None:
        """A reply is known: behind one that is not, it takes as much memory as in the queue."""
        for piece in pieces:
            if isinstance(piece, MEMORY):
                self.unsent_bytes += len(piece)

    def keep_unsent(self, piece: Buffer, sent: int) -> None:
        """Take up, as the only one, a piece that was not counted and of which `sent` bytes are sent."""
        self.pieces.append(piece)
        self._sent_of_first = sent
        self.unsent_bytes += len(piece)
        self._watch(True)

    def flush(self) -> None:
        """Send what can be sent now, at most SEND_BYTES_PER_TURN. Raises OSError when the peer is gone, and
        RemoteProtocolError when a file ends before its range."""
        if not self.pieces:
            return
        budget = SEND_BYTES_PER_TURN
        try:
            while self.pieces and budget > 0:
                budget -= self._send_first()
        except BlockingIOError:
            pass
        if self.is_watching or self.pieces:
            self._watch(bool(self.pieces))

    def _send_first(self) -> int:
        """Send as much of what is next as one call takes; how many bytes."""
        pieces = self.pieces
        first = pieces[0]
        if not isinstance(first, MEMORY):
            try:
                sent = self.transport.send_file(first, self._sent_of_first)
            except OSError as error:
                if error.errno != EIO:
                    raise
                # Of the file, not of the socket; the peer asks again.
                first.failed(error)
                raise ConnectionAbortedError(EIO, f"what was asked for cannot be read: {error.strerror}") from error
            if sent == 0:
                raise RemoteProtocolError("the log was cut below a range that was being sent")
        elif len(pieces) == 1:
            sent = self.transport.send(self._rest_of(first))
            if sent == len(first):
                # The usual case: one reply, taken whole.
                pieces.clear()
                self.unsent_bytes -= sent
                return sent
        else:
            sent = self._send_gathered(first)
        self._drop_sent(sent)
        return sent

    def _rest_of(self, first: Buffer) -> Buffer:
        return memoryview(first)[self._sent_of_first :] if self._sent_of_first else first

    def _send_gathered(self, first: Buffer) -> int:
        buffers: list[Buffer] = []
        more = False
        for piece in self.pieces:
            if not isinstance(piece, MEMORY):
                more = True
                break
            if len(buffers) == BUFFERS_PER_SEND_MAX:
                break
            buffers.append(piece)
        buffers[0] = self._rest_of(first)
        return self.transport.send_gathered(buffers, more=more)

    def _drop_sent(self, sent: int) -> None:
        sent += self._sent_of_first
        whole = 0
        for piece in self.pieces:
            is_memory = isinstance(piece, MEMORY)
            length = len(piece) if is_memory else piece.length  # type: ignore[arg-type, union-attr]
            if sent < length:
                break
            sent -= length
            if is_memory:
                self.unsent_bytes -= length
            whole += 1
        del self.pieces[:whole]
        self._sent_of_first = sent

    def _watch(self, wanted: bool) -> None:
        if wanted != self.is_watching:
            self.is_watching = wanted
            self.transport.watch_writable(wanted)
            if self.on_empty is not None and not wanted:
                on_empty, self.on_empty = self.on_empty, None
                on_empty()

    def clear(self) -> None:
        """Nothing more is sent."""
        self.pieces.clear()
        self.unsent_bytes = 0
        self.is_watching = False
        self.on_empty = None

    def check_invariants(self, waiting: Sequence[Piece]) -> None:
        """Raises InvariantViolation. `waiting`: what was counted and is not in the queue."""
        unsent = sum(len(piece) for piece in (*self.pieces, *waiting) if isinstance(piece, MEMORY))
        if unsent != self.unsent_bytes:
            raise InvariantViolation(f"{unsent} bytes are unsent, and {self.unsent_bytes} counted")
        if bool(self.pieces) != self.is_watching:
            raise InvariantViolation(f"{len(self.pieces)} pieces are unsent, is_watching={self.is_watching}")
