"""OffsetFetch of thousands of partitions: looked up in one turn, told in many."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.broker.api import offset_fetch
from raftlog.broker.api.pace import ENTRIES_PER_TURN
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.core.group.records import NO_EXPIRY, CommittedOffset
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import encode_request_header
from raftlog.wire.ids import LeaderEpoch, Offset
from raftlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from raftlog.wire.schema import ZERO_UUID
from tests.broker.api.large_world import World

VERSION = 5
MANY = 10_000
NAMES = [f"topic-{number}" for number in range(MANY)]
assert callable(offset_fetch.handle), "is loaded before the first request, in no thread"


class Host:
    """One group that has committed the same offset everywhere."""

    def __init__(self, world: World) -> None:
        self.looked_up = False
        self.by_topic: dict[str, dict[int, CommittedOffset]] = {}
        self.commit_everywhere(1)
        offsets = SimpleNamespace(by_topic=self.by_topic, pending=frozenset())
        group = SimpleNamespace(offsets=offsets, check_fetch=lambda *_: ErrorCode.NONE)
        self.shard = SimpleNamespace(groups={"g": group})
        world.run_on_group = lambda _, operation, __: operation(self)

    def commit_everywhere(self, offset: int) -> None:
        value = CommittedOffset(Offset(offset), LeaderEpoch(0), "", 0, NO_EXPIRY, ZERO_UUID)
        self.by_topic.update({name: {0: value} for name in NAMES})

    def commit(self, decision: Decision[Any], answer: Callable[[Any], None], _: object) -> None:
        self.looked_up = True
        answer(decision.response)


def request(topics: list[str] | None) -> bytes:
    wanted = None if topics is None else [OffsetFetchRequestTopic(name=n, partition_indexes=[0]) for n in topics]
    message = OffsetFetchRequest(group_id="g", topics=wanted)
    body = encode(message, VERSION, encode_request_header(ApiKey.OFFSET_FETCH, VERSION, 1, "c"))
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("topics", [NAMES, None])
def test_all_is_told_as_it_was_in_one_turn_and_others_are_served_between(topics: list[str] | None) -> None:
    world = World()
    host, client, other = Host(world), world.client(), world.client("10.0.0.2")
    client.send(request(topics))
    world.turns(lambda: host.looked_up)
    host.commit_everywhere(2)
    served = 0
    while not client.transport.sent:
        other.send(request(NAMES[:1]))
        served += len(other.answers(OffsetFetchResponse, VERSION))
        world.turn()
    ((_, response),) = client.answers(OffsetFetchResponse, VERSION)
    assert [topic.name for topic in response.topics] == NAMES
    assert {topic.partitions[0].committed_offset for topic in response.topics} == {1}
    assert served >= MANY // ENTRIES_PER_TURN
