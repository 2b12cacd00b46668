"""Listening sockets and the connections that came through them."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterable

from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.memory import ReceiveMemory
from raftlog.broker.core.connection.server_side import Dispatch, ServerSide
from raftlog.broker.core.connection_rate import ConnectionRates
from raftlog.broker.server.limited_warnings import LimitedWarnings
from raftlog.broker.server.limits import ACCEPT_BACKLOG_MIN, ACCEPTS_PER_TURN, ServerLimits
from raftlog.broker.server.readiness import Readiness
from raftlog.broker.server.transport import SocketTransport
from raftlog.broker.server.turns import Turns
from raftlog.broker.server.unheard_ends import UnheardEnds

log = logging.getLogger("raftlog.server")

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
        self.memory = ReceiveMemory(loop.call_soon, loop.call_later, loop.time, limits.arriving_bytes_max)
        self.turns = Turns(loop.call_soon)
        self.readiness = Readiness(loop, self.turns)
        self.side = ServerSide(dispatch, self.memory, loop.time, limits.request_bytes_max, self.turns.is_over)
        self.connections: dict[Connection, socket.socket] = {}
        self.unheard_ends = UnheardEnds()
        self.on_fatal: Callable[[BaseException], None] | None = None
        self.rates = ConnectionRates()
        self._listeners: dict[socket.socket, str] = {}
        # Connections that came too soon, each with what lets it in; their listeners let in nobody meanwhile.
        self._held: dict[socket.socket, tuple[socket.socket, asyncio.TimerHandle]] = {}
        self._per_address: Counter[str] = Counter()
        self.accepted = self.refused = 0
        self._refused_last_told: dict[str, float] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        rest = "%d more connections were closed within a minute for what their peers sent"
        self.protocol_warnings = LimitedWarnings(logging.getLogger("raftlog.connection"), rest, loop.time)

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
            wait_ms = self.rates.accepted(self._listeners[listener], int(self.side.now() * 1000))
            if wait_ms:
                self.loop.remove_reader(listener.fileno())
                timer = self.loop.call_later(wait_ms / 1000, self._admit_held, listener, peer)
                self._held[listener] = sock, timer
                return
            self._admit(sock, peer, self._listeners[listener])

    def _admit_held(self, listener: socket.socket, peer: tuple[str, int]) -> None:
        sock, _ = self._held.pop(listener)
        self._admit(sock, peer, self._listeners[listener])
        self._listen_again(listener)

    def _admit(self, sock: socket.socket, peer: tuple[str, int], name: str) -> None:
        """Serve the connection, unless there are too many."""
        host = _plain(peer[0])
        self.unheard_ends.keep_at_most(max(self.limits.descriptors - len(self.connections) - 1, 0))
        refusal = self._refusal(host)
        if refusal:
            sock.close()
            self.refused += 1
            self._tell_refusal(host, refusal)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A client whose machine vanished is noticed though it never says good-bye.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        local = sock.getsockname()
        self._per_address[host] += 1
        transport = SocketTransport(sock, self.loop, self)
        connection = Connection(self.side, transport, (host, peer[1]), (_plain(local[0]), local[1]), name)
        self.connections[connection] = sock
        self.accepted += 1
        transport.begin(connection)

    def _begin_again(self, listener: socket.socket) -> None:
        """The watchdog has shut it down, because this process stood still (`runtime/watchdog.py`)."""
        try:
            listener.listen(max(self.limits.backlog, ACCEPT_BACKLOG_MIN))
        except OSError as error:
            log.error("cannot listen on %s any more: %s; restart the broker", listener.getsockname(), error.strerror)
            self.loop.remove_reader(listener.fileno())
        else:
            log.warning("this process stood still, and its clients were disconnected; listening again")

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
        if self.side.now() - self._refused_last_told.get(host, -1e9) >= 1.0:
            if len(self._refused_last_told) > 1_000:
                self._refused_last_told.clear()
            self._refused_last_told[host] = self.side.now()
            log.warning("client=%s refused reason=%r", host, refusal)

    def forget(self, connection: Connection) -> None:
        """A connection was closed."""
        if self.connections.pop(connection, None) is not None:
            self._per_address[connection.peer_host] -= 1
            if self._per_address[connection.peer_host] == 0:
                del self._per_address[connection.peer_host]

    def stop_for(self, error: BaseException) -> None:
        """A bug of ours: stop the broker before it lies."""
        log.critical("stopping: %s", error, exc_info=error)
        if self.on_fatal is not None:
            self.on_fatal(error)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────

    def _sweep(self) -> None:
        now = self.side.now()
        for connection in list(self.connections):
            connection.check_times(now, self.limits.idle_ms_max / 1000)
        self.unheard_ends.look(now)
        self.protocol_warnings.look()
        self._sweeper = self.loop.call_later(_SWEEP_SECONDS, self._sweep)

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────────

    def disconnect(self, connections: Iterable[Connection], reason: str) -> None:
        """End these; `unheard_ends` keeps the sockets."""
        for connection in connections:
            sock = self.connections.get(connection)
            if sock is None:
                continue  # ended by the end of another
            try:
                kept = sock.dup()
            except OSError:  # no descriptor is left: this client is told once
                connection.close(reason)
            else:
                connection.close(reason)
                self.unheard_ends.end(kept, self.side.now())

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections go on."""
        for listener in self._listeners:
            self.loop.remove_reader(listener.fileno())
            listener.close()
        self._listeners.clear()
        for sock, timer in self._held.values():
            timer.cancel()
            sock.close()
        self._held.clear()

    async def drain(self, seconds_max: float) -> None:
        """Wait, within a bound, until no connection has a reply outstanding."""
        deadline = self.side.now() + seconds_max
        while self.side.now() < deadline and not all(connection.is_idle for connection in self.connections):
            await asyncio.sleep(0.005)

    def close(self) -> None:
        """Close everything."""
        self.stop_accepting()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.close("the broker stops")
        self.unheard_ends.keep_at_most(0)
        self.readiness.close()
