"""What a power cut leaves of a partition that was deleted."""

from __future__ import annotations

from random import Random

import pytest

from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from tests.broker.store.store_world import TOPIC_ID, Host


@pytest.mark.parametrize("seed", range(8))
async def test_a_deleted_partition_does_not_come_back_with_a_hole_after_a_power_cut(seed: int) -> None:
    host = Host()
    await host.manager.flush(host.append(30))
    host.manager.delete("t", 0, TOPIC_ID)
    host.clock.ms += 1001
    await host.tasks.remove_due_files()
    assert isinstance(host.disk, FaultyDisk)
    host.disk.crash(Random(seed))
    host.start()
    assert not host.names("/a/t-0/")
    assert host.open().log_end_offset == 0
