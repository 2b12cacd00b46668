"""Commits of a member whose group goes on, told by replies that only a test gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raftlog.client.consumer import Consumer
from raftlog.client.core.classic_member import ClassicMember, State
from raftlog.client.core.errors import Rejected
from raftlog.client.core.settings import ConsumerSettings
from raftlog.client.group_runner import GroupRunner
from raftlog.client.router import Router
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.client.answers import Answers

HERE = ("t", 0)


def coordinator(*, goes_on: Callable[[], None] = lambda: None) -> Answers:
    """Takes commits of generation 2 only; `goes_on` is called before it answers."""

    def answer(request: Any) -> OffsetCommitResponse:
        goes_on()
        code = ErrorCode.NONE if request.generation_id_or_member_epoch == 2 else ErrorCode.ILLEGAL_GENERATION
        part = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[part])])

    router = Answers()
    router.answer = answer
    return router


def generations(router: Answers) -> list[int]:
    """Those of the commits that it was asked for."""
    return [request.generation_id_or_member_epoch for request in router.asked]


def member_of(router: Router) -> tuple[Consumer, ClassicMember]:
    """One that has a partition, in generation 1."""
    settings = ConsumerSettings(group="g")
    consumer, member = Consumer(router, settings, ["t"]), ClassicMember("g", settings, frozenset("t"))
    member.state, member.generation, member.member_id, member.owned = State.STABLE, 1, "m", frozenset([HERE])
    consumer._runner = GroupRunner(router, "g", member)
    consumer._fetching.assign(HERE, 0)
    return consumer, member


async def test_a_commit_that_was_overtaken_by_a_rebalance_is_sent_again_and_costs_no_membership() -> None:
    """With a cooperative assignor partitions are kept meanwhile; the member of now is another one than was refused."""

    def rebalance() -> None:
        member.generation = 2

    router = coordinator(goes_on=rebalance)
    consumer, member = member_of(router)
    await consumer.commit({HERE: 5})
    assert generations(router) == [1, 2]
    assert member.owned and member.state is State.STABLE


async def test_a_member_that_the_group_has_thrown_out_commits_nothing_from_outside() -> None:
    """A group without members takes offsets from anybody."""
    router = coordinator()
    consumer, member = member_of(router)
    for _ in range(2):
        with pytest.raises(Rejected) as refused:
            await consumer.commit({HERE: 5})
        assert refused.value.code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
    assert generations(router) == [1] and not member.owned
