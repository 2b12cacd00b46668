"""The network between simulated hosts: TCP as programs see it, with delays, losses, cuts and dead ends.

A link is one direction between two nodes. What is lost on it is sent again by TCP, so a program sees a late byte, a
stalled connection or, after long, a broken one; never a missing or a swapped byte. A cut link holds everything back
until it heals. A connection whose other end has no process any more answers with a reset, a host without power
with nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from zlib import crc32

from raftlog.linearizability.simulator.loop import Scheduler, SimulatedLoop
from raftlog.linearizability.simulator.trace import Trace
from raftlog.linearizability.simulator.transport import Endpoint, Pipe

Address = tuple[str, int]

CONNECT_SECONDS_MAX = 30.0
"""How long a connection is tried before the host gives up."""

SYN_AGAIN_SECONDS = 1.0
"""When a connection's first packet is sent again, as in Linux; then after twice that, and so on."""


@dataclass(slots=True)
class Delays:
    """What a link does to what it carries; seconds and probabilities.

    Nearly all takes between `low` and `high`, most of it near `low`; with probability `lost` it is lost and sent
    again after `again`; with probability `split` a piece arrives in two.
    """

    low: float = 0.000_05
    high: float = 0.000_5
    lost: float = 0.0
    again: float = 0.2
    split: float = 0.02

    def draw(self, random: Random) -> float:
        """How long one piece takes."""
        delay = self.low + (self.high - self.low) * random.random() ** 3
        while self.lost and random.random() < self.lost:
            delay += self.again * (0.5 + random.random())
        return delay


@dataclass(slots=True)
class Link:
    """One direction between two nodes."""

    delays: Delays
    cut_since: float | None = None
    stalled: list[Pipe] = field(default_factory=list)


class Network:
    """All links and listeners. Nodes are numbers; a host name belongs to one node.

    `down` holds nodes without power. `on_bytes(from, to, bytes)` sees everything that is sent.
    """

    def __init__(self, scheduler: Scheduler, random: Random, trace: Trace, delays: Delays) -> None:
        self.scheduler = scheduler
        self.random = random
        self.trace = trace
        self.delays = delays
        self.links: dict[tuple[int, int], Link] = {}
        self.down: dict[int, bool] = {}
        self.unacknowledged_seconds_max = 10.0
        self.connections = 0
        self.bytes_sent = 0
        self._nodes: dict[str, int] = {}
        self._listeners: dict[Address, SimulatedServer] = {}
        self._endpoints: dict[Endpoint, None] = {}
        self._next_port = 40_000

    # Hosts and links ---------------------------------------------------------------------------------------

    def add_host(self, name: str, node: int) -> None:
        """Give a node a name to listen on and to be reached at."""
        self._nodes[name] = node

    def link(self, source: int, target: int) -> Link:
        """The link from one node to another."""
        found = self.links.get((source, target))
        if found is None:
            found = self.links[source, target] = Link(self.delays)
        return found

    def cut(self, source: int, target: int) -> None:
        """Let nothing through from one node to another; the other direction is a link of its own."""
        link = self.link(source, target)
        if link.cut_since is None:
            link.cut_since = self.scheduler.now

    def heal(self, source: int, target: int) -> None:
        """What was held back arrives as TCP sends it again."""
        link = self.link(source, target)
        if link.cut_since is None:
            return
        lasted = self.scheduler.now - link.cut_since
        link.cut_since = None
        self._resend(link, lasted)

    def heal_all(self) -> None:
        """No link is cut any more."""
        for source, target in sorted(self.links):
            self.heal(source, target)

    def _resend(self, link: Link, lasted: float) -> None:
        stalled, link.stalled = link.stalled, []
        for pipe in stalled:
            # TCP doubles its patience with each try: the longer it lasted, the later it notices that all is well.
            pipe.resume(self.scheduler.now + self.random.random() * min(max(lasted, 0.2), 3.0))

    def power(self, node: int, *, on: bool) -> None:
        """A host without power neither sends nor answers; with it again, it answers old connections with resets."""
        if not on:
            self.down[node] = True
            return
        self.down.pop(node, None)
        for (_, target), link in sorted(self.links.items()):
            if target == node and link.cut_since is None:
                self._resend(link, 1.0)

    def blocked(self, source: int, target: int) -> bool:
        """Whether nothing comes through just now."""
        if target in self.down or source in self.down:
            return True
        link = self.links.get((source, target))
        return link is not None and link.cut_since is not None

    def sent(self, source: int, target: int, data: bytes) -> None:
        """Note what is sent."""
        self.bytes_sent += len(data)
        self.trace.add(self.scheduler.now, "send", source, target, len(data), crc32(data))

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
        self.scheduler.at(loop.time(), attempt.send_syn)
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
        self.connections += 1
        self._next_port += 1
        here = (f"host{client.node}", self._next_port)
        near = Endpoint(self, client, here, server.address)
        far = Endpoint(self, server.loop, server.address, here)
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
        self.given_up_at = network.scheduler.now + CONNECT_SECONDS_MAX
        self.patience = SYN_AGAIN_SECONDS

    def send_syn(self) -> None:
        """The first packet goes out, again and again."""
        network, scheduler = self.network, self.network.scheduler
        if self.connected.done() or self.client.dead:
            return
        node = network.node_of(self.address)
        if node is None:
            self._fail(OSError(113, f"No route to host: {self.address[0]}"))
        elif scheduler.now >= self.given_up_at:
            self._fail(TimeoutError(110, "Connection timed out"))
        elif network.blocked(self.client.node, node) or network.blocked(node, self.client.node):
            scheduler.at(scheduler.now + self.patience, self.send_syn)
            self.patience *= 2
        else:
            delay = network.link(self.client.node, node).delays.draw(network.random)
            scheduler.at(scheduler.now + delay, self._arrive, node)

    def _arrive(self, node: int) -> None:
        if self.connected.done() or self.client.dead:
            return
        network = self.network
        back = network.link(node, self.client.node).delays.draw(network.random)
        server = network.listener(self.address)
        when = network.scheduler.now + back
        if node in network.down:
            self.send_syn()
        elif server is None:
            error = ConnectionRefusedError(111, f"Connect call failed {self.address}")
            network.scheduler.at(when, self._fail, error)
        else:
            endpoint = network.accept(self.client, server)
            network.scheduler.at(when, self._established, endpoint)

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
