"""A client's socket under its connection: reads, sends, and watches; what it means is the connection's."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Protocol, assert_never

from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.reply import Buffer, FileRange
from raftlog.broker.core.connection.transport import Fault
from raftlog.broker.server.limited_warnings import LimitedWarnings
from raftlog.broker.server.readiness import Readiness
from raftlog.broker.server.turns import Turns
from raftlog.raft.silent_peers import end_when_silent
from raftlog.wire.errors import InvariantViolation

log = logging.getLogger("raftlog.connection")

# Linux holds the packet back until the file range that follows; elsewhere the flag does not exist.
_MORE: int = getattr(socket, "MSG_MORE", 0)


class Owner(Protocol):
    """Who keeps count of connections."""

    @property
    def turns(self) -> Turns:
        """Of the event loop, which the connections share."""

    @property
    def readiness(self) -> Readiness:
        """Likewise."""

    @property
    def protocol_warnings(self) -> LimitedWarnings:
        """For connections that end by a fault of their peers."""

    def forget(self, connection: Connection) -> None:
        """It was closed."""

    def stop_for(self, error: BaseException) -> None:
        """Stop the broker before it lies."""


class SocketTransport:
    """A Transport on a non-blocking socket. What is written is not kept: who could not send is told when it can."""

    __slots__ = (
        "_address",
        "_connection",
        "_fd",
        "_is_deferred",
        "_is_ending",
        "_is_readable",
        "_is_reading",
        "_is_turn_over",
        "_loop",
        "_owner",
        "_socket",
        "_turns",
        "send",
    )

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._owner = owner
        self._turns = owner.turns
        self._is_turn_over = owner.turns.is_over
        self._connection: Connection | None = None
        self._address = ""
        self._is_reading = False
        # It has something to read, or may have; and the peer has sent its last.
        self._is_readable = self._is_ending = False
        # It waits for a later turn to read.
        self._is_deferred = False
        # Without a function of ours between: it is called for each small reply.
        self.send: Callable[[Buffer], int] = sock.send

    def begin(self, connection: Connection) -> None:
        """Read for it from now on."""
        self._connection = connection
        self._address = connection.peer_host
        self._is_reading = True
        self._owner.readiness.watch(self._fd, self._on_readable)

    def _on_readable(self, ends: int) -> None:
        self._is_readable = True
        if ends:
            self._is_ending = True
        if not self._is_reading or self._is_deferred:
            return
        if self._is_turn_over():
            self._defer()
        else:
            self._read()

    def _read(self) -> None:
        connection = self._connection
        if connection is None:
            return
        buffer = connection.receive_buffer()
        try:
            count = self._socket.recv_into(buffer)
        except BlockingIOError:
            self._is_readable = False
            return
        except OSError as error:
            connection.fail(error)
            return
        # What comes after a read that did not fill the buffer is told of; but an end that has been told is not again.
        self._is_readable = is_more = self._is_ending or count == len(buffer)
        del buffer  # the memory of a large request goes back to its pool
        connection.received(count)
        if is_more and self._is_reading:
            self._defer()

    def _defer(self) -> None:
        """Read in a later turn."""
        if not self._is_deferred and self._connection is not None:
            self._is_deferred = True
            self._turns.later(self._address, self._read_deferred)

    def _read_deferred(self) -> None:
        self._is_deferred = False
        self._on_readable(0)

    def send_gathered(self, buffers: Sequence[Buffer], *, more: bool) -> int:
        """See Transport."""
        return self._socket.sendmsg(buffers, (), _MORE if more else 0)

    def send_file(self, file: FileRange, start: int) -> int:
        """See Transport."""
        return os.sendfile(self._fd, file.fileno(), file.position + start, file.length - start)

    def watch_writable(self, wanted: bool) -> None:
        """See Transport."""
        if wanted and self._connection is not None:
            self._loop.add_writer(self._fd, self._connection.writable)
        else:
            self._loop.remove_writer(self._fd)

    def pause_reading(self) -> None:
        """See Transport."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """See Transport."""
        self._is_reading = True
        if self._is_readable:
            self._defer()

    def end_when_silent(self) -> None:
        """See Transport."""
        end_when_silent(self._socket)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """See Transport."""
        self._turns.later(self._address, callback)

    def bug(self, error: Exception) -> None:
        """See Transport."""
        if isinstance(error, InvariantViolation):
            self._owner.stop_for(error)
        else:
            log.error("connection=%r a bug in serving a request", self._connection, exc_info=error)

    def close(self, reason: str, fault: Fault) -> None:
        """See Transport."""
        connection, self._connection = self._connection, None
        self._owner.readiness.forget(self._fd)
        self._loop.remove_writer(self._fd)
        self._socket.close()
        match fault:
            case Fault.THE_PEERS:
                what = "connection=%r closed by a fault of the peer reason=%r"
                self._owner.protocol_warnings.warn(what, connection, reason)
            case Fault.OURS:
                log.error("connection=%r closed reason=%r", connection, reason)
            case Fault.NOBODYS:
                log.debug("connection=%r closed reason=%r", connection, reason)
            case _:
                assert_never(fault)
        if connection is not None:
            self._owner.forget(connection)
