"""A connection to another broker: requests out, responses in, in the same order.

One asyncio Protocol, so that it runs on any event loop. A frame that came whole is handed on as it lies in what the
loop received, without a copy; one that arrives in pieces is put together in a buffer of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple, cast

from raftlog.broker.core.replica.following import Backoff
from raftlog.raft.silent_peers import end_when_silent
from raftlog.wire.apis import APIS
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.headers import encode_request_header
from raftlog.wire.schema import Message

log = logging.getLogger("raftlog.link")

_SIZE = Struct(">i")
# Correlation id, no tags: brokers ask each other in flexible versions alone.
_FLEXIBLE_HEADER = Struct(">iB")

FRAME_BYTES_MAX = 256 * 1024 * 1024
"""An answer that is larger is a lie: replica.fetch.response.max.bytes and one batch are far below."""

CONNECT_SECONDS_MAX = 5.0
"""How long connecting may take."""

ANOTHER_TRY_SECONDS = 0.4
"""On one network the other end answers within milliseconds or not at all; after so long it is tried once more beside,
for a first packet that was lost is sent again after 1, 3 and 7 s only."""

OnResponse = Callable[[Any], None]


class _Outstanding(NamedTuple):
    correlation_id: int
    response: type[Message]
    version: int
    on_response: OnResponse


class _Connection(asyncio.Protocol):
    """One life of a link. What comes of an earlier life is passed over."""

    def __init__(self, link: Link, attempt: int) -> None:
        self._link = link
        self.attempt = attempt

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.Transport, and work as one.
        self._link.opened(self, cast("asyncio.WriteTransport", transport))

    def data_received(self, data: bytes) -> None:
        self._link.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.lost(self, exc)


class Link:
    """A connection that comes back when it is lost.

    `on_open()` is called when requests can be sent, `on_lost()` when those that were sent will not be answered,
    `on_unreachable(wait_ms)` when connecting failed and will be tried again after `wait_ms`. `client_id` goes with
    each request.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        client_id: str,
        *,
        backoff: Backoff,
        on_open: Callable[[], None],
        on_lost: Callable[[], None],
        on_unreachable: Callable[[int], None] | None = None,
    ) -> None:
        self._loop = loop
        self._name = name
        self._client_id = client_id
        self._backoff = backoff
        self._on_open = on_open
        self._on_lost = on_lost
        self._on_unreachable = on_unreachable
        self._address: tuple[str, int] | None = None
        self._connection: _Connection | None = None
        self._transport: asyncio.WriteTransport | None = None
        # By the number of the attempt; the first one that is through ends the others.
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._outstanding: deque[_Outstanding] = deque()
        self._correlation_id = 0
        # By API key: looked up once.
        self._responses: dict[int, type[Message]] = {}
        self._attempt = 0
        self._rest = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self.oldest_request_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None

    # Connecting --------------------------------------------------------------------------------------

    def connect(self, address: tuple[str, int]) -> None:
        """Keep a connection to this address; one to another address is given up."""
        if address != self._address:
            self._drop("the address has changed")
            self._address = address
        if self._transport is None and not self._connecting and self._retry is None:
            self._begin()

    def connect_now(self) -> None:
        """The other end is known to be there: try at once, if there is no connection."""
        if self._transport is None and self._address is not None:
            self._stop_retrying()
            self._begin()

    def close(self) -> None:
        """Let go of the connection, for good or until `connect` is called."""
        self._drop("not needed any more")
        self._address = None

    def _stop_retrying(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _stop_connecting(self) -> None:
        self._stop_retrying()
        attempts, self._connecting = self._connecting, {}
        for attempt in attempts.values():
            attempt.cancel()

    def _drop(self, reason: str) -> None:
        self._stop_connecting()
        if self._transport is not None:
            log.debug("broker=%s connection closed: %s", self._name, reason)
            self._transport.abort()
            self._end()

    def _begin(self) -> None:
        self._attempt += 1
        self._connecting[self._attempt] = self._loop.create_task(self._connect(self._attempt))
        self._retry = self._loop.call_later(ANOTHER_TRY_SECONDS, self._begin)

    async def _connect(self, attempt: int) -> None:
        assert self._address is not None
        host, port = self._address
        connection = _Connection(self, attempt)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await self._loop.create_connection(lambda: connection, host, port)
        except (OSError, TimeoutError) as error:
            if connection is self._connection:
                # It was there just when its time was over: uvloop has closed it, and tells nobody else.
                self.lost(connection, error)
                return
            if self._backoff.failures == 0:
                log.info("broker=%s at %s:%d cannot be reached: %s", self._name, host, port, error or "timed out")
            self._connecting.pop(attempt, None)
            wait_ms = self._backoff.next_ms()
            if isinstance(error, TimeoutError) and self._on_unreachable is None:
                return  # later attempts are under way
            self._stop_connecting()
            self._retry = self._loop.call_later(wait_ms / 1000, self._begin)
            if self._on_unreachable is not None:
                self._on_unreachable(wait_ms)

    def opened(self, connection: _Connection, transport: asyncio.WriteTransport) -> None:
        """It is there."""
        if self._connecting.pop(connection.attempt, None) is None:
            # It came after it was given up.
            transport.abort()
            return
        self._stop_connecting()
        end_when_silent(transport.get_extra_info("socket"))
        self._connection, self._transport = connection, transport
        self._rest, self._frame = b"", None
        self._on_open()

    def lost(self, connection: _Connection, reason: Exception | None) -> None:
        """The other end has closed it, or it broke."""
        if connection is not self._connection:
            return
        log.info("broker=%s connection lost: %s", self._name, reason or "closed by the other end")
        self._end()
        self._retry = self._loop.call_later(self._backoff.next_ms() / 1000, self._begin)

    def _end(self) -> None:
        self._connection = self._transport = None
        self._outstanding.clear()
        self._on_lost()

    # Asking and answers ------------------------------------------------------------------------------

    def send(self, request: Message, version: int, on_response: OnResponse) -> None:
        """Send a request; `on_response` gets the decoded response, whose bytes are valid only during the call."""
        api_key = request.api_key
        assert self._transport is not None and api_key is not None
        if not self._outstanding:
            self.oldest_request_at = self._loop.time()
        self._correlation_id = correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        response = self._responses.get(api_key) or self._responses.setdefault(api_key, APIS[api_key].response)
        self._outstanding.append(_Outstanding(correlation_id, response, version, on_response))
        header = encode_request_header(api_key, version, correlation_id, self._client_id)
        frame = encode(request, version, header)
        self._transport.write(_SIZE.pack(len(frame)) + frame)

    def is_overdue(self, seconds: float) -> bool:
        """Whether an answer is outstanding for so long."""
        return bool(self._outstanding) and self._loop.time() - self.oldest_request_at > seconds

    def give_up(self, reason: str) -> None:
        """The connection does not do: another one is made."""
        address = self._address
        log.warning("broker=%s connection given up: %s", self._name, reason)
        self._drop(reason)
        if address is not None:
            self._retry = self._loop.call_later(self._backoff.next_ms() / 1000, self._begin)

    def received(self, connection: _Connection, data: bytes) -> None:
        """Bytes have come."""
        if connection is not self._connection:
            return
        try:
            self._receive(data)
        except RemoteProtocolError as error:
            self.give_up(str(error))

    def _receive(self, data: bytes) -> None:
        view = memoryview(data)
        if self._frame is not None:
            view = self._fill(self._frame, view)
        elif self._rest:
            view = memoryview(self._rest + data)
            self._rest = b""
        while len(view) >= _SIZE.size and self._transport is not None:
            (size,) = _SIZE.unpack_from(view)
            if not _FLEXIBLE_HEADER.size <= size <= FRAME_BYTES_MAX:
                raise RemoteProtocolError(f"an answer of {size} bytes")
            end = _SIZE.size + size
            if end > len(view):
                self._frame = bytearray(size)
                self._filled = 0
                view = self._fill(self._frame, view[_SIZE.size :])
                continue
            self._dispatch(view[_SIZE.size : end])
            view = view[end:]
        self._rest = bytes(view)

    def _fill(self, frame: bytearray, view: memoryview) -> memoryview:
        """Put what has come into the frame that is arriving; what is left over."""
        taken = min(len(frame) - self._filled, len(view))
        frame[self._filled : self._filled + taken] = view[:taken]
        self._filled += taken
        if self._filled == len(frame):
            self._frame = None
            self._dispatch(memoryview(frame))
        return view[taken:]

    def _dispatch(self, frame: memoryview) -> None:
        if not self._outstanding:
            raise RemoteProtocolError("an answer that nobody waits for")
        asked = self._outstanding.popleft()
        self.oldest_request_at = self._loop.time()
        correlation_id, tags = _FLEXIBLE_HEADER.unpack_from(frame)
        if correlation_id != asked.correlation_id or tags:
            raise RemoteProtocolError("answers out of order, or with tags in their header")
        if self._backoff.failures:
            self._backoff.reset()
        asked.on_response(decode(asked.response, asked.version, frame, _FLEXIBLE_HEADER.size))
