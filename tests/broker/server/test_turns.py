"""No turn of the event loop is taken up by the requests that lie ready: others have theirs, in order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest
import uvloop

from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.server import turns
from raftlog.broker.server.limits import TURN_SECONDS_MAX, ServerLimits
from raftlog.broker.server.server import Server
from raftlog.broker.server.transport import SocketTransport
from raftlog.broker.server.turns import Turns
from tests.broker.server.test_connection import request

REQUEST_SECONDS = 0.003
"""What a request of these tests takes, by the clock."""
SERVED_IN_A_TURN = round(2 * TURN_SECONDS_MAX / REQUEST_SECONDS) + 1


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """On the broker's loop: its own time goes on whenever a timer is set."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        uvloop.run(test(**fixtures))

    return run


class Slow:
    """Each request takes its time by a clock of the test's own, and sets a timer, as a delayed fetch does."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.now = 100.0
        self.served: list[str] = []
        # How many had been served when each turn began.
        self.turns: list[int] = []

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        self.now += REQUEST_SECONDS
        self.served.append(connection.peer_host)
        self.loop.call_later(60, str).cancel()

    def clock(self) -> float:
        return self.now

    def beat(self) -> None:
        self.turns.append(len(self.served))
        self.loop.call_soon(self.beat)

    def most_in_a_turn(self) -> int:
        return max(after - before for before, after in zip(self.turns, self.turns[1:], strict=False))


class World:
    def __init__(self, slow: Slow, server: Server) -> None:
        self.slow = slow
        self.server = server
        self.address = server.listen("127.0.0.1", 0)
        self.clients: list[socket.socket] = []

    async def connect(self, count: int, host: str = "127.0.0.1") -> list[socket.socket]:
        before = len(self.server.connections)
        made = [socket.create_connection(self.address, source_address=(host, 0)) for _ in range(count)]
        self.clients += made
        await self.until(lambda: len(self.server.connections) == before + count)
        return made

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0)


@asynccontextmanager
async def running(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    loop = asyncio.get_running_loop()
    slow = Slow(loop)
    monkeypatch.setattr(turns, "monotonic", slow.clock)
    made = World(slow, Server(loop, ServerLimits(), slow))
    yield made
    for connection in made.server.connections:
        connection.check_invariants()
    made.server.close()
    for client in made.clients:
        client.close()


@pytest.mark.parametrize(("connections", "requests"), [(60, 1), (20, 10)])
@on_uvloop
async def test_many_that_ask_at_once_do_not_take_a_turn_for_themselves(
    monkeypatch: pytest.MonkeyPatch, connections: int, requests: int
) -> None:
    async with running(monkeypatch) as world:
        for client in await world.connect(connections):
            client.sendall(request(0) * requests)
        world.slow.beat()
        await world.until(lambda: len(world.slow.served) == connections * requests)
        await asyncio.sleep(0)
        assert world.slow.most_in_a_turn() <= SERVED_IN_A_TURN


@on_uvloop
async def test_more_than_the_kernel_tells_of_at_once_are_all_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlog.broker.server.readiness.READY_AT_ONCE", 3)
    monkeypatch.setattr("raftlog.broker.server.readiness.READY_ASKED_MAX", 2)
    async with running(monkeypatch) as world:
        clients = await world.connect(30)
        for served in (30, 60, 90):
            for client in clients:
                client.sendall(request(0))
            await world.until(lambda served=served: len(world.slow.served) == served)
        clients[0].close()
        await world.until(lambda: len(world.server.connections) == len(clients) - 1)


@on_uvloop
async def test_who_comes_from_elsewhere_need_not_wait_for_all_connections_of_one_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raftlog.broker.server.readiness.READY_AT_ONCE", 2)
    async with running(monkeypatch) as world:
        for client in [*await world.connect(60), *await world.connect(1, "127.0.0.2")]:
            client.sendall(request(0))
        await world.until(lambda: len(world.slow.served) == 61)
        assert world.slow.served.index("127.0.0.2") <= 2 * SERVED_IN_A_TURN


@on_uvloop
async def test_one_that_ends_while_it_waits_for_a_turn_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as world:
        clients = await world.connect(30)
        for client in clients:
            client.sendall(request(0))
        await world.until(lambda: world.server.turns.waiting > 0)
        for connection in list(world.server.connections):
            connection.close("as the test wants it")
        served = len(world.slow.served)
        await world.until(lambda: world.server.turns.waiting == 0)
        assert len(world.slow.served) == served < len(clients)


@on_uvloop
async def test_who_ends_its_side_with_its_last_request_is_served_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as world:
        for client in await world.connect(30):
            client.sendall(request(0))
            client.shutdown(socket.SHUT_WR)
        await world.until(lambda: not world.server.connections)
        assert len(world.slow.served) == 30


@on_uvloop
async def test_what_came_while_nothing_was_read_is_read_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as world:
        (client,) = await world.connect(1)
        (connection,) = world.server.connections
        connection._pause()
        client.sendall(request(0))
        transport = connection._transport
        assert isinstance(transport, SocketTransport)
        await world.until(lambda: transport._is_readable)
        assert not world.slow.served
        connection.resume()
        await world.until(lambda: len(world.slow.served) == 1)


def test_what_is_asked_for_meanwhile_has_a_later_turn() -> None:
    soon: list[Callable[[], Any]] = []
    made = Turns(soon.append)
    called: list[str] = []

    def again() -> None:
        called.append("first")
        made.later("a", lambda: called.append("second"))

    made.later("a", again)
    soon.pop(0)()
    assert called == ["first"] and made.waiting == 1
    soon.pop(0)()
    assert called == ["first", "second"] and not made.waiting
    soon.pop(0)()
    assert not soon, "turns are measured though nothing happens"


@on_uvloop
async def test_it_is_known_how_long_a_request_has_waited_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as world:
        waits: list[float] = []
        serve = world.server.side.dispatch

        def dispatch(connection: Connection, frame: memoryview) -> None:
            waits.append(world.slow.now - world.server.turns.waited_since)
            serve(connection, frame)

        world.server.side.dispatch = dispatch
        for client in await world.connect(40):
            client.sendall(request(0))
        await world.until(lambda: len(waits) == 40)
        assert waits[0] == 0.0, "it was served as soon as it was heard of"
        assert max(waits) >= REQUEST_SECONDS, "it was served behind others"
        assert max(waits) <= 40 * REQUEST_SECONDS
