"""Connections to all peers: who calls whom, one connection a pair, back within milliseconds when it was lost.

Every node calls every voter that it is not connected with; when both call at once, the call of the higher node id
stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import select
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from raftlog.raft.channel import Channel, Kind
from raftlog.raft.core.errors import PeerViolation
from raftlog.raft.core.ids import NodeId
from raftlog.raft.handshake import NOT_ASKED, Hello, refusal

logger = logging.getLogger("raftlog.raft")

ENDED = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
"""What the kernel says of a socket whose other end is gone."""

RETRY_SECONDS = 0.05
"""A peer that was restarted is back this soon; on one host a refused call costs next to nothing."""
REFUSED_RETRY_SECONDS = 1.0
"""Who was refused waits for a person to correct something."""
HANG_UPS_MAX = 3
"""Who hangs up so often without a word is no peer, but a listener for clients perhaps, which logs every call."""
CALL_SECONDS_MAX = 1.0
CALL_AGAIN_SECONDS = 0.25
"""Who has not answered a call by then is called once more beside: a first packet that was lost is sent again after 1, 3
and 7 s only."""
GREETING_SECONDS_MAX = 3.0
PING_SECONDS = 0.5
DEAD_SECONDS = 4.0
"""A connection over which nothing came for so long leads nowhere: every node says something every PING_SECONDS."""
FRESH_SECONDS = 1.0
"""Two calls within this time are taken for calls at once."""
STRANGERS_MAX = 64
"""Connections that others made and that have not greeted yet."""
PEERS_MAX = 1000
"""Connected nodes, observers included."""
COMPLAINTS_MAX = 100
"""Different complaints that are remembered, so that each is logged once."""

Address = tuple[str, int]


class TransportEvents(Protocol):
    """Who is told what happens."""

    def own_hello(self, to: int) -> Hello:
        """What this node says of itself."""

    def peer_connected(self, node_id: NodeId, hello: Hello) -> None:
        """A connection was made and both sides agree to talk."""

    def peer_lost(self, node_id: NodeId) -> None:
        """It is gone."""

    def peer_frame(self, node_id: NodeId, kind: int, values: Sequence[Any]) -> None:
        """A frame came. May raise PeerViolation."""


class PeerTransport:
    """See the module.

    Invariants: `peer_connected` and `peer_lost` alternate for each node; a frame comes only from a connected node.
    """

    def __init__(self, events: TransportEvents, rng: random.Random, now: Callable[[], float]) -> None:
        """`now`: a steady clock in seconds."""
        self._events = events
        self._rng = rng
        self._now = now
        self._server: asyncio.Server | None = None
        self._channels: dict[int, Channel] = {}
        self._strangers: dict[Channel, asyncio.Future[None]] = {}
        self._targets: dict[int, tuple[Address, ...]] = {}
        self._callers: dict[int, asyncio.Task[None]] = {}
        self._missing: dict[int, asyncio.Event] = {}
        self._complaints: dict[str, None] = {}
        self._care: asyncio.TimerHandle | None = None
        self._closed = True  # until `start`
        self.refusals: dict[int, str] = {}
        """Why a voter would not talk, as it or this node said."""
        self._failures: dict[int, str] = {}
        self.port = -1

    # -- life --------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> None:
        """Take calls from others. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Channel(self), host, port)
        self.port = self._server.sockets[0].getsockname()[1] if self._server.sockets else port

    def start(self) -> None:
        """Talk to others from now on."""
        self._closed = False
        self._look_after()

    def _look_after(self) -> None:
        now = self._now()
        for channel in list(self._channels.values()):
            if now - channel.heard_at > DEAD_SECONDS:
                channel.close(f"nothing was heard for {DEAD_SECONDS:.0f} s", at_once=True)
            else:
                channel.send(Kind.PING)
        for channel in list(self._strangers):
            if now - channel.heard_at > GREETING_SECONDS_MAX:
                channel.close("no greeting came", at_once=True)
        self._care = asyncio.get_running_loop().call_later(PING_SECONDS, self._look_after)

    async def close(self) -> None:
        """Hang up everywhere."""
        self._closed = True
        if self._care is not None:
            self._care.cancel()
        callers = list(self._callers.values())
        for caller in callers:
            caller.cancel()
        if self._server is not None:
            self._server.close()
        for channel in [*self._channels.values(), *self._strangers]:
            channel.close("this node stops")
        if callers:
            await asyncio.wait(callers)

    # -- who is called -----------------------------------------------------------------------------

    def call(self, targets: Mapping[int, tuple[Address, ...]]) -> None:
        """Keep connections to these nodes, at one of the addresses of each."""
        if self._closed:
            return
        for node_id in [node_id for node_id in self._callers if node_id not in targets]:
            self._callers.pop(node_id).cancel()
            del self._missing[node_id]
        self._targets = dict(sorted(targets.items()))
        loop = asyncio.get_running_loop()
        for node_id in self._targets:
            if node_id not in self._callers:
                missing = self._missing[node_id] = asyncio.Event()
                if node_id not in self._channels:
                    missing.set()
                self._callers[node_id] = loop.create_task(self._keep_calling(node_id, missing))

    async def _keep_calling(self, node_id: int, missing: asyncio.Event) -> None:
        attempt = hang_ups = 0
        while True:
            await missing.wait()
            addresses = self._targets[node_id]
            self.refusals.pop(node_id, None)
            answered = await self._call_once(node_id, addresses[attempt % len(addresses)])
            attempt += 1
            if missing.is_set():
                hang_ups = hang_ups + 1 if answered else 0
                unwanted = node_id in self.refusals or hang_ups >= HANG_UPS_MAX
                pause = REFUSED_RETRY_SECONDS if unwanted else RETRY_SECONDS
                await asyncio.sleep(pause * self._rng.uniform(0.6, 1.4))
            else:
                hang_ups = 0

    async def _call_once(self, node_id: int, address: Address) -> bool:
        """Call, and return when the greeting has been exchanged or has failed; whether somebody answered the call."""
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                channel = await self._connected(node_id, address)
        except (OSError, UnicodeError) as error:  # a host name may be no name at all; a TimeoutError is an OSError
            self._failures[node_id] = f"{_why(error)} at {address[0]}:{address[1]}"
            return False
        if not channel.closed:
            greeted = self._expect_greeting(channel)
            channel.send(Kind.HELLO, *self._events.own_hello(node_id).to_wire())
            await asyncio.shield(greeted)
        return True

    async def _connected(self, node_id: int, address: Address) -> Channel:
        """The channel of the first call that is answered, of those that are made one beside the other.

        Nothing was said over it: uvloop closes the socket of a call that is given up and does not tell its channel.
        """
        loop = asyncio.get_running_loop()
        calls: list[asyncio.Task[tuple[asyncio.Transport, Channel]]] = []
        try:
            while not any(call.done() for call in calls):
                calls.append(loop.create_task(loop.create_connection(lambda: Channel(self, node_id), *address)))
                await asyncio.wait(calls, timeout=CALL_AGAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            first = next(call for call in calls if call.done())
            calls.remove(first)
            return first.result()[1]
        finally:
            for call in calls:
                call.add_done_callback(_hang_up)
                call.cancel()

    # -- greetings ---------------------------------------------------------------------------------

    def channel_opened(self, channel: Channel) -> None:
        """See ChannelOwner."""
        if channel.dialled >= 0:
            return  # who called goes on with it, or with another one
        # Own calls are as many as there are voters, and must get through whoever calls this node.
        strangers = sum(stranger.dialled < 0 for stranger in self._strangers)
        if self._closed or strangers >= STRANGERS_MAX:
            channel.close("not ready, or too many connections without a greeting", at_once=True)
        else:
            self._expect_greeting(channel)

    def _expect_greeting(self, channel: Channel) -> asyncio.Future[None]:
        """Done when the greeting has been exchanged or has failed."""
        channel.heard_at = self._now()
        greeted = self._strangers[channel] = asyncio.get_running_loop().create_future()
        return greeted

    def channel_frame(self, channel: Channel, kind: int, values: Sequence[Any]) -> None:
        """See ChannelOwner."""
        channel.heard_at = self._now()
        if channel.node_id >= 0:
            if kind == Kind.REFUSED:
                self._refused(channel, values)
            elif kind != Kind.PING:
                self._events.peer_frame(channel.node_id, kind, values)
        elif kind == Kind.HELLO and channel.dialled < 0:
            self._greet(channel, Hello.from_wire(values))
        elif kind == Kind.WELCOME and channel.dialled >= 0:
            self._welcomed(channel, Hello.from_wire(values))
        elif kind == Kind.REFUSED:
            self._refused(channel, values)
        else:
            raise PeerViolation("something was said before the greeting")

    def _greet(self, channel: Channel, hello: Hello) -> None:
        """Somebody called."""
        own = self._events.own_hello(NOT_ASKED)
        # Not with the port, which is another one for each call: the same complaint is made once.
        reason = refusal(own, hello, channel.host) or self._used_twice(hello, channel)
        if len(self._channels) >= PEERS_MAX:
            reason = reason or f"{PEERS_MAX} nodes are connected, which is all that is allowed"
        if reason:
            self._refuse(channel, hello.node_id, reason)
            return
        present = self._channels.get(hello.node_id)
        if present is not None:
            fresh = self._now() - present.greeted_at < FRESH_SECONDS
            if fresh and present.dialled >= 0 and own.node_id > hello.node_id and _is_same(present, hello):
                channel.close("both called at once, and the call of the higher node id stays")
                return
        channel.send(Kind.WELCOME, *own.to_wire())
        self._establish(channel, hello)

    def _welcomed(self, channel: Channel, hello: Hello) -> None:
        """The node that was called answers."""
        own = self._events.own_hello(channel.dialled)
        reason = refusal(own, hello, channel.address, channel.dialled) or self._used_twice(hello, channel)
        if reason:
            self.refusals[channel.dialled] = reason
            self._refuse(channel, hello.node_id, reason)
            return
        present = self._channels.get(hello.node_id)
        if present is not None and present.dialled < 0 and hello.node_id > own.node_id and _is_same(present, hello):
            channel.close("both called at once, and the call of the higher node id stays")
            return
        self._establish(channel, hello)

    def _used_twice(self, hello: Hello, channel: Channel) -> str:
        present = self._channels.get(hello.node_id)
        if present is None or _is_same(present, hello) or present.directory == hello.directory:
            return ""  # its journal's directory is locked by one process, so this is the same node, restarted
        if self._now() - present.heard_at > FRESH_SECONDS:
            return ""
        return (
            f"node id {hello.node_id} is used twice, by a broker on {channel.host} and by one on {present.host}: give"
            " each broker an --id of its own"
        )

    def _refuse(self, channel: Channel, node_id: int, reason: str) -> None:
        self._complain(node_id, reason)
        channel.send(Kind.REFUSED, reason)
        channel.close(reason)

    def _refused(self, channel: Channel, values: Sequence[Any]) -> None:
        reason = str(values[0])[:1000] if values else "no reason given"
        node_id = channel.dialled if channel.dialled >= 0 else channel.node_id
        self.refusals[node_id] = reason
        self._complain(node_id, reason)
        channel.close(reason)

    def _complain(self, node_id: int, reason: str) -> None:
        if reason in self._complaints:
            return
        if len(self._complaints) >= COMPLAINTS_MAX:
            self._complaints.clear()
        self._complaints[reason] = None
        logger.error("no connection with node %d: %s", node_id, reason)

    def _establish(self, channel: Channel, hello: Hello) -> None:
        present = self._channels.get(hello.node_id)
        if present is not None:
            present.close("another connection took its place")
        channel.node_id, channel.incarnation = hello.node_id, hello.incarnation
        channel.directory, channel.greeted_at = hello.directory, self._now()
        self._channels[hello.node_id] = channel
        self._greeting_ended(channel)
        self.refusals.pop(hello.node_id, None)
        self._failures.pop(hello.node_id, None)
        missing = self._missing.get(hello.node_id)
        if missing is not None:
            missing.clear()
        self._events.peer_connected(hello.node_id, hello)

    def _greeting_ended(self, channel: Channel) -> None:
        greeted = self._strangers.pop(channel, None)
        if greeted is not None and not greeted.done():
            greeted.set_result(None)

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """See ChannelOwner."""
        self._greeting_ended(channel)
        if self._channels.get(channel.node_id) is not channel:
            if channel.dialled >= 0:
                where = f"{channel.address}, before it said who it is"
                self._failures[channel.dialled] = f"{reason} at {where}: is that the port of its --listen?"
            return
        del self._channels[channel.node_id]
        logger.info("connection with node %d lost: %s", channel.node_id, reason)
        missing = self._missing.get(channel.node_id)
        if missing is not None:
            missing.set()
        self._events.peer_lost(channel.node_id)

    # -- talking -----------------------------------------------------------------------------------

    def disconnected_peers(self) -> frozenset[int]:
        """Nodes whose connection the kernel knows to be over, whether the event loop has come to that or not."""
        by_descriptor = {channel.descriptor: node_id for node_id, channel in self._channels.items()}
        by_descriptor.pop(-1, None)
        poller = select.poll()
        for descriptor in by_descriptor:
            poller.register(descriptor, ENDED)
        return frozenset(by_descriptor[descriptor] for descriptor, _ in poller.poll(0))

    def why_not(self, node_id: int) -> str:
        """Why nobody answered when a voter was last called; "" when that is not known, or somebody did."""
        return "" if node_id in self.refusals else self._failures.get(node_id, "")

    def silent_for(self, node_id: int) -> float:
        """For how many seconds nothing came from a connected node; -1.0 when it is not connected."""
        channel = self._channels.get(node_id)
        return self._now() - channel.heard_at if channel is not None else -1.0

    def send(self, node_id: int, kind: Kind, *values: Any) -> bool:
        """Send a frame; False when there is no connection. True does not mean that it arrives."""
        channel = self._channels.get(node_id)
        return channel is not None and channel.send(kind, *values)

    def hang_up(self, node_id: int, reason: str) -> None:
        """Close the connection with a node."""
        channel = self._channels.get(node_id)
        if channel is not None:
            channel.close(reason, at_once=True)


def _hang_up(call: asyncio.Task[tuple[asyncio.Transport, Channel]]) -> None:
    """Of a call that nobody waits for any more: another one was answered, or none in time."""
    if not call.cancelled() and call.exception() is None:
        call.result()[1].close("another call was answered first", at_once=True)


def _why(error: Exception) -> str:
    """Why a call came to nothing. Event loops word it differently, and the resolver counts its errors below zero."""
    number = getattr(error, "errno", None) or 0
    said = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)
    return said.lower() or "no answer"


def _is_same(channel: Channel, hello: Hello) -> bool:
    """Whether both are of the same process."""
    return channel.incarnation == hello.incarnation
