"""A broker whose disk is full: the cluster goes on without it, and it comes back when there is room."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.testing import Cluster
from tests.cluster.world import World, Writer, wait_until

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


def test_a_full_disk_costs_one_replica_and_no_record(tmp_path: Path, small_disk: Path) -> None:
    cluster = Cluster(3, tmp_path, settings={"replica.lag.time.max.ms": "3000"})
    try:
        cluster.start()
        world = World(cluster)
        topic = world.create("filling")
        ballast = small_disk / "ballast"
        with Writer(world.bootstrap, topic) as writer:
            writer.wait_for_more()
            with ballast.open("wb") as file, contextlib.suppress(OSError):
                while file.write(bytes(64 * 1024)):
                    file.flush()
            wait_until(lambda: 2 not in world.partitions(topic)[0].isrs, "the full replica leaves the ISR")
            writer.wait_for_more(500)
        writer.check_no_errors()
        ballast.unlink()
        cluster.broker(2).stop()
        cluster.broker(2).start()
        world.wait_until_in_sync(topic)
        world.check_nothing_lost(topic, writer)
    finally:
        cluster.kill()
        cluster.close()
