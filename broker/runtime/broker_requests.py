"""Requests from this broker to others, and to itself: each gets its response or the reason why there is none.

Every user has a `RequestSender` of its own, and with that its own connections, so that one user's long wait at a
broker does not hold up another's answers. A request to this broker takes no connection: its handler is called.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from raftlog.broker.core.replica.following import Backoff
from raftlog.wire.ids import BrokerId

if TYPE_CHECKING:
    from raftlog.broker.runtime.link import Link
    from raftlog.broker.runtime.timer_wheel import TimerWheel
    from raftlog.metadata.delta import MetadataDelta
    from raftlog.metadata.image import MetadataImage
    from raftlog.wire.schema import Message

OUTSTANDING_MAX = 1000
"""Requests to one broker that have no answer yet, sent or not: users put what they have into few requests."""

BACKOFF_MS_MIN = 20
BACKOFF_MS_MAX = 1000


class RequestFailure(Enum):
    """Why there is no response. Only after DISCONNECTED and TIMED_OUT may the request have been carried out."""

    UNKNOWN_BROKER = "no such broker is registered"
    UNREACHABLE = "no connection could be made"
    DISCONNECTED = "the connection was lost before the answer"
    TIMED_OUT = "no answer in time"
    TOO_MANY = "too many requests have no answer yet"
    CLOSED = "this broker stops"


OnResponse: TypeAlias = "Callable[[Any | RequestFailure], None]"
"""Gets the response, or why there is none; once."""

ServeHere: TypeAlias = "Callable[[Message, int, Callable[[Message], None]], None]"
"""Has this broker itself answer a request of some version."""


class BrokerRequests:
    """Makes the senders, and ends them when the broker stops."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: TimerWheel,
        node_id: BrokerId,
        address_of: Callable[[BrokerId], tuple[str, int] | None],
    ) -> None:
        """`address_of`: where a broker listens for others, None if it is not registered."""
        self.loop = loop
        self.timers = timers
        self.node_id = node_id
        self.address_of = address_of
        self._senders: list[RequestSender] = []
        self.serve_here: ServeHere | None = None

    def sender(self, name: str, timeout_seconds: float) -> RequestSender:
        """A sender for one purpose: `name` is the client id that other brokers see, with this broker's id behind it."""
        sender = RequestSender(self, f"{name}-{self.node_id}", timeout_seconds)
        self._senders.append(sender)
        return sender

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A broker that is fenced, or has begun anew, does not answer what it was asked before: a host that lost its
        power says nothing, and who waits for it would wait for the whole time-out.
        """
        for broker_id in delta.changed_brokers:
            broker = image.brokers.get(broker_id)
            if broker is None or broker.fenced:
                for sender in self._senders:
                    sender.give_up(broker_id)

    def close(self) -> None:
        """What is outstanding is answered with CLOSED, and so is what comes after."""
        for sender in self._senders:
            sender.close()


class RequestSender:
    """One user's way to other brokers. Requests to one broker are carried out in the order in which they are sent."""

    def __init__(self, requests: BrokerRequests, client_id: str, timeout_seconds: float) -> None:
        self._requests = requests
        self._client_id = client_id
        self._timeout_seconds = timeout_seconds
        self._peers: dict[BrokerId, _Peer] = {}
        self._here: dict[_Request, None] = {}
        self._closed = False

    def send(self, broker_id: BrokerId, request: Message, version: int, respond: OnResponse) -> None:
        """Send a request of a flexible version. `respond` is called later, never during this call; a response is valid
        only while it runs.
        """
        asked = _Request(self._requests.timers, request, version, respond)
        if self._closed:
            self._soon(asked, RequestFailure.CLOSED)
        elif broker_id == self._requests.node_id:
            self._serve_here(asked)
        elif (address := self._requests.address_of(broker_id)) is None:
            self._soon(asked, RequestFailure.UNKNOWN_BROKER)
        else:
            peer = self._peers.get(broker_id)
            if peer is None:
                peer = self._peers[broker_id] = _Peer(self._requests.loop, broker_id, self._client_id)
            failure = peer.refusal()
            if failure is not None:
                self._soon(asked, failure)
                return
            asked.begin(self._timeout_seconds, peer.timed_out)
            peer.send(asked, address)

    def _soon(self, asked: _Request, failure: RequestFailure) -> None:
        self._requests.loop.call_soon(asked.done, failure)

    def _serve_here(self, asked: _Request) -> None:
        if len(self._here) >= OUTSTANDING_MAX:
            self._soon(asked, RequestFailure.TOO_MANY)
            return
        self._here[asked] = None
        asked.begin(self._timeout_seconds, lambda late: self._answered_here(late, RequestFailure.TIMED_OUT))
        self._requests.loop.call_soon(self._ask_here, asked)

    def _ask_here(self, asked: _Request) -> None:
        serve_here = self._requests.serve_here
        if serve_here is None:
            self._answered_here(asked, RequestFailure.UNREACHABLE)
        elif not asked.is_done:
            serve_here(asked.message, asked.version, partial(self._answered_here, asked))

    def _answered_here(self, asked: _Request, answer: Message | RequestFailure) -> None:
        self._here.pop(asked, None)
        asked.done(answer)

    def give_up(self, broker_id: BrokerId) -> None:
        """Wait no more for what this broker was asked: DISCONNECTED, or UNREACHABLE if it was not sent yet."""
        if broker_id in self._peers:
            self._peers[broker_id].give_up()

    def close(self) -> None:
        """See BrokerRequests."""
        self._closed = True
        for peer in self._peers.values():
            peer.close()
        for asked in list(self._here):
            self._answered_here(asked, RequestFailure.CLOSED)


