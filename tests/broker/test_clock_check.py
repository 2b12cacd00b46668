"""A clock that is an hour off is told of, one that is a second off is not."""

from __future__ import annotations

import logging

import pytest

from raftlog.broker.runtime.clock_check import ClockCheck
from raftlog.raft.seam import NotLeader

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def check(own_ms: int, leaders_ms: int, seconds: float = 0.0) -> ClockCheck:
    moments = iter([0.0, seconds])

    async def ask() -> tuple[int, int]:
        return 2, leaders_ms

    return ClockCheck(lambda: own_ms, ask, lambda: next(moments))


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
    with caplog.at_level(logging.WARNING, "raftlog.clock"):
        await check(own_ms, NOW_MS).compare()
    assert (said in caplog.text and "let NTP set it" in caplog.text) if said else not caplog.text


async def test_a_slow_answer_is_no_wrong_clock(caplog: pytest.LogCaptureFixture) -> None:
    await check(NOW_MS + 12_000, NOW_MS, seconds=12.0).compare()
    assert not caplog.text


async def test_without_a_leader_nothing_is_known() -> None:
    async def ask() -> tuple[int, int]:
        raise NotLeader(-1)

    assert await ClockCheck(lambda: 0, ask, lambda: 0.0).compare() is None
