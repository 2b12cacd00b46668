"""The server's sockets, framing and back-pressure, on real sockets with a dispatcher that echoes."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.limits import (
    INFLIGHT_REQUESTS_PER_CONNECTION_MAX,
    RECEIVE_BUFFER_BYTES,
    REQUEST_ARRIVAL_SECONDS_MAX,
    UNSENT_BYTES_PER_CONNECTION_MAX,
)
from raftlog.broker.core.connection.memory import ReceiveMemory
from raftlog.broker.core.connection.reply import PendingReply
from raftlog.broker.server.limited_warnings import MINUTE_SECONDS, TOLD_A_MINUTE
from raftlog.broker.server.limits import ServerLimits
from raftlog.broker.server.server import Server
from raftlog.wire.errors import RemoteProtocolError
from tests.system.fuzz.watch import resident_bytes

PARK = 1
FILE = 2
BROKEN = 3


def request(kind: int, payload: bytes = b"") -> bytes:
    body = struct.pack(">q", kind) + payload
    return struct.pack(">i", len(body)) + body


class Range:
    """A stretch of a file, as the log hands it out."""

    def __init__(self, descriptor: int, position: int, length: int) -> None:
        self.descriptor, self.position, self.length = descriptor, position, length

    def fileno(self) -> int:
        return self.descriptor


class Echo:
    """Echoes each request as a frame; parks, sends a file or raises when the request says so."""

    def __init__(self) -> None:
        self.places: list[tuple[PendingReply, bytes]] = []
        self.seen = 0
        self.descriptor = -1

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        self.seen += 1
        (kind,) = struct.unpack_from(">q", frame)
        reply = struct.pack(">i", len(frame)) + bytes(frame)
        if kind == PARK:
            self.places.append((connection.reserve_place(), reply))
        elif kind == FILE:
            length = os.fstat(self.descriptor).st_size
            connection.reply([struct.pack(">i", length), Range(self.descriptor, 0, length)])
        elif kind == BROKEN:
            raise RemoteProtocolError("nonsense")
        else:
            connection.reply([reply])


class Setup:
    def __init__(self, limits: ServerLimits) -> None:
        self.echo = Echo()
        self.server = Server(asyncio.get_running_loop(), limits, self.echo)
        self.address = self.server.listen("127.0.0.1", 0)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address)

    async def until(self, condition: object) -> None:
        async with asyncio.timeout(10):
            while not condition():  # type: ignore[operator]
                await asyncio.sleep(0)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(10):
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(length)


@pytest_asyncio.fixture
async def setup() -> AsyncIterator[Setup]:
    made = Setup(ServerLimits(request_bytes_max=8 << 20))
    yield made
    made.server.close()


async def test_replies_leave_in_the_order_of_the_requests(setup: Setup) -> None:
    reader, writer = await setup.connect()
    writer.write(request(PARK, b"a") + request(0, b"b") + request(PARK, b"c") + request(0, b"d"))
    await setup.until(lambda: setup.echo.seen == 4)
    (first, first_reply), (third, third_reply) = setup.echo.places
    third.complete([third_reply])
    first.complete([first_reply])
    assert [(await read_frame(reader))[8:] for _ in range(4)] == [b"a", b"b", b"c", b"d"]


async def test_a_request_that_comes_byte_by_byte_is_served(setup: Setup) -> None:
    reader, writer = await setup.connect()
    for byte in request(0, b"slowly"):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    assert (await read_frame(reader))[8:] == b"slowly"


@pytest.mark.parametrize("size", [RECEIVE_BUFFER_BYTES - 12, RECEIVE_BUFFER_BYTES, 5 << 20])
async def test_a_request_larger_than_the_shared_buffer_arrives_whole(setup: Setup, size: int) -> None:
    reader, writer = await setup.connect()
    payload = os.urandom(size)
    writer.write(request(0, b"before") + request(0, payload) + request(0, b"after"))
    assert (await read_frame(reader))[8:] == b"before"
    assert (await read_frame(reader))[8:] == payload
    assert (await read_frame(reader))[8:] == b"after"


async def test_requests_of_two_connections_do_not_mix_in_the_shared_buffer(setup: Setup) -> None:
    one, two = await setup.connect(), await setup.connect()
    whole = request(0, os.urandom(300_000))
    for start in range(0, len(whole), 10_000):
        one[1].write(whole[start : start + 10_000])
        two[1].write(whole[start : start + 10_000])
        await one[1].drain()
        await two[1].drain()
    assert await read_frame(one[0]) == await read_frame(two[0]) == whole[4:]


@pytest.mark.parametrize("length", [-1, 0, 7, (8 << 20) + 1, 2**31 - 1])
async def test_a_length_that_cannot_be_ends_the_connection_and_no_other(setup: Setup, length: int) -> None:
    bad, good = await setup.connect(), await setup.connect()
    bad[1].write(struct.pack(">i", length) + b"x" * 20)
    async with asyncio.timeout(10):
        assert await bad[0].read() == b""
    good[1].write(request(0, b"still here"))
    assert (await read_frame(good[0]))[8:] == b"still here"


async def test_a_peer_that_breaks_the_protocol_loses_only_its_connection(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = await setup.connect(), await setup.connect()
    bad[1].write(request(0) + request(BROKEN) + request(0))
    async with asyncio.timeout(10):
        await bad[0].read()
    good[1].write(request(0, b"still here"))
    assert (await read_frame(good[0]))[8:] == b"still here"
    assert [record.message for record in caplog.records if "nonsense" in record.message].__len__() == 1
    assert setup.echo.seen == 3, "what came behind the broken request was served"


async def test_of_many_that_break_the_protocol_the_first_are_told_and_the_rest_counted(
    setup: Setup, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings, now = setup.server.protocol_warnings, setup.server.loop.time()
    monkeypatch.setattr(warnings, "_now", lambda: now)
    for _ in range(40):
        reader, writer = await setup.connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(10):
            await reader.read()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == TOLD_A_MINUTE and all("closed by a fault of the peer" in line for line in told)
    caplog.clear()
    now += MINUTE_SECONDS
    warnings.look()
    warnings.look()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [f"{40 - TOLD_A_MINUTE} more connections were closed within a minute for what their peers sent"]


async def test_what_was_answered_before_the_broken_request_still_arrives(setup: Setup) -> None:
    reader, writer = await setup.connect()
    writer.write(request(0, b"a") + request(0, b"b") + request(BROKEN))
    assert [(await read_frame(reader))[8:] for _ in range(2)] == [b"a", b"b"]
    async with asyncio.timeout(10):
        assert await reader.read() == b""


async def test_a_length_that_lies_takes_no_memory_and_keeps_nobody_waiting() -> None:
    setup = Setup(ServerLimits())
    before = resident_bytes(os.getpid())
    liars = [await setup.connect() for _ in range(2)]
    for _, writer in liars:
        writer.write(struct.pack(">i", 90 << 20) + bytes(40_000))
    await setup.until(lambda: sum(connection.arrived_bytes > 0 for connection in setup.server.connections) == 2)
    assert resident_bytes(os.getpid()) - before < 20 << 20, "memory is taken for what has not come"
    good = await setup.connect()
    whole = request(0, os.urandom(6 << 20))
    good[1].write(whole)
    assert await read_frame(good[0]) == whole[4:]
    setup.server.close()


async def test_replies_that_wait_behind_a_parked_one_count_as_unread(setup: Setup) -> None:
    reader, writer = await setup.connect()
    chunk = request(0, b"x" * 400_000)
    writer.write(request(PARK) + chunk * 40)
    bound = 1 + UNSENT_BYTES_PER_CONNECTION_MAX // len(chunk) + 2
    await setup.until(lambda: any(connection._paused for connection in setup.server.connections))
    assert setup.echo.seen <= bound, "requests are served though their replies cannot leave"
    place, reply = setup.echo.places[0]
    place.complete([reply])
    assert await read_frame(reader) == request(PARK)[4:]
    for _ in range(40):
        assert await read_frame(reader) == chunk[4:]
    (connection,) = setup.server.connections
    assert connection._queue.unsent_bytes == 0


async def test_a_file_range_is_sent_between_replies(setup: Setup, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "segment").write_bytes(content)
    with open(tmp_path / "segment", "rb") as file:
        setup.echo.descriptor = file.fileno()
        reader, writer = await setup.connect()
        writer.write(request(0, b"a") + request(FILE) + request(0, b"b"))
        assert (await read_frame(reader))[8:] == b"a"
        assert await read_frame(reader) == content
        assert (await read_frame(reader))[8:] == b"b"


async def test_a_client_that_never_reads_is_not_read_either(setup: Setup) -> None:
    deaf = socket.create_connection(setup.address)
    deaf.setblocking(False)
    loop = asyncio.get_running_loop()
    chunk = request(0, b"x" * 100_000)

    async def flood() -> None:
        while True:
            await loop.sock_sendall(deaf, chunk)

    flooding = asyncio.create_task(flood())
    good = await setup.connect()
    for number in range(50):
        good[1].write(request(0, str(number).encode()))
        assert (await read_frame(good[0]))[8:] == str(number).encode()
    before = setup.echo.seen
    for _ in range(50):
        good[1].write(request(0, b"again"))
        await read_frame(good[0])
    assert setup.echo.seen - before < 100, "the deaf client's requests are still being served"
    flooding.cancel()
    deaf.close()


async def test_no_more_than_the_limit_of_requests_is_parked_for_one_connection(setup: Setup) -> None:
    reader, writer = await setup.connect()
    total = INFLIGHT_REQUESTS_PER_CONNECTION_MAX + 10
    writer.write(b"".join(request(PARK, struct.pack(">i", number)) for number in range(total)))
    await setup.until(lambda: setup.echo.seen >= INFLIGHT_REQUESTS_PER_CONNECTION_MAX)
    other = await setup.connect()
    other[1].write(request(0))
    await read_frame(other[0])
    assert setup.echo.seen == INFLIGHT_REQUESTS_PER_CONNECTION_MAX + 1
    answered = 0
    while answered < total:
        await setup.until(lambda: setup.echo.places)
        place, reply = setup.echo.places.pop(0)
        place.complete([reply])
        assert struct.unpack(">i", (await read_frame(reader))[8:]) == (answered,)
        answered += 1


async def test_a_place_whose_client_is_gone_is_abandoned(setup: Setup) -> None:
    told = []

    class Noticing(PendingReply):
        def abandon(self) -> None:
            super().abandon()
            told.append(self)

    _, writer = await setup.connect()
    await setup.until(lambda: setup.server.connections)
    (connection,) = setup.server.connections
    place = Noticing(connection)
    connection.add_place(place)
    writer.close()
    await setup.until(lambda: told)
    place.complete([b"late"])
    assert not setup.server.connections


async def test_an_address_gets_no_more_connections_than_its_limit() -> None:
    setup = Setup(ServerLimits(connections_per_address_max=2))
    first, _second = await setup.connect(), await setup.connect()
    third = await setup.connect()
    async with asyncio.timeout(10):
        assert await third[0].read() == b""
    first[1].close()
    await setup.until(lambda: len(setup.server.connections) == 1)
    fourth = await setup.connect()
    fourth[1].write(request(0, b"welcome"))
    assert (await read_frame(fourth[0]))[8:] == b"welcome"
    setup.server.close()


async def test_idle_and_half_sent_connections_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(ServerLimits(idle_ms_max=600_000))
    idle, half = await setup.connect(), await setup.connect()
    half[1].write(request(0, b"x" * 100)[:50])
    await setup.until(lambda: any(connection.arriving_since for connection in setup.server.connections))
    setup.server._sweep()
    begin = setup.server.side.now()
    monkeypatch.setattr(setup.server.side, "now", lambda: begin + REQUEST_ARRIVAL_SECONDS_MAX + 1)
    setup.server._sweep()
    async with asyncio.timeout(10):
        assert await half[0].read() == b""
    assert len(setup.server.connections) == 1
    monkeypatch.setattr(setup.server.side, "now", lambda: begin + 601)
    setup.server._sweep()
    async with asyncio.timeout(10):
        assert await idle[0].read() == b""
    setup.server.close()


async def test_a_request_that_trickles_in_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(ServerLimits())
    now = 1_000.0
    monkeypatch.setattr(setup.server.side, "now", lambda: now)
    reader, writer = await setup.connect()
    whole = request(0, b"x" * 100)
    for byte in whole[:11]:
        writer.write(bytes([byte]))
        await setup.until(lambda: any(connection.is_heard for connection in setup.server.connections))
        now += REQUEST_ARRIVAL_SECONDS_MAX / 10
        setup.server._sweep()
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    assert not setup.server.connections
    setup.server.close()


async def test_time_in_which_we_do_not_read_is_not_the_sender_s(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(ServerLimits())
    now = 1_000.0
    monkeypatch.setattr(setup.server.side, "now", lambda: now)
    reader, writer = await setup.connect()
    total = INFLIGHT_REQUESTS_PER_CONNECTION_MAX + 1
    writer.write(b"".join(request(PARK, bytes([number])) for number in range(total)))
    await setup.until(lambda: len(setup.echo.places) == total - 1)
    now += REQUEST_ARRIVAL_SECONDS_MAX + 1
    setup.server._sweep()
    for number in range(total):
        await setup.until(lambda number=number: len(setup.echo.places) > number)
        place, reply = setup.echo.places[number]
        place.complete([reply])
        assert (await read_frame(reader))[8:] == bytes([number])
    setup.server.close()


async def test_a_client_that_leaves_its_replies_unread_is_closed_in_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup(ServerLimits(idle_ms_max=600_000))
    deaf = socket.create_connection(setup.address)
    deaf.setblocking(False)
    flooding = asyncio.create_task(asyncio.get_running_loop().sock_sendall(deaf, request(0, b"x" * 100_000) * 500))
    await setup.until(lambda: any(connection.is_unread for connection in setup.server.connections))
    setup.server._sweep()
    begin = setup.server.side.now()
    monkeypatch.setattr(setup.server.side, "now", lambda: begin + 601)
    setup.server._sweep()
    assert not setup.server.connections
    assert [record.message for record in caplog.records if "unread" in record.message].__len__() == 1
    flooding.cancel()
    deaf.close()
    setup.server.close()


def with_memory(bytes_max: int) -> Setup:
    setup = Setup(ServerLimits())
    loop = setup.server.loop
    memory = ReceiveMemory(loop.call_soon, loop.call_later, loop.time, bytes_max)
    setup.server.memory = setup.server.side.memory = memory
    return setup


async def test_memory_for_large_requests_is_bounded_and_handed_on() -> None:
    setup = with_memory(1 << 20)
    holder, waiter = await setup.connect(), await setup.connect()
    whole = request(0, os.urandom(3 << 20))
    sent = 5 << 19
    holder[1].write(whole[:sent])
    await setup.until(lambda: any(connection.arrived_bytes == sent for connection in setup.server.connections))
    waiter[1].write(whole)
    other = await setup.connect()
    other[1].write(request(0, b"small ones pass"))
    assert (await read_frame(other[0]))[8:] == b"small ones pass"
    assert setup.echo.seen == 1, "a second large request was taken although the memory for one is in use"
    holder[1].write(whole[sent:])
    assert await read_frame(holder[0]) == whole[4:]
    assert await read_frame(waiter[0]) == whole[4:]
    assert setup.server.memory.given_out_bytes == 0
    setup.server.close()


async def test_two_that_stop_in_the_middle_of_large_requests_hold_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    setup = with_memory(16 << 20)
    stopped = [await setup.connect() for _ in range(2)]
    for _, writer in stopped:
        writer.write(request(0, bytes(5 << 20))[:-1000])
    await setup.until(lambda: setup.server.memory.given_out_bytes > 10 << 20)
    small, large = await setup.connect(), await setup.connect()
    for client, size in ((small, 1 << 20), (large, 4 << 20)):
        whole = request(0, os.urandom(size))
        client[1].write(whole)
        assert await read_frame(client[0]) == whole[4:]
    assert len(setup.server.connections) == 3, "more than one of them lost its memory, or none"
    assert "came too slowly" in caplog.text and "queued.max.request.bytes" in caplog.text
    setup.server.close()
