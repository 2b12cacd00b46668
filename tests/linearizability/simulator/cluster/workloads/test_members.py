"""What members of simulated groups do when an answer does not come."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

from raftlog.linearizability.simulator.cluster.kafka_port import Unanswered
from raftlog.linearizability.simulator.cluster.workloads.groups import GroupJournal
from raftlog.linearizability.simulator.cluster.workloads.members import Member
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from raftlog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class Coordinator:
    """It has one member, and does not answer the first request for offsets."""

    def __init__(self) -> None:
        self.unanswered = 1

    async def ask(self, request: Any, version: int, seconds: float) -> Any:
        if isinstance(request, JoinGroupRequest):
            member = JoinGroupResponseMember(member_id="m")
            return JoinGroupResponse(generation_id=1, leader="m", member_id="m", members=[member])
        if isinstance(request, SyncGroupRequest):
            return SyncGroupResponse(assignment=request.assignments[0].assignment)
        if isinstance(request, OffsetFetchRequest):
            return self.committed(request)
        return SimpleNamespace(error_code=0)

    def committed(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if self.unanswered:
            self.unanswered -= 1
            raise Unanswered("no answer")
        (topic,) = request.groups[0].topics or []
        found = [
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1)
            for index in topic.partition_indexes
        ]
        topics = [OffsetFetchResponseTopics(name="t", partitions=found)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="t", topics=topics)])


def fails(invariant: str, text: str) -> None:
    raise AssertionError(text)


async def test_a_member_that_was_not_told_where_to_begin_asks_again() -> None:
    coordinator = Coordinator()

    async def to(address: object) -> Coordinator:
        return coordinator

    ways: Any = SimpleNamespace(random=Random(1), to=to)
    log: Any = SimpleNamespace(now=lambda: 0, begin=lambda *_: SimpleNamespace(input={}), end=lambda *_: None)
    member = Member(ways, "t", GroupJournal(log, fails), None)

    member.coordinator = ("host1", 9092)
    await member.step()
    assert not member.owned

    for _ in range(20):
        member.coordinator = ("host1", 9092)
        if not member.owned:
            await member.step()

    assert member.owned == (0, 1, 2, 3)
