"""A clock that is an hour off is told of, one that is a second off is not."""

from __future__ import annotations

import logging

import pytest

from raftlog.broker.runtime.clock_check import ClockCheck, NodeClock
from raftlog.raft.seam import NotLeader

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def check(own: NodeClock, leaders: NodeClock, *, answered_after: float = 0.0) -> ClockCheck:
    moments = iter([0.0, answered_after] * 3)

    async def ask() -> NodeClock:
        return leaders

    return ClockCheck(lambda: own, ask, lambda: next(moments))


@pytest.mark.parametrize(
    ("own_ms", "said"),
    [
        (NOW_MS + HOUR_MS, "the clock of this machine is 3600 s ahead of that of broker 2"),
        (NOW_MS - HOUR_MS, "the clock of this machine is 3600 s behind that of broker 2"),
        (NOW_MS + 1000, None),
        (NOW_MS, None),
    ],
)
async def test_a_clock_that_is_far_off_is_told_of(
    caplog: pytest.LogCaptureFixture, own_ms: int, said: str | None
) -> None:
    with caplog.at_level(logging.WARNING, "raftlog.check"):
        await check(NodeClock(1, own_ms), NodeClock(2, NOW_MS)).compare()
    assert (said in caplog.text and "let NTP set it" in caplog.text) if said else not caplog.text


async def test_a_slow_answer_is_no_wrong_clock(caplog: pytest.LogCaptureFixture) -> None:
    await check(NodeClock(1, NOW_MS + 12_000), NodeClock(2, NOW_MS), answered_after=12.0).compare()
    assert not caplog.text


async def test_without_a_leader_nothing_is_known(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> NodeClock:
        raise NotLeader(-1)

    await ClockCheck(lambda: NodeClock(1, 0), ask, lambda: 0.0).compare()
    assert not caplog.text
