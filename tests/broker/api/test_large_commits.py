"""Commits of offsets of thousands of partitions: in parts, each decided in a turn of its own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from raftlog.broker.api import offset_commit
from raftlog.broker.api.commits import COMMITS_TOGETHER
from raftlog.broker.core.group.effects import Decision
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import encode_request_header
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.broker.api.large_world import Client, World

VERSION = 3
MANY = 20_000
NOW = SimpleNamespace(wall_ms=0, monotonic_ms=0)
assert callable(offset_commit.handle), "is loaded before the first request, in no thread"


class Groups:
    """One group that anybody may commit to, until it is fenced: what was committed, in order, and in which turns."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.committed: list[tuple[str, int, int]] = []
        self.parts: list[int] = []
        self.fenced_after = MANY * 10
        topic = {name: SimpleNamespace(name=name, topic_id=bytes(16), partitions=range(MANY)) for name in ("a", "b")}
        world.services.controller.image.topics = topic
        world.run_on_group = self.run
        self.shard = SimpleNamespace(groups={}, config=SimpleNamespace(offset_metadata_max_bytes=100))

    def run(self, _: str, operation: Callable[[Any], None], refuse: Callable[[ErrorCode], None]) -> None:
        if len(self.committed) >= self.fenced_after:
            refuse(ErrorCode.ILLEGAL_GENERATION)
        else:
            operation(self)

    def now(self) -> Any:
        return NOW

    def commit(self, decision: Decision[Any], answer: Callable[[Any], None], _: object) -> None:
        self.parts.append(sum(len(record.offsets) for record in decision.records))
        for record in decision.records:
            self.committed += [(record.topic, index, each.offset) for index, each in record.offsets.items()]
        self.world.soon.append(lambda: answer(decision.response))


def request(number: int, count: int, offset: int) -> bytes:
    """A commit for so many partitions of each of two topics."""
    partitions = [OffsetCommitRequestPartition(partition_index=i, committed_offset=offset) for i in range(count)]
    topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in ("a", "b")]
    message = OffsetCommitRequest(group_id="g", topics=topics)
    body = encode(message, VERSION, encode_request_header(ApiKey.OFFSET_COMMIT, VERSION, number, "c"))
    return len(body).to_bytes(4, "big") + body


def answers(world: World, client: Client, count: int) -> list[tuple[int, OffsetCommitResponse]]:
    found: list[tuple[int, OffsetCommitResponse]] = []
    world.turns(lambda: found.extend(client.answers(OffsetCommitResponse, VERSION)) or len(found) == count)
    return found


def test_a_commit_of_many_partitions_is_done_in_parts_and_answered_as_one() -> None:
    world = World()
    groups, client = Groups(world), world.client()
    client.send(request(1, MANY, 7))
    ((_, response),) = answers(world, client, 1)
    assert [topic.name for topic in response.topics] == ["a", "b"]
    for topic in response.topics:
        assert [each.partition_index for each in topic.partitions] == list(range(MANY))
        assert {each.error_code for each in topic.partitions} == {ErrorCode.NONE}
    assert max(groups.parts) <= COMMITS_TOGETHER and sum(groups.parts) == 2 * MANY
    assert groups.committed == [(name, index, 7) for name in ("a", "b") for index in range(MANY)]


def test_what_the_same_connection_commits_next_is_committed_after_all_parts() -> None:
    world = World()
    groups, client = Groups(world), world.client()
    client.send(request(1, MANY, 1) + request(2, 20, 2) + request(3, MANY, 3))
    found = answers(world, client, 3)
    assert [number for number, _ in found] == [1, 2, 3]
    offsets = [offset for _, _, offset in groups.committed]
    assert offsets == sorted(offsets) and len(offsets) == 4 * MANY + 40


def test_who_is_fenced_in_the_middle_has_the_rest_refused() -> None:
    world = World()
    groups, client = Groups(world), world.client()
    groups.fenced_after = MANY // 2
    client.send(request(1, MANY, 7))
    ((_, response),) = answers(world, client, 1)
    errors = [each.error_code for topic in response.topics for each in topic.partitions]
    committed = len(groups.committed)
    assert errors == [ErrorCode.NONE] * committed + [ErrorCode.ILLEGAL_GENERATION] * (2 * MANY - committed)


def test_others_are_served_while_parts_wait_to_be_committed() -> None:
    world = World()
    groups, client, other = Groups(world), world.client(), world.client("10.0.0.2")
    client.send(request(1, MANY, 7))
    world.turns(lambda: len(groups.parts) > 2)
    other.send(request(2, 20, 8))
    ((number, _),) = answers(world, other, 1)
    assert number == 2 and not client.transport.sent
