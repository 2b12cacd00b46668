"""What the metrics say of replicas."""

from __future__ import annotations

from pathlib import Path

from raftlog.broker.metrics.cluster import replica_families
from tests.broker.brokers import Broker, Cluster, run

MANAGER = "kafka_server_replicamanager"


def told(broker: Broker) -> dict[str, float]:
    """By name, without what all of them begin with."""
    samples = [sample for family in replica_families(broker.services) for sample in family.samples]
    return {sample.name.removeprefix(f"{MANAGER}_"): sample.value for sample in samples}


def test_changes_of_an_isr_count_at_the_leader_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            brokers = [cluster[node_id] for node_id in (1, 2, 3)]
            assert all(each.partition() for each in brokers)  # it is open everywhere
            cluster.set_state(isr=(1, 2))
            cluster.set_state(isr=(1, 2, 3))
            counts = [(told(each)["isrshrinks_total"], told(each)["isrexpands_total"]) for each in brokers]
            assert counts == [(1, 1), (0, 0), (0, 0)]

    run(story)


def test_replicas_that_are_being_added_are_not_missed(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2))
            assert cluster[1].partition().isr_size == 2
            cluster.set_state(replicas=(3, 1, 2), adding_replicas=(3,), removing_replicas=(2,))
            assert told(cluster[1])["underreplicatedpartitions"] == 0 and told(cluster[1])["reassigningpartitions"] == 1
            cluster.set_state(isr=(1,))
            assert told(cluster[1])["underreplicatedpartitions"] == 1

    run(story)
