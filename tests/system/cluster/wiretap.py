"""Between the clients of a test and its brokers: each request of a client passes here, and so does its answer.

Clients are real ones. They find the brokers by what they are told, which is changed so that they come here.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from raftlog.client.core.addresses import Address, parse_addresses
from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.codec import decode, encode
from raftlog.wire.headers import (
    RequestHeader,
    encode_response_header,
    parse_request_header,
    parse_response_header,
)
from raftlog.wire.schema import Message, Struct
from tests.client.proxy import read_frame
from tests.system.cluster.transactions import Moment
from tests.system.traps.raw import framed

TELL_ADDRESSES = frozenset({
    ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, ApiKey.FETCH, ApiKey.PRODUCE,
})  # fmt: skip


class Request(NamedTuple):
    """What a client asks for, by the name it gives itself."""

    client: str
    message: Message


Watch = Callable[[Request, Moment, Any], bool]
"""Told of a request before it reaches the broker, while that works on it, and, with the answer, after the client has
it. Whether the request, or its answer, goes on."""
Hear = Callable[[Request, Any], None]
"""Told of an answer before the client has it."""


class Wiretap:
    """One port for each broker. On each connection one request is under way at a time, as it is at Kafka's brokers."""

    def __init__(self, bootstrap: str, watched: frozenset[ApiKey]) -> None:
        self.watched = watched
        self.watch: Watch = lambda request, moment, answer: True
        self.hear: Hear = lambda request, answer: None
        self._brokers = [Address(*each) for each in parse_addresses(bootstrap)]
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in self._brokers]
        self._ports = {
            broker.port: listener.getsockname()[1]
            for broker, listener in zip(self._brokers, self._listeners, strict=True)
        }
        self._open: set[socket.socket] = set()
        self._is_closing = False
        self._threads = [
            threading.Thread(target=self._accept, args=each, daemon=True)
            for each in zip(self._listeners, self._brokers, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def bootstrap(self) -> str:
        """Where clients come in."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def close(self) -> None:
        self._is_closing = True
        for each in [*self._listeners, *self._open]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for listener in self._listeners:
            listener.close()

    def _accept(self, listener: socket.socket, broker: Address) -> None:
        while not self._is_closing:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(client, broker), daemon=True))
            self._threads[-1].start()

    def _serve(self, client: socket.socket, address: Address) -> None:
        with suppress(OSError), client, socket.create_connection(address) as broker:
            self._open |= {client, broker}
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with client.makefile("rb") as requests, broker.makefile("rb") as answers:
                self._pass_on(requests, broker, answers, client)
        self._open.discard(client)

    def _pass_on(self, requests: Any, broker: socket.socket, answers: Any, client: socket.socket) -> None:
        while frame := read_frame(requests):
            header = parse_request_header(frame[4:])
            request = self._read(header, frame[4:])
            if request is not None and not self.watch(request, Moment.BEFORE, None):
                return
            broker.sendall(frame)
            if request is not None and not self.watch(request, Moment.UNDER_WAY, None):
                return
            if not (reply := read_frame(answers)):
                return
            answer = None
            if request is not None or header.api_key in TELL_ADDRESSES:
                answer, reply = self._rewritten(header, reply[4:])
            if request is not None:
                self.hear(request, answer)
            client.sendall(reply)
            if request is not None and not self.watch(request, Moment.AFTER, answer):
                return

    def _read(self, header: RequestHeader, frame: bytes) -> Request | None:
        if header.api_key not in self.watched:
            return None
        message = decode(APIS[header.api_key].request, header.api_version, frame, header.body_offset)
        return Request(header.client_id or "", message)

    def _rewritten(self, header: RequestHeader, frame: bytes) -> tuple[Message, bytes]:
        key, version = header.api_key, header.api_version
        correlation_id, offset = parse_response_header(key, version, frame)
        answer = decode(APIS[key].response, version, frame, offset)
        for struct in structs(answer):
            port = getattr(struct, "port", None)
            if port is not None:
                struct.port = self._ports.get(port, port)  # type: ignore[attr-defined]
        return answer, framed(encode(answer, version, encode_response_header(key, version, correlation_id)))


def structs(struct: Struct) -> Iterator[Struct]:
    """It, and all that is in it."""
    yield struct
    for field in struct.__fields__:
        value = getattr(struct, field.name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from structs(each)
