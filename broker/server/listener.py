"""Listening sockets and the connections that came through them."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import TypeAlias

from raftlog.broker.server.connection import Connection
from raftlog.broker.server.limits import (
    ACCEPT_BACKLOG_MIN,
    ACCEPTS_PER_TURN,
    ARRIVING_BYTES_MAX,
    RECEIVE_BUFFER_BYTES,
    REQUEST_ARRIVAL_SECONDS_MAX,
    SPARE_BUFFER_BYTES_MAX,
    ServerLimits,
)

log = logging.getLogger("raftlog.server")

Dispatch: TypeAlias = Callable[[Connection, memoryview], None]

_SWEEP_SECONDS = 5.0
_ACCEPT_PAUSE_SECONDS = 0.1

_IPV4_IN_IPV6 = "::ffff:"
_ALL_OF_IPV4 = "0.0.0.0"
_ALL_OF_BOTH = "::"


def _plain(host: str) -> str:
    """An address as who has it knows it: a listener on all addresses of IPv6 takes those of IPv4, too."""
    return host.removeprefix(_IPV4_IN_IPV6) if "." in host else host


class Server:
    """All listeners of a broker and their connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: ServerLimits, dispatch: Dispatch) -> None:
        self.loop = loop
        self.limits = limits
        self.dispatch = dispatch
        self.now = loop.time
        self.receive_view = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.connections: dict[Connection, None] = {}
        self.on_fatal: Callable[[BaseException], None] | None = None
        self._listeners: dict[socket.socket, str] = {}
        self._per_address: Counter[str] = Counter()
        self._refused_last_told: dict[str, float] = {}
        self._arriving_bytes = 0
        # The one connection that was given memory beyond ARRIVING_BYTES_MAX.
        self._over_bound: Connection | None = None
        self._spare: dict[int, list[bytearray]] = {}
        self._spare_bytes = 0
        self._waiting_for_buffer: deque[Connection] = deque()
        self._sweeper: asyncio.TimerHandle | None = None

    # ── listening ─────────────────────────────────────────────────────────────────────────────────────────

    def listen(self, host: str, port: int, name: str = "PLAINTEXT") -> tuple[str, int]:
        """Bind and accept as the listener `name`; port 0 lets the system choose. Returns the bound address.

        Raises OSError with what to do about it when the address cannot be bound.
        """
        address = self.bind(host, port, name)
        self.accept()
        return address

    def bind(self, host: str, port: int, name: str = "PLAINTEXT") -> tuple[str, int]:
        """The same without accepting: who connects has to wait until `accept`.

        No host: all addresses of this machine, those of IPv6 too where the system has it.
        """
        host = host or (_ALL_OF_BOTH if socket.has_dualstack_ipv6() else _ALL_OF_IPV4)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == _ALL_OF_BOTH:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            listener.bind((host, port))
            listener.listen(max(self.limits.backlog, ACCEPT_BACKLOG_MIN))
        except OSError as error:
            listener.close()
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
        self._listeners[listener] = name
        bound = listener.getsockname()
        return bound[0], bound[1]

    def accept(self) -> None:
        """Let in who connects, on all that is bound."""
        for listener in self._listeners:
            self.loop.add_reader(listener.fileno(), self._accept, listener)
        if self._sweeper is None:
            self._sweeper = self.loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, peer = listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:
                if error.errno == errno.EINVAL:
                    self._begin_again(listener)
                    return
                # Out of descriptors: leave the client in the backlog instead of spinning on it.
                log.error("cannot accept a connection: %s; raise the limit of open files", error.strerror)
                self.loop.remove_reader(listener.fileno())
                self.loop.call_later(_ACCEPT_PAUSE_SECONDS, self._listen_again, listener)
                return
            host = _plain(peer[0])
            refusal = self._refusal(host)
            if refusal:
                sock.close()
                self._tell_refusal(host, refusal)
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A client whose machine vanished is noticed though it never says good-bye.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            local = sock.getsockname()
            self._per_address[host] += 1
            connection = Connection(sock, (host, peer[1]), (_plain(local[0]), local[1]), self)
            connection.listener_name = self._listeners[listener]
            self.connections[connection] = None

    def _begin_again(self, listener: socket.socket) -> None:
        """The watchdog has shut it down, because this process stood still (`runtime/watchdog.py`)."""
        try:
            listener.listen(max(self.limits.backlog, ACCEPT_BACKLOG_MIN))
        except OSError as error:
            log.error("cannot listen on %s any more: %s; restart the broker", listener.getsockname(), error.strerror)
            self.loop.remove_reader(listener.fileno())
        else:
            log.warning("this process stood still, and its clients were let go; listening again")

    def _listen_again(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self.loop.add_reader(listener.fileno(), self._accept, listener)

    def _refusal(self, host: str) -> str | None:
        if len(self.connections) >= self.limits.connections_max:
            return f"{len(self.connections)} connections are open, the limit max.connections"
        if len(self.connections) >= self.limits.descriptors:
            return f"{len(self.connections)} connections are open, all that the limit of open files has room for"
        limit = self.limits.connections_by_address.get(host, self.limits.connections_per_address_max)
        if self._per_address[host] >= limit:
            return f"{self._per_address[host]} connections from it are open, the limit max.connections.per.ip"
        return None

    def _tell_refusal(self, host: str, refusal: str) -> None:
        # Once a second and address: a client in a tight loop must not fill the disk with log lines.
        if self.now() - self._refused_last_told.get(host, -1e9) >= 1.0:
            if len(self._refused_last_told) > 1_000:
                self._refused_last_told.clear()
            self._refused_last_told[host] = self.now()
            log.warning("client=%s refused reason=%r", host, refusal)

    def forget(self, connection: Connection) -> None:
        """A connection was closed."""
        if self.connections.pop(connection, connection) is None:
            self._per_address[connection.peer_host] -= 1
            if self._per_address[connection.peer_host] == 0:
                del self._per_address[connection.peer_host]

    def stop_for(self, error: BaseException) -> None:
        """A bug of ours: stop the broker before it lies."""
        log.critical("stopping: %s", error, exc_info=error)
        if self.on_fatal is not None:
            self.on_fatal(error)

    # ── memory for large requests ─────────────────────────────────────────────────────────────────────────

    def take_buffer(self, holder: Connection, size: int) -> bytearray | None:
        """A buffer of at least `size` bytes for a request of `holder`, or None while ARRIVING_BYTES_MAX is used up."""
        capacity = 1 << (size - 1).bit_length()
        if self._arriving_bytes + capacity > ARRIVING_BYTES_MAX:
            # One request may always arrive, or half-arrived ones could wait for each other.
            if self._over_bound not in (None, holder):
                return None
            self._over_bound = holder
        self._arriving_bytes += capacity
        spare = self._spare.get(capacity)
        if spare:
            self._spare_bytes -= capacity
            return spare.pop()
        return bytearray(capacity)

    def give_buffer_back(self, buffer: bytearray, holder: Connection | None = None) -> None:
        """The buffer is free; who waits for memory goes on in a later turn of the loop.

        `holder` is given when its request was served or given up, and not moved to a larger buffer.
        """
        self._arriving_bytes -= len(buffer)
        if holder is not None and holder is self._over_bound:
            self._over_bound = None
        if self._spare_bytes + len(buffer) <= SPARE_BUFFER_BYTES_MAX:
            self._spare.setdefault(len(buffer), []).append(buffer)
            self._spare_bytes += len(buffer)
        while self._waiting_for_buffer:
            self.loop.call_soon(self._waiting_for_buffer.popleft().resume)

    def wait_for_buffer(self, connection: Connection) -> None:
        """Resume `connection` when memory was given back."""
        self._waiting_for_buffer.append(connection)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────

    def _sweep(self) -> None:
        now = self.now()
        idle_max = self.limits.idle_ms_max / 1000
        for connection in list(self.connections):
            if connection.is_heard:
                connection.is_heard, connection.last_active = False, now
            if connection.is_arriving and now - connection.arriving_since > REQUEST_ARRIVAL_SECONDS_MAX:
                connection.close(
                    f"a request did not arrive whole within {REQUEST_ARRIVAL_SECONDS_MAX} s", level=logging.WARNING
                )
            elif idle_max < 0 or now - connection.last_active <= idle_max:
                continue
            elif connection.is_idle:
                connection.close("idle for longer than connections.max.idle.ms")
            elif connection.is_unread:
                connection.close("replies lie unread for longer than connections.max.idle.ms", level=logging.WARNING)
        self._sweeper = self.loop.call_later(_SWEEP_SECONDS, self._sweep)

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────────

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections go on."""
        for listener in self._listeners:
            self.loop.remove_reader(listener.fileno())
            listener.close()
        self._listeners.clear()

    async def drain(self, seconds_max: float) -> None:
        """Wait, within a bound, until no connection has a reply outstanding."""
        deadline = self.now() + seconds_max
        while self.now() < deadline and not all(connection.is_idle for connection in self.connections):
            await asyncio.sleep(0.005)

    def close(self) -> None:
        """Close everything."""
        self.stop_accepting()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.close("the broker stops")
