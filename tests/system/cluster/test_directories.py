"""A broker with two disks: when one is full or exchanged, only what lies on it moves, and is filled again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raftlog.client.core.errors import TimedOut
from raftlog.testing import BrokerProcess, Cluster, Kafka
from tests.system.cluster.test_disk_full import fill
from tests.system.cluster.world import World, Writer, wait_until

SIZE_MB = 24
PARTITIONS = 6
BROKER = 2


def mount(place: Path) -> None:
    """A new, empty disk."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small tmpfs")


def unmount(place: Path) -> None:
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two file systems, of which the second is small."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    mount(second)
    yield first, second
    unmount(second)


class OnTwoDisks(BrokerProcess):
    """A broker with log.dirs in place of --data-dir."""

    @property
    def arguments(self) -> list[str]:
        arguments = super().arguments
        at = arguments.index("--data-dir")
        return arguments[:at] + arguments[at + 2 :]


@pytest.fixture
def world(tmp_path: Path, disks: tuple[Path, Path]) -> Iterator[World]:
    cluster = Cluster(3, tmp_path, settings={"replica.lag.time.max.ms": "3000"})
    usual = cluster.broker(BROKER)
    dirs = {"log.dirs": ",".join(map(str, disks)), "metadata.log.dir": str(tmp_path / "metadata")}
    cluster.brokers[BROKER - 1] = OnTwoDisks(
        BROKER,
        usual.data_dir,
        port=usual.port,
        settings=usual.settings | dirs,
        log_file=usual.log_file,
        extra_arguments=usual.extra_arguments,
    )
    try:
        cluster.start()
        yield World(cluster)
    finally:
        cluster.kill()
        cluster.close()


def held_by(directory: Path, topic: str) -> set[int]:
    return {int(path.name.rpartition("-")[2]) for path in directory.glob(f"{topic}-[0-9]")}


def records(directory: Path) -> int:
    """Bytes of records on a disk."""
    return sum(path.stat().st_size for path in directory.glob("*-[0-9]/*.log"))


def test_only_what_lies_on_the_failed_disk_moves_and_a_new_disk_is_filled_again(
    world: World, disks: tuple[Path, Path]
) -> None:
    broker, topic = world.cluster.broker(BROKER), "spread"
    world.create(topic, PARTITIONS)
    everything = set(range(PARTITIONS))
    # In sync is who was assigned; a broker makes the directories a moment later.
    wait_until(lambda: set.union(*(held_by(disk, topic) for disk in disks)) == everything, "all has a directory")
    first, second = (held_by(disk, topic) for disk in disks)
    assert first and second and not first & second
    led = {each.id for each in world.described(topic) if each.leader == BROKER}
    with Writer(world.bootstrap, topic) as writer:
        writer.wait_for_more()
        fill(disks[1] / "ballast")
        now: list[Any] = []

        def only_the_full_disk_has_left() -> bool:
            now[:] = world.partitions(topic)
            return {each.id for each in now if BROKER in each.isrs} == first

        wait_until(only_the_full_disk_has_left, "only what lies on the full disk has left")
        assert {each.id for each in now if each.leader == BROKER} == led & first, "what lies elsewhere is led on"
        writer.wait_for_more(500)
        broker.stop()
        unmount(disks[1])
        mount(disks[1])
        broker.start()
        world.wait_until_in_sync(topic)
        writer.wait_for_more()
    writer.check_no_errors()
    assert held_by(disks[1], topic) == second and records(disks[1]) > 0
    acknowledged = {message.value() for message in writer.deliveries.messages}
    assert acknowledged <= {message.value() for message in world.read(topic, PARTITIONS)}


def test_a_broker_alone_ends_when_its_only_directory_has_failed() -> None:
    with Kafka(brokers=1, settings={"replica.high.watermark.checkpoint.interval.ms": "200"}) as kafka:
        topic = kafka.topic("t", config={"flush.messages": "1"})
        (process,) = kafka.running.brokers
        with kafka.faults.broker(1).disk.fail_sync():
            with pytest.raises(TimedOut):
                kafka.seed(topic, ["record"], timeout=1)
            wait_until(lambda: not process.running, "it has nothing left to serve")
            assert process.returncode == 70 and "no data directory is left" in process.log()
