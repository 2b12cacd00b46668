"""When a broker with a full disk has others lead, and when it comes back."""

from __future__ import annotations

import asyncio
import errno
from typing import cast

import pytest

from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.runtime.disk_room import DiskRoom
from raftlog.broker.runtime.full_disk import FullDisk
from raftlog.broker.store.names import HIGH_WATERMARKS
from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from raftlog.wire.errors import ErrorCode
from tests.broker.runtime.manual_loop import ManualLoop
from tests.broker.store.log_world import batch_of
from tests.broker.store.store_world import Host


class Filled:
    """A broker whose disk has filled up, told of every refused append."""

    def __init__(self, *directories: str, others_can_lead: bool = True, others_wait: bool = False) -> None:
        self.disk = FaultyDisk()
        self.host = Host(*directories, disk=self.disk)
        self.hurried = 0
        manager, loop = self.host.manager, cast(asyncio.AbstractEventLoop, ManualLoop())
        self.room = DiskRoom(loop, manager, warning_percent=10, critical_percent=3)
        self.full_disk = FullDisk(
            manager, self.room.is_full, lambda _: others_can_lead, lambda _: others_wait, self.hurry
        )
        manager.store.on_full, manager.store.is_full = self.room.log_full, self.room.is_full
        self.room.on_full = self.full_disk.log_full
        for index in range(2):
            self.host.append(index=index)
        self.disk.full = True

    def make_room(self) -> None:
        self.disk.full = False
        self.room.look()

    def hurry(self) -> None:
        self.hurried += 1

    def append(self, index: int) -> ErrorCode:
        return self.host.open(index=index).append_as_leader(batch_of([b"x"], 1), 0, self.host.clock.ms).error


def test_a_broker_with_one_directory_is_fenced_until_there_is_room() -> None:
    filled = Filled("/a")
    assert not filled.full_disk.wants_fence()
    assert filled.append(0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert filled.append(1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert filled.hurried == 1, "it is told once, and at once"
    assert filled.full_disk.wants_fence()
    assert filled.host.offline == [], "all stays readable"
    filled.make_room()
    assert not filled.full_disk.wants_fence()
    filled.host.clock.ms += 2000
    assert filled.append(0) is ErrorCode.NONE


def test_of_several_directories_the_full_one_goes_offline_and_the_other_goes_on() -> None:
    filled = Filled("/a", "/b")
    assert filled.append(0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not filled.full_disk.wants_fence()
    offline = [directory.path for directory in filled.host.manager.directories if directory.offline_reason]
    assert offline == [filled.host.manager.directories[0].path]
    assert all(log.intact for log in filled.host.manager), "a full disk has taken nothing away"
    filled.make_room()
    assert filled.append(1) is ErrorCode.NONE


def test_a_follower_for_which_others_wait_leaves_at_once_and_comes_back_by_itself() -> None:
    filled = Filled("/a", others_can_lead=False, others_wait=True)
    assert filled.append(0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (filled.hurried, filled.full_disk.wants_fence()) == (1, True)
    filled.make_room()
    assert not filled.full_disk.wants_fence()


def test_a_follower_keeps_its_directory_when_it_has_several() -> None:
    filled = Filled("/a", "/b", others_can_lead=False, others_wait=True)
    assert filled.append(0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not filled.full_disk.wants_fence()
    assert not any(directory.offline_reason for directory in filled.host.manager.directories)


def test_where_nobody_else_is_in_sync_the_leader_stays() -> None:
    filled = Filled("/a", others_can_lead=False)
    assert filled.append(0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not filled.full_disk.wants_fence()
    assert filled.hurried == 0


def test_a_disk_that_cannot_be_asked_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = Filled("/a")
    filled.append(0)

    def usage(_: str) -> tuple[int, int]:
        raise OSError("no such device")

    monkeypatch.setattr(filled.disk, "usage", usage)
    filled.make_room()
    assert filled.full_disk.wants_fence()


def test_a_log_that_failed_for_want_of_room_is_used_again_and_its_directory_never_went() -> None:
    filled = Filled("/a")
    log = filled.host.open(index=0)
    with pytest.raises(LogUnavailable):
        with log.storage.failing():
            raise OSError(errno.ENOSPC, "No space left on device")
    filled.host.manager.fail_directory_of(log, "others are to lead")
    assert filled.full_disk.wants_fence(), "others go on without it"
    assert log.offline_reason is not None and filled.host.manager.directories[0].offline_reason is None
    filled.make_room()
    log.storage.try_again()
    filled.host.clock.ms += 2000
    assert filled.append(0) is ErrorCode.NONE
    assert log.log_end_offset == 2


@pytest.mark.parametrize(
    ("number", "intact"), [(errno.EMFILE, True), (errno.ENFILE, True), (errno.EIO, False), (errno.EROFS, False)]
)
def test_an_append_that_fails_for_another_reason_takes_the_log_offline_and_the_last_disk_only_if_it_is_bad(
    number: int, intact: bool
) -> None:
    filled = Filled("/a")
    filled.make_room()
    log = filled.host.open(index=0)
    opened = log.opened
    log.storage.append_failed(opened, OSError(number, "refused"), filled.host.clock.ms)
    assert log.offline_reason is not None and log.intact is intact
    filled.host.manager.fail_directory_of(log, "others are to lead")
    assert (filled.host.manager.directories[0].offline_reason is None) is intact
    log.storage.try_again()
    assert (log.offline_reason is None) is intact
    assert not intact or filled.append(0) is ErrorCode.NONE


async def test_a_checkpoint_for_which_there_is_no_room_is_written_later() -> None:
    filled = Filled("/a")
    tasks = filled.host.tasks
    assert not await tasks.checkpoint(HIGH_WATERMARKS)
    assert filled.host.manager.directories[0].offline_reason is None
    filled.make_room()
    assert await tasks.checkpoint(HIGH_WATERMARKS)
    assert filled.host.text(f"/a/{HIGH_WATERMARKS}").splitlines()[1:] == ["2", "t 0 1", "t 1 1"]
