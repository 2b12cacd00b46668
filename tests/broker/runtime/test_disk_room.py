"""How much room a disk has, and what is said of it."""

from __future__ import annotations

import asyncio
import errno
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftlog.broker.runtime.disk_room import TOLD_SECONDS, DiskRoom
from raftlog.broker.store.disk import OsDisk
from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from tests.broker.runtime.manual_loop import ManualLoop

GB = 1 << 30


class Volume(FaultyDisk):
    """100 GB, of which 50 are free."""

    usable = 50 * GB

    def usage(self, path: str) -> tuple[int, int]:
        return 100 * GB, self.usable


class World:
    """One data directory on a disk of 100 GB."""

    def __init__(self) -> None:
        self.disk = Volume()
        self.disk.make_directory("/data", durable=True)
        self.directory = SimpleNamespace(path="/data", offline_reason=None)
        store = SimpleNamespace(disk=self.disk)
        self.deleted = 0
        deletions = SimpleNamespace(run_all=self.delete)
        logs: Any = SimpleNamespace(
            directories=[self.directory], store=store, home_of=lambda _: "/data", deletions=deletions
        )
        self.loop = ManualLoop()
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.room = DiskRoom(loop, logs, warning_percent=10, critical_percent=3)

    def delete(self) -> None:
        self.deleted += 1


def test_what_was_to_be_deleted_later_is_deleted_while_the_disk_is_full() -> None:
    world = World()
    world.room.begin()
    world.disk.usable = 0
    world.room.look()
    assert not world.deleted, "nobody has needed the room yet"
    world.room.log_full(cast(Any, None), "No space left on device")
    world.room.look()
    assert world.deleted == 1
    world.disk.usable = 50 * GB
    world.room.look()
    assert world.deleted == 1


def test_a_log_that_was_refused_a_file_is_used_again_when_there_is_room() -> None:
    world = World()
    given_back: list[str] = []
    world.room.on_room = lambda log: given_back.append(log.topic)
    world.disk.usable = 0
    world.room.refused(cast(Any, SimpleNamespace(topic="t", index=0)))
    world.room.look()
    assert given_back == []
    world.disk.usable = 50 * GB
    for _ in range(2):
        world.room.look()
    assert given_back == ["t"]


def test_a_partition_that_cannot_be_made_counts_only_if_room_is_what_it_lacks() -> None:
    world = World()
    told: list[str] = []
    world.room.on_no_room = told.append
    world.room.no_room("too many open files")
    assert (told, world.room.reasons()) == ([], [])
    world.disk.usable = 0
    world.room.no_room("No space left on device")
    assert told == ["No space left on device"] and world.room.reasons()


def test_a_disk_that_refuses_free_blocks_is_full_until_some_can_be_taken() -> None:
    world = World()
    back: list[str] = []
    world.room.on_room = lambda log: back.append(log.topic)
    world.disk.full = True
    world.room.log_full(cast(Any, None), "Disk quota exceeded")
    world.room.refused(cast(Any, SimpleNamespace(topic="t", index=0)))
    world.room.look()
    assert world.room.is_full("/data") and world.room.reasons() and back == []
    world.disk.full = False
    assert world.room.is_full("/data"), "nobody has looked"
    world.room.look()
    assert not world.room.is_full("/data") and not world.room.reasons() and back == ["t"]
    assert world.disk.list_directory("/data") == [], "what was taken is given back"


def test_a_partition_that_a_quota_refuses_counts_as_one_without_room() -> None:
    world = World()
    told: list[str] = []
    world.room.on_no_room = told.append
    world.disk.full = True
    world.room.no_room("Disk quota exceeded")
    assert told == ["Disk quota exceeded"] and world.room.is_full("/data")


def test_a_partition_that_lacks_descriptors_does_not_make_a_disk_full(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    told: list[str] = []
    world.room.on_no_room = told.append

    def none_left(path: str, *, create: bool = False) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(world.disk, "open", none_left)
    world.room.no_room("Too many open files")
    assert told == [] and not world.room.is_full("/data")


def test_a_full_directory_that_goes_offline_is_not_told_as_full() -> None:
    world = World()
    world.disk.usable = 0
    world.room.log_full(cast(Any, None), "No space left on device")
    world.directory.offline_reason = "unplugged"
    world.room.look()
    assert world.room.reasons() == []


def test_a_volume_without_inodes_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = SimpleNamespace(f_blocks=100, f_frsize=4096, f_bavail=50, f_files=1000, f_favail=3)
    monkeypatch.setattr("os.statvfs", lambda _: volume)
    assert OsDisk().usage("/") == (409_600, 0)
    volume.f_files = volume.f_favail = 0
    assert OsDisk().usage("/") == (409_600, 204_800), "it does not count them"


def test_little_room_is_told_once_for_each_level(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    told: list[int] = []
    with caplog.at_level(logging.INFO, "raftlog.disk"):
        for usable in (50, 9, 8, 2, 1, 5, 50):
            world.disk.usable = usable * GB
            world.room.look()
            told += [record.levelno for record in caplog.records]
            caplog.clear()
    assert told == [logging.WARNING, logging.ERROR, logging.INFO, logging.INFO]


def test_a_disk_is_full_from_a_failed_append_until_there_is_room() -> None:
    world = World()
    heard: list[str] = []
    world.room.on_full = lambda _, reason: heard.append(reason)
    world.disk.usable = 0
    assert world.room.reasons() == [], "nobody has needed it yet"
    world.room.log_full(cast(Any, None), "No space left on device")
    assert heard == ["No space left on device"]
    assert world.room.reasons() == ["the disk of /data is full: make room, or delete topics"]
    world.disk.usable = GB // 2
    world.room.look()
    assert world.room.reasons(), "half a percent is not worth while"
    world.disk.usable = 2 * GB
    world.room.look()
    assert world.room.reasons() == []


def test_a_full_disk_is_told_when_it_begins_when_it_ends_and_once_a_minute_between(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.disk.usable = 0
    with caplog.at_level(logging.INFO, "raftlog.disk"):
        for _ in range(300):
            world.room.log_full(cast(Any, None), "No space left on device")
            world.loop.now += TOLD_SECONDS / 150
            world.room.look()
        world.disk.usable = 50 * GB
        world.room.look()
    told = [record.message for record in caplog.records if "left" not in record.message or "No space" in record.message]
    assert [message.split(": ")[0] for message in told] == [
        "directory=/data is full, and nothing is appended before there is room",
        "directory=/data is still full",
        "directory=/data is still full",
        "directory=/data has room",
        "directory=/data has room again",
    ]
    assert "300 appends failed in 120 s" in told[3]


def test_many_refused_logs_of_a_directory_cost_one_look_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    back: list[int] = []
    probes: list[str] = []
    world.room.on_room = lambda log: back.append(cast(Any, log).index)
    monkeypatch.setattr(world.disk, "remove", probes.append)
    for index in range(100):
        world.room.refused(cast(Any, SimpleNamespace(topic="t", index=index)))
    world.room.look()
    assert back == list(range(100)) and len(probes) == 1
