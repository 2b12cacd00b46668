"""The last requests that clients sent to one broker, kept to be told when a test has failed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.server_side import Dispatch
from raftlog.testing.faults.matching import names_in
from raftlog.wire.apis import APIS
from raftlog.wire.codec import decode
from raftlog.wire.errors import Malformed, RemoteProtocolError
from raftlog.wire.headers import parse_request_header

REQUESTS_KEPT = 40
BYTES_KEPT = 4096
"""Of each request; a longer one is told without the names in it."""
NAMES_MAX = 5
INTER_BROKER_CLIENTS = "raftlog-replica", "transaction-markers", "raftlog-transaction-verifier", "raftlog-lag"
_OF_BROKERS = tuple(name.encode() for name in INTER_BROKER_CLIENTS)
_CLIENT_ID = 10  # where it begins in a request's header


class LastRequests:
    """Keeps what comes in; makes words of it only when asked."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._kept: deque[tuple[float, str, bytes, int]] = deque(maxlen=REQUESTS_KEPT)

    def watch(self, dispatch: Dispatch) -> Dispatch:
        """The same, but keeping what comes from clients. A poll that is repeated as it was is not told again."""

        def keep_and_dispatch(connection: Connection, request: memoryview) -> None:
            if not bytes(request[_CLIENT_ID : _CLIENT_ID + 32]).startswith(_OF_BROKERS):
                self._kept.append((self._now(), repr(connection), bytes(request[:BYTES_KEPT]), len(request)))
            dispatch(connection, request)

        return keep_and_dispatch

    def told(self) -> list[tuple[float, str]]:
        """When each came (seconds since 1970), and what it was: `Produce v9 of rdkafka (127.0.0.1:40000): orders`."""
        return [(at, _described(peer, beginning, size)) for at, peer, beginning, size in self._kept]


def _described(peer: str, beginning: bytes, size: int) -> str:
    try:
        header = parse_request_header(beginning)
    except RemoteProtocolError as error:
        return f"{size:,} bytes from {peer} that are no request: {error}"
    api = APIS[header.api_key]
    text = f"{api.name} v{header.api_version} of {header.client_id or 'a client without a name'} ({peer})"
    if size > BYTES_KEPT:
        return f"{text}: {size:,} bytes"
    try:
        names = names_in(decode(api.request, header.api_version, beginning, header.body_offset, exact=False))
    except (Malformed, RemoteProtocolError, ValueError):
        return f"{text}, malformed"
    more = [f"{len(names) - NAMES_MAX} more"] if len(names) > NAMES_MAX else []
    return text + (f": {', '.join([*names[:NAMES_MAX], *more])}" if names else "")
