"""Handlers are imported when their first request comes, and nobody else waits for that."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from raftlog.broker.api.dispatcher import Dispatcher
from raftlog.broker.api.request_metrics import RequestCounts
from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.server.limits import ServerLimits
from raftlog.broker.server.server import Server
from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.codec import encode
from raftlog.wire.headers import encode_request_header
from tests.broker.server.test_connection import read_frame

SLOW, QUICK = "heartbeat", "leave_group"


def framed(key: ApiKey, correlation_id: int) -> bytes:
    body = encode(APIS[key].request(), 1, encode_request_header(key, 1, correlation_id, "c"))
    return len(body).to_bytes(4, "big") + body


class World:
    """A server whose handlers answer with nothing to say; SLOW takes until `is_done` to import."""

    def __init__(self) -> None:
        self.is_done = Event()
        self.imports: list[str] = []
        self.fails = False
        services: Any = SimpleNamespace(loop=asyncio.get_running_loop(), counts=RequestCounts(), tasks=set())
        self._dispatcher = Dispatcher(services, {})
        self.requests_seen: list[Connection] = []
        self.server = Server(services.loop, ServerLimits(), self.dispatch)
        self.address = self.server.listen("127.0.0.1", 0)

    def dispatch(self, connection: Connection, request: memoryview) -> None:
        self.requests_seen.append(connection)
        self._dispatcher.dispatch(connection, request)

    def import_module(self, name: str) -> Any:
        handler = name.rpartition(".")[2]
        self.imports.append(handler)
        if handler == SLOW:
            assert self.is_done.wait(30), "the event loop waits for an import"
            if self.fails:
                raise ImportError("as the test wants it")
        return SimpleNamespace(handle=lambda context, _: context.respond(context.api.response()))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address)


@pytest_asyncio.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    made = World()
    monkeypatch.setattr(importlib, "import_module", made.import_module)
    for handler in (SLOW, QUICK):
        monkeypatch.delitem(sys.modules, f"raftlog.broker.api.{handler}", raising=False)
    yield made
    made.is_done.set()
    for connection in made.server.connections:
        connection.check_invariants()
    made.server.close()


async def answered(reader: asyncio.StreamReader) -> int:
    return int.from_bytes((await read_frame(reader))[:4], "big")


async def test_others_are_served_while_a_handler_is_imported(world: World) -> None:
    (slow, slow_writer), (other, other_writer) = await world.connect(), await world.connect()
    slow_writer.write(framed(ApiKey.HEARTBEAT, 1) + framed(ApiKey.LEAVE_GROUP, 2) + framed(ApiKey.HEARTBEAT, 3))
    other_writer.write(framed(ApiKey.LEAVE_GROUP, 4))
    assert await answered(other) == 4
    world.is_done.set()
    assert [await answered(slow) for _ in range(3)] == [1, 2, 3]
    for writer in (slow_writer, other_writer):
        writer.close()


async def test_all_who_ask_meanwhile_are_served_and_connections_that_ended_are_forgotten(world: World) -> None:
    clients = [await world.connect() for _ in range(4)]
    for number, (_, writer) in enumerate(clients):
        writer.write(framed(ApiKey.HEARTBEAT, number))
    async with asyncio.timeout(10):
        while len(world.requests_seen) < len(clients):
            await asyncio.sleep(0)
    world.requests_seen[0].close("as the test wants it")
    world.is_done.set()
    left = [client for client in world.requests_seen if not client.closed]
    assert len(left) == 3 and world.imports.count(SLOW) == 1
    for number, (reader, writer) in enumerate(clients):
        if writer.get_extra_info("sockname")[1] == world.requests_seen[0].peer_port:
            assert await reader.read() == b""
        else:
            assert await answered(reader) == number
    for _, writer in clients:
        writer.close()


async def test_an_import_that_fails_ends_the_connections_and_is_tried_again(world: World) -> None:
    world.fails = True
    world.is_done.set()
    reader, writer = await world.connect()
    writer.write(framed(ApiKey.HEARTBEAT, 1))
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()
    world.fails = False
    reader, writer = await world.connect()
    writer.write(framed(ApiKey.HEARTBEAT, 2))
    assert await answered(reader) == 2
    writer.close()
