"""Brokers join a quorum, are fenced when they die or fall silent, and leave in order."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from raftlog.broker.runtime.cannot_start import CannotStart
from raftlog.broker.runtime.directory_reports import Assignments, DirectoryReports
from raftlog.broker.runtime.lifecycle import State
from raftlog.metadata.cluster_commands import UnregisterBroker
from raftlog.metadata.commands import NewTopic
from raftlog.metadata.liveness import Silence
from raftlog.metadata.records import NO_LEADER
from raftlog.wire.ids import BrokerId
from raftlog.wire.uuids import uuid_to_text
from tests.broker.runtime.membership_world import SESSION_MS, Node, World, is_serving
from tests.waiting import until

HOUR_MS = 3_600_000
"""A session that does not end while a test waits."""


async def test_three_brokers_join_one_cluster_and_serve(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        assert len({node.image.cluster_id for node in world.nodes.values()}) == 1
        assert all(len(node.image.brokers) == world.count_serving(node) == 3 for node in world.nodes.values())
        assert sorted(broker.epoch for broker in world.leader.image.brokers.values()) == [1, 2, 3]


async def test_a_broker_that_dies_is_fenced_long_before_its_session_ends(tmp_path: Path) -> None:
    async with World(tmp_path, session_ms=HOUR_MS) as world:
        victim, other = world.followers
        await world.topic(victim.node_id, other.node_id, world.leader.node_id)
        await victim.kill()
        await until(lambda: world.partition(other).leader == other.node_id, "another leader")
        state = world.partition(other)
        assert (state.leader_epoch, set(state.isr)) == (1, {other.node_id, world.leader.node_id})
        assert other.image.brokers[victim.node_id].fenced


async def test_when_the_leader_of_the_quorum_dies_its_partitions_move_as_well(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        victim, (other, third) = world.leader, world.followers
        await world.topic(victim.node_id, other.node_id, third.node_id)
        await victim.kill()
        await until(lambda: world.partition(other).leader == other.node_id, "another leader")
        await until(lambda: world.partition(third).leader == other.node_id)
        assert not other.image.brokers[third.node_id].fenced


async def test_a_broker_that_hangs_is_fenced_when_its_session_ends_and_comes_back_when_it_speaks(
    tmp_path: Path,
) -> None:
    async with World(tmp_path) as world:
        victim, other = world.followers
        await world.topic(victim.node_id, other.node_id)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await victim.hang()
        await until(lambda: other.image.brokers[victim.node_id].fenced, "fenced")
        assert loop.time() - began >= SESSION_MS / 1000 - 0.1
        await until(lambda: world.partition(other).leader == other.node_id)
        await (await victim.join()).wait_until_serving()
        await until(lambda: not other.image.brokers[victim.node_id].fenced, "back")
        assert world.partition(other).leader == other.node_id


def heard_beyond(node: Node, moment: float) -> bool:
    """Whether this leader heard all brokers after `moment` (monotonic); nobody may be fenced on the way there."""
    assert not any(broker.fenced for broker in node.image.brokers.values())
    return all(time.monotonic() - node.duties.silent_ms(each) / 1000 > moment for each in node.image.brokers)


@pytest.mark.long
async def test_nobody_is_fenced_while_the_quorum_changes_its_leader(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        for node in [*world.followers, world.leader]:
            await world.leader.controller.transfer_leadership(node.node_id)
            await until(lambda node=node: node.controller.log.is_leader)  # type: ignore[misc]
            await until(partial(heard_beyond, node, time.monotonic() + 1.5 * SESSION_MS / 1000))


async def test_what_a_leader_found_out_is_not_carried_out_by_its_successor(tmp_path: Path) -> None:
    """A leader that is cut off hears nobody, and would have all others fenced as soon as it is heard again."""
    async with World(tmp_path, session_ms=HOUR_MS) as world:
        old = world.leader
        healthy = world.followers[0]
        epoch = healthy.controller.broker_epoch
        await old.controller.transfer_leadership(healthy.node_id)
        await until(lambda: not old.controller.log.is_leader and healthy.controller.log.is_leader, "another one leads")
        before = healthy.image.version
        await old.duties._fence((Silence(BrokerId(healthy.node_id), epoch, "not heard"),))
        assert healthy.image.version == before
        assert not healthy.image.brokers[healthy.node_id].fenced


async def test_a_broker_that_leaves_hands_its_partitions_over_first(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        leaving, other = world.followers
        await world.topic(leaving.node_id, other.node_id, world.leader.node_id)
        assert leaving.lifecycle is not None
        assert await leaving.lifecycle.controlled_shutdown()
        await until(lambda: world.partition(other).leader == other.node_id)
        assert world.partition(other).isr == (other.node_id, world.leader.node_id)
        assert leaving.lifecycle.state is State.STOPPED
        await leaving.kill()
        again = await world.node(leaving.node_id).up()
        assert world.partition(again).leader == other.node_id, "leaders do not jump back before it has caught up"


async def test_a_broker_that_leaves_without_a_quorum_does_not_wait_for_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with World(tmp_path) as world:
        last = world.leader
        for node in world.followers:
            await node.kill()
        assert last.lifecycle is not None
        assert not await last.lifecycle.controlled_shutdown()
        assert "most voters of the quorum are gone" in caplog.text


async def test_a_broker_that_was_forgotten_registers_again(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        victim, other = world.followers
        before = victim.controller.broker_epoch
        await victim.hang()
        await until(lambda: other.image.brokers[victim.node_id].fenced)
        assert not (await other.controller.execute(UnregisterBroker(victim.node_id))).error
        assert victim.node_id not in other.image.brokers
        assert victim.lifecycle is not None
        victim.lifecycle.start()
        await until(lambda: victim.node_id in other.image.brokers, "it registers again")
        await until(lambda: not other.image.brokers[victim.node_id].fenced, "it serves again")
        assert victim.controller.broker_epoch > before


async def test_a_second_broker_with_the_same_id_is_told_what_to_do(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        first = world.followers[0]
        twin = world.node(99)
        await twin.start()
        twin.node_id = first.node_id
        with pytest.raises(CannotStart, match=r"stop that one, or start this one with a node\.id of its own"):
            await twin.join(duplicate_seconds_max=1.0)
        assert is_serving(first)
        twin.node_id = 99


async def test_a_disk_of_another_broker_is_refused_with_advice(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        first = world.node(4, directories=(b"a" * 16,))
        await first.up()
        second = world.node(5, directories=(b"a" * 16,))
        await second.start()
        with pytest.raises(CannotStart, match="belongs to broker 4"):
            await second.join()


async def test_a_broker_whose_disk_was_exchanged_is_in_sync_with_nothing(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        victim = await world.node(4, directories=(b"old disk of four",)).up()
        await world.topic(1, 4)
        await world.topic(4, name="alone")
        await victim.kill()
        await until(lambda: world.partition(world.nodes[1], "alone").leader == NO_LEADER)
        again = await world.node(4, directories=(b"new disk of four",)).up()
        for name in ("t", "alone"):
            state = world.partition(again, name)
            assert 4 not in state.isr and 4 not in state.eligible_leader_replicas
        await again.kill()
        with_the_old_disk = await world.node(4, directories=(b"old disk of four",)).up()
        await until(lambda: world.partition(with_the_old_disk, "alone").leader == 4, "its data is back")


async def test_a_directory_that_fails_takes_only_its_own_replicas(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        one, two = b"directory one...", b"directory two..."
        broker = await world.node(4, directories=(one, two)).up()
        assignments = Assignments(broker.controller, 4)
        for name, directory in (("a", one), ("b", two)):
            await world.topic(4, 1, name=name)
            assignments.assign(broker.image.topics[name].topic_id, 0, directory)
        await until(lambda: all(world.partition(broker, name).directories for name in ("a", "b")), "both are told")
        broker.offline = (one,)
        assert broker.lifecycle is not None
        broker.lifecycle.heartbeat_now()
        await until(lambda: world.partition(broker, "a").leader == 1, "somebody else leads")
        assert world.partition(broker, "b").leader == 4
        assert not broker.image.brokers[4].fenced


async def test_a_replica_that_nobody_told_of_before_its_directory_failed_is_led_by_another(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        one, two = b"directory one...", b"directory two..."
        broker = await world.node(4, directories=(one, two)).up()
        await world.topic(4, 1)
        failed = SimpleNamespace(directory_id=one, offline_reason="it failed", logs={("t", 0): None})
        usable = SimpleNamespace(directory_id=two, offline_reason=None, logs={})
        logs = SimpleNamespace(directories=[failed, usable])
        reports = DirectoryReports(broker.controller, logs, 4)  # type: ignore[arg-type]
        broker.offline = (one,)
        assert broker.lifecycle is not None
        broker.lifecycle.heartbeat_now()
        await until(lambda: broker.image.brokers[4].offline_directories == (one,), "the controller knows")
        assert world.partition(broker).leader == 4
        reports.report()
        await until(lambda: world.partition(broker).leader == 1, "somebody else leads")
        await reports.end()


class LogsIn(list[SimpleNamespace]):
    """The logs of a broker, by directory."""

    @property
    def directories(self) -> list[SimpleNamespace]:
        return self

    futures = SimpleNamespace(done=0)


async def test_what_lay_in_a_directory_that_was_taken_away_counts_where_it_was_copied_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with World(tmp_path) as world:
        one, two = b"directory one...", b"directory two..."
        broker = await world.node(4, directories=(one, two)).up()
        await world.topic(4, 1)
        Assignments(broker.controller, 4).assign(broker.image.topics["t"].topic_id, 0, one)
        await until(lambda: world.partition(broker).directories[:1] == (one,), "it is told")
        await broker.kill()
        again = await world.node(4, directories=(two,)).up()
        left = SimpleNamespace(directory_id=two, offline_reason=None, logs={("t", 0): None})
        logs = LogsIn([left])
        reports = DirectoryReports(again.controller, logs, 4)  # type: ignore[arg-type]
        reports.begin()
        await until(lambda: world.partition(again).directories[:1] == (two,), "it lies in the other one now")
        assert f"directory.id={uuid_to_text(one)} is missing: what lies in it (replicas=1)" in caplog.text
        await reports.end()


async def test_an_observer_that_dies_is_noticed_as_quickly_as_a_voter(tmp_path: Path) -> None:
    async with World(tmp_path, session_ms=HOUR_MS) as world:
        observer = await world.node(7).up()
        other = world.followers[0]
        await until(lambda: 7 in other.image.brokers and not other.image.brokers[7].fenced, "it serves")
        await observer.kill()
        await until(lambda: other.image.brokers[7].fenced, "it is fenced")


async def test_an_observer_follows_and_may_ask(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        observer = await world.node(7).up()
        (result,) = await world.create(observer, NewTopic("t", 1, 3))
        assert not result.error
        assert "t" in observer.image.topics
        assert {m.node_id for m in (await observer.controller.quorum_status()).voters} == {1, 2, 3}
