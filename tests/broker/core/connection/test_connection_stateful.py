"""Connections under any split of the bytes, any order of completions and any slowness of the reader."""

from __future__ import annotations

import struct

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.limits import (
    INFLIGHT_REQUESTS_PER_CONNECTION_MAX,
    OWN_BUFFER_FROM_BYTES,
    RECEIVE_BUFFER_BYTES,
)
from raftlog.broker.core.connection.memory import ReceiveMemory
from raftlog.broker.core.connection.reply import PendingReply
from raftlog.broker.core.connection.server_side import NotYet, ServerSide
from tests.broker.core.connection.fake_transport import FakeTransport, Range
from tests.effort import examples

ANSWERED, PARKED, FILE, SILENT, HOLDING = range(5)
SIZES = (0, 3, 500, OWN_BUFFER_FROM_BYTES + 7, RECEIVE_BUFFER_BYTES + 1, 3 << 20)
MEMORY_MAX = 1 << 20


class Place(PendingReply):
    """One that may be asked to answer early, and remembers it."""

    __slots__ = ("is_hurried", "reply")

    def __init__(self, connection: Connection, reply: list[object]) -> None:
        super().__init__(connection)
        self.reply = reply
        self.is_hurried = False

    def complete_early(self) -> None:
        self.is_hurried = True


class Client:
    """A connection, what its client has sent, and what it should get."""

    def __init__(self, memory: ReceiveMemory) -> None:
        self.transport = FakeTransport()
        side = ServerSide(self.dispatch, memory, lambda: 1.0, 8 << 20)
        self.connection = Connection(side, self.transport, ("client", 1), ("broker", 9092))
        self.on_the_way = bytearray()
        self.expected = bytearray()
        self.asked = 0
        self.served = 0
        self.places: list[Place] = []
        self.held: Place | None = None
        # What comes has to wait.
        self.is_busy = False

    def dispatch(self, connection: Connection, frame: memoryview) -> None:
        if self.is_busy:
            raise NotYet
        assert self.held is None, "served while an earlier request holds the connection"
        kind, number, size = struct.unpack_from(">bii", frame)
        assert number == self.served, "served out of order, or twice"
        assert len(frame) == 9 + size and bytes(frame[9:]) == bytes([number % 256]) * size
        self.served += 1
        head = struct.pack(">i", number) * 5
        if kind == ANSWERED:
            connection.reply([head])
        elif kind == FILE:
            connection.reply([head, Range(number, 20), b"tail"])
        else:
            place = Place(connection, [] if kind == SILENT else [head])
            connection.add_place(place)
            self.places.append(place)
            if kind == HOLDING:
                self.held = place
                connection.hold()

    def complete(self, at: int) -> None:
        place = self.places.pop(at)
        place.complete(place.reply)  # type: ignore[arg-type]
        if place is self.held:
            self.held = None
            self.connection.release()

    def serve_again(self) -> None:
        self.is_busy = False
        self.connection.resume()

    def ask(self, kind: int, size: int) -> None:
        body = struct.pack(">bii", kind, self.asked, size) + bytes([self.asked % 256]) * size
        self.on_the_way += struct.pack(">i", len(body)) + body
        if kind != SILENT:
            self.expected += struct.pack(">i", self.asked) * 5
        if kind == FILE:
            self.expected += Range(self.asked, 20).content(0) + b"tail"
        self.asked += 1

    def arrive(self, count: int) -> None:
        while count and self.on_the_way and self.transport.is_reading:
            buffer = self.connection.receive_buffer()
            taken = min(count, len(buffer), len(self.on_the_way))
            assert taken, "no room to receive into"
            buffer[:taken] = self.on_the_way[:taken]
            del self.on_the_way[:taken]
            count -= taken
            self.connection.received(taken)

    def write(self) -> None:
        if self.transport.is_watching and self.transport.window:
            self.connection.writable()


