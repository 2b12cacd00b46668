"""A follower's broker begins anew, or its leader's log: what was known of it before counts no more."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

from raftlog.metadata.cluster_commands import FenceBrokers
from raftlog.metadata.commands import RegisterBroker
from raftlog.metadata.records import Endpoint
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.broker.brokers import TOPIC, TOPIC_ID, Client, Cluster, run
from tests.broker.core.fetch.test_high_watermark import session
from tests.waiting import until

FOLLOWER = 2


async def fetch(client: Client, broker_epoch: int, offset: int, leader_epoch: int) -> Any:
    """The first fetch of a session of broker 2 (KIP-903); what is said of the partition."""
    wanted = FetchPartition(
        partition=0,
        fetch_offset=offset,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=-1,
        log_start_offset=offset,
        partition_max_bytes=1 << 20,
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=broker_epoch),
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=0,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])],
    )
    answer = await client.ask(request, 17)
    return answer.responses[0].partitions[0]


def test_a_broker_that_lost_its_log_is_in_sync_only_when_it_has_all_of_it_again(tmp_path: Path) -> None:
    """Its machine lost power, so that the connection of its earlier life is still open as far as the leader knows. Its
    first fetch is refused, and before the second one it is unfenced: the leader looks who may join.
    """

    async def story() -> None:
        async with Cluster(tmp_path, 2) as cluster:
            cluster[2].deaf = True
            cluster.create_topic((1, 2), isr=(1,))
            for value in ("a", "b", "c"):
                cluster[1].append(value)
            cluster[1].partition().log.delete_records_before(2)
            leader_epoch = cluster.state().leader_epoch
            leadership = cluster[1].partition().leadership
            assert leadership is not None
            async with Client(cluster[1]) as before, Client(cluster[1]) as after:
                earlier = cluster.image.brokers[FOLLOWER].epoch
                assert (await fetch(before, earlier, 3, leader_epoch)).error_code == ErrorCode.NONE
                await until(lambda: cluster.state().isr == (1, 2))
                cluster.execute(FenceBrokers(((FOLLOWER, earlier),)))
                assert cluster.state().isr == (1,)
                endpoint = Endpoint("PLAINTEXT", cluster[2].host, cluster[2].port)
                anew = RegisterBroker(FOLLOWER, b"another life of 2".ljust(16)[:16], (endpoint,), None, fenced=True)
                now = cluster.execute(anew).broker_epoch
                assert now > earlier
                assert (await fetch(after, now, 0, leader_epoch)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                cluster.unfence(FOLLOWER)
                # By the time of the answer the leader has looked.
                assert (await fetch(after, now, 0, leader_epoch)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                assert leadership.maximal_isr == cluster.state().isr == (1,)
                assert (await fetch(after, now, 2, leader_epoch)).error_code == ErrorCode.NONE
                assert leadership.maximal_isr == (1,)
                assert (await fetch(after, now, 3, leader_epoch)).error_code == ErrorCode.NONE
                await until(lambda: cluster.state().isr == (1, 2))

    run(story)


def test_a_follower_says_where_it_is_to_a_leader_whose_log_was_offline_between_two_fetches(tmp_path: Path) -> None:
    """Nothing is appended, so that it has nothing new to say: its leader asks."""

    async def story() -> None:
        async with session(tmp_path, FOLLOWER) as fetches:
            leader = fetches.broker
            await until(lambda: leader.cluster.state().isr == (1, FOLLOWER))
            log = leader.partition().log
            log.fail(OSError(errno.EMFILE, "too many open files"))
            assert leader.partitions.find(TOPIC, None, 0) is ErrorCode.KAFKA_STORAGE_ERROR
            leader.partitions.log_back(log)
            await until(lambda: leader.partitions.find(TOPIC, None, 0) is not ErrorCode.KAFKA_STORAGE_ERROR)
            leadership = leader.partition().leadership
            assert leadership is not None and leadership.followers[FOLLOWER].end_offset == -1
            await fetches.told()
            assert leadership.followers[FOLLOWER].end_offset == 1

    run(story)
