"""Metrics of consumer groups: who is in them, and how far behind they are, also while nobody is in them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from raftlog.broker.metrics.families import SERIES_AT_A_TIME, gauge, gauges, many_gauges

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from raftlog.broker.api.context import Services
    from raftlog.broker.metrics.sources import Pauses
    from raftlog.broker.runtime.group_lag import Lags, Position

POSITIONS_MAX: Final = 5_000
"""Partitions of groups that have series of their own, three each."""
NAME_CHARACTERS_MAX: Final = 1_000
"""Groups with longer names have no series, which would have the name each: a group's may have 32 KB."""
LAG_SECONDS_MAX: Final = 3.0
"""How long the leaders of partitions may take to say where those end; what is not known then has no series."""


async def group_families(services: Services, pauses: Pauses) -> AsyncIterator[Metric]:
    """Of the groups that this broker coordinates."""
    states: Counter[str] = Counter()
    members: list[tuple[list[str], float]] = []
    committed: list[tuple[str, Position]] = []
    for host in list(services.groups.hosts.values()):
        await pauses.pause()
        if not host.is_loaded:
            continue
        for group_id, group in list(host.shard.groups.items()):
            states[group.state_name] += 1
            if len(group_id) > NAME_CHARACTERS_MAX:
                continue
            if len(members) < POSITIONS_MAX:
                members.append(([group_id], float(group.members_count)))
            if len(committed) < POSITIONS_MAX:
                committed += [(group_id, (name, index, at.offset)) for name, index, at in group.offsets.committed()]
    manager = "kafka_coordinator_group_groupmetadatamanager"
    yield gauge(f"{manager}_numgroups", "Groups that this broker coordinates", sum(states.values()))
    yield gauges("raftlog_groups", "The same by state", ["state"], (([state], states[state]) for state in states))
    name = "kafka_consumergroup"
    yield await many_gauges(f"{name}_members", "Members of a group", ["consumergroup"], members, pauses)
    del committed[POSITIONS_MAX:]
    lags = await _find_lags(services, [position for _, position in committed])
    now_ms = services.clock.now_ms()
    offsets, behind, seconds = [], [], []
    for number, (group_id, position) in enumerate(committed):
        if number % SERIES_AT_A_TIME == 0:
            await pauses.pause()
        labels = [group_id, position[0], str(position[1])]
        offsets.append((labels, float(position[2])))
        lag = lags.get(position)
        if lag is not None:
            behind.append((labels, float(max(lag.high_watermark - position[2], 0))))
            seconds.append((labels, lag.milliseconds(now_ms) / 1000))
    names = ["consumergroup", "topic", "partition"]
    for part, what, values in (
        ("current_offset", "What a group has committed", offsets),
        ("lag", "Records that a group has not consumed", behind),
        ("lag_seconds", "How long the oldest of them has waited", seconds),
    ):
        yield await many_gauges(f"{name}_{part}", what, names, values, pauses)


async def _find_lags(services: Services, positions: list[Position]) -> Lags:
    found: asyncio.Future[Lags] = asyncio.get_running_loop().create_future()

    def take(lags: Lags) -> None:
        if not found.done():
            found.set_result(lags)

    services.lags.find(positions, take)
    try:
        async with asyncio.timeout(LAG_SECONDS_MAX):
            return await found
    except TimeoutError:
        return {}