class _Request:
    """One request, and who waits for its answer."""

    __slots__ = ("_on_late", "_respond", "_tick", "_timers", "is_done", "message", "version")

    def __init__(self, timers: TimerWheel, message: Message, version: int, respond: OnResponse) -> None:
        self._timers = timers
        self.message = message
        self.version = version
        self._respond = respond
        self._tick = -1
        self._on_late: Callable[[_Request], None] | None = None
        self.is_done = False

    def begin(self, seconds: float, on_late: Callable[[_Request], None]) -> None:
        """The time runs."""
        self._on_late = on_late
        self._tick = self._timers.add_after(self, seconds)

    def expire(self) -> None:
        """See Expiring."""
        self._tick = -1
        if not self.is_done and self._on_late is not None:
            self._on_late(self)

    def done(self, answer: Message | RequestFailure) -> None:
        """Tell whoever waits, unless that was done before: a late answer is passed over."""
        if self.is_done:
            return
        self.is_done = True
        if self._tick >= 0:
            self._timers.remove(self, self._tick)
        self._respond(answer)


class _Peer:
    """Another broker.

    Invariant: requests wait only while there is no connection; what is in `_sent` has gone out over the one that is.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, broker_id: BrokerId, client_id: str) -> None:
        # Imported here: a broker alone starts without it.
        from raftlog.broker.runtime.link import Link

        self._loop = loop
        self._waiting: deque[_Request] = deque()
        self._sent: dict[_Request, None] = {}
        self._closed_until = 0.0
        self._link: Link = Link(
            loop,
            str(broker_id),
            client_id,
            backoff=Backoff(BACKOFF_MS_MIN, BACKOFF_MS_MAX),
            on_open=self._on_open,
            on_lost=self._on_lost,
            on_unreachable=self._on_unreachable,
        )

    def refusal(self) -> RequestFailure | None:
        """Why nothing more can be sent just now; None if it can."""
        if len(self._waiting) + len(self._sent) >= OUTSTANDING_MAX:
            return RequestFailure.TOO_MANY
        return RequestFailure.UNREACHABLE if self._loop.time() < self._closed_until else None

    def send(self, asked: _Request, address: tuple[str, int]) -> None:
        self._link.connect(address)
        if self._link.is_open:
            self._send(asked)
        else:
            self._waiting.append(asked)

    def _send(self, asked: _Request) -> None:
        self._sent[asked] = None
        self._link.send(asked.message, asked.version, partial(self._answered, asked))

    def _answered(self, asked: _Request, answer: Message) -> None:
        self._sent.pop(asked, None)
        asked.done(answer)

    def _on_open(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            if not asked.is_done:
                self._send(asked)

    def _on_lost(self) -> None:
        # Not here: who is told may send again, and the link is not ready for that.
        failed, self._sent = list(self._sent), {}
        self._loop.call_soon(self._fail, failed, RequestFailure.DISCONNECTED)

    def _on_unreachable(self, wait_ms: int) -> None:
        self._link.close()
        self._closed_until = self._loop.time() + wait_ms / 1000
        self._fail([*self._waiting], RequestFailure.UNREACHABLE)

    def timed_out(self, asked: _Request) -> None:
        """A connection whose answer does not come is of no use to those behind it either."""
        was_sent = asked in self._sent
        self._fail([asked], RequestFailure.TIMED_OUT)
        if was_sent:
            self._link.give_up("a request was not answered in time")

    def give_up(self) -> None:
        if self._sent:
            self._link.give_up("the broker has lost contact with the cluster")
        self._loop.call_soon(self._fail, [*self._waiting], RequestFailure.UNREACHABLE)

    def _fail(self, failed: list[_Request], reason: RequestFailure) -> None:
        """Out of the queues first: whoever is told may send again at once."""
        for asked in failed:
            self._sent.pop(asked, None)
            if asked in self._waiting:
                self._waiting.remove(asked)
        for asked in failed:
            asked.done(reason)

    def close(self) -> None:
        self._fail([*self._sent, *self._waiting], RequestFailure.CLOSED)
        self._link.close()
