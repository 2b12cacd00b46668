"""/health, /ready, /version and /metrics over HTTP, for whoever watches brokers from outside (a load balancer,
Kubernetes, Prometheus, a person).

`/health` answers 200 while the event loop turns. `/ready` answers 200 when clients should be sent here, else 503 with
the reasons. They and `/version` answer in JSON, `/metrics` in Prometheus's text format.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast

from raftlog import __version__

log = logging.getLogger("raftlog.metrics")

REQUEST_BYTES_MAX = 8 * 1024
"""A request's head; nobody who asks for one of our paths needs a tenth of it."""

CONNECTIONS_MAX = 64
"""More than any number of probes; the port must not be a way to use up the broker's descriptors."""

SILENCE_SECONDS_MAX = 10.0
"""A connection on which nothing is asked for so long is closed, whether its answers were read or not."""

PATHS = ("/health", "/ready", "/version", "/metrics")

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

JSON = "application/json"

Page: TypeAlias = Callable[[], Awaitable[tuple[str, bytes]]]
"""Makes a page: its content type, and its bytes."""


class HealthServer:
    """The ports and their connections. `unready` says why the broker is not ready; nothing means that it is. `metrics`
    makes the page of /metrics.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, unready: Callable[[], Sequence[str]], metrics: Page) -> None:
        self.loop = loop
        self.connections: dict[_Connection, None] = {}
        self.metrics = metrics
        self.tasks: set[asyncio.Task[None]] = set()
        self._unready = unready
        self._servers: list[asyncio.AbstractServer] = []

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Serve there; port 0 lets the system choose. Raises OSError with the address in it."""
        try:
            server = await self.loop.create_server(lambda: _Connection(self), host or None, port)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {host}:{port} for /health and /metrics") from error
        self._servers.append(server)
        bound = server.sockets[0].getsockname()
        return bound[0], bound[1]

    def close(self) -> None:
        """Stop listening, and close what is open."""
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.close()
        for task in self.tasks:
            task.cancel()

    def answer(self, method: str, path: str) -> tuple[int, dict[str, object]]:
        """Status and document for a request; the page of /metrics is not made here."""
        if path not in PATHS:
            return 404, {"error": f"there are {', '.join(PATHS)}"}
        if method not in ("GET", "HEAD"):
            return 405, {"error": "ask with GET"}
        if path == "/health":
            return 200, {"status": "alive"}
        if path == "/metrics":
            return 200, {}
        if path == "/version":
            return 200, {"version": __version__}
        reasons = list(self._unready())
        return (503, {"status": "not ready", "reasons": reasons}) if reasons else (200, {"status": "ready"})


class _Connection(asyncio.Protocol):
    """One client; it may ask several times."""

    def __init__(self, server: HealthServer) -> None:
        self._server = server
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._silence: asyncio.TimerHandle | None = None
        # A page is being made, or answers lie unread: what is asked next waits for that.
        self._is_busy = self._is_unread = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._server.connections[self] = None
        if len(self._server.connections) > CONNECTIONS_MAX:
            self._transport.close()
        self._listen_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.pop(self, None)
        if self._silence is not None:
            self._silence.cancel()

    def close(self) -> None:
        """What was not read by now is dropped."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._is_unread = True

    def resume_writing(self) -> None:
        self._is_unread = False
        self._answer_received()
        self._listen_on()

    def _listen_on(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._silence = self._server.loop.call_later(SILENCE_SECONDS_MAX, self.close)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._answer_received()
        if not self._is_unread:
            self._listen_on()

    def _answer_received(self) -> None:
        while not (self._is_busy or self._is_unread) and (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end])
            del self._received[: end + 4]
            self._answer(head)
        if len(self._received) > REQUEST_BYTES_MAX:
            self._reply(400, {"error": "the request is too long"}, last=True)

    def _answer(self, head: bytes) -> None:
        line, _, headers = head.decode("latin-1").partition("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._reply(400, {"error": "this is not HTTP/1.1"}, last=True)
            return
        path = words[1].partition("?")[0]
        status, document = self._server.answer(words[0], path)
        # What a body would be of no use to us, and could be taken for the next request.
        has_body = "content-length:" in headers.lower() or "transfer-encoding:" in headers.lower()
        last = has_body or words[2] == "HTTP/1.0" or "connection: close" in headers.lower()
        body = words[0] != "HEAD"
        if path == "/metrics" and status == 200:
            self._is_busy = True
            task = self._server.loop.create_task(self._send_metrics(last=last, body=body))
            self._server.tasks.add(task)
            task.add_done_callback(self._server.tasks.discard)
        else:
            self._reply(status, document, last=last, body=body)

    async def _send_metrics(self, *, last: bool, body: bool) -> None:
        try:
            status, (content_type, page) = 200, await self._server.metrics()
        except Exception as error:
            log.warning("no page of metrics could be made", exc_info=error)
            status, content_type, page = 500, JSON, b'{"error": "no page could be made: see the log of the broker"}\n'
        self._is_busy = False
        if self._transport is None or self._transport.is_closing():
            return
        self._send(status, content_type, page, last=last, body=body)
        self._answer_received()
        self._listen_on()

    def _reply(self, status: int, document: dict[str, object], *, last: bool, body: bool = True) -> None:
        self._send(status, JSON, json.dumps(document).encode() + b"\n", last=last, body=body)

    def _send(self, status: int, content_type: str, text: bytes, *, last: bool, body: bool) -> None:
        assert self._transport is not None
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(text)}\r\nConnection: {'close' if last else 'keep-alive'}\r\n\r\n"
        )
        self._transport.write(head.encode() + (text if body else b""))
        if last:
            self._received.clear()
            self._transport.close()
