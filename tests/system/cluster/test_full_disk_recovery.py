"""A disk that only records have filled: the topic is deleted, the room is free at once, and all serve again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.clients.confluent import producer
from tests.system.cluster.test_disk_full import small_disk as small_disk
from tests.system.cluster.test_disk_full import started
from tests.system.cluster.world import Writer, wait_until

pytestmark = pytest.mark.slow

FREE_SECONDS = 5.0


def used_bytes(place: Path) -> int:
    found = os.statvfs(place)
    return (found.f_blocks - found.f_bavail) * found.f_frsize


def test_a_topic_that_filled_a_disk_is_deleted_and_the_broker_serves_again(tmp_path: Path, small_disk: Path) -> None:
    with started(tmp_path) as world:
        broker = world.cluster.broker(2)
        good = world.create("good")
        world.create("filling", 1)
        with Writer(world.bootstrap, good) as writer:
            writer.wait_for_more()
            filler = producer(world.bootstrap, acks="1")
            while "is full, and nothing is appended" not in broker.log():
                for _ in range(20):
                    filler.produce("filling", os.urandom(100_000))
                filler.flush(10)
            wait_until(lambda: [2 in each.isrs for each in world.partitions(good)] == [False], "others go on")
            writer.wait_for_more(500)
            assert broker.running, broker.last_words()
            before = used_bytes(small_disk)
            admin = world.admin()
            admin.delete_topics(["filling"])["filling"].result(10)
            wait_until(lambda: used_bytes(small_disk) < before // 2, "the room is free", FREE_SECONDS)
            world.wait_until_in_sync(good)
            writer.wait_for_more(500)
        writer.check_no_errors()
        assert broker.running and "no data directory is left" not in broker.log()
        assert broker.log().count("is full, and nothing is appended") <= 2
        world.check_nothing_lost(good, writer)
