"""What replicas know of leader epochs, and so where they believe that their logs part."""

from __future__ import annotations

import shutil
from pathlib import Path

from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import ErrorCode
from tests.broker.brokers import Cluster, run
from tests.broker.store.log_world import LogWorld
from tests.waiting import until


def test_a_broker_that_lost_its_log_and_led_in_name_learns_the_epochs_of_what_it_is_sent(tmp_path: Path) -> None:
    """Its machine lost power, and it began with the leadership that it remembered."""

    async def story() -> None:
        async with Cluster(tmp_path, 2) as cluster:
            cluster.create_topic((1, 2))
            first = cluster.state().leader_epoch
            for leader in (1, 2):
                cluster.set_state(leader=leader)
                for number in range(3):
                    cluster[leader].append(f"{leader} {number}")
                await until(cluster.is_replicated)
            await cluster[2].stop()
            shutil.rmtree(tmp_path / "2")
            cluster[2].image = MetadataImage()
            cluster[2].start()
            cluster[2].catch_up()
            await until(lambda: cluster[2].partition().error is ErrorCode.NONE)
            assert list(cluster[2].partition().log.opened.epochs) == [(first + 1, 0)]
            cluster.set_state(leader=1)
            await until(cluster.is_replicated)
            logs = [cluster[node].partition().log for node in (1, 2)]
            assert [log.end_offset_for_epoch(first) for log in logs] == [(first, 3)] * 2

    run(story)


def test_an_epoch_with_records_is_not_forgotten() -> None:
    world = LogWorld()
    world.append_values(b"a", epoch=2)
    world.log.forget_empty_epoch()
    assert list(world.log.opened.epochs) == [(2, 0)]
    world.log.assign_epoch(5)
    world.log.forget_empty_epoch()
    assert list(world.log.opened.epochs) == [(2, 0)]
