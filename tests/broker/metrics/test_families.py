"""Metrics are made and written in pieces: thousands of series must not hold up the event loop."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from raftlog.broker.metrics.families import SERIES_AT_A_TIME, counters, many_gauges, written
from raftlog.broker.metrics.sources import Pauses


class Holding(Collector):
    def __init__(self, family: Metric) -> None:
        self.family = family

    def collect(self) -> list[Metric]:
        return [self.family]


@pytest.mark.parametrize("series", [0, 1, SERIES_AT_A_TIME, 3 * SERIES_AT_A_TIME + 1])
def test_the_text_of_a_family_is_the_same_in_pieces(series: int) -> None:
    family = counters("served", "What\nwas \\ served", ["who"], [([f'"{at}"\n'], at) for at in range(series)])
    whole = generate_latest(Holding(family))
    pieces = list(written(family))
    assert b"".join(pieces) == whole
    assert max(piece.count(b"\n") for piece in pieces) <= SERIES_AT_A_TIME + 2


def test_others_have_their_turn_while_a_large_family_is_made() -> None:
    async def story() -> int:
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        loop = asyncio.get_running_loop()
        loop.call_soon(turn)
        seconds = count()  # each look at the clock is a second later
        values = [([str(at)], float(at)) for at in range(10 * SERIES_AT_A_TIME)]
        family = await many_gauges("lag", "How far", ["partition"], values, Pauses(lambda: float(next(seconds))))
        assert len(family.samples) == len(values)
        return turns

    assert asyncio.run(story()) >= 9
