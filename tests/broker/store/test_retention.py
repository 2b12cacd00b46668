"""What old segments go, and what a full disk has to do with it."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.wire.ids import LeaderEpoch
from tests.broker.store.log_world import LogWorld
from tests.broker.store.store_world import Host


@pytest.mark.parametrize("count", [1, 8])
def test_retention_on_a_full_disk_makes_room_though_there_is_none_for_a_new_segment(count: int) -> None:
    world = LogWorld(LogConfig(segment_bytes=200, retention_ms=1000))
    for _ in range(count):
        world.append_values(b"x" * 80)
    log, segments = world.log, len(world.log.opened.segments)
    world.clock.ms += 5000
    world.disk.full = True
    assert log.apply_retention(world.clock.ms) == segments - 1
    assert log.offline_reason is None
    world.disk.full = False
    assert log.apply_retention(world.clock.ms) == 1
    assert log.log_start_offset == log.log_end_offset == count
    log.check_invariants()


async def test_a_log_that_retention_opened_is_not_closed_under_who_has_begun_to_lead_with_it() -> None:
    host = Host()
    host.append(40)
    await host.manager.close()
    host.start()
    host.clock.ms += 60_000

    async def lead() -> None:
        host.open().assign_epoch(LeaderEpoch(3))

    await asyncio.gather(host.tasks.apply_retention(), lead())
    log = host.open()
    assert log.log_start_offset == log.log_end_offset == 40
    assert log.latest_epoch == 3
