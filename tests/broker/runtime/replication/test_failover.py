"""Leaders come and go: nothing committed is lost, and logs that parted become one again."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.wire.errors import ErrorCode
from tests.broker.brokers import Cluster, run
from tests.waiting import until


def all_equal(cluster: Cluster, index: int = 0) -> bool:
    stored = [broker.stored(index) for broker in cluster.brokers.values() if broker.is_running]
    return all(other == stored[0] for other in stored)


def test_a_follower_takes_over_and_the_old_leader_follows(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            for number in range(10):
                cluster[1].append(f"{number}")
            await until(cluster.is_replicated)
            cluster.kill(1)
            assert cluster.state().leader == 2
            cluster[2].append("by the second")
            await until(cluster.is_replicated)
            assert cluster[2].high_watermark() == 11
            cluster.start(1)
            await until(cluster.is_replicated)
            await until(lambda: sorted(cluster.state().isr) == [1, 2, 3])
            assert all_equal(cluster)

    run(story)


def test_a_producer_hears_at_once_that_its_leader_leads_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 2) as cluster:
            cluster.create_topic((1, 2))
            cluster[1].append("x")
            await until(cluster.is_replicated)
            cluster[2].replication.close()
            answers: list[ErrorCode] = []
            offset = cluster[1].append("y")
            cluster[1].partition().wait(Mark.HIGH_WATERMARK, offset + 1, answers.append)
            cluster.set_state(leader=2)
            assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run(story)


def test_an_epoch_without_records_does_not_keep_a_follower_from_following(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("x")
            await until(cluster.is_replicated)
            cluster.set_state(leader=2)
            cluster.set_state(leader=3)
            cluster.set_state(leader=1)
            cluster[1].append("y")
            await until(cluster.is_replicated)
            cluster.set_state(leader=2)
            cluster[2].append("z")
            await until(cluster.is_replicated)
            assert all_equal(cluster)

    run(story)


def test_a_follower_that_was_killed_goes_on_where_its_log_ends(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a", "b")
            await until(cluster.is_replicated)
            cluster.kill(3)
            for number in range(20):
                cluster[1].append(f"meanwhile {number}")
            cluster.start(3)
            await until(lambda: cluster[3].end() == 22)
            await until(lambda: sorted(cluster.state().isr) == [1, 2, 3])
            await until(cluster.is_replicated)
            assert all_equal(cluster)

    run(story)


def test_a_follower_whose_records_have_all_expired_begins_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 2) as cluster:
            cluster.create_topic((1, 2))
            cluster[1].append("a", "b")
            await until(cluster.is_replicated)
            cluster.kill(2)
            for number in range(5):
                cluster[1].append(f"{number}")
            cluster[1].partition().log.delete_records_before(5)
            cluster.start(2)
            await until(cluster.is_replicated)
            assert cluster[2].partition().log.log_start_offset == 5
            assert all_equal(cluster)

    run(story)


def test_the_log_start_follows_the_leaders(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 2) as cluster:
            cluster.create_topic((1, 2))
            cluster[1].append("a", "b", "c")
            await until(cluster.is_replicated)
            cluster[1].partition().log.delete_records_before(2)
            cluster[1].append("d")
            await until(lambda: cluster[2].partition().log.log_start_offset == 2)
            leadership = cluster[1].partition().leadership
            assert leadership is not None
            await until(lambda: leadership.followers[2].log_start_offset == 2)

    run(story)


def test_the_log_start_of_a_leader_whose_retention_removes_records_is_followed_though_nobody_writes(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 2, topic={"segment.bytes": "100", "retention.ms": "1000"}) as cluster:
            cluster.create_topic((1, 2))
            for value in "abc":
                cluster[1].append(value)
            await until(cluster.is_replicated)
            leader = cluster[1].partition().log
            assert leader.apply_retention(cluster[1].services.clock.now_ms() + 5_000) > 0
            assert leader.log_start_offset > 0
            await until(lambda: cluster[2].partition().log.log_start_offset == leader.log_start_offset)

    run(story)


def test_what_an_unclean_election_loses_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 2) as cluster:
            cluster.create_topic((1, 2))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            cluster.kill(2)
            cluster[1].append("b", "c")
            assert cluster[1].high_watermark() == 3
            cluster.kill(1)
            cluster.start(2)
            cluster.set_state(leader=2, isr=(2,), leader_recovering=True)
            await until(lambda: not cluster.state().leader_recovering)
            cluster[2].append("d")
            cluster.start(1)
            await until(cluster.is_replicated)
            assert all_equal(cluster) and cluster[1].end() == 2
            assert "elected uncleanly in epoch 2: what was committed at offset 1 or later is lost" in caplog.text

    run(story)


def test_many_partitions_move_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic(*[(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 10)
            for index in range(30):
                cluster[cluster.state(index).leader].append(f"in {index}", index=index)
            await until(lambda: all(cluster.is_replicated(index) for index in range(30)))
            cluster.kill(1)
            for index in range(30):
                cluster[cluster.state(index).leader].append("after it", index=index)
            await until(lambda: all(cluster.is_replicated(index) for index in range(30)))
            cluster.start(1)
            await until(lambda: all(cluster.is_replicated(index) for index in range(30)))
            assert all(all_equal(cluster, index) for index in range(30))

    run(story)
