"""ISR proposals on their way: what is refused is not made again at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.broker.core.replica.leadership import Leadership, LeaderTerms
from raftlog.broker.runtime.replication.proposals import IsrProposals
from raftlog.metadata.cluster_commands import AlteredPartition, PartitionsAltered
from raftlog.metadata.records import PartitionState
from raftlog.wire.errors import ErrorCode


@pytest.mark.parametrize(
    ("error", "refused"),
    [(ErrorCode.INELIGIBLE_REPLICA, True), (ErrorCode.OPERATION_NOT_ATTEMPTED, True), (ErrorCode.NONE, False)],
)
def test_who_proposed_hears_whether_the_same_again_would_be_refused_again(error: ErrorCode, refused: bool) -> None:
    """A follower whose directory has failed is eligible as far as its leader knows: it was proposed over and over."""
    state = PartitionState(
        index=0, leader=1, leader_epoch=0, partition_epoch=0, replicas=(1, 2), isr=(1,), directories=()
    )
    terms = LeaderTerms(1, 1000, lambda *_: True, lambda _: 5)
    leadership = Leadership(terms, bytes(16), state, 0, 0)
    follower = leadership.followers[2]
    leadership.fetched(follower, 0, 0, 0, 0)
    proposal = leadership.expand(follower, 0)
    assert proposal is not None
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
