"""Commands on any node: decided by the leader, seen by who asked, carried out once or refused in words."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgpack
import pytest

from raftlog.broker.runtime import controller, metadata_loader
from raftlog.metadata.cluster_commands import AlterPartitions, BrokerHeartbeat, IsrMember, IsrProposal
from raftlog.metadata.commands import AllocateProducerIds, Command, CreateTopics, DeleteTopics, NewTopic
from raftlog.raft import proposals
from raftlog.raft.quorum import QuorumLog
from raftlog.raft.seam import ProposalFailed
from raftlog.wire.errors import ErrorCode
from tests.broker.runtime.membership_world import HEARTBEAT_SECONDS, SESSION_MS, World
from tests.waiting import until


async def test_whoever_asks_sees_what_it_did(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        for number, node in enumerate(world.nodes.values()):
            (result,) = await world.create(node, NewTopic(f"t{number}", 1, 3))
            assert result.error is ErrorCode.NONE
            assert f"t{number}" in node.image.topics
        for node in world.nodes.values():
            (result,) = await world.create(node, NewTopic("t0", 1, 3))
            assert result.error is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_commands_from_everywhere_while_the_leader_changes_are_carried_out_once_or_refused(
    tmp_path: Path,
) -> None:
    async with World(tmp_path) as world:
        outcomes: dict[str, ErrorCode] = {}

        async def create(count: int, prefix: str) -> None:
            node = world.nodes[1 + len(outcomes) % 3]
            for number in range(count):
                name = f"{prefix}-{number}"
                (result,) = (await node.controller.execute(CreateTopics((NewTopic(name, 1, 3),)))).results
                outcomes[name] = result.error

        async def unsettle() -> None:
            for number, node_id in enumerate((1, 2, 3, 1, 2), 1):
                await until(lambda number=number: len(outcomes) >= 15 * number)  # type: ignore[misc]
                try:
                    await world.leader.controller.transfer_leadership(node_id)
                except (ProposalFailed, StopIteration):
                    continue

        await asyncio.gather(unsettle(), *(create(20, prefix) for prefix in "abcdef"))
        await until(lambda: len({node.image.version for node in world.nodes.values()}) == 1, "all have all")
        topics = set(world.nodes[1].image.topics)
        assert all(set(node.image.topics) == topics for node in world.nodes.values())
        assert {name for name, error in outcomes.items() if error is ErrorCode.NONE} <= topics
        assert all(error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT) for error in outcomes.values()), outcomes
        assert sum(error is ErrorCode.NONE for error in outcomes.values()) > 60


async def test_producer_ids_are_unique_in_the_whole_cluster(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        given: list[int] = []
        for _ in range(3):
            asked = [
                node.controller.next_producer_id(node.node_id) for node in world.nodes.values() for _ in range(700)
            ]
            answers = await asyncio.gather(*asked)
            assert all(error is ErrorCode.NONE for error, _ in answers)
            given += [producer_id for _, producer_id in answers]
        assert len(set(given)) == len(given)


async def test_a_change_that_is_refused_does_not_hide_those_under_way_from_the_next_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World(tmp_path) as world:
        leader = world.leader
        epoch = leader.controller.broker_epoch
        monkeypatch.setattr(proposals, "UNWRITTEN_BYTES_MAX", 4000)
        first, refused, second = await asyncio.gather(
            leader.controller.execute(AllocateProducerIds(leader.node_id, epoch)),
            leader.controller.execute(CreateTopics((NewTopic("large", 1000, 3),)), 0.0),
            leader.controller.execute(AllocateProducerIds(leader.node_id, epoch)),
        )
        assert refused.results[0].error is not ErrorCode.NONE
        assert first.error is second.error is ErrorCode.NONE
        assert first.first != second.first, "a block of producer ids was given twice"


async def test_a_change_that_no_entry_holds_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(tmp_path) as world:
        monkeypatch.setattr(controller, "ENTRY_BYTES_MAX", 4000)
        for node in world.nodes.values():
            (result,) = await world.create(node, NewTopic("large", 1000, 3))
            assert result.error is ErrorCode.POLICY_VIOLATION
            assert "bytes of metadata" in (result.message or "")
        (result,) = await world.create(world.leader, NewTopic("small", 1, 3))
        assert result.error is ErrorCode.NONE


async def test_isr_proposals_reach_the_leader_as_one_command(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        node = world.followers[0]
        for name in ("a", "b"):
            await world.topic(node.node_id, world.leader.node_id, world.followers[1].node_id, name=name)
        executed: list[object] = []
        before = world.leader.controller.before_deciding
        assert before is not None
        world.leader.controller.before_deciding = lambda command: (executed.append(command), before(command))[1]
        first, second = (
            IsrProposal(node.image.topics[name].topic_id, 0, 0, 0, (IsrMember(node.node_id),)) for name in ("a", "b")
        )
        answer = await node.controller.alter_partitions([first, first._replace(leader_epoch=-1), second])
        errors = [result.error for result in answer.results]
        assert errors == [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE]
        assert sum(isinstance(command, AlterPartitions) for command in executed) == 1
        assert world.partition(node, "a").isr == world.partition(node, "b").isr == (node.node_id,)


async def test_an_isr_counts_for_its_leader_only_when_it_has_replayed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_loader, "CATCH_UP_SECONDS_MAX", 0.1)
    async with World(tmp_path) as world:
        slow, leader = world.followers[0], world.leader
        await world.topic(slow.node_id, leader.node_id)
        proposal = IsrProposal(slow.image.topics["t"].topic_id, 0, 0, 0, (IsrMember(slow.node_id),))
        goes_on = threading.Event()
        log = slow.controller.log
        assert isinstance(log, QuorumLog)

        def stand_still() -> None:
            goes_on.wait()

        log.node.disk.submit(stand_still, lambda _: None)
        try:
            answer = await slow.controller.alter_partitions([proposal])
            assert world.partition(leader).isr == (slow.node_id,)
            assert world.partition(slow).isr == (slow.node_id, leader.node_id)
            assert [result.error for result in answer.results] == [ErrorCode.REQUEST_TIMED_OUT]
        finally:
            goes_on.set()
        await until(lambda: world.partition(slow).isr == (slow.node_id,), "the disk goes on")
        answer = await slow.controller.alter_partitions([proposal])
        assert [result.error for result in answer.results] == [ErrorCode.INVALID_UPDATE_VERSION]


@pytest.mark.long
async def test_a_broker_whose_disk_stands_still_does_not_fall_silent(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        slow, leader = world.followers[0], world.leader
        heard: list[object] = []
        before = leader.controller.before_deciding
        assert before is not None

        def hear(command: Command[Any]) -> Command[Any]:
            if isinstance(command, BrokerHeartbeat) and command.broker_id == slow.node_id:
                heard.append(command)
            return before(command)

        goes_on = threading.Event()
        log = slow.controller.log
        assert isinstance(log, QuorumLog)

        def stand_still() -> None:
            goes_on.wait()

        log.node.disk.submit(stand_still, lambda _: None)
        try:
            (result,) = await world.create(leader, NewTopic("t", 1, 3))
            assert result.error is ErrorCode.NONE
            leader.controller.before_deciding = hear
            # For two sessions. One that waited for its own disk would be heard every five seconds.
            await until(lambda: len(heard) >= 2 * SESSION_MS / 1000 / HEARTBEAT_SECONDS, "heartbeats")
            assert not leader.image.brokers[slow.node_id].fenced
            assert "t" not in slow.image.topics
        finally:
            goes_on.set()
        await until(lambda: "t" in slow.image.topics, "the disk goes on")


async def test_what_nobody_can_read_is_refused_in_words_and_the_leader_goes_on(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        log = world.followers[0].controller.log
        requests = [msgpack.packb(each) for each in ((9,), (1, b"x"), (3, 1, "h", "x"), (4, float("inf")))]
        for payload in (b"", b"\xc1", *requests):
            index, text = msgpack.unpackb(await log.ask_leader(payload, 5.0))
            assert index is None and "cannot read" in text
        (result,) = await world.create(world.followers[0], NewTopic("t", 1, 3))
        assert result.error is ErrorCode.NONE


async def test_without_a_quorum_a_command_is_refused_in_time_and_the_image_stays(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.topic(1, 2, 3)
        last = world.followers[0]
        for node in [other for other in world.nodes.values() if other is not last]:
            await node.kill()
        began = asyncio.get_running_loop().time()
        answer = await last.controller.execute(DeleteTopics(("t",)), 1.0)
        assert answer.results[0].error in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
        assert asyncio.get_running_loop().time() - began < 3.0
        assert "t" in last.image.topics


async def test_a_node_that_was_away_for_long_is_given_a_snapshot_while_it_runs(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        away = world.followers[0].node_id
        await world.nodes[away].kill()
        leader = world.leader
        await world.create(leader, *(NewTopic(f"t{n}", 1, 2) for n in range(50)))
        for node in world.nodes.values():
            await until(lambda node=node: len(node.image.topics) == 50)  # type: ignore[misc]
            await node.controller.log.take_snapshot()
        await leader.controller.execute(DeleteTopics(("t0",)))
        again = await world.node(away).up()
        await until(lambda: again.image.version == leader.image.version)
        assert set(again.image.topics) == set(leader.image.topics)
        seen: set[str] = set()
        for delta in again.deltas:
            seen |= {topic.name for topic in delta.created_topics}
            seen -= {topic.name for topic in delta.deleted_topics}
        assert seen == set(leader.image.topics), "listeners are told what the snapshot changes"
