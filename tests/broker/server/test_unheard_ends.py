"""A client that no packet reached when its connection ended is told again; its kernel drops what comes until then."""

from __future__ import annotations

import ctypes
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raftlog.broker.server.limits import ServerLimits
from raftlog.broker.server.unheard_ends import UNHEARD_MAX, UNHEARD_SECONDS_MAX, UnheardEnds
from tests.broker.server.test_connection import Setup, request
from tests.waiting import until, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what was acknowledged")

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
NOW = 100.0


class Instruction(ctypes.Structure):
    """Of a packet filter, as linux/filter.h has it."""

    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class Program(ctypes.Structure):
    """Likewise."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(Instruction)))


RETURN_NOTHING = Instruction(0x06, 0, 0, 0)


def cut(sock: socket.socket) -> None:
    """From now on no packet reaches this end, which acknowledges none therefore."""
    program = Program(1, ctypes.pointer(RETURN_NOTHING))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, bytes(program))


def heal(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A broker's socket and its client's."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        ours, _ = listener.accept()
        client.settimeout(30)
        with ours:
            yield ours, client


def test_a_client_that_was_cut_off_when_it_was_disconnected_is_told_again() -> None:
    with pair() as (ours, client):
        ends = UnheardEnds()
        cut(client)
        ends.end(ours, NOW)
        ends.look(NOW)
        assert len(ends) == 1
        heal(client)
        assert ends.tell_again() == 1
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert len(ends) == 0


def test_a_client_that_heard_of_the_end_is_forgotten_and_not_reset() -> None:
    with pair() as (ours, client):
        ends = UnheardEnds()
        ends.end(ours.dup(), NOW)
        assert client.recv(1) == b""

        def is_forgotten() -> bool:
            ends.look(NOW)
            return len(ends) == 0

        wait_until(is_forgotten, "the end was acknowledged")
        ends.end(ours, NOW)
        assert ends.tell_again() == 0
        assert client.recv(1) == b""


def test_no_more_ends_are_kept_than_the_limit_and_none_longer_than_a_client_waits() -> None:
    with pair() as (first, first_client), pair() as (last, last_client):
        ends = UnheardEnds()
        cut(first_client)
        cut(last_client)
        ends.end(first, NOW)
        for _ in range(UNHEARD_MAX):
            ends.end(last.dup(), NOW)
        assert len(ends) == UNHEARD_MAX and first.fileno() == -1, "the oldest has gone"
        ends.look(NOW + UNHEARD_SECONDS_MAX - 1)
        assert len(ends) == UNHEARD_MAX
        ends.look(NOW + UNHEARD_SECONDS_MAX)
        assert len(ends) == 0


async def test_what_was_asked_before_the_cut_is_not_answered_after_it() -> None:
    world = Setup(ServerLimits())
    try:
        reader, writer = await world.connect()
        sock = writer.get_extra_info("socket")
        writer.write(request(1, b"parked"))
        await until(lambda: world.echo.places)
        cut(sock)
        writer.write(request(5, b"sent while it was cut"))
        await until(lambda: world.echo.seen == 2)
        world.server.disconnect(list(world.server.connections), "cut off")
        place, reply = world.echo.places[0]
        place.complete([reply])
        assert not world.server.connections
        heal(sock)
        assert world.server.unheard_ends.tell_again() == 1
        with pytest.raises(ConnectionResetError):
            await reader.read()
        assert world.echo.seen == 2
    finally:
        world.server.close()


async def test_an_end_that_is_kept_gives_way_to_a_client_when_descriptors_are_few() -> None:
    world = Setup(ServerLimits(descriptors=1))
    try:
        _, writer = await world.connect()
        await until(lambda: world.server.connections)
        cut(writer.get_extra_info("socket"))
        world.server.disconnect(list(world.server.connections), "cut off")
        assert len(world.server.unheard_ends) == 1
        reader, writer = await world.connect()
        writer.write(request(5, b"x"))
        assert await reader.readexactly(4)
        assert len(world.server.unheard_ends) == 0 and len(world.server.connections) == 1
    finally:
        world.server.close()
