"""What is under way in a thread when the log is truncated: a flush, a checkpoint, a plan."""

from __future__ import annotations

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.store.names import RECOVERY_POINTS
from raftlog.broker.store.truncation_plan import TruncationPlan
from tests.broker.store.log_world import LogWorld, batch_of
from tests.broker.store.store_world import Host


@pytest.fixture
def host() -> Host:
    return Host()


def test_what_a_late_flush_was_given_is_synced_before_the_recovery_point_passes_it() -> None:
    world = LogWorld(LogConfig(segment_bytes=1000, index_interval_bytes=100))
    while len(world.log.opened.segments) < 3:
        world.append_values(b"x" * 50)
    world.append_values(b"before")
    end_offset = world.log.log_end_offset
    world.append_values(b"cut")
    late = world.log.storage.begin_flush()
    assert late is not None
    world.log.truncate_to(end_offset)
    assert world.log.recovery_point == end_offset
    unsynced = [path for path, file in world.disk.names.items() if file.pending]
    assert unsynced == []
    late.sync()
    world.log.storage.end_flush(late)
    assert world.log.recovery_point == end_offset


async def test_a_late_checkpoint_does_not_bring_back_what_was_taken_back_since(host: Host) -> None:
    log = host.append(30)
    directory = host.manager.directories[0]
    directory.write_checkpoint(directory.checkpoint(RECOVERY_POINTS))
    await host.manager.flush(log)
    late = directory.checkpoint(RECOVERY_POINTS)
    log.truncate_to(0)
    assert "t 0 0" in host.text(f"/a/{RECOVERY_POINTS}")
    directory.write_checkpoint(late)
    assert "t 0 0" in host.text(f"/a/{RECOVERY_POINTS}")


def test_what_a_plan_has_read_is_not_read_again_when_it_was_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LogWorld()
    world.append_values(b"x")
    world.append(batch_of([b"x"], world.clock.ms, producer_id=7, base_sequence=0))
    plan = world.log.plan_truncation(1)
    assert plan is not None
    producers = plan.run()
    assert not producers
    monkeypatch.setattr(TruncationPlan, "run", None)
    world.log.truncate_to(1, producers)
    assert world.log.log_end_offset == 1
