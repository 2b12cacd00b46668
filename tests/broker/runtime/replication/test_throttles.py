"""Replication that is throttled (KIP-73) takes its time, and never holds back a replica in sync."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlog.broker.core.byte_rate import ByteRate
from raftlog.broker.core.replica.throttle import ThrottledReplicas
from raftlog.metadata.records import ConfigRecord, ResourceType
from tests.broker.brokers import QUICK, TOPIC, Cluster, run
from tests.waiting import until


def test_a_rate_is_kept_over_time() -> None:
    rate = ByteRate()
    rate.used(1 << 40, 0)
    assert rate.wait_ms(0) == 0
    rate.set_rate(1000)
    sent = 0
    for now_ms in range(0, 10_000, 10):
        if rate.wait_ms(now_ms) == 0:
            rate.used(500, now_ms)
            sent += 500
    assert 9_000 <= sent <= 11_500


def test_replicas_are_named_by_partition_and_broker() -> None:
    named = ThrottledReplicas("0:1, 2:3")
    assert [(0, 1) in named, (2, 3) in named, (1, 0) in named, (0, 3) in named] == [True, True, False, False]
    assert (9, 9) in ThrottledReplicas("*")
    assert (0, 0) not in ThrottledReplicas("")


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_new_replica_takes_its_time_and_those_in_sync_do_not(tmp_path: Path, side: str) -> None:
    async def story() -> None:
        # Four fetches and more, so that there is something to hold back after the first.
        small = QUICK._replace(fetch_max_bytes=100_000)
        async with Cluster(tmp_path, fetcher=small) as cluster:
            cluster.create_topic((1, 2))
            for _ in range(40):
                cluster[1].append("x" * 10_000)
            await until(cluster.is_replicated)
            cluster.change(
                ConfigRecord(ResourceType.BROKER, "", {f"{side}.replication.throttled.rate": "500000"}),
                ConfigRecord(ResourceType.TOPIC, TOPIC, {f"{side}.replication.throttled.replicas": "*"}),
            )
            now = cluster[1].replication.monotonic_ms
            begin = now()
            cluster.set_state(replicas=(1, 2, 3))
            cluster[1].append("for those in sync")
            await until(lambda: cluster[2].end() == 41)
            in_sync_ms = now() - begin
            await until(lambda: sorted(cluster.state().isr) == [1, 2, 3])
            assert in_sync_ms < now() - begin > 500

    run(story)
