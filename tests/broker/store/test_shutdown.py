"""Closing many logs at once: one sync for all of them, nothing promised that a crash could take back."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

from raftlog.broker.store.disk import OsDisk
from raftlog.broker.store.filesystem import _kernel
from raftlog.broker.store.names import CLEAN_SHUTDOWN
from raftlog.broker.store.shutdown import FEW_LOGS
from raftlog.linearizability.simulator.machine.disk import FaultyDisk, PowerCut
from raftlog.wire.errors import ErrorCode
from tests.broker.store.log_world import START_MS, batch_of
from tests.broker.store.store_world import Host

MANY = FEW_LOGS + 6


class PlainDisk(FaultyDisk):
    """One that cannot sync a file system at once."""

    def sync_filesystem(self, descriptor: int, /) -> bool:
        return False


def written(disk: FaultyDisk, count: int) -> Host:
    """A host whose logs end at 3, in two leader epochs each."""
    host = Host("/a", disk=disk)
    for index in range(count):
        log = host.append(2, index=index)
        assert log.append_as_leader(batch_of([b"x"], START_MS), 7, START_MS).error is ErrorCode.NONE
    return host


def syncs_of_closing(host: Host) -> list[str]:
    synced: list[str] = []
    assert isinstance(host.disk, FaultyDisk)
    host.disk.on_operation = lambda operation, path, _: synced.append(path) if "sync" in operation else None
    return synced


@pytest.mark.parametrize(
    ("disk", "count", "syncs_max"),
    [(FaultyDisk(), MANY, 20), (PlainDisk(), MANY, 20 * MANY), (FaultyDisk(), FEW_LOGS, 20 * FEW_LOGS)],
    ids=["many", "many on a disk that syncs file by file", "few"],
)
async def test_what_was_closed_outlives_a_power_cut(disk: FaultyDisk, count: int, syncs_max: int) -> None:
    host = written(disk, count)
    synced = syncs_of_closing(host)
    await host.manager.close()
    assert len(synced) <= syncs_max
    disk.on_operation = lambda *_: None
    for log in host.manager:
        log.storage.abandon()
    disk.crash(Random(1))
    before = disk.bytes_read
    manager = host.start()
    assert manager.directories[0].clean
    assert disk.bytes_read - before < 200 * count, "no segment is read"
    for index in range(count):
        log = host.open(index=index)
        assert (log.log_end_offset, log.latest_epoch, log.end_offset_for_epoch(0)) == (3, 7, (0, 2))


@pytest.mark.parametrize("seed", range(12))
async def test_a_power_cut_while_many_logs_are_closed_loses_nothing_that_was_synced(seed: int) -> None:
    random = Random(seed)
    disk = FaultyDisk()
    host = written(disk, MANY)
    for log in host.manager:
        log.storage.flush()
    for log in host.manager:
        log.append_as_leader(batch_of([b"x"], START_MS), 8, START_MS)
    disk.countdown = random.randrange(4 * MANY)
    with pytest.raises(PowerCut):
        await host.manager.close()
    for log in host.manager:
        log.storage.abandon()
    disk.crash(random)
    manager = host.start()
    assert not manager.directories[0].clean
    for index in range(MANY):
        log = host.open(index=index)
        assert log.offline_reason is None
        assert log.log_end_offset in (3, 4)
        assert log.end_offset_for_epoch(0) == (0, 2), "the epochs on the disk are whole"


async def test_a_file_system_that_lost_something_makes_no_stop_clean() -> None:
    disk = FaultyDisk()
    host = written(disk, MANY)
    disk.failing["sync"] = "/a/t-5/"
    await host.manager.close()
    assert f"/a/{CLEAN_SHUTDOWN}" not in disk.names
    assert len(host.offline) == MANY, "nobody can say which log it was, so none is counted on"


async def test_a_log_that_cannot_be_written_keeps_the_others_from_nothing() -> None:
    disk = FaultyDisk()
    host = written(disk, MANY)
    disk.failing["write"] = "/a/t-5/"
    await host.manager.close()
    assert [line.partition(":")[0] for line in host.offline] == ["t-5"]
    assert f"/a/{CLEAN_SHUTDOWN}" not in disk.names
    points = [log.recovery_point for log in host.manager if log.index != 5]
    assert points == [3] * (MANY - 1)


@pytest.mark.parametrize("operation", ["write", "rename"])
async def test_epochs_that_cannot_be_written_leave_their_log_to_recovery(operation: str) -> None:
    disk = FaultyDisk()
    host = written(disk, MANY)
    disk.failing[operation] = "/a/t-5/leader-epoch-checkpoint"
    await host.manager.close()
    assert f"/a/{CLEAN_SHUTDOWN}" not in disk.names
    assert [log.index for log in host.manager if log.recovery_point != 3] == [5]


def test_the_file_system_below_a_directory_is_synced_or_left_alone(tmp_path: Path) -> None:
    disk = OsDisk()
    descriptor = disk.lock(str(tmp_path / "lock"))
    try:
        disk.write_at(descriptor, b"x", 0)
        assert disk.sync_filesystem(descriptor) in (True, False)
    finally:
        disk.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_file_system_that_says_nothing_of_its_failures_is_left_alone() -> None:
    with open("/proc/self/stat") as file:
        assert OsDisk().sync_filesystem(file.fileno()) is False


@pytest.mark.parametrize(
    ("release", "numbers"), [("6.18.44-fc-v669", (6, 18)), ("5.15.0", (5, 15)), ("4.19", (4, 19)), ("what", (0, 0))]
)
def test_the_kernel_says_its_version(release: str, numbers: tuple[int, int]) -> None:
    assert _kernel(release) == numbers
