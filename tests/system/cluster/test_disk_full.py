"""A broker whose disk is full: the cluster goes on without it, and it comes back when there is room."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from raftlog.testing import Cluster
from tests.system.cluster.world import DEADLINE_SECONDS, World, Writer, wait_until

SIZE_MB = 24


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own for the second broker."""
    place = tmp_path / "broker-2"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@contextlib.contextmanager
def started(directory: Path) -> Iterator[World]:
    # Nobody leaves an ISR for lagging.
    cluster = Cluster(3, directory, settings={"replica.lag.time.max.ms": "600000"})
    try:
        cluster.start()
        yield World(cluster)
    finally:
        cluster.kill()
        cluster.close()


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(64 * 1024)):
            pass


def topic_led_by(world: World, leader: int) -> str:
    """A topic with one partition, whose first replica this is."""
    replicas = sorted((1, 2, 3), key=lambda broker: broker != leader)
    admin = world.admin()
    new = NewTopic("filling", 1, replica_assignment=[replicas])
    admin.create_topics([new])["filling"].result(DEADLINE_SECONDS)
    world.wait_until_in_sync("filling")
    return "filling"


def test_a_leader_whose_disk_is_full_has_others_lead_and_comes_back_by_itself(tmp_path: Path, small_disk: Path) -> None:
    with started(tmp_path) as world:
        broker = world.cluster.broker(2)
        topic = topic_led_by(world, 2)
        with Writer(world.bootstrap, topic) as writer:
            writer.wait_for_more()
            fill(small_disk / "ballast")
            wait_until(lambda: [each.leader for each in world.partitions(topic)] in ([1], [3]), "another leads")
            writer.wait_for_more(500)
            (small_disk / "ballast").unlink()
            wait_until(lambda: "there is room on the disk again" in broker.log(), "it is told")
            world.wait_until_in_sync(topic)
        writer.check_no_errors()
        assert broker.running and "others go on without this broker" in broker.log()
        world.check_nothing_lost(topic, writer)


def test_a_full_disk_costs_one_replica_and_no_record(tmp_path: Path, small_disk: Path) -> None:
    with started(tmp_path) as world:
        cluster = world.cluster
        topic = topic_led_by(world, 1)
        ballast = small_disk / "ballast"
        with Writer(world.bootstrap, topic) as writer:
            writer.wait_for_more()
            fill(ballast)
            wait_until(
                lambda: [2 in each.isrs for each in world.partitions(topic)] == [False],
                "the full replica leaves the ISR",
            )
            writer.wait_for_more(500)
        writer.check_no_errors()
        log = cluster.broker(2).log()
        assert "cannot append what the leader sent" not in log and log.count("is full, and nothing is appended") == 1
        ballast.unlink()
        world.wait_until_in_sync(topic)
        world.check_nothing_lost(topic, writer)