class Connections(RuleBasedStateMachine):
    """Two clients that share the memory for large requests, of which there is enough for one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.later = FakeTransport()
        self.memory = ReceiveMemory(self.later.call_soon, self.later.call_later, lambda: 1.0, MEMORY_MAX)
        self.clients = [Client(self.memory), Client(self.memory)]

    @initialize(windows=st.tuples(st.sampled_from((0, 5, 1 << 30)), st.sampled_from((0, 1 << 30))))
    def some_read_slowly(self, windows: tuple[int, int]) -> None:
        for client, window in zip(self.clients, windows, strict=True):
            client.transport.window = window

    @rule(who=st.integers(0, 1), kinds=st.lists(st.sampled_from((ANSWERED, PARKED, FILE, SILENT, HOLDING)), max_size=5))
    def small_requests(self, who: int, kinds: list[int]) -> None:
        for kind in kinds:
            self.clients[who].ask(kind, 0)
        self.clients[who].arrive(4 << 20)

    @rule(who=st.integers(0, 1), kind=st.sampled_from((ANSWERED, PARKED, HOLDING)), size=st.sampled_from(SIZES))
    def a_request(self, who: int, kind: int, size: int) -> None:
        self.clients[who].ask(kind, size)

    @rule(who=st.integers(0, 1))
    def more_requests_than_may_wait(self, who: int) -> None:
        for _ in range(INFLIGHT_REQUESTS_PER_CONNECTION_MAX + 3):
            self.clients[who].ask(PARKED, 0)

    @rule(who=st.integers(0, 1), count=st.one_of(st.integers(1, 40), st.just(30_000), st.just(4 << 20)))
    def bytes_arrive(self, who: int, count: int) -> None:
        self.clients[who].arrive(count)

    @rule(who=st.integers(0, 1), at=st.integers(0, 200))
    def a_reply_is_known(self, who: int, at: int) -> None:
        places = self.clients[who].places
        if places:
            self.clients[who].complete(at % len(places))

    @rule(who=st.integers(0, 1))
    def what_comes_has_to_wait(self, who: int) -> None:
        self.clients[who].is_busy = True

    @rule(who=st.integers(0, 1))
    def what_has_waited_is_served(self, who: int) -> None:
        self.clients[who].serve_again()

    @rule(who=st.integers(0, 1), window=st.integers(0, 30))
    def the_client_reads_slowly(self, who: int, window: int) -> None:
        self.clients[who].transport.window = window
        self.clients[who].write()

    @rule()
    def a_turn(self) -> None:
        for transport in (self.later, *(client.transport for client in self.clients)):
            transport.turn()

    @invariant()
    def all_is_in_order(self) -> None:
        self.memory.check_invariants()
        assert self.memory.kept_bytes == sum(len(client.connection._stash) for client in self.clients)
        for client in self.clients:
            client.connection.check_invariants()
            assert client.transport.ended is None and not client.transport.bugs
            assert client.expected.startswith(client.transport.sent)
            assert len(client.places) <= INFLIGHT_REQUESTS_PER_CONNECTION_MAX
            known = [place is None or place.pieces is not None for place in client.connection._places]
            behind = max((at for at, is_known in enumerate(known) if is_known), default=0)
            for place in client.connection._places[:behind]:
                assert place.pieces is not None or place.is_hurried  # type: ignore[attr-defined]

    def teardown(self) -> None:
        """When everybody reads and everything is answered, nothing is missing."""
        for _ in range(1_000):
            if all(client.transport.sent == client.expected for client in self.clients):
                break
            for who, client in enumerate(self.clients):
                client.transport.window = 1 << 30
                client.serve_again()
                client.write()
                client.arrive(8 << 20)
                for _ in client.places[:]:
                    self.a_reply_is_known(who, 0)
            self.a_turn()
            self.all_is_in_order()
        for client in self.clients:
            assert client.served == client.asked, "requests were lost"
            assert client.transport.sent == client.expected
            client.connection.close("the test is over")
            client.connection.check_invariants()
        assert self.memory.given_out_bytes == 0


TestConnections = Connections.TestCase
TestConnections.settings = settings(max_examples=examples(100))
