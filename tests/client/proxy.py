"""A broker behind a proxy that holds back, loses or delays what is said to it and by it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from raftlog.client.core.addresses import Address, parse_address
from raftlog.testing import cluster
from raftlog.wire.apis import ApiKey
from raftlog.wire.headers import parse_request_header


class Proxy:
    """Passes requests to a broker and replies back, one at a time on each connection.

    A lost reply is one that the broker has given, so what was produced is stored.
    """

    def __init__(self, lost_api: ApiKey = ApiKey.PRODUCE) -> None:
        self.broker: Address | None = None
        self.lost_api = lost_api
        self._lose = 0
        self._closes = False
        self._passes = threading.Event()
        self._passes.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lose_replies(self, count: int, *, closes: bool) -> None:
        """The next `count` replies are lost: the connection is closed in place of them, or there is silence."""
        self._lose, self._closes = count, closes

    def hold(self) -> None:
        """Nothing passes until `go_on`."""
        self._passes.clear()

    def go_on(self) -> None:
        self._passes.set()

    def close(self) -> None:
        self.go_on()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            self._threads.append(threading.Thread(target=self._pass_on, args=(client,)))
            self._threads[-1].start()

    def _pass_on(self, client: socket.socket) -> None:
        assert self.broker is not None
        with suppress(OSError), client, client.makefile("rb") as requests:
            with socket.create_connection(self.broker) as broker, broker.makefile("rb") as replies:
                self._open.append(broker)
                while request := read_frame(requests):
                    self._passes.wait()
                    broker.sendall(request)
                    reply = read_frame(replies)
                    self._passes.wait()
                    if parse_request_header(request[4:]).api_key != self.lost_api or self._lose <= 0:
                        client.sendall(reply)
                        continue
                    self._lose -= 1
                    if self._closes:
                        return


def read_frame(file: Any) -> bytes:
    """The next frame with its length, or nothing at the end."""
    length: bytes = file.read(4)
    body: bytes = file.read(int.from_bytes(length, "big"))
    return length + body


@contextmanager
def broker_behind_a_proxy(lost_api: ApiKey = ApiKey.PRODUCE) -> Iterator[Proxy]:
    proxy = Proxy(lost_api)
    try:
        with cluster(settings={"advertised.listeners": f"PLAINTEXT://{proxy.address}"}) as running:
            proxy.broker = parse_address(running.bootstrap_servers)
            yield proxy
    finally:
        proxy.close()
