"""The leader-epoch-checkpoint, when a flush and a truncation come together."""

from __future__ import annotations

from tests.broker.store.log_world import LogWorld


def test_epochs_of_a_flush_that_a_truncation_overtook_are_in_the_file() -> None:
    world = LogWorld()
    world.append_values(b"a", epoch=1)
    world.log.storage.flush()
    world.append_values(b"b", epoch=2)
    world.append_values(b"c", epoch=2)
    overtaken = world.log.storage.begin_flush()
    assert overtaken is not None
    world.log.truncate_to(2)
    world.checkpoint()
    # The thread of the flush never came to it.
    assert world.log.recovery_point == 2
    assert list(world.restart_killed().opened.epochs) == [(1, 0), (2, 1)]


def test_a_flush_that_a_truncation_overtook_writes_no_epochs_over_newer_ones() -> None:
    world = LogWorld()
    world.append_values(b"a", epoch=1)
    world.log.storage.flush()
    world.append_values(b"b", epoch=2)
    overtaken = world.log.storage.begin_flush()
    assert overtaken is not None
    world.log.truncate_to(1)
    world.append_values(b"c", epoch=3)
    world.log.storage.flush()
    overtaken.sync()
    world.checkpoint()
    assert list(world.restart_killed().opened.epochs) == [(1, 0), (3, 1)]


def test_a_closed_log_writes_no_epochs() -> None:
    world = LogWorld()
    world.append_values(b"a", epoch=1)
    pending = world.log.storage.begin_flush()
    assert pending is not None
    world.log.storage.abandon()
    names = set(world.disk.names)
    pending.sync()
    assert set(world.disk.names) == names
