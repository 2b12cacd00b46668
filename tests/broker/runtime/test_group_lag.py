"""How far groups are behind: which leaders are asked for what, and what comes of their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftlog.broker.runtime.broker_requests import RequestFailure
from raftlog.broker.runtime.group_lag import (
    PARTITIONS_IN_A_REQUEST,
    POSITIONS_MAX,
    REMEMBERED_MAX,
    REMEMBERED_SECONDS,
    GroupLags,
    Lags,
    PartitionLag,
    Position,
)
from raftlog.metadata.image import MetadataImage, PartitionState, TopicImage
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.broker.runtime.coordinator_world import image_of


class Leaders:
    """An image in which partition i is led by broker i modulo 3, or by nobody if that is 2; a sender and a clock."""

    def __init__(self, partitions: int = 20_000) -> None:
        states = tuple(
            PartitionState(
                partition_id=i,
                leader=-1 if i % 3 == 2 else i % 3,
                leader_epoch=0,
                partition_epoch=0,
                replicas=(0,),
                isr=(0,),
            )
            for i in range(partitions)
        )
        self.image: MetadataImage = image_of(TopicImage("t", b"t" * 16, states))
        self.sent: list[tuple[int, ListOffsetsRequest]] = []
        self.waiting: list[Callable[[Any], None]] = []
        self.time = 0.0
        self.lags = GroupLags(lambda: self.image, self, self)  # type: ignore[arg-type]

    def send(self, broker_id: int, request: ListOffsetsRequest, version: int, respond: Callable[[Any], None]) -> None:
        self.sent.append((broker_id, request))
        self.waiting.append(respond)

    def monotonic(self) -> float:
        return self.time

    def now_ms(self) -> int:
        return int(self.time * 1000)

    def find(self, *positions: Position) -> list[Lags]:
        """What comes back; empty until it is there."""
        found: list[Lags] = []
        self.lags.find(positions, found.append)
        return found

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Every partition ends at 100, is stable up to 90, and what was asked for waits since 5."""
        waiting, self.waiting = self.waiting, []
        for (_, request), respond in zip(self.sent[-len(waiting) :], waiting, strict=True):
            topics = [
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=error,
                            offset=100,
                            last_stable_offset=90,
                            consumed_timestamp=5,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
            respond(ListOffsetsResponse(topics=topics))


LAG = PartitionLag(100, 90, 5)


def test_each_leader_is_asked_once_and_partitions_without_one_are_left_out() -> None:
    leaders = Leaders()
    found = leaders.find(("t", 0, 1), ("t", 1, 1), ("t", 2, 1), ("t", 3, 7), ("none", 0, 1))
    assert [broker for broker, _ in leaders.sent] == [0, 1] and not found
    leaders.answer()
    assert found == [{("t", 0, 1): LAG, ("t", 1, 1): LAG, ("t", 3, 7): LAG}]
    assert leaders.find() == [{}]


def test_two_groups_positions_in_one_partition_go_in_two_requests() -> None:
    leaders = Leaders()
    found = leaders.find(("t", 0, 1), ("t", 0, 2))
    assert len(leaders.sent) == 2
    leaders.answer()
    assert set(found[0]) == {("t", 0, 1), ("t", 0, 2)}


def test_a_leader_that_fails_or_refuses_makes_its_partitions_unknown_and_no_others() -> None:
    leaders = Leaders()
    found = leaders.find(("t", 0, 1), ("t", 1, 1))
    leaders.waiting.pop()(RequestFailure.TIMED_OUT)
    leaders.sent.pop()
    leaders.answer()
    assert found == [{("t", 0, 1): LAG}]
    refused = leaders.find(("t", 3, 1))
    leaders.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert refused == [{}]


def test_an_answer_counts_for_a_moment() -> None:
    leaders = Leaders()
    leaders.find(("t", 0, 1))
    leaders.answer()
    assert leaders.find(("t", 0, 1)) == [{("t", 0, 1): LAG}] and len(leaders.sent) == 1
    leaders.find(("t", 0, 2))
    leaders.time += REMEMBERED_SECONDS
    leaders.find(("t", 0, 1))
    assert len(leaders.sent) == 3


def test_questions_memory_and_requests_are_bounded() -> None:
    leaders = Leaders()
    found = leaders.find(*[("t", 0, offset) for offset in range(3)], *[("t", i, 0) for i in range(20_000)])
    asked = sum(len(request.topics) for _, request in leaders.sent)
    assert max(len(request.topics) for _, request in leaders.sent) == PARTITIONS_IN_A_REQUEST
    assert asked < POSITIONS_MAX
    leaders.answer()
    assert len(found[0]) == asked
    for round_ in range(1, 5):
        leaders.find(*[("t", i, round_) for i in range(9_000)])
        leaders.answer()
    assert len(leaders.lags._remembered) == REMEMBERED_MAX


def test_what_waits_since_the_future_or_not_at_all_is_not_behind() -> None:
    assert PartitionLag(10, 10, 50).milliseconds(now_ms=80) == 30
    assert PartitionLag(10, 10, 90).milliseconds(now_ms=80) == 0
    assert PartitionLag(10, 10, -1).milliseconds(now_ms=80) == 0
