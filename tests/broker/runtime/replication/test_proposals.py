"""ISR proposals on their way: how they travel together, and that what is refused is not made again at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.broker.core.replica.leadership import Leadership, LeaderTerms
from raftlog.broker.runtime.replication.proposals import IsrProposals
from raftlog.metadata.cluster_commands import AlteredPartition, IsrProposal, PartitionsAltered
from raftlog.metadata.records import PartitionState
from raftlog.wire.errors import ErrorCode


def about_to_grow(index: int = 0) -> tuple[PartitionState, Leadership, IsrProposal]:
    """A partition that broker 1 leads alone, and the proposal that takes broker 2 in."""
    state = PartitionState(
        partition_id=index, leader=1, leader_epoch=0, partition_epoch=0, replicas=(1, 2), isr=(1,), directories=()
    )
    leadership = Leadership(LeaderTerms(1, 1000, lambda *_: True, lambda _: 5), bytes(16), state, 0, 0)
    follower = leadership.followers[2]
    leadership.fetched(follower, 0, 0, 0, 0)
    proposal = leadership.expand(follower, 0)
    assert proposal is not None
    return state, leadership, proposal


@pytest.mark.parametrize(
    ("error", "refused"),
    [(ErrorCode.INELIGIBLE_REPLICA, True), (ErrorCode.OPERATION_NOT_ATTEMPTED, True), (ErrorCode.NONE, False)],
)
def test_who_proposed_hears_whether_the_same_again_would_be_refused_again(error: ErrorCode, refused: bool) -> None:
    """A follower whose directory has failed is eligible as far as its leader knows: it was proposed over and over."""
    state, leadership, proposal = about_to_grow()
    follower = leadership.followers[2]
    told: list[tuple[Any, bool]] = []

    async def alter(proposals: Any) -> PartitionsAltered:
        after = state._replace(isr=(1, 2), partition_epoch=1) if error is ErrorCode.NONE else None
        return PartitionsAltered(ErrorCode.NONE, (AlteredPartition(bytes(16), 0, error, after),))

    async def run() -> None:
        loop = asyncio.get_running_loop()
        partition: Any = SimpleNamespace(leadership=leadership)
        settled = asyncio.Event()

        def on_settled(partition: Any, refused: bool) -> None:
            told.append((partition, refused))
            settled.set()

        IsrProposals(loop, lambda: 0, alter, on_settled).submit(partition, proposal)
        await asyncio.wait_for(settled.wait(), 5)

    asyncio.run(run())
    assert [refused for _, refused in told] == [refused] and follower.counts is (error is ErrorCode.NONE)


def test_what_comes_while_a_request_is_under_way_travels_in_the_next_one() -> None:
    """Ten thousand partitions that were opened in slices made hundreds of requests, all under way at once."""
    asked: list[list[int]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[PartitionsAltered]] = []

        async def alter(proposals: Sequence[IsrProposal]) -> PartitionsAltered:
            asked.append([proposal.partition_id for proposal in proposals])
            answers.append(loop.create_future())
            return await answers[-1]

        proposals = IsrProposals(loop, lambda: 0, alter, lambda *_: None)

        async def submit(*indexes: int) -> None:
            for index in indexes:
                _, leadership, proposal = about_to_grow(index)
                partition: Any = SimpleNamespace(leadership=leadership)
                proposals.submit(partition, proposal)
            await settle()

        await submit(0, 1)
        await submit(2)
        await submit(3, 4)
        assert asked == [[0, 1]]
        answers[0].set_result(PartitionsAltered(ErrorCode.INVALID_REQUEST))
        await settle()
        assert asked == [[0, 1], [2, 3, 4]]
        answers[1].set_result(PartitionsAltered(ErrorCode.INVALID_REQUEST))
        await settle()
        await submit(5)
        assert asked[2:] == [[5]]
        await submit(6)
        proposals.close()
        await settle()
        assert len(asked) == 3, "nothing goes out of what was closed"

    asyncio.run(run())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
