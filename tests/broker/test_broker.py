"""Whole brokers in one process: a quorum of one, brokers where they do not belong, brokers stopped while they wait."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path

import pytest

from raftlog.broker.broker import Broker
from raftlog.broker.config import BrokerConfig
from raftlog.broker.core.coordinator.shared import GROUP_TOPIC
from raftlog.broker.core.group.committed_offsets import CommittedOffsets
from raftlog.broker.core.group.records import NO_EXPIRY, CommittedOffset, OffsetRecord
from raftlog.broker.main import _start
from raftlog.broker.platform import Platform
from raftlog.broker.ports import Disk
from raftlog.broker.runtime.cannot_start import CannotStart
from raftlog.broker.runtime.last_run import LastRun, read_last_run, write_last_run
from raftlog.broker.store.scheduled_tasks import ScheduledTasks
from raftlog.raft.quorum import QuorumLog
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.ids import LeaderEpoch, Offset
from raftlog.wire.schema import ZERO_UUID
from tests.conftest import FreePort
from tests.waiting import until


def broker(directory: Path, node_id: int, voters: str, *, boot_id: str = "boot", **settings: str) -> Broker:
    directory.mkdir(exist_ok=True)
    given = {
        "node.id": str(node_id),
        "log.dirs": str(directory),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "controller.quorum.voters": voters,
    }
    given.update({name.replace("_", "."): value for name, value in settings.items()})
    return Broker(BrokerConfig(given), Platform(boot_id=boot_id))


async def test_a_quorum_of_one_starts_serves_and_is_found_again(tmp_path: Path, free_port: FreePort) -> None:
    port = free_port()
    voters = f"1@127.0.0.1:{port}"
    first = broker(tmp_path / "1", 1, voters)
    await first.start()
    own = first.controller.image.brokers[1]
    assert not own.fenced and own.directories
    (endpoint,) = own.endpoints
    assert (endpoint.host, endpoint.port) == ("127.0.0.1", first.addresses[0][2])
    cluster_id = first.cluster_id
    await first.stop()
    again = broker(tmp_path / "1", 1, voters)
    await again.start()
    assert again.cluster_id == cluster_id
    assert again.controller.broker_epoch == own.epoch + 1
    assert read_last_run(Platform().disk, again.config.metadata_directory).broker_epoch == own.epoch + 1
    await again.stop()


async def test_a_disk_failure_takes_the_proof_that_nothing_was_lost(tmp_path: Path, free_port: FreePort) -> None:
    port = free_port()
    one = broker(tmp_path / "1", 1, f"1@127.0.0.1:{port}")
    await one.start()
    assert one.membership is not None
    epoch = one.controller.broker_epoch
    one.membership.storage_failed(intact=True)
    assert noted(one) == LastRun(epoch, "boot"), "a full disk took nothing away"
    one.membership.storage_failed(intact=False)
    assert noted(one) == LastRun()
    # Forgotten by the controller it registers anew; that does not bring back what the disk lost.
    one.membership._remember(epoch + 1)
    assert noted(one) == LastRun()
    await one.stop()
    assert noted(one) == LastRun()


async def test_a_note_for_which_there_was_no_room_is_written_later_and_the_old_one_claims_no_more_than_it_may(
    tmp_path: Path, free_port: FreePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raftlog.broker.runtime.membership.NOTE_RETRY_SECONDS", 0.01)
    port = free_port()
    one = broker(tmp_path / "1", 1, f"1@127.0.0.1:{port}")
    await one.start()
    assert one.membership is not None
    before = noted(one)
    full = [True, True]

    def write(disk: Disk, directory: str, run: LastRun) -> None:
        if full.pop():
            raise OSError(errno.ENOSPC, "No space left on device")
        write_last_run(disk, directory, run)

    monkeypatch.setattr("raftlog.broker.runtime.membership.write_last_run", write)
    full.insert(0, False)
    one.membership._remember(before.broker_epoch + 1)
    assert noted(one) == before
    await until(lambda: noted(one).broker_epoch == before.broker_epoch + 1)
    assert not full
    await one.stop()


def noted(one: Broker) -> LastRun:
    return read_last_run(Platform().disk, one.config.metadata_directory)


async def test_a_broker_is_not_let_into_another_cluster(tmp_path: Path, free_port: FreePort) -> None:
    ports = [free_port(), free_port()]
    ours, theirs = (broker(tmp_path / name, 1, f"1@127.0.0.1:{port}") for name, port in zip("ab", ports, strict=True))
    await ours.start()
    await theirs.start()
    follower = broker(tmp_path / "2", 2, f"1@127.0.0.1:{ports[0]}")
    await follower.start()
    await follower.stop()
    # The metadata log knows better than --peers; what is left of the data still says where it belongs.
    shutil.rmtree(follower.config.metadata_directory)
    astray = broker(tmp_path / "2", 2, f"1@127.0.0.1:{ports[1]}")
    starting = asyncio.get_running_loop().create_task(astray.start())
    log = astray.controller.log
    assert isinstance(log, QuorumLog)
    await until(lambda: log.peering.transport.refusals or starting.done(), "it is refused")
    assert not starting.done()
    why = log.peering.transport.refusals[1]
    assert ours.cluster_id in why and theirs.cluster_id in why, why
    astray.stopping.set()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    for one in (astray, theirs, ours):
        await one.stop()


async def test_a_broker_that_waits_for_a_quorum_can_be_stopped(tmp_path: Path, free_port: FreePort) -> None:
    ports = [free_port() for _ in range(3)]
    voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(ports, 1))
    lonely = broker(tmp_path / "1", 1, voters)
    asyncio.get_running_loop().call_later(0.3, lonely.stopping.set)
    assert not await _start(lonely)
    began = asyncio.get_running_loop().time()
    await lonely.stop()
    assert asyncio.get_running_loop().time() - began < 2.0


async def test_the_second_broker_of_an_id_says_what_to_do(tmp_path: Path, free_port: FreePort) -> None:
    ports = [free_port(), free_port()]
    voters = f"1@127.0.0.1:{ports[0]}"
    first = broker(tmp_path / "1", 1, voters)
    await first.start()
    follower = broker(tmp_path / "2", 2, voters)
    await follower.start()
    twin = broker(tmp_path / "3", 2, voters)
    starting = asyncio.get_running_loop().create_task(twin.start())
    log = twin.controller.log
    assert isinstance(log, QuorumLog)
    await until(lambda: log.peering.transport.refusals or starting.done(), "somebody says no")
    if starting.done():
        with pytest.raises(CannotStart, match=r"node\.id of its own"):
            await starting
    else:
        assert "2" in log.peering.transport.refusals[1], log.peering.transport.refusals
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    assert follower.controller.log.leader_id == 1
    for one in (twin, follower, first):
        await one.stop()


async def test_a_fault_in_the_upkeep_of_the_logs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the upkeep before the broker stops, so nobody noticed its end: no flush, no retention."""

    async def faulty(_: ScheduledTasks) -> None:
        raise InvariantViolation("a segment that was not there")

    monkeypatch.setattr(ScheduledTasks, "run", faulty)
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    given = {"node.id": "1", "log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    one = Broker(BrokerConfig(given), Platform())
    await one.start()
    await until(lambda: bool(told))
    assert [type(fault) for fault in told] == [InvariantViolation]
    await one.stop()


async def test_a_coordinator_goes_on_when_its_log_is_back(tmp_path: Path) -> None:
    """A log for which there were no descriptors is opened anew: who kept the one before could write nothing any more,
    and every group in it had no coordinator until the broker was restarted."""
    given = {"node.id": "1", "log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    one = Broker(BrokerConfig(given), Platform())
    await one.start()
    await one.controller.ensure_internal_topic(GROUP_TOPIC)

    groups = one.groups
    assert groups is not None

    def commit(offset: int) -> list[ErrorCode]:
        told: list[ErrorCode] = []
        value = CommittedOffset(Offset(offset), LeaderEpoch(0), "", 1, NO_EXPIRY, ZERO_UUID)
        # Of a topic that is there: offsets of others are forgotten after loading.
        records = [OffsetRecord("group", GROUP_TOPIC, 0, value)]
        groups.run("group", lambda host: host.write(records, told.append), told.append)
        return told

    assert commit(1) == [ErrorCode.NONE]
    index = groups.partition_of("group")
    assert index is not None
    partition_log = one.logs.get(GROUP_TOPIC, index)
    assert partition_log is not None
    partition_log.storage.fail(OSError(errno.EMFILE, "too many open files"))
    assert commit(2) != [ErrorCode.NONE]
    await until(lambda: partition_log.offline_reason is None)
    # The new log is loaded first.
    told = commit(3)
    await until(lambda: bool(told))
    assert told == [ErrorCode.NONE]
    kept: list[CommittedOffsets] = []
    groups.run("group", lambda host: kept.append(host.shard.groups["group"].offsets), print)
    assert [offsets.by_topic[GROUP_TOPIC][0].offset for offsets in kept] == [3]
    await one.stop()
