"""One broker's disk is slow, cannot be synced, or takes nothing more: producers go on, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from raftlog.client import Rejected
from raftlog.client.sync import SyncAdmin
from raftlog.raft.disk import RESERVE_SUFFIX
from raftlog.testing import Cluster
from raftlog.testing.faults.faults import Faults
from tests.system.cluster.world import REPLICAS, World, Writer, wait_until

pytestmark = pytest.mark.slow

INODES = 60
SETTINGS = {"replica.lag.time.max.ms": "600000"}
"""Nobody leaves an ISR for lagging."""


@pytest.fixture
def few_inodes(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own for the second broker, with room for few files."""
    place = tmp_path / "broker-2"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size=64m,nr_inodes={INODES}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@contextlib.contextmanager
def started(directory: Path, *, faults: bool = False) -> Iterator[World]:
    cluster = Cluster(3, directory, settings=SETTINGS, faults=faults)
    try:
        cluster.start()
        yield World(cluster)
    finally:
        cluster.kill()
        cluster.close()


def faults_of(world: World) -> Faults:
    def admin() -> SyncAdmin:
        raise AssertionError("these faults name their brokers")

    return Faults(world.cluster, admin)


def test_a_broker_without_inodes_leaves_new_partitions_to_others_until_there_are_some(
    tmp_path: Path, few_inodes: Path
) -> None:
    with started(tmp_path) as world:
        broker = world.cluster.broker(2)
        old = world.create("old")
        ballast = []
        with contextlib.suppress(OSError):
            for number in range(INODES):
                path = few_inodes / f"ballast-{number}"
                path.touch()
                ballast.append(path)
        with Writer(world.bootstrap, old) as writer:
            writer.wait_for_more()
            admin = world.admin()
            admin.create_topics([NewTopic("late", 1, REPLICAS)])["late"].result(20)
            with Writer(world.bootstrap, "late") as late:
                late.wait_for_more(300)
                for path in ballast:
                    path.unlink()
                world.wait_until_in_sync("late", old)
            late.check_no_errors()
            writer.wait_for_more(300)
        writer.check_no_errors()
        assert broker.running and "no data directory is left" not in broker.log()
        world.check_nothing_lost(old, writer)
        world.check_nothing_lost("late", late)


def test_a_disk_that_refuses_records_though_it_has_free_blocks_costs_one_election(tmp_path: Path) -> None:
    """A quota does that."""
    with started(tmp_path, faults=True) as world:
        topic = world.create("t")
        leader = world.leader(topic)
        with Writer(world.bootstrap, topic) as writer:
            writer.wait_for_more()
            with faults_of(world).broker(leader.node_id).disk.full():
                wait_until(
                    lambda: [len(each.isrs) for each in world.partitions(topic)] == [REPLICAS - 1], "others go on"
                )
                for _ in range(5):
                    writer.wait_for_more(1000)
            wait_until(lambda: "there is room on the disk again" in leader.log(), "it is told")
            world.wait_until_in_sync(topic)
            writer.wait_for_more(300)
        writer.check_no_errors()
        left, back = (leader.log().count(line) for line in ("others go on without", "there is room on the disk again"))
        assert (left, back) == (1, 1)
        assert leader.log().count("is full, and nothing is appended") == 1
        world.check_nothing_lost(topic, writer)


def test_a_broker_that_cannot_write_metadata_lets_its_clients_look_elsewhere(tmp_path: Path) -> None:
    """It never hears that others lead."""
    with started(tmp_path, faults=True) as world:
        topic = world.create("t")
        leader = world.leader(topic)
        for kept in tmp_path.glob(f"broker-{leader.node_id}/**/*{RESERVE_SUFFIX}"):
            kept.unlink()
        with Writer(world.bootstrap, topic) as writer:
            writer.wait_for_more()
            with faults_of(world).broker(leader.node_id).disk.full():
                wait_until(lambda: "cannot write its metadata journal" in leader.log(), "it stands still")
                for _ in range(5):
                    writer.wait_for_more(1000)
            wait_until(lambda: "there is room on the disk again" in leader.log(), "it is told")
            world.wait_until_in_sync(topic)
            writer.wait_for_more(300)
        writer.check_no_errors()
        assert "nothing could be written to the metadata log" in leader.log()
        world.check_nothing_lost(topic, writer)


def test_a_disk_that_takes_five_seconds_for_a_sync_holds_up_nobody(tmp_path: Path) -> None:
    with started(tmp_path, faults=True) as world:
        topic = world.create("t")
        faults = faults_of(world)
        with world.client() as client:
            leaders = {world.leader(topic).node_id, client.admin.describe_quorum().leader}
        slow = next(each for each in world.cluster.brokers if each.node_id not in leaders)
        with Writer(world.bootstrap, topic) as writer:
            writer.wait_for_more()
            with faults.broker(slow.node_id).disk.slow(5.0) as fault:
                world.create("made-meanwhile")
                writer.wait_for_more(2000)
                fault.wait()
            writer.wait_for_more(300)
        writer.check_no_errors()
        assert "fenced by the controller" not in slow.log()
        world.check_nothing_lost(topic, writer)


def test_a_quorum_leader_whose_disk_takes_five_seconds_for_a_sync_is_replaced(tmp_path: Path) -> None:
    with started(tmp_path, faults=True) as world:
        topic = world.create("t")
        faults = faults_of(world)
        with Writer(world.bootstrap, topic) as writer, world.client() as client:
            writer.wait_for_more()
            slow = client.admin.describe_quorum().leader
            with faults.broker(slow).disk.slow(5.0):
                # Who asks again, because it was not answered, may find the topic there.
                with contextlib.suppress(Rejected):
                    client.admin.create_topic("made-meanwhile", partitions=1)
                wait_until(lambda: client.admin.describe_quorum().leader not in (slow, -1), "another one leads")
                writer.wait_for_more(2000)
            assert client.admin.topic("made-meanwhile").partitions
            writer.wait_for_more(300)
        writer.check_no_errors()
        world.check_nothing_lost(topic, writer)


def test_a_disk_that_cannot_be_synced_ends_its_broker_and_others_lead(tmp_path: Path) -> None:
    with started(tmp_path, faults=True) as world:
        topic = world.create("t", flush_messages="1")
        leader = world.leader(topic)
        faults = faults_of(world)
        with Writer(world.bootstrap, topic) as writer:
            writer.wait_for_more()
            with faults.broker(leader.node_id).disk.fail_sync():
                wait_until(lambda: not leader.running, "a broker whose only disk has failed stops")
                writer.wait_for_more(300)
            assert leader.running
            world.wait_until_in_sync(topic)
            writer.wait_for_more(300)
        writer.check_no_errors()
        assert "no data directory is left" in leader.log()
        world.check_nothing_lost(topic, writer)
