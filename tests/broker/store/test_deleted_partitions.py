"""A partition that was deleted, or set aside, and one that takes its name."""

from __future__ import annotations

from random import Random

import pytest

from raftlog.broker.core.log.results import LogUnavailable
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


async def test_who_still_holds_a_log_that_was_set_aside_does_not_open_the_one_that_has_its_name_now() -> None:
    """Retention looks at all logs in turns, and may have the earlier topic's still before it."""
    host = Host()
    host.append(3)
    await host.manager.close()
    host.kill()
    host.start()
    earlier = next(iter(host.manager))
    assert not earlier.is_open
    host.append(5, topic_id=bytes(16))
    with pytest.raises(LogUnavailable, match="earlier topic"):
        earlier.apply_retention(host.clock.ms + 1000)
