"""In-sync replicas shrink and grow, and with them what can be committed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.metadata.records import ConfigRecord, ResourceType
from raftlog.wire.errors import ErrorCode
from tests.broker.brokers import TOPIC, Client, Cluster, run
from tests.broker.test_protocol import list_offsets, only, produce
from tests.waiting import until


def test_a_follower_that_stands_still_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, lag_ms_max=200) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            # It lives, and fetches no more.
            cluster[3].replication.stop_following(cluster[3].partition())
            answers: list[ErrorCode] = []
            offset = cluster[1].append("b")
            cluster[1].partition().wait(Mark.HIGH_WATERMARK, offset + 1, answers.append)
            await until(lambda: cluster.state().isr == (1, 2))
            assert answers == [ErrorCode.NONE]
            cluster[3].replication.follow(cluster[3].partition(), cluster.state())
            await until(lambda: sorted(cluster.state().isr) == [1, 2, 3])
            await until(cluster.is_replicated)

    run(story)


def test_an_idle_follower_stays_in_the_isr(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, lag_ms_max=600) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            epoch = cluster.state().partition_epoch
            now_ms = cluster[1].replication.monotonic_ms
            # Idle for longer than followers may lag, and then one append right before each look.
            for _ in range(2):
                cluster[1].append("b")
                cluster[1].replication.look_for_laggards(now_ms())
                await until(cluster.is_replicated)
                idle = now_ms()
                await until(lambda idle=idle: now_ms() > idle + 650)  # type: ignore[misc]
            assert cluster.state().partition_epoch == epoch

    run(story)


def test_below_min_insync_replicas_nothing_is_committed(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, topic={"min.insync.replicas": "2"}) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            cluster.kill(2)
            cluster.kill(3)
            partition = cluster[1].partition()
            assert partition.isr_size == 1 and partition.min_isr == 2
            cluster[1].append("with acks=1")
            assert partition.log.high_watermark == 1
            assert partition.append(b"", 0).error is ErrorCode.NOT_ENOUGH_REPLICAS
            cluster.start(2)
            await until(lambda: len(cluster.state().isr) == 2)
            await until(lambda: partition.log.high_watermark == 2)

    run(story)


def test_who_waits_for_a_commit_hears_when_too_few_replicas_are_left(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, topic={"min.insync.replicas": "2"}) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            for node_id in (2, 3):
                cluster[node_id].replication.close()
            answers: list[ErrorCode] = []
            offset = cluster[1].append("b")
            cluster[1].partition().wait(Mark.HIGH_WATERMARK, offset + 1, answers.append)
            cluster.kill(2)
            assert answers == []
            cluster.kill(3)
            assert answers == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]

    run(story)


def test_a_min_insync_replicas_that_was_raised_counts_before_an_isr_that_comes_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 2, topic={"min.insync.replicas": "1"}) as cluster:
            cluster.create_topic((1, 2))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            cluster[1].deaf = True
            cluster.change(ConfigRecord(ResourceType.TOPIC, TOPIC, {"min.insync.replicas": "2"}))
            cluster.kill(2)
            assert cluster.state().isr == (1,) and cluster.state().eligible_leader_replicas == (2,)
            cluster[1].append("b")
            # As from a snapshot of the metadata: all at once.
            cluster[1].deaf = False
            cluster[1].catch_up()
            partition = cluster[1].partition()
            assert (partition.isr_size, partition.min_isr, partition.log.high_watermark) == (1, 2, 1)

    run(story)


def test_a_min_insync_replicas_above_the_number_of_replicas_asks_for_all(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 2, topic={"min.insync.replicas": "3"}) as cluster:
            cluster.create_topic((1, 2), (1,))
            cluster[1].append("alone", index=1)
            assert cluster[1].high_watermark(1) == 1
            cluster[1].append("both")
            await until(cluster.is_replicated)
            assert cluster[1].partition().min_isr == 2

    run(story)


def test_a_fenced_follower_joins_when_it_is_unfenced_though_nothing_is_appended(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            cluster.fence(3)
            cluster.set_state(isr=(1, 2))
            cluster[1].append("b")
            await until(lambda: cluster[3].end() == 2)
            assert cluster.state().isr == (1, 2)
            cluster.unfence(3)
            await until(lambda: sorted(cluster.state().isr) == [1, 2, 3])

    run(story)


def test_replicas_that_are_added_catch_up_and_those_removed_lose_their_log(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1,))
            cluster[1].append("alone")
            assert cluster[1].high_watermark() == 1
            cluster.set_state(replicas=(1, 2, 3), adding_replicas=(2, 3))
            await until(lambda: sorted(cluster.state().isr) == [1, 2, 3])
            cluster[1].append("together")
            await until(cluster.is_replicated)
            cluster.set_state(replicas=(2, 3), isr=(2, 3), leader=2, adding_replicas=())
            cluster[2].append("without the first")
            await until(cluster.is_replicated)
            assert cluster[1].logs.get("t", 0) is None
            assert cluster[1].partitions.find_by_name(b"t", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(story)


def test_with_flush_messages_a_follower_acknowledges_what_is_on_its_disk(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, topic={"flush.messages": "1"}) as cluster:
            cluster.create_topic((1, 2, 3))
            for number in range(20):
                cluster[1].append(f"{number}")
                leader = cluster[1].partition()
                for node_id in (2, 3):
                    if leader.log.high_watermark:
                        partition = cluster[node_id].partition()
                        assert partition.log.recovery_point >= leader.log.high_watermark
            await until(cluster.is_replicated)
            for broker in cluster.brokers.values():
                assert broker.partition().log.recovery_point == 20

    run(story)


def test_what_arrives_as_a_flush_ends_is_committed_without_another_record(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, topic={"flush.messages": "3"}) as cluster:
            cluster.create_topic((1, 2, 3))
            logs = cluster[1].logs
            flush = logs.flush

            async def flush_and_hear_of_it_later(log: PartitionLog) -> None:
                await flush(log)
                if cluster[1].end() == 3:
                    cluster[1].append("one more, which is no reason to flush again")

            logs.flush = flush_and_hear_of_it_later  # type: ignore[method-assign]
            for number in range(3):
                cluster[1].append(f"{number}")
            await until(lambda: cluster[1].partition().log.high_watermark == 4, "all is committed", 10)

    run(story)


def test_what_arrives_during_a_flush_waits_for_the_next_one(tmp_path: Path) -> None:
    """acks=1 was answered when the records before it were on the disk."""

    async def story() -> None:
        async with Cluster(tmp_path, topic={"flush.messages": "1"}) as cluster:
            cluster.create_topic((1, 2, 3))
            logs, partition = cluster[1].logs, cluster[1].partition()
            told: list[tuple[ErrorCode, int]] = []
            in_thread = logs.in_thread

            def in_thread_meanwhile(work: Any) -> Any:
                if cluster[1].end() == 1:
                    cluster[1].append("b")
                    partition.wait(Mark.FLUSHED, 2, lambda error: told.append((error, partition.log.recovery_point)))
                return in_thread(work)

            logs.in_thread = in_thread_meanwhile  # type: ignore[method-assign]
            cluster[1].append("a")
            await until(lambda: bool(told))
            assert told == [(ErrorCode.NONE, 2)]

    run(story)


def test_what_moved_away_while_a_broker_was_down_is_removed_when_it_is_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2), (1, 2))
            for index in (0, 1):
                cluster[1].append("a", index=index)
                await until(lambda index=index: cluster.is_replicated(index))  # type: ignore[misc]
            cluster.kill(2)
            cluster.set_state(0, replicas=(1, 3))
            assert (tmp_path / "2" / "t-0").exists()
            cluster.start(2)
            # Old metadata, read again, must not remove a replica: it may be here in the newest.
            await until(lambda: cluster[2].logs.get("t", 0) is None)
            await until(lambda: len(cluster.state(1).isr) == 2)
            assert cluster[2].end(1) == 1
            assert not (tmp_path / "2" / "t-0").exists()

    run(story)


def test_a_proposal_that_finds_no_controller_is_made_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, lag_ms_max=200) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            cluster.controller_is_away = True
            cluster[3].replication.stop_following(cluster[3].partition())
            offset = cluster[1].append("b")
            leadership = cluster[1].partition().leadership
            assert leadership is not None
            await until(lambda: leadership.isr == (1, 2, 3) and cluster.refused > 2)
            # Nobody has agreed, so 3 is waited for.
            assert cluster[1].high_watermark() == offset
            cluster.controller_is_away = False
            await until(lambda: cluster.state().isr == (1, 2))
            await until(lambda: cluster[1].high_watermark() == offset + 1)

    run(story)


def test_acks_of_one_with_flush_messages_wait_for_the_leaders_disk_and_for_no_follower(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, topic={"flush.messages": "1"}) as cluster:
            cluster.create_topic((1, 2, 3))
            disk_goes_on = {node_id: stop_disk(cluster, node_id) for node_id in (1, 2, 3)}
            partition = cluster[1].partition()
            async with Client(cluster[1]) as client, Client(cluster[1]) as other:
                answer = asyncio.ensure_future(client.ask(produce(0, "a", acks=1), 11))
                await until(lambda: [cluster[node_id].end() for node_id in (1, 2, 3)] == [1, 1, 1])
                assert only(await other.ask(list_offsets(), 7)).error_code == ErrorCode.NONE
                assert not answer.done() and partition.log.recovery_point == 0
                disk_goes_on[1].set()
                assert only(await answer).error_code == ErrorCode.NONE
            assert (partition.log.recovery_point, partition.log.high_watermark) == (1, 0)
            disk_goes_on[2].set()
            disk_goes_on[3].set()
            await until(cluster.is_replicated)

    run(story)


def stop_disk(cluster: Cluster, node_id: int) -> asyncio.Event:
    """From now on nothing of a broker's work in threads begins until the event is set."""
    logs, goes_on = cluster[node_id].logs, asyncio.Event()
    in_thread = logs.in_thread

    async def in_thread_later(work: Any) -> Any:
        await goes_on.wait()
        return await in_thread(work)

    logs.in_thread = in_thread_later  # type: ignore[method-assign,assignment]
    return goes_on
