"""What is sent back on a connection: memory buffers and ranges of files, in the order of the requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Protocol, TypeAlias


class FileRange(Protocol):
    """A range of a segment file that stays readable until it is dropped. `position` and `length` in bytes."""

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...

    def fileno(self) -> int: ...

    def failed(self, error: OSError) -> None:
        """The disk has not given it: the log that it is from hears of it when it is read next."""


Buffer: TypeAlias = bytes | bytearray | memoryview
Piece: TypeAlias = Buffer | FileRange

_PREFIX = Struct(">ii")


def frame(correlation_id: int, body: Buffer, *, flexible: bool) -> list[Piece]:
    """A whole response around an encoded body; the flexible header (v1) ends in an empty tag section."""
    if flexible:
        return [_PREFIX.pack(len(body) + 5, correlation_id) + b"\x00" + body]
    return [_PREFIX.pack(len(body) + 4, correlation_id) + body]


class ReplySink(Protocol):
    """The connection, as a pending reply sees it."""

    def reply_ready(self, pieces: Sequence[Piece]) -> None: ...


class RepeatMatcher(Protocol):
    """Who knows what request its connection will probably bring next."""

    def serve_repeat(self, received: memoryview, count: int) -> PendingReply | None:
        """Serve what was received, `count` bytes, if it is that one request; gives the place of the reply, which comes
        later. Otherwise nothing is changed, and None."""

    def disconnected(self) -> None:
        """The connection has ended."""


class PendingReply:
    """The place of a reply that is not there yet; later replies of the connection wait behind it.

    `pieces` is None until the reply is known; an empty one means that the request gets no reply. Who has to forget
    something when the connection goes away before extends `abandon`, who waits without need extends `complete_early`.
    """

    __slots__ = ("_connection", "pieces")

    def __init__(self, connection: ReplySink) -> None:
        self._connection: ReplySink | None = connection
        self.pieces: Sequence[Piece] | None = None

    def complete(self, pieces: Sequence[Piece]) -> None:
        """Fill the place; it is sent as soon as all earlier replies are. Later calls do nothing."""
        connection = self._connection
        if connection is None or self.pieces is not None:
            return
        self.pieces = pieces
        connection.reply_ready(pieces)

    def watch(self, sink: ReplySink) -> ReplySink | None:
        """Let `sink` be told in place of the one that it is given, which it has to tell in turn; None, and nothing is
        changed, if nobody waits any more."""
        connection = self._connection
        if connection is not None and self.pieces is None:
            self._connection = sink
            return connection
        return None

    def unwatch(self, sink: ReplySink) -> None:
        """Tell this one again."""
        self._connection = sink

    def complete_early(self) -> None:
        """A later reply is known and waits behind this one. Who only waits for more to say answers now."""

    def abandon(self) -> None:
        """The connection is gone: a late completion does nothing."""
        self._connection = None


class EarlyReply(PendingReply):
    """One that waits for more to say."""

    __slots__ = ("_when_early",)

    def __init__(self, connection: ReplySink, when_early: Callable[[], None]) -> None:
        """`when_early` completes it."""
        super().__init__(connection)
        self._when_early = when_early

    def complete_early(self) -> None:
        """See PendingReply."""
        self._when_early()
