"""The network between simulated hosts: names, listeners and connections, as programs see TCP.

A connection whose other end has no process any more answers with a reset, a host without power with nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from raftlog.linearizability.simulator.machine.links import Links
from raftlog.linearizability.simulator.machine.loop import SimulatedLoop
from raftlog.linearizability.simulator.machine.transport import Endpoint

Address = tuple[str, int]

CONNECT_SECONDS_MAX = 30.0
"""How long a connection is tried before the host gives up."""

SYN_AGAIN_SECONDS = 1.0
"""When a connection's first packet is sent again, as in Linux; then after twice that, and so on."""


class Network:
    """All hosts and listeners. Nodes are numbers; a host name belongs to one node."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self._nodes: dict[str, int] = {}
        self._listeners: dict[Address, SimulatedServer] = {}
        self._endpoints: dict[Endpoint, None] = {}
        self._next_port = 40_000

    # Hosts ---------------------------------------------------------------------------------------

    def add_host(self, name: str, node: int) -> None:
        """Give a node a name to listen on and to be reached at."""
        self._nodes[name] = node

    # Processes -----------------------------------------------------------------------------------------------

    def process_died(self, loop: SimulatedLoop, *, power: bool) -> None:
        """Close what the process had open, as its kernel does, or as a host without power does not."""
        for address in [address for address, server in self._listeners.items() if server.loop is loop]:
            del self._listeners[address]
        for endpoint in [endpoint for endpoint in self._endpoints if endpoint.loop is loop]:
            endpoint.process_died(silent=power)

    def reset_connections(self, a: int, b: int) -> int:
        """Break every connection between two nodes; how many there were."""
        broken = 0
        for endpoint in list(self._endpoints):
            if endpoint.loop.node == a and endpoint.peer is not None and endpoint.peer.loop.node == b:
                endpoint.broken(ConnectionResetError(104, "Connection reset by peer"))
                endpoint.peer.broken(ConnectionResetError(104, "Connection reset by peer"))
                broken += 1
        return broken

    def forget(self, endpoint: Endpoint) -> None:
        """An end that is closed."""
        self._endpoints.pop(endpoint, None)

    # Connections ---------------------------------------------------------------------------------------------

    def listen(self, loop: SimulatedLoop, factory: Callable[[], Any], address: Address) -> SimulatedServer:
        """Accept connections. Raises OSError when the port is taken."""
        host, port = address
        if port == 0:
            self._next_port += 1
            port = self._next_port
        if (host, port) in self._listeners:
            raise OSError(98, f"Address already in use: {host}:{port}")
        server = SimulatedServer(self, loop, factory, (host, port))
        self._listeners[host, port] = server
        return server

    def close_listener(self, server: SimulatedServer) -> None:
        """No more connections."""
        if self._listeners.get(server.address) is server:
            del self._listeners[server.address]

    async def connect(self, loop: SimulatedLoop, factory: Callable[[], Any], address: Address) -> tuple[Any, Any]:
        """A connection to who listens there. Raises OSError."""
        connected: asyncio.Future[Endpoint] = loop.create_future()
        attempt = _Attempt(self, loop, address, connected)
        # A busy process sends its first packet when it has come so far.
        self.links.scheduler.at(loop.time(), attempt.send_syn)
        try:
            endpoint = await connected
        except asyncio.CancelledError:
            attempt.abandon()
            raise
        protocol = factory()
        endpoint.begin(protocol)
        return endpoint, protocol

    def accept(self, client: SimulatedLoop, server: SimulatedServer) -> Endpoint:
        """Make both ends of a connection; the server's process hears of it when it next runs."""
        self._next_port += 1
        here = (f"host{client.node}", self._next_port)
        near = Endpoint(self.links, client, here, server.address, self.forget)
        far = Endpoint(self.links, server.loop, server.address, here, self.forget)
        near.join(far)
        self._endpoints[near] = None
        self._endpoints[far] = None
        server.loop.call_soon(far.begin_with, server.factory)
        return near

    def node_of(self, address: Address) -> int | None:
        """Whose address it is."""
        return self._nodes.get(address[0])

    def listener(self, address: Address) -> SimulatedServer | None:
        """Who listens there."""
        return self._listeners.get(address)


class _Attempt:
    """A connection that is being made."""

    __slots__ = ("address", "client", "connected", "given_up_at", "network", "patience")

    def __init__(
        self, network: Network, client: SimulatedLoop, address: Address, connected: asyncio.Future[Endpoint]
    ) -> None:
        self.network = network
        self.client = client
        self.address = address
        self.connected = connected
        self.given_up_at = network.links.scheduler.now + CONNECT_SECONDS_MAX
        self.patience = SYN_AGAIN_SECONDS

    def send_syn(self) -> None:
        """The first packet goes out, again and again."""
        network, links = self.network, self.network.links
        scheduler = links.scheduler
        if self.connected.done() or self.client.dead:
            return
        node = network.node_of(self.address)
        if node is None:
            self._fail(OSError(113, f"No route to host: {self.address[0]}"))
        elif scheduler.now >= self.given_up_at:
            self._fail(TimeoutError(110, "Connection timed out"))
        elif links.blocked(self.client.node, node) or links.blocked(node, self.client.node):
            scheduler.at(scheduler.now + self.patience, self.send_syn)
            self.patience *= 2
        else:
            delay = links.link(self.client.node, node).delays.draw(links.random)
            scheduler.at(scheduler.now + delay, self._arrive, node)

    def _arrive(self, node: int) -> None:
        if self.connected.done() or self.client.dead:
            return
        network, links = self.network, self.network.links
        back = links.link(node, self.client.node).delays.draw(links.random)
        server = network.listener(self.address)
        when = links.scheduler.now + back
        if node in links.down:
            self.send_syn()
        elif server is None:
            error = ConnectionRefusedError(111, f"Connect call failed {self.address}")
            links.scheduler.at(when, self._fail, error)
        else:
            endpoint = network.accept(self.client, server)
            links.scheduler.at(when, self._established, endpoint)

    def _fail(self, error: OSError) -> None:
        if not self.client.dead:
            self.client.call_soon(_set_exception, self.connected, error)

    def _established(self, endpoint: Endpoint) -> None:
        if self.connected.cancelled() or self.client.dead:
            endpoint.abort()
        else:
            self.client.call_soon(_set_result, self.connected, endpoint)

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        if self.connected.done() and not self.connected.cancelled() and self.connected.exception() is None:
            self.connected.result().abort()


def _set_result(future: asyncio.Future[Endpoint], endpoint: Endpoint) -> None:
    if future.done():
        endpoint.abort()
    else:
        future.set_result(endpoint)


def _set_exception(future: asyncio.Future[Endpoint], error: OSError) -> None:
    if not future.done():
        future.set_exception(error)


class SimulatedServer:
    """What `create_server` returns: an asyncio server as far as anybody uses it."""

    def __init__(
        self, network: Network, loop: SimulatedLoop, factory: Callable[[], Any], address: Address
    ) -> None:
        self._network = network
        self.loop = loop
        self.factory = factory
        self.address = address

    @property
    def sockets(self) -> tuple[SimulatedServer, ...]:
        """Something that knows where it listens."""
        return (self,)

    def getsockname(self) -> Address:
        """Host and port."""
        return self.address

    def is_serving(self) -> bool:
        """Whether connections are accepted."""
        return self._network.listener(self.address) is self

    def close(self) -> None:
        """Accept no more connections; those that are there stay."""
        self._network.close_listener(self)

    async def wait_closed(self) -> None:
        """Closed at once."""

    async def start_serving(self) -> None:
        """Serving from the beginning."""
