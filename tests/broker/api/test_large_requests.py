"""A request with thousands of entries: it is decoded, worked on and answered in many turns, between those of others."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from raftlog.broker.api import offset_for_leader_epoch
from raftlog.broker.api.dispatcher import Dispatcher
from raftlog.broker.api.pace import ENTRIES_PER_TURN
from raftlog.broker.api.request_metrics import RequestCounts
from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.limits import RECEIVE_BUFFER_BYTES
from raftlog.broker.core.connection.memory import ReceiveMemory
from raftlog.broker.core.connection.server_side import ServerSide
from raftlog.broker.core.connection.transport import Fault
from raftlog.broker.server.limits import REQUEST_ENTRIES_MAX
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import encode_request_header
from raftlog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.core.connection.fake_transport import FakeTransport

API, VERSION = ApiKey.OFFSET_FOR_LEADER_EPOCH, 3
MANY = 40_000
assert offset_for_leader_epoch.handle, "is loaded before the first request, in no thread"


class Client:
    """A connection from an address."""

    def __init__(self, world: World, address: str) -> None:
        self.transport = FakeTransport()
        self.connection = Connection(world.side, self.transport, (address, 1), ("broker", 9092))
        self._on_the_way = b""
        self._told = 0

    def send(self, requests: bytes) -> None:
        self._on_the_way += requests
        self.arrive()

    def arrive(self) -> None:
        """As much as is read."""
        while self._on_the_way and self.transport.is_reading and not self.connection.closed:
            buffer = self.connection.receive_buffer()
            taken = min(len(buffer), len(self._on_the_way))
            buffer[:taken] = self._on_the_way[:taken]
            self._on_the_way = self._on_the_way[taken:]
            self.connection.received(taken)

    def answers(self) -> list[tuple[int, OffsetForLeaderEpochResponse]]:
        """Those that have come since, with their correlation ids."""
        found = []
        while len(self.transport.sent) > self._told:
            size, number = struct.unpack_from(">ii", self.transport.sent, self._told)
            body = bytes(self.transport.sent[self._told + 8 : self._told + 4 + size])
            found.append((number, decode(OffsetForLeaderEpochResponse, VERSION, body)))
            self._told += 4 + size
        return found


class World:
    """A dispatcher and its clients; `looked_up` are the topics that were, in order."""

    def __init__(self) -> None:
        self.looked_up: list[str] = []
        self.soon: list[Callable[[], None]] = []
        services: Any = SimpleNamespace(
            loop=SimpleNamespace(call_soon=lambda call, *given: self.soon.append(lambda: call(*given))),
            counts=RequestCounts(),
            partitions=SimpleNamespace(find=self.find),
        )
        self.counts = services.counts
        memory = ReceiveMemory(self.soon.append, lambda _, call: self.soon.append(call), lambda: 1.0)
        self.memory = memory
        self.side = ServerSide(Dispatcher(services, {}).dispatch, memory, lambda: 1.0, 8 << 20)
        self.clients: list[Client] = []

    def find(self, topic: str, _: None, index: int) -> ErrorCode:
        self.looked_up.append(topic)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if index % 2 else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def client(self, address: str = "10.0.0.1") -> Client:
        self.clients.append(Client(self, address))
        return self.clients[-1]

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for call in soon:
            call()
        for client in self.clients:
            client.transport.turn()
            client.arrive()
            client.connection.check_invariants()

    def turns(self, until: Callable[[], object]) -> int:
        """How many it takes."""
        for count in range(10_000):
            if until():
                return count
            self.turn()
        raise AssertionError("it does not come to an end")


def request(number: int, topic: str, count: int) -> bytes:
    partitions = [OffsetForLeaderPartition(partition=index) for index in range(count)]
    message = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=partitions)])
    body = encode(message, VERSION, encode_request_header(API, VERSION, number, "c"))
    return len(body).to_bytes(4, "big") + body


def test_others_are_served_between_and_the_answer_is_that_of_one_turn() -> None:
    world = World()
    one, other = world.client(), world.client("10.0.0.2")
    one.send(request(1, "large", MANY))
    longest = before = 0
    while not one.transport.sent:
        other.send(request(2, "small", 2))
        assert len(other.answers()) == 1
        longest, before = max(longest, len(world.looked_up) - before), len(world.looked_up)
        world.turn()
    ((number, response),) = one.answers()
    assert number == 1 and longest <= ENTRIES_PER_TURN + 2
    (topic,) = response.topics
    assert [each.partition for each in topic.partitions] == list(range(MANY))
    assert topic.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    small = world.looked_up.count("small") // 2
    assert small > 100 and world.counts.errors[API, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == MANY // 2 + small


def test_what_the_same_connection_asks_next_is_looked_at_and_answered_next() -> None:
    world = World()
    client = world.client()
    client.send(request(1, "large", MANY) + request(2, "small", 1) + request(3, "large", MANY))
    numbers: list[int] = []
    world.turns(lambda: numbers.extend(number for number, _ in client.answers()) or len(numbers) == 3)
    assert numbers == [1, 2, 3]
    assert world.looked_up.count("large") == 2 * MANY


def test_of_one_address_one_large_request_is_worked_on_at_a_time() -> None:
    world = World()
    clients = [world.client() for _ in range(4)]
    elsewhere = world.client("10.0.0.2")
    size = RECEIVE_BUFFER_BYTES // 12 + 100  # too many for the shared buffer
    for number, client in enumerate(clients):
        client.send(request(number, f"large-{number}", size if number % 2 else 5_000))
    elsewhere.send(request(9, "elsewhere", 5_000))
    clients[2].connection.close("the client is gone")
    assert world.memory.given_out_bytes > 0, "who waits keeps what it was promised"
    world.turns(lambda: all(client.transport.sent for client in (*clients[:2], clients[3])))
    own = [topic for topic in world.looked_up if topic != "elsewhere"]
    assert own == ["large-0"] * 5_000 + ["large-1"] * size + ["large-3"] * size
    first = world.looked_up.index("elsewhere")
    assert first < 10_000, "another address waits"
    assert elsewhere.answers() and world.memory.given_out_bytes == 0


def test_who_leaves_while_its_request_is_worked_on_holds_up_nobody() -> None:
    world = World()
    gone, waits = world.client(), world.client()
    gone.send(request(1, "gone", MANY))
    waits.send(request(2, "waits", MANY))
    for _ in range(100):
        world.turn()
    assert world.looked_up
    gone.connection.close("the client is gone")
    world.turns(waits.answers)
    assert world.looked_up.count("waits") == MANY


def test_a_request_with_more_entries_than_may_be_ends_its_connection_and_the_next_is_served() -> None:
    world = World()
    hostile, waits = world.client(), world.client()
    hostile.send(request(1, "hostile", REQUEST_ENTRIES_MAX))
    waits.send(request(2, "waits", MANY))
    world.turns(waits.answers)
    assert hostile.transport.ended is not None
    reason, fault = hostile.transport.ended
    assert "more elements" in reason and fault is Fault.THE_PEERS
    assert "hostile" not in world.looked_up


def test_a_large_request_that_is_cut_short_ends_its_connection_and_the_next_is_served() -> None:
    world = World()
    liar, waits = world.client(), world.client()
    whole = request(1, "liar", MANY)
    liar.send((len(whole) - 8).to_bytes(4, "big") + whole[4:-4])
    waits.send(request(2, "waits", MANY))
    world.turns(waits.answers)
    assert liar.transport.ended is not None and liar.transport.ended[1] is Fault.THE_PEERS
