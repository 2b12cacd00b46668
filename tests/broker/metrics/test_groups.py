"""What the metrics say of groups."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from raftlog.broker.metrics.groups import NAME_CHARACTERS_MAX, group_families
from raftlog.broker.metrics.sources import Pauses


def test_groups_with_endless_names_are_counted_and_have_no_series() -> None:
    offsets = SimpleNamespace(committed=lambda: [("t", 0, SimpleNamespace(offset=3))])
    group = SimpleNamespace(state_name="Empty", members_count=0, offsets=offsets)
    usual, endless = "g" * NAME_CHARACTERS_MAX, "g" * (NAME_CHARACTERS_MAX + 1)
    host = SimpleNamespace(is_loaded=True, shard=SimpleNamespace(groups={usual: group, endless: group}))
    services = SimpleNamespace(
        groups=SimpleNamespace(hosts={0: host}),
        lags=SimpleNamespace(find=lambda positions, take: take({})),
        clock=SimpleNamespace(now_ms=lambda: 0),
    )

    async def story() -> list[Any]:
        families = group_families(cast(Any, services), Pauses(lambda: 0.0))
        return [sample async for family in families for sample in family.samples]

    samples = asyncio.run(story())
    assert {sample.labels["consumergroup"] for sample in samples if "consumergroup" in sample.labels} == {usual}
    assert [sample.value for sample in samples if sample.name.endswith("numgroups")] == [2]
