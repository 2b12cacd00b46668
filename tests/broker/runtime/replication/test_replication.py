"""Brokers replicate over loopback: what one leads the others have, byte for byte, and what is acknowledged is safe."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from raftlog.broker.runtime import opening_queue, partition_manager
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.broker.runtime.partition import Partition
from raftlog.broker.runtime.replication.settings import FetcherSettings
from raftlog.metadata.records import PartitionState
from raftlog.wire.errors import ErrorCode
from tests.broker.brokers import Cluster, run
from tests.waiting import until


def test_what_is_appended_reaches_every_replica_byte_for_byte(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            for number in range(50):
                cluster[1].append(f"value {number}", "another")
            await until(cluster.is_replicated)
            stored = [cluster[node_id].stored() for node_id in (1, 2, 3)]
            assert stored[0] == stored[1] == stored[2]
            assert cluster[3].end() == 100

    run(story)


def test_segments_begin_where_the_leaders_do(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, topic={"segment.bytes": "20000"}) as cluster:
            cluster.create_topic((1, 2, 3))
            for number in range(300):
                cluster[1].append("x" * (number * 37 % 1500))
                if number % 40 == 0:
                    await until(cluster.is_replicated)
            await until(cluster.is_replicated)
            files = [
                {path.name: path.read_bytes() for path in (tmp_path / str(node_id) / "t-0").glob("*.log")}
                for node_id in (1, 2, 3)
            ]
            assert files[0] == files[1] == files[2] and len(files[0]) > 5

    run(story)


def test_a_commit_waits_for_all_in_sync_replicas(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            await until(lambda: cluster[2].partition() and cluster[3].partition())
            answers: list[ErrorCode] = []
            offset = cluster[1].append("x")
            cluster[1].partition().wait(Mark.HIGH_WATERMARK, offset + 1, answers.append)
            assert answers == []
            await until(lambda: answers)
            assert answers == [ErrorCode.NONE]
            assert cluster[2].end() == cluster[3].end() == 1

    run(story)


def test_an_acknowledgement_waits_for_no_timer(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, fetcher=FetcherSettings()) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("first")
            await until(cluster.is_replicated)
            loop = asyncio.get_running_loop()
            begin = loop.time()
            for number in range(50):
                done: asyncio.Future[ErrorCode] = loop.create_future()
                offset = cluster[1].append(f"{number}")
                cluster[1].partition().wait(Mark.HIGH_WATERMARK, offset + 1, done.set_result)
                assert await done is ErrorCode.NONE
            # Fetches are delayed for half a second; fifty waits for that would take far longer.
            assert loop.time() - begin < 2.0

    run(story)


def test_a_follower_that_comes_again_leaves_no_session_behind(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 2) as cluster:
            cluster.create_topic((1, 2))
            for number in range(4):
                cluster[1].append(f"{number}")
                await until(cluster.is_replicated)
                cluster.kill(2)
                cluster.start(2)
            cluster[1].append("at last")
            await until(cluster.is_replicated)
            assert cluster[1].partition().watchers(Mark.LOG_END) == 1
            assert len(cluster[1].fetches.sessions) == 1

    run(story)


def test_a_leader_that_comes_back_opens_what_its_followers_ask_for_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two followers ask for everything in their first fetches; the leader stood still until all of it was open."""
    monkeypatch.setattr(opening_queue, "OPENING_SECONDS", 0.0)
    count = 120

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic(*[(1, 2, 3)] * count)
            for index in range(count):
                cluster[1].append("x", index=index)
            await until(lambda: all(cluster.is_replicated(index) for index in range(count)))
            await cluster[1].stop()
            cluster.start(1)
            for index in range(count):
                cluster.set_state(index, leader=1, isr=(1, 2, 3))
            opened, held = [0], [0]

            def count_open() -> None:
                opened.append(len(list(cluster[1].partitions.open_partitions())))
                held.append(len(cluster[1].fetches.followers.held_back))
                if opened[-1] < count:
                    asyncio.get_running_loop().call_soon(count_open)

            count_open()
            await until(lambda: opened[-1] == count)
            assert max(held) > 10, "the followers came too late to ask for what was not open"
            assert max(after - before for before, after in itertools.pairwise(opened)) <= 2
            for index in range(count):
                cluster[1].append("y", index=index)
            await until(lambda: all(cluster.is_replicated(index) for index in range(count)))
            assert cluster[1].fetches.followers.held_back == {}
            # Each follower watches each partition once, and what it has is known.
            assert all(cluster[1].partition(index).watchers(Mark.LOG_END) == 2 for index in range(count))

    run(story)


def test_a_change_of_one_partition_does_not_touch_the_others_of_its_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand small changes of a topic with ten thousand partitions made a start twice as long."""
    touched: list[int] = []
    change = partition_manager.PartitionManager._change_role

    def note(manager: partition_manager.PartitionManager, partition: Partition, state: PartitionState) -> None:
        touched.append(state.partition_id)
        change(manager, partition, state)

    monkeypatch.setattr(partition_manager.PartitionManager, "_change_role", note)

    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic(*[(1, 2)] * 20, isr=(1,))
            await until(lambda: len(list(cluster[1].partitions.open_partitions())) == 20)
            cluster.set_state(7, new_epoch=True)
            cluster.set_state(3, isr=(1, 2))
            assert touched == [7, 3]
            assert cluster[1].partition(7).leader_epoch == 1
            assert cluster[1].partition(3).isr == (1, 2)

    run(story)


def test_who_hears_of_a_commit_may_append_to_another_partition_that_the_same_followers_fetch(tmp_path: Path) -> None:
    async def story() -> None:
        # Long enough that nothing goes on by itself.
        async with Cluster(tmp_path, fetcher=FetcherSettings(fetch_wait_max_ms=20_000)) as cluster:
            cluster.create_topic((1, 2, 3), (1, 2, 3))
            leader = cluster[1]
            for number in range(5):
                end = leader.append("a") + 1
                leader.partition(0).wait(Mark.HIGH_WATERMARK, end, lambda error: leader.append("b", index=1) and None)
                await until(lambda number=number: leader.high_watermark(1) > number, seconds=10)  # type: ignore[misc]

    run(story)
