"""How a connection ends, told by a transport in memory: whose fault it was, and what still leaves."""

from __future__ import annotations

import errno
import struct

import pytest

from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.limits import (
    INFLIGHT_REQUESTS_PER_CONNECTION_MAX,
    REQUEST_ARRIVAL_SECONDS_MAX,
    UNSENT_BYTES_PER_CONNECTION_MAX,
)
from raftlog.broker.core.connection.memory import ReceiveMemory
from raftlog.broker.core.connection.reply import PendingReply
from raftlog.broker.core.connection.server_side import ServerSide
from raftlog.broker.core.connection.transport import Fault
from raftlog.wire.errors import InvariantViolation, RemoteProtocolError
from tests.broker.core.connection.fake_transport import FakeTransport, Range


class World:
    """One connection whose requests are told by their first byte."""

    def __init__(self, request_bytes_max: int = 1 << 20, *, parks: bool = False) -> None:
        """`parks`: no request is answered."""
        self.now = 100.0
        self.parks = parks
        self.transport = FakeTransport()
        self.memory = ReceiveMemory(self.transport.call_soon, self.transport.call_later, lambda: self.now)
        side = ServerSide(self.dispatch, self.memory, lambda: self.now, request_bytes_max)
        self.connection = Connection(side, self.transport, ("client", 1), ("broker", 9092))
        self.raised: Exception | None = None

    def dispatch(self, connection: Connection, frame: memoryview) -> None:
        if self.raised is not None and frame[0] == ord("!"):
            raise self.raised
        if self.parks:
            connection.reserve_place()
        else:
            connection.reply([bytes(frame)])

    def receive(self, data: bytes) -> None:
        buffer = self.connection.receive_buffer()
        buffer[: len(data)] = data
        self.connection.received(len(data))


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    ("error", "fault", "is_bug"),
    [
        (RemoteProtocolError("nonsense"), Fault.THE_PEERS, False),
        (ConnectionResetError(104, "Connection reset by peer"), Fault.NOBODYS, False),
        (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), Fault.NOBODYS, False),
        (OSError(errno.EHOSTUNREACH, "No route to host"), Fault.NOBODYS, False),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), Fault.NOBODYS, False),
        (OSError(errno.EIO, "Input/output error"), Fault.OURS, True),
        (KeyError("a slip"), Fault.OURS, True),
        (InvariantViolation("it would lie"), Fault.OURS, True),
    ],
)
def test_what_ends_a_connection_says_whose_fault_it_is(error: Exception, fault: Fault, is_bug: bool) -> None:
    world = World()
    world.raised = error
    world.receive(framed(b"answered") + framed(b"!2345678") + framed(b"not served"))
    assert world.transport.ended is not None and world.transport.ended[1] is fault
    assert bool(world.transport.bugs) is is_bug
    assert world.transport.sent in (b"answered", b"")
    assert world.transport.sent or fault is not Fault.THE_PEERS, "what was answered before is not sent"
    world.connection.check_invariants()


def test_a_read_of_nothing_is_the_clients_end() -> None:
    world = World()
    world.receive(b"")
    assert world.transport.ended == ("closed by the client", Fault.NOBODYS)


def test_what_is_answered_after_the_end_goes_nowhere() -> None:
    world = World()
    places = [world.connection.reserve_place(), world.connection.reserve_place()]
    world.connection.close("over")
    for place in places:
        place.complete([b"late"])
    world.connection.reply([b"late", Range(0, 3)])
    late = PendingReply(world.connection)
    world.connection.add_place(late)
    late.complete([b"late"])
    world.connection.writable()
    world.connection.resume()
    assert not world.transport.sent and not world.transport.bugs


def test_a_file_that_was_cut_ends_the_connection_and_not_the_broker() -> None:
    world = World()
    world.transport.files_cut = True
    world.connection.reply([Range(0, 100)])
    assert world.transport.ended is not None and "cut" in world.transport.ended[0]
    assert not world.transport.bugs


def test_requests_behind_replies_that_left_at_once_are_served_without_another_byte() -> None:
    world = World()
    served: list[int] = []

    def dispatch(connection: Connection, frame: memoryview) -> None:
        served.append(len(frame))
        connection.reply([bytes(UNSENT_BYTES_PER_CONNECTION_MAX // 2 + 1)])

    world.connection._side.dispatch = dispatch
    world.receive(framed(b"12345678") * 3)
    assert len(served) == 2, "too much would be unsent"
    world.transport.turn()
    assert len(served) == 3
    world.connection.check_invariants()


def test_a_half_sent_request_has_its_time_and_an_idle_client_its_own() -> None:
    half, idle = World(), World()
    half.receive(framed(b"answered")[:9])
    for world in (half, idle):
        world.now += REQUEST_ARRIVAL_SECONDS_MAX + 1
        world.connection.check_times(world.now, 600.0)
    assert half.transport.ended is not None and half.transport.ended[1] is Fault.THE_PEERS
    assert idle.transport.ended is None
    idle.connection.check_times(idle.now + 601, -1.0)
    assert idle.transport.ended is None, "connections.max.idle.ms=-1 means for ever"
    idle.connection.check_times(idle.now + 601, 600.0)
    assert idle.transport.ended == ("idle for longer than connections.max.idle.ms", Fault.NOBODYS)


def test_who_goes_unseen_with_as_many_requests_parked_as_may_be_is_let_go_in_time() -> None:
    listened_to, unheard = World(parks=True), World(parks=True)
    listened_to.receive(framed(b"parked..") * (INFLIGHT_REQUESTS_PER_CONNECTION_MAX - 1))
    unheard.receive(framed(b"parked..") * (INFLIGHT_REQUESTS_PER_CONNECTION_MAX + 1))
    for world in (listened_to, unheard):
        world.connection.check_times(world.now, 600.0)
        world.connection.check_times(world.now + 600, 600.0)
    assert unheard.transport.ended is None
    for world in (listened_to, unheard):
        world.connection.check_times(world.now + 601, 600.0)
    assert listened_to.transport.ended is None, "it is read, and so its end is heard of"
    assert unheard.transport.ended is not None and unheard.transport.ended[1] is Fault.THE_PEERS


def test_memory_of_a_large_request_comes_back_when_its_sender_goes() -> None:
    world = World()
    world.receive(struct.pack(">i", 900_000) + b"x" * 40_000)
    assert world.memory.given_out_bytes > 0
    world.connection.close("over")
    assert world.memory.given_out_bytes == 0
    world.memory.check_invariants()


def test_a_reply_of_which_a_part_was_taken_goes_on_where_it_stopped() -> None:
    for other_replies in (0, 1):
        world = World()
        world.transport.window = 3
        place = world.connection.reserve_place()
        for _ in range(other_replies):
            world.connection.reply([b"0123456789"])
        place.complete([b"abcdefghij"])
        world.connection.check_invariants()
        assert not world.transport.is_reading and world.transport.is_watching
        world.transport.window = 100
        world.connection.writable()
        assert world.transport.sent == b"abcdefghij" + b"0123456789" * other_replies
        assert world.transport.is_reading and not world.transport.is_watching
        world.connection.check_invariants()


def test_a_range_that_the_disk_does_not_give_ends_the_connection_and_its_log_is_told() -> None:
    world = World()
    asked = Range(0, 100)
    world.transport.disk_fails = True
    world.connection.reply([asked])
    assert world.transport.ended is not None
    assert "cannot be read: Input/output error" in world.transport.ended[0]
    assert not world.transport.bugs
    assert asked.failure is not None
