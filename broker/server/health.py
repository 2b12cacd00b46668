"""/health and /ready over HTTP, for whoever watches brokers from outside (a load balancer, Kubernetes, a person).

`/health` answers 200 while the event loop turns. `/ready` answers 200 when clients should be sent here, else 503 with
the reasons. Both answer in JSON.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import cast

REQUEST_BYTES_MAX = 8 * 1024
"""A request's head; nobody who asks for our two paths needs a tenth of it."""

CONNECTIONS_MAX = 64
"""More than any number of probes; the port must not be a way to use up the broker's descriptors."""

SILENCE_SECONDS_MAX = 10.0
"""A connection on which nothing is asked for so long is closed."""

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class HealthServer:
    """The port and its connections. `unready` says why the broker is not ready; nothing means that it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, unready: Callable[[], Sequence[str]]) -> None:
        self.loop = loop
        self.connections: dict[_Connection, None] = {}
        self._unready = unready
        self._server: asyncio.AbstractServer | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Serve there; port 0 lets the system choose. Raises OSError with the address in it."""
        try:
            server = await self.loop.create_server(lambda: _Connection(self), host or None, port)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {host}:{port} for /health and /ready") from error
        self._server = server
        bound = server.sockets[0].getsockname()
        return bound[0], bound[1]

    def close(self) -> None:
        """Stop listening, and close what is open."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()

    def answer(self, method: str, path: str) -> tuple[int, dict[str, object]]:
        """Status and document for a request."""
        if path not in ("/health", "/ready"):
            return 404, {"error": "there are /health and /ready"}
        if method not in ("GET", "HEAD"):
            return 405, {"error": "ask with GET"}
        if path == "/health":
            return 200, {"status": "alive"}
        reasons = list(self._unready())
        return (503, {"status": "not ready", "reasons": reasons}) if reasons else (200, {"status": "ready"})


class _Connection(asyncio.Protocol):
    """One client; it may ask several times."""

    def __init__(self, server: HealthServer) -> None:
        self._server = server
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._silence: asyncio.TimerHandle | None = None

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
        if self._transport is not None:
            self._transport.close()

    def _listen_on(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._silence = self._server.loop.call_later(SILENCE_SECONDS_MAX, self.close)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end])
            del self._received[: end + 4]
            self._answer(head)
        if len(self._received) > REQUEST_BYTES_MAX:
            self._reply(400, {"error": "the request is too long"}, last=True)
        self._listen_on()

    def _answer(self, head: bytes) -> None:
        line, _, headers = head.decode("latin-1").partition("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._reply(400, {"error": "this is not HTTP/1.1"}, last=True)
            return
        status, document = self._server.answer(words[0], words[1].partition("?")[0])
        # What a body would be of no use to us, and could be taken for the next request.
        has_body = "content-length:" in headers.lower() or "transfer-encoding:" in headers.lower()
        last = has_body or words[2] == "HTTP/1.0" or "connection: close" in headers.lower()
        self._reply(status, document, last=last, body=words[0] != "HEAD")

    def _reply(self, status: int, document: dict[str, object], *, last: bool, body: bool = True) -> None:
        assert self._transport is not None
        text = json.dumps(document).encode() + b"\n"
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\nConnection: {'close' if last else 'keep-alive'}\r\n\r\n"
        )
        self._transport.write(head.encode() + (text if body else b""))
        if last:
            self._received.clear()
            self._transport.close()
