"""What leaders may tell of where a log ends."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.linearizability.simulator.cluster.replica_contents import Batch
from raftlog.linearizability.simulator.cluster.workloads.ends import Ends
from raftlog.linearizability.simulator.violation import Violation
from raftlog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

KEY = ("t", 0, bytes(16))


class Leaders:
    """They say these things, one after the other; between them `now` goes on."""

    def __init__(self, *answers: tuple[int, int, int]) -> None:
        self.random = Random(0)
        self.loop = SimpleNamespace()
        self._answers = [
            ListOffsetsPartitionResponse(partition_index=0, leader_epoch=epoch, offset=offset, timestamp=timestamp)
            for epoch, offset, timestamp in answers
        ]
        self._now = 0

    def now(self) -> int:
        self._now += 1
        return self._now

    async def leader(self, topic: str, partition: int) -> tuple[str, int]:
        return "b1", 9092

    async def to(self, address: object) -> Leaders:
        return self

    async def ask(self, request: Any, version: int, seconds: float) -> ListOffsetsResponse:
        answer = self._answers.pop(0)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])])


def ends_of(leaders: Leaders, highest: int = 100) -> Ends:
    committed = defaultdict(list, {KEY: [Batch(0, 3, 0, 1000, 10), Batch(3, 5, 0, 1000, 10)]})
    ends = SimpleNamespace(highest=lambda key: highest)
    invariants = SimpleNamespace(held=set(), transaction_ends=ends, committed=committed, newest={KEY: None})
    context: Any = SimpleNamespace(ways=lambda name: leaders, history=leaders, invariants=invariants, topic="t")
    return Ends(context, 0)


@pytest.mark.parametrize(
    ("answers", "holds"),
    [
        ([(0, 5, -1), (0, 5, -1)], True),
        ([(0, 5, -1), (0, 4, -1)], False),
        ([(0, 5, -1), (1, 4, -1)], False),
        ([(1, 5, -1), (0, 4, -1)], True),
        ([(1, 4, -1), (0, 5, -1)], False),
    ],
)
async def test_an_end_is_no_earlier_than_what_the_same_leader_or_an_earlier_one_told(
    answers: list[tuple[int, int, int]], holds: bool
) -> None:
    leaders = Leaders(*answers)
    ends = ends_of(leaders)
    ends.random.choice = lambda _: 0  # type: ignore[method-assign,assignment,return-value]
    await ends._ask_end(leaders, KEY)  # type: ignore[arg-type]
    if holds:
        await ends._ask_end(leaders, KEY)  # type: ignore[arg-type]
    else:
        with pytest.raises(Violation):
            await ends._ask_end(leaders, KEY)  # type: ignore[arg-type]


async def test_an_end_beyond_every_high_watermark_is_noticed() -> None:
    leaders = Leaders((0, 5, -1))
    with pytest.raises(Violation, match="nobody knew more than 4"):
        await ends_of(leaders, highest=4)._ask_end(leaders, KEY)  # type: ignore[arg-type]


@pytest.mark.parametrize(("offset", "timestamp", "holds"), [(0, 1000, True), (3, 1000, False), (0, 999, False)])
async def test_the_first_record_of_a_time_is_the_one_that_is_committed(
    offset: int, timestamp: int, holds: bool
) -> None:
    leaders = Leaders((0, offset, timestamp))
    ends = ends_of(leaders)
    leaders.random.choice = lambda given: given[0]  # type: ignore[method-assign]
    if holds:
        await ends._ask_time(leaders, KEY)  # type: ignore[arg-type]
    else:
        with pytest.raises(Violation):
            await ends._ask_time(leaders, KEY)  # type: ignore[arg-type]
