"""A fetch of thousands of partitions: named, read and answered in many turns, between those of others."""

from __future__ import annotations

import pytest

from raftlog.broker.api import fetch, offset_for_leader_epoch
from raftlog.broker.core.fetch.session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from raftlog.broker.runtime.fetching import OPENING_AS_READS, READS_PER_TURN
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import encode_request_header
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.api.large_world import Client, World

VERSION = 9
MANY = 40_000
assert fetch.handle and offset_for_leader_epoch.handle, "are loaded before the first request, in no thread"


def request(
    number: int, topic: str, count: int, *, session: tuple[int, int] = (NO_SESSION, FINAL_EPOCH), wait_ms: int = 0
) -> bytes:
    """A Fetch of so many partitions of a topic; of none, if all is as before."""
    message = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20)
    message.session_id, message.session_epoch = session
    if count:
        partitions = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(count)]
        message.topics = [FetchTopic(topic=topic, partitions=partitions)]
    body = encode(message, VERSION, encode_request_header(ApiKey.FETCH, VERSION, number, "c"))
    return len(body).to_bytes(4, "big") + body


def answered(world: World, client: Client) -> tuple[int, FetchResponse, int]:
    """Correlation id and answer, when it is there, and how many partitions were looked up in a turn at most."""
    longest, before = 0, len(world.looked_up)
    answers: list[tuple[int, FetchResponse]] = []

    def is_answered() -> bool:
        nonlocal longest, before
        longest, before = max(longest, len(world.looked_up) - before), len(world.looked_up)
        answers.extend(client.answers(FetchResponse, VERSION))
        return bool(answers)

    world.turns(is_answered)
    ((number, response),) = answers
    world.fetches.check_invariants()
    return number, response, longest


def test_others_are_served_between_and_the_answer_is_that_of_one_turn() -> None:
    world = World()
    one, other = world.client(), world.client("10.0.0.2")
    one.send(request(1, "large", MANY))
    longest = before = small = 0
    while not one.transport.sent:
        other.send(request(2, "small", 2))
        small += len(other.answers(FetchResponse, VERSION))
        longest, before = max(longest, len(world.looked_up) - before), len(world.looked_up)
        world.turn()
    ((_, response),) = one.answers(FetchResponse, VERSION)
    (topic,) = response.responses
    assert [each.partition_index for each in topic.partitions] == list(range(MANY))
    assert topic.partitions[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert longest <= READS_PER_TURN + 4 and small > 100
    assert world.counts.errors[ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER] == MANY // 2 + small


def test_logs_that_have_to_be_opened_make_a_turn_shorter() -> None:
    world = World()
    world.opens = True
    client = world.client()
    client.send(request(1, "few", 200))
    assert not client.transport.sent
    _, response, longest = answered(world, client)
    assert len(response.responses[0].partitions) == 200
    assert longest <= READS_PER_TURN // OPENING_AS_READS + 1


def test_what_a_session_has_to_say_again_of_thousands_is_read_in_turns_too() -> None:
    world = World()
    client = world.client()
    client.send(request(1, "large", MANY, session=(NO_SESSION, INITIAL_EPOCH)))
    _, first, _ = answered(world, client)
    client.send(request(2, "large", 0, session=(first.session_id, 1)))
    number, again, longest = answered(world, client)
    assert number == 2 and len(again.responses[0].partitions) == MANY
    assert longest <= READS_PER_TURN + 1


@pytest.mark.parametrize("turns", [1, 20, 100, 215, 230, 250])
def test_who_leaves_in_the_middle_holds_up_nobody_and_leaves_nothing(turns: int) -> None:
    world = World()
    gone, waits = world.client(), world.client()
    gone.send(request(1, "gone", MANY, session=(NO_SESSION, FINAL_EPOCH)))
    waits.send(request(2, "waits", MANY))
    for _ in range(turns):
        world.turn()
    gone.connection.close("the client is gone")
    assert len(answered(world, waits)[1].responses[0].partitions) == MANY
    assert world.looked_up.count("waits") == MANY and not world.fetches.delayed


def test_a_session_that_is_closed_while_it_takes_what_is_named_is_not_found() -> None:
    world = World()
    client = world.client()
    client.send(request(1, "large", MANY, session=(NO_SESSION, INITIAL_EPOCH)))
    world.turns(lambda: len(world.sessions))
    for _ in range(5):
        world.turn()
    world.client("10.0.0.2").send(request(2, "", 0, session=(1, FINAL_EPOCH)))
    _, response, _ = answered(world, client)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and not world.looked_up


def test_a_session_that_is_closed_while_it_is_read_is_read_no_further() -> None:
    world = World()
    client = world.client()
    client.send(request(1, "large", MANY, session=(NO_SESSION, INITIAL_EPOCH)))
    world.turns(lambda: world.looked_up)
    world.turn()
    world.client("10.0.0.2").send(request(2, "", 0, session=(1, FINAL_EPOCH)))
    _, response, _ = answered(world, client)
    read = len(response.responses[0].partitions)
    assert read == len(world.looked_up) < MANY


def test_a_fetch_whose_time_is_over_while_it_is_read_is_answered_about_all() -> None:
    world = World()
    client = world.client()
    client.send(request(1, "large", MANY, wait_ms=500))
    world.turns(lambda: world.looked_up)
    world.timers.expire()
    _, response, _ = answered(world, client)
    assert len(response.responses[0].partitions) == MANY == len(world.looked_up)
