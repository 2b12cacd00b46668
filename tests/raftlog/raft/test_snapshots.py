"""Snapshots that a node of a quorum makes: when one fails, and when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from raftlog.raft.snapshots import CHUNKS_PER_TURN
from tests.raftlog.raft.crashing_disk import CrashingDisk
from tests.raftlog.raft.quorum_world import World
from tests.waiting import until


async def test_a_snapshot_that_fails_is_not_tried_again_in_each_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = CrashingDisk(random.Random(1))
    async with World(tmp_path, voters=[1], snapshot_bytes=100) as world:
        world.disks[1] = disk
        await world.start()
        leader = await world.led()
        disk.fail["rename"] = 100
        for n in range(30):
            await leader.log.propose([b"entry %d" % n])
        assert disk.fail["rename"] == 99
        assert caplog.text.count("no metadata snapshot was taken") == 1
        disk.fail.clear()
        assert leader.log._snapshots is not None
        leader.log._snapshots._not_before = 0.0  # the pause is over
        await until(lambda: any(name.endswith(".snapshot") for name in disk.names))


async def test_a_snapshot_that_nobody_waits_for_any_more_is_written_before_the_log_is_closed(tmp_path: Path) -> None:
    disk = CrashingDisk(random.Random(1))
    async with World(tmp_path, voters=[1]) as world:
        world.disks[1] = disk
        await world.start()
        leader = await world.led()
        await leader.log.propose([b"%d" % n for n in range(10 * CHUNKS_PER_TURN)])
        asked = asyncio.ensure_future(leader.log.take_snapshot())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asked.cancel()
    assert any(name.endswith(".snapshot") for name in disk.names)
