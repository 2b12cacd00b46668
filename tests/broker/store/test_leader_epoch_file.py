"""The leader-epoch-checkpoint: when a flush and a truncation come together, and when it is lost."""

from __future__ import annotations

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.store.names import LEADER_EPOCHS
from tests.broker.store.log_world import DIRECTORY, LogWorld


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


@pytest.mark.parametrize("content", [None, b"0\n3\n1 0\n"], ids=["gone", "cut short"])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_epochs_whose_file_is_lost_are_made_again_from_the_batches(content: bytes | None, clean: bool) -> None:
    """A follower without them would not be told that it has parted from its leader."""
    world = LogWorld(LogConfig(segment_bytes=200))
    for epoch in (1, 1, 3, 3, 4):
        world.append_values(b"x" * 50, epoch=epoch)
    world.log.storage.flush()
    world.append_values(b"x" * 50, epoch=6)
    world.checkpoint()
    log = world.restart_clean() if clean else world.restart_killed()
    path = f"{DIRECTORY}/{LEADER_EPOCHS}"
    if content is None:
        world.disk.remove(path)
    else:
        world.disk.names[path].content[:] = content
    expected = [(1, 0), (3, 2), (4, 4), (6, 5)]
    assert list(log.opened.epochs) == expected
    assert list(world.restart_clean().opened.epochs) == expected
