"""A disk that fails takes its own partitions, and nobody else's."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from raftlog.broker.core.log.producers import TransactionEnd
from raftlog.broker.core.log.verification import NOT_REQUIRED
from raftlog.broker.store.disk import OsDisk
from raftlog.wire.errors import ErrorCode
from tests.broker.brokers import Cluster, run
from tests.broker.store.log_world import START_MS, batch_of
from tests.waiting import until


def test_a_replicated_partition_whose_log_fails_takes_its_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3), (1, 2, 3), (2, 1, 3))
            for index in range(3):
                cluster[cluster.state(index).leader].append("a", index=index)
            await until(lambda: all(cluster.is_replicated(index) for index in range(3)))

            class Failing(OsDisk):
                def write_at(self, descriptor: int, data: Any, position: int, /) -> int:
                    raise OSError(errno.EIO, "the disk is gone")

            failing = Failing()
            for log in cluster[1].logs:
                for segment in log.opened.segments:
                    monkeypatch.setattr(segment, "_disk", failing)
            # A follower is the first to notice.
            cluster[2].append("b", index=2)
            await until(lambda: cluster[1].logs.directories[0].offline_reason is not None)
            for index in range(3):
                found = cluster[1].partitions.find_replica("t", None, index)
                assert found is ErrorCode.KAFKA_STORAGE_ERROR
            # One line of the log that failed, and one of its directory.
            told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
            assert [" logs=3:" in line for line in told if "offline" in line] == [False, True]
            # The others go on without it.
            cluster.kill(1)
            for index in range(3):
                cluster[cluster.state(index).leader].append("c", index=index)
            await until(lambda: all(cluster.is_replicated(index) for index in range(3)))

    run(story)


def test_a_partition_that_leaves_a_failing_disk_takes_its_directory_offline_and_the_broker_follows_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(OsDisk):
        def rename(self, old: str, new: str) -> None:
            raise OSError(errno.EIO, "the disk is gone")

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            monkeypatch.setattr(cluster[1].logs.store, "disk", Failing())
            cluster.set_state(replicas=(2, 3), isr=(2, 3), leader=2)
            assert "the disk is gone" in (cluster[1].logs.directories[0].offline_reason or "")
            assert cluster[1].logs.get("t", 0) is None
            cluster[2].append("b")
            await until(cluster.is_replicated)

    run(story)


def test_a_follower_whose_log_fails_behind_what_it_has_appended_goes_on_with_the_others(tmp_path: Path) -> None:
    """There is room for the marker of an aborted transaction, and none for the transaction index."""

    class Full(OsDisk):
        def open(self, path: str, *, create: bool = False) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    async def story() -> None:
        unhandled: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        async with Cluster(tmp_path, 2) as cluster:
            cluster.create_topic((1, 2), (1, 2))
            for index in range(2):
                cluster[1].append("a", index=index)
            await until(lambda: all(cluster.is_replicated(index) for index in range(2)))
            log = cluster[2].partition().log
            log.opened.segments.active.transactions._disk = Full()
            now_ms = START_MS
            records = batch_of([b"x"], now_ms, producer_id=7, base_sequence=0, transactional=True)
            leader = cluster[1].partition()
            leader.append_from_client(memoryview(bytearray(records)), now_ms, NOT_REQUIRED)
            assert leader.append_marker(TransactionEnd(7, 0, False, 0), now_ms).error is ErrorCode.NONE
            await until(lambda: log.offline_reason is not None)
            for number in range(3):
                cluster[1].append(f"{number}", index=1)
                await until(lambda: cluster.is_replicated(1))
        assert unhandled == []

    run(story)
