"""The logs of a broker over its data directories: starting, stopping, failing, and the work in between."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.store.data_directory import DataDirectoryInUse
from raftlog.broker.store.disk import OsDisk
from raftlog.broker.store.log_manager_settings import LogManagerSettings
from raftlog.broker.store.names import CLEAN_SHUTDOWN, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from raftlog.wire.errors import ErrorCode
from raftlog.wire.uuids import uuid_to_text
from tests.broker.store.log_world import START_MS, batch_of
from tests.broker.store.store_world import TOPIC_ID, Host
from tests.waiting import until

# Starting and stopping ---------------------------------------------------------------------------


async def test_a_stopped_broker_starts_without_reading_a_single_segment(host: Host) -> None:
    for index in range(20):
        host.append(30, index=index)
    await host.manager.close()
    assert f"/a/{CLEAN_SHUTDOWN}" in host.names()
    assert isinstance(host.disk, FaultyDisk)
    host.disk.kill()
    before = host.disk.bytes_read
    manager = host.start()
    assert host.disk.bytes_read - before < 2000, "only the checkpoints are read"
    assert f"/a/{CLEAN_SHUTDOWN}" not in host.names(), "the next crash must be seen as one"
    assert [log.log_end_offset for log in manager] == [30] * 20
    assert not any(log.is_open for log in manager)
    assert host.append(1, index=7).log_end_offset == 31


async def test_a_killed_broker_recovers_every_log_before_it_serves(host: Host) -> None:
    for index in range(5):
        host.append(30, index=index)
    host.kill()
    manager = host.start()
    assert [log.log_end_offset for log in manager] == [30] * 5
    assert all(log.recovery_point == 30 for log in manager)


async def test_a_crash_after_a_clean_start_is_seen_as_a_crash(host: Host) -> None:
    host.append(10)
    await host.manager.close()
    host.kill()
    host.start()
    host.append(5)
    host.kill()
    assert [log.log_end_offset for log in host.start()] == [15]


async def test_checkpoints_are_kafkas_files(host: Host) -> None:
    host.append(30, topic="t")
    host.append(3, topic="u", index=2)
    host.open("t").delete_records_before(7)
    await host.tasks.flush_due_logs()
    for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS):
        await host.tasks.checkpoint(name)
    rolled = host.open("t").opened.segments.active.base_offset
    assert host.text(f"/a/{RECOVERY_POINTS}") == f"0\n2\nt 0 {rolled}\nu 2 0\n"
    assert host.text(f"/a/{LOG_STARTS}") == "0\n1\nt 0 7\n"
    assert host.text(f"/a/{HIGH_WATERMARKS}") == "0\n2\nt 0 30\nu 2 3\n"
    assert host.text("/a/t-0/partition.metadata") == f"version: 0\ntopic_id: {uuid_to_text(TOPIC_ID)}"
    await host.manager.close()
    assert host.text("/a/t-0/leader-epoch-checkpoint") == "0\n1\n0 7\n"
    assert host.text(f"/a/{CLEAN_SHUTDOWN}") == '{"version":0,"brokerEpoch":-1}'
    properties = dict(line.split("=") for line in host.text("/a/meta.properties").split())
    assert (properties["version"], properties["node.id"], properties["cluster.id"]) == ("1", "1", "c")
    assert len(properties["directory.id"]) == 22


async def test_what_was_checkpointed_is_there_after_a_restart(host: Host) -> None:
    host.append(30)
    host.open().delete_records_before(7)
    await host.manager.close()
    host.kill()
    log = host.start().get("t", 0)
    assert log is not None
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (7, 30, 30)


async def test_a_checkpoint_that_cannot_be_read_costs_a_scan_and_nothing_else(host: Host) -> None:
    host.append(30)
    await host.manager.close()
    host.kill()
    assert isinstance(host.disk, FaultyDisk)
    host.disk.names[f"/a/{RECOVERY_POINTS}"].content[:] = b"0\n5\nt"
    assert [log.log_end_offset for log in host.start()] == [30]


async def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    host = Host(str(tmp_path / "data"), disk=OsDisk())
    with pytest.raises(DataDirectoryInUse, match="locked"):
        Host(str(tmp_path / "data"), disk=OsDisk())
    await host.manager.close()
    second = Host(str(tmp_path / "data"), disk=OsDisk())
    await second.manager.close()


async def test_the_directory_of_another_broker_or_cluster_is_refused(host: Host) -> None:
    await host.manager.close()
    host.kill()
    with pytest.raises(DataDirectoryInUse, match=r"node\.id=1.*broker has 2"):
        host.start(node_id=2)
    host.kill()
    with pytest.raises(DataDirectoryInUse, match=r"cluster\.id"):
        host.start(cluster_id="another")


# Topics that come and go -------------------------------------------------------------------------


async def test_a_deleted_partition_gives_its_name_free_at_once_and_its_room_later(host: Host) -> None:
    log = host.append(3)
    host.manager.delete("t", 0, TOPIC_ID)
    assert host.manager.get("t", 0) is None
    assert not host.names("/a/t-0/") and len(host.names("-delete/")) > 1
    assert host.open(topic_id=b"another topic id").log_end_offset == 0
    with pytest.raises(LogUnavailable, match="deleted"):
        log.open()
    await host.tasks.remove_due_files()
    assert host.names("-delete/")
    host.clock.ms += 1001
    await host.tasks.remove_due_files()
    assert not host.names("-delete/")


async def test_a_restart_removes_what_was_deleted(host: Host) -> None:
    host.append(3)
    host.manager.delete("t", 0)
    await host.manager.close()
    host.kill()
    assert len(host.start()) == 0
    assert not host.names("-delete/")


async def test_deleting_a_topic_spares_the_one_that_has_its_name_now(host: Host) -> None:
    host.append(3)
    host.manager.delete("t", 0, b"the old topic id")
    assert host.manager.get("t", 0) is not None


async def test_partitions_that_nobody_knows_any_more_are_set_aside_before_they_are_recovered(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("t", "gone"):
        host.append(3, topic)
    host.kill()
    manager = host.start(recover=False)
    manager.set_aside_strays(lambda topic, _: topic == "t")
    list(manager.recover())
    assert manager.get("gone", 0) is None and host.open().log_end_offset == 3
    assert host.names("gone-0.") == host.names("-stray/") != [] and "is of a topic that is not there" in caplog.text


async def test_records_of_another_topic_of_that_name_are_set_aside_and_kept(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    host.append(3)
    await host.manager.close()
    host.kill()
    host.start()
    assert host.open(topic_id=b"another topic id").log_end_offset == 0
    assert host.names("-stray/") and "set aside" in caplog.text
    await host.manager.close()
    host.kill()
    assert len(host.start()) == 1 and host.names("-stray/")


# Failing -----------------------------------------------------------------------------------------


async def test_a_damaged_partition_does_not_keep_the_others_from_starting(host: Host) -> None:
    for index in range(3):
        host.append(5, index=index)
    await host.manager.close()
    host.kill()
    assert isinstance(host.disk, FaultyDisk)
    del host.disk.names["/a/t-1/00000000000000000000.log"]
    del host.disk.names[f"/a/{CLEAN_SHUTDOWN}"]
    host.start()
    assert [log.offline_reason is None for log in host.manager] == [True, False, True]
    assert len(host.offline) == 1 and host.offline[0].startswith("t-1: /a/t-1")
    assert host.append(1, index=2).log_end_offset == 6
    with pytest.raises(LogUnavailable, match="/a/t-1"):
        host.open(index=1)
    await host.manager.close()
    assert f"/a/{CLEAN_SHUTDOWN}" not in host.names(), "what is offline was not closed"


async def test_a_failed_sync_takes_the_partition_offline_and_no_other(host: Host) -> None:
    good, bad = host.append(1, index=0), host.append(1, index=1)
    assert isinstance(host.disk, FaultyDisk)
    host.disk.failing = {"sync": "/t-1/"}
    with pytest.raises(LogUnavailable, match="Input/output error"):
        await host.manager.flush(bad)
    await host.manager.flush(good)
    host.disk.failing = {}
    assert len(host.offline) == 1 and host.offline[0].startswith("t-1")
    result = bad.append_as_leader(batch_of([b"x"], START_MS), 0, START_MS)
    assert result.error is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_sync_that_finds_the_disk_full_is_told_as_a_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes a write into memory and may only find out later; then what was written is gone."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("raftlog.broker.store.disk._sync", full)
    with pytest.raises(OSError, match="No space left") as told:
        OsDisk().sync(0)
    assert told.value.errno == errno.EIO


def test_a_directory_that_was_merely_full_goes_offline_only_if_there_is_another(host: Host) -> None:
    alone = host.append(1)
    host.manager.fail_directory_of(alone, "others are to lead")
    assert alone.offline_reason is None and alone.intact


@pytest.mark.parametrize(("how", "intact"), [("sync", False), ("write", False), ("full", True)])
async def test_only_a_disk_that_was_merely_full_leaves_no_doubt_about_its_logs(how: str, intact: bool) -> None:
    host = Host("/a", "/b")
    logs = [log for index in range(4) if host.manager.home_of(log := host.append(1, index=index)) == "/a"]
    assert isinstance(host.disk, FaultyDisk)
    if how == "full":
        host.manager.fail_directory_of(logs[1], "others are to lead")
    elif how == "write":
        host.disk.failing = {"write": "/a/replication"}
        await host.tasks.checkpoint(HIGH_WATERMARKS)
    else:
        host.disk.failing = {"sync": f"/t-{logs[1].index}/"}
        with pytest.raises(LogUnavailable):
            await host.manager.flush(logs[1])
        host.manager.fail_directory_of(logs[1], "it failed")
    assert [log.offline_reason is not None for log in logs] == [True, True]
    assert [log.intact for log in logs] == [intact, intact]


async def test_a_directory_that_cannot_keep_its_checkpoints_goes_offline_with_its_partitions() -> None:
    host = Host("/a", "/b")
    first, second = host.append(1, index=0), host.append(1, index=1)
    assert isinstance(host.disk, FaultyDisk)
    host.disk.failing = {"write": "/a/replication"}
    await host.tasks.checkpoint(HIGH_WATERMARKS)
    assert first.offline_reason is not None and second.offline_reason is None
    assert host.append(1, index=2) in host.manager.directories[1].logs.values()
    assert host.manager.describe()[0].offline_reason is not None
    assert host.manager.describe()[0].total_bytes == -1


async def test_a_directory_that_cannot_be_opened_leaves_the_others() -> None:
    disk = FaultyDisk()
    disk.failing = {"open": "/a/"}
    host = Host("/a", "/b", disk=disk)
    assert host.append(1) in host.manager.directories[1].logs.values()
    disk.failing = {"open": "/"}
    with pytest.raises(OSError, match="Input/output"):
        Host("/a", disk=disk)


# Background work ---------------------------------------------------------------------------------


async def test_who_flushes_at_the_same_time_shares_the_syncs(host: Host) -> None:
    log = host.append(1)
    assert isinstance(host.disk, FaultyDisk)
    synced = count_syncs(host.disk)
    flushes = [asyncio.ensure_future(host.manager.flush(log)) for _ in range(10)]
    await asyncio.sleep(0)
    host.append(1)
    await asyncio.gather(*flushes, host.manager.flush(log))
    assert log.recovery_point == 2
    assert synced() <= 2


def count_syncs(disk: FaultyDisk) -> Callable[[], int]:
    calls: list[str] = []
    original = disk.sync

    def sync(descriptor: int, /) -> None:
        calls.append(disk._open[descriptor][1])
        original(descriptor)

    disk.sync = sync  # type: ignore[method-assign]
    return lambda: len([path for path in calls if path.endswith(".log")])


async def test_a_complete_segment_is_synced_soon_and_the_recovery_point_follows(host: Host) -> None:
    log = host.append(30)
    assert log.recovery_point == 0
    await host.tasks.flush_due_logs()
    assert log.recovery_point == log.opened.segments.active.base_offset > 0


async def test_flush_ms_syncs_what_has_waited_so_long(host: Host) -> None:
    host.config = LogConfig(flush_ms=1000)
    log = host.append(1)
    host.clock.ms += 999
    await host.tasks.flush_due_logs()
    assert log.recovery_point == 0
    host.clock.ms += 1
    await host.tasks.flush_due_logs()
    assert log.recovery_point == 1


async def test_flush_ms_is_kept_when_the_clock_is_set_back(host: Host) -> None:
    host.config = LogConfig(flush_ms=1000)
    log = host.append(1)
    host.clock.ms -= 3_600_000
    await host.tasks.flush_due_logs()
    assert log.recovery_point == 1, "not an hour later"


async def test_retention_reaches_logs_that_nobody_has_opened_and_closes_them_again(host: Host) -> None:
    host.append(30)
    await host.manager.close()
    host.kill()
    log = host.start().get("t", 0)
    assert log is not None and not log.is_open
    host.clock.ms += 6000
    await host.tasks.apply_retention()
    assert (log.log_start_offset, log.log_end_offset, log.is_open) == (30, 30, False)
    assert len(host.names(".log.deleted")) > 1
    host.clock.ms += 1001
    await host.tasks.remove_due_files()
    assert not host.names(".deleted")


async def test_idle_producers_are_forgotten(host: Host) -> None:
    log = host.open()
    log.append_as_leader(batch_of([b"x"], START_MS, producer_id=1, base_sequence=0), 0, START_MS)
    await host.tasks.expire_producers()
    assert len(log.opened.producers) == 1
    host.clock.ms += 86_400_000
    await host.tasks.expire_producers()
    assert not log.opened.producers


async def test_a_truncation_is_announced_in_the_checkpoints_before_it_happens(host: Host) -> None:
    log = host.append(30)
    await host.manager.flush(log)
    await host.tasks.checkpoint(RECOVERY_POINTS)
    assert "t 0 30" in host.text(f"/a/{RECOVERY_POINTS}")
    log.truncate_to(12)
    assert "t 0 12" in host.text(f"/a/{RECOVERY_POINTS}")


@pytest.mark.parametrize("killed_between", [False, True])
async def test_what_was_safe_of_a_deleted_partition_is_not_missed_in_a_new_one(
    host: Host, killed_between: bool
) -> None:
    host.append(5)
    await host.manager.close()
    host.start()
    host.manager.delete("t", 0)
    if killed_between:
        host.kill()
        host.start()
    host.open(topic_id=bytes(16))
    host.kill()
    host.start()
    assert host.offline == []
    log = host.open(topic_id=bytes(16))
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(8))
async def test_a_partition_that_moved_to_the_other_directory_is_found_once_after_a_power_cut(seed: int) -> None:
    host = Host("/a", "/b")
    await host.manager.flush(host.append(1, "first"))
    await host.manager.flush(host.append(1, "moves"))
    for topic in ("first", "moves"):
        host.manager.delete(topic, 0)
    again = host.append(1, "moves")
    assert host.names("/b/moves-0.") and host.names("/a/moves-0/")
    await host.manager.flush(again)
    assert isinstance(host.disk, FaultyDisk)
    host.disk.crash(Random(seed))
    host.start()
    assert [each.offline_reason for each in host.manager.directories] == [None, None]
    assert host.open("moves").log_end_offset == 1


async def test_a_late_checkpoint_does_not_overwrite_a_newer_one(host: Host) -> None:
    log = host.append(30)
    await host.manager.flush(log)
    directory = host.manager.directories[0]
    late = directory.checkpoint(RECOVERY_POINTS)
    log.truncate_to(12)
    directory.write_checkpoint(late)
    assert "t 0 12" in host.text(f"/a/{RECOVERY_POINTS}")


async def test_the_background_work_runs_until_it_is_cancelled(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = host.append(30)
    host.manager.settings = LogManagerSettings(high_watermark_checkpoint_interval_ms=1)
    task = asyncio.ensure_future(host.tasks.run())
    await until(lambda: f"/a/{HIGH_WATERMARKS}" in host.names() and log.recovery_point > 0, "flushed, and written down")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_interval_of_zero_leaves_time_for_everything_else(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    slept = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await slept(seconds)

    monkeypatch.setattr("raftlog.broker.store.scheduled_tasks.asyncio.sleep", sleep)
    host.manager.settings = LogManagerSettings(
        flush_offset_checkpoint_interval_ms=0, high_watermark_checkpoint_interval_ms=-1, cleaner_backoff_ms=0
    )
    task = asyncio.ensure_future(host.tasks.run())
    async with asyncio.timeout(30):
        while len(waits) < 20:
            await slept(0)
    task.cancel()
    assert min(waits) >= 0.01
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_partition_is_made_in_the_next_directory_when_the_first_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host("/a", "/b")
    make = FaultyDisk.open

    def full(disk: FaultyDisk, path: str, *, create: bool = False) -> int:
        if path.startswith("/a/t") and create:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return make(disk, path, create=create)

    monkeypatch.setattr(FaultyDisk, "open", full)
    logs = [host.append(1, index=index) for index in range(3)]
    assert [log.directory for log in logs] == ["/b/t-0", "/b/t-1", "/b/t-2"]
    assert not any(name.startswith("/a/t-") for name in host.names())
    monkeypatch.undo()
    assert host.append(1, index=3).directory == "/a/t-3"
    host.kill()
    assert len(host.start()) == 4, "none is found twice"


@pytest.mark.parametrize("preallocate", [False, True])
def test_a_partition_for_which_there_is_no_room_is_made_once_there_is(host: Host, preallocate: bool) -> None:
    assert isinstance(host.disk, FaultyDisk)
    host.config = LogConfig(preallocate=preallocate, segment_bytes=1 << 20)
    host.disk.full = True
    for _ in range(2):
        with pytest.raises(LogUnavailable, match="No space left"):
            host.open()
    host.disk.full = False
    assert host.append(3).log_end_offset == 3
    host.kill()
    assert [log.log_end_offset for log in host.start()] == [3]


def test_a_partition_whose_directory_has_room_and_whose_segment_has_not_is_tried_again(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(disk: FaultyDisk, descriptor: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FaultyDisk, "allocate", full)
    host.config = LogConfig(preallocate=True, segment_bytes=1 << 20)
    with pytest.raises(LogUnavailable, match="No space left"):
        host.open()
    assert not host.offline and f"/a/t-0/{0:020d}.log" not in host.names()
    monkeypatch.undo()
    assert host.append(3).log_end_offset == 3
