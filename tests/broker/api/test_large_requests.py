"""A request with thousands of entries: it is decoded, worked on and answered in many turns, between those of others."""

from __future__ import annotations

from raftlog.broker.api import offset_for_leader_epoch
from raftlog.broker.api.pace import ENTRIES_PER_TURN
from raftlog.broker.core.connection.limits import RECEIVE_BUFFER_BYTES
from raftlog.broker.core.connection.transport import Fault
from raftlog.broker.server.limits import REQUEST_ENTRIES_MAX
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import encode_request_header
from raftlog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.api.large_world import World

API, VERSION = ApiKey.OFFSET_FOR_LEADER_EPOCH, 3
MANY = 40_000
assert offset_for_leader_epoch.handle, "is loaded before the first request, in no thread"


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
