"""Nodes on the loopback interface keep one log: elections, entries, restarts, losses, requests."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from raftlog.broker.store.disk import OsDisk
from raftlog.raft.core.ids import NodeId
from raftlog.raft.core.leadership import Transfer
from raftlog.raft.handshake import NOT_ASKED
from raftlog.raft.local import LocalLog
from raftlog.raft.quorum import QuorumLog
from raftlog.raft.seam import NotLeader, ProposalFailed
from tests.raftlog.raft.crashing_disk import CrashingDisk, StandingStill
from tests.raftlog.raft.quorum_world import NEVER, QUICK, Node, State, World
from tests.waiting import until


async def test_three_nodes_elect_a_leader_and_replay_what_it_proposes(world: World) -> None:
    leader = await world.led()
    assert await leader.log.propose([b"a", b"b"]) == 2
    indexes = await asyncio.gather(*(leader.log.propose([b"%d" % n]) for n in range(200)))
    assert indexes == list(range(3, 203))
    await world.agree([b"a", b"b", *(b"%d" % n for n in range(200))])
    assert leader.leads == [True]


async def test_a_killed_leader_is_replaced_and_nothing_committed_is_lost(world: World) -> None:
    expected = []
    for generation in range(3):
        leader = await world.led()
        for n in range(5):
            entry = b"%d-%d" % (generation, n)
            await leader.log.propose([entry])
            expected.append(entry)
        leader.kill()
        await world.led()
        await world.agree(expected)
        await world.start(leader.node_id)
        await world.agree(expected)


async def test_a_closed_connection_starts_an_election_at_once_whatever_the_time_out(tmp_path: Path) -> None:
    async with World(tmp_path, timing=NEVER) as world:
        await world.start()
        leader = await world.led()
        began = time.monotonic()
        leader.kill()
        await world.led()
        assert time.monotonic() - began < NEVER.election_min


async def test_a_whole_quorum_that_was_killed_comes_back_with_everything(world: World) -> None:
    leader = await world.led()
    entries = [b"%d" % n for n in range(30)]
    await asyncio.gather(*(leader.log.propose([entry]) for entry in entries))
    for node in list(world.nodes.values()):
        node.kill()
    await world.start()
    await world.led()
    await world.agree(entries)


async def test_only_the_leader_takes_proposals_and_only_with_a_majority_it_commits(world: World) -> None:
    leader = await world.led()
    followers = [node for node in world.nodes.values() if node is not leader]
    with pytest.raises(NotLeader) as refused:
        await followers[0].log.propose([b"no"])
    assert refused.value.leader_id == leader.node_id and not refused.value.outcome_unknown
    for node in followers:
        node.kill()
    with pytest.raises(ProposalFailed) as failure:
        await leader.log.propose([b"perhaps"])
    assert failure.value.outcome_unknown
    assert not leader.log.is_leader and leader.leads == [True, False]
    assert leader.state.entries == []
    with pytest.raises(NotLeader):
        await leader.log.barrier()


async def test_a_proposal_of_nothing_waits_for_those_before_it(world: World) -> None:
    leader = await world.led()
    assert await leader.log.propose([]) == 0
    first = leader.log.propose([b"a"])
    assert leader.log.last_index == 1
    assert await leader.log.propose([]) == 1
    assert leader.state.entries == [b"a"]
    assert await first == 1


async def test_a_proposal_of_nothing_fails_with_one_before_it_that_is_not_taken(world: World) -> None:
    leader = await world.led()
    await leader.log.propose([b"a"])
    leadership = leader.log.node.raft.leadership
    assert leadership is not None
    successor = next(node_id for node_id in world.nodes if node_id != leader.node_id)
    leadership.transfer = Transfer(successor, leader.log.node.now() + 60.0, timeout_now_sent=True)
    refused = leader.log.propose([b"not taken"])
    after_it = leader.log.propose([])
    for proposal in (refused, after_it):
        with pytest.raises(NotLeader):
            await asyncio.wait_for(proposal, 5.0)
    leadership.transfer = None
    assert await leader.log.propose([b"b"]) == 2
    await world.agree([b"a", b"b"])


async def test_no_more_is_taken_than_can_be_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlog.raft.frames.MAX_FRAME_BODY", 2000)
    monkeypatch.setattr("raftlog.raft.proposals.UNWRITTEN_BYTES_MAX", 1000)
    disk = StandingStill(random.Random(1))
    async with World(tmp_path, voters=[1], timing=NEVER) as world:
        world.disks[1] = disk
        await world.start()
        leader = await world.led()
        disk.stands_still = True
        taken = [leader.log.propose([bytes(800)])]
        while not disk.is_standing.is_set():
            await asyncio.sleep(0)
        taken.append(leader.log.propose([bytes(800)]))
        for _ in range(3):
            await asyncio.sleep(0)  # it is in the log, and waits for the disk
            with pytest.raises(ProposalFailed, match="too many changes at once") as refused:
                await leader.log.propose([bytes(800)])
            assert not refused.value.outcome_unknown
        disk.goes_on.set()
        assert await asyncio.gather(*taken, leader.log.propose([bytes(100)])) == [1, 2, 3]


async def test_a_greeting_that_names_very_many_voters_does_not_have_them_all_called(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raftlog.raft.peering.HINTS_MAX", 5)
    peering = (await world.led()).log.peering
    hello = peering.own_hello(NOT_ASKED)
    many = tuple((node_id, "127.0.0.1", 1) for node_id in range(100, 200))
    peering.peer_connected(NodeId(9), replace(hello, node_id=NodeId(9), voters=many))
    assert len(peering.transport._callers) <= 2 + 5
    peering.peer_lost(NodeId(9))


async def test_a_barrier_asks_a_majority(world: World) -> None:
    leader = await world.led()
    await leader.log.propose([b"a", b"b"])
    assert await asyncio.wait_for(leader.log.barrier(), 1.0) == 2
    for node in [node for node in world.nodes.values() if node is not leader]:
        node.kill()
    with pytest.raises(NotLeader):
        await leader.log.barrier()


async def test_requests_reach_the_leader_from_everywhere_and_failures_come_back(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.start(1, 2, 3)
        heard: list[bytes] = []
        for node in world.nodes.values():
            handle(node, heard)
        leader = await world.led()
        for node in world.nodes.values():
            answer = await node.log.ask_leader(b"hello", 2.0)
            assert answer == b"%d answers %d: hello" % (leader.node_id, node.node_id)
        follower = next(node for node in world.nodes.values() if node is not leader)
        with pytest.raises(ProposalFailed, match="refused") as failure:
            await follower.log.ask_leader(b"refuse", 2.0)
        assert not failure.value.outcome_unknown
        with pytest.raises(ProposalFailed) as failure:
            await follower.log.ask_leader(b"wait", 0.05)
        assert failure.value.outcome_unknown
        waiting = asyncio.ensure_future(follower.log.ask_leader(b"wait", 5.0))
        await until(lambda: heard.count(b"wait") == 2, "the second one waits as well")
        leader.kill()
        with pytest.raises(ProposalFailed, match="lost") as failure:
            await waiting
        assert failure.value.outcome_unknown
        answer = await follower.log.ask_leader(b"again", 5.0)
        assert answer.endswith(b"again"), "it waited for the next leader"


async def test_without_a_leader_a_request_says_so_in_time(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.start(1)
        with pytest.raises(NotLeader):
            await world.nodes[1].log.ask_leader(b"hello", 0.05)


def handle(node: Node, heard: list[bytes]) -> None:
    async def answer(node_id: int, payload: bytes) -> bytes:
        heard.append(payload)
        if payload == b"refuse":
            raise ProposalFailed("refused", outcome_unknown=False)
        if payload == b"wait":
            await asyncio.Event().wait()
        return b"%d answers %d: %s" % (node.node_id, node_id, payload)

    node.log.on_request(answer)


async def test_leadership_is_handed_over_without_a_lost_entry(tmp_path: Path) -> None:
    async with World(tmp_path, timing=NEVER) as world:
        await world.start()
        leader = await world.led()
        await asyncio.gather(*(leader.log.propose([b"%d" % n]) for n in range(50)))
        began = time.monotonic()
        successor = await leader.log.transfer_leadership()
        assert time.monotonic() - began < NEVER.election_min, "it waited for a time-out"
        assert successor != leader.node_id
        assert (await world.led()).node_id == successor
        back = await world.nodes[successor].log.transfer_leadership(leader.node_id)
        assert back == leader.node_id
        await world.led()
        await leader.log.propose([b"last"])
        await world.agree([*(b"%d" % n for n in range(50)), b"last"])
        with pytest.raises(ProposalFailed, match="no voter"):
            await leader.log.transfer_leadership(9)


async def test_who_is_far_behind_gets_a_snapshot_and_the_rest(tmp_path: Path) -> None:
    async with World(tmp_path, snapshot_bytes=50_000) as world:
        await world.start()
        leader = await world.led()
        behind = next(node for node in world.nodes.values() if node is not leader)
        behind.kill()
        entries = [b"%d " % n + b"x" * 20_000 for n in range(100)]
        for start in range(0, 100, 10):
            await asyncio.gather(*(leader.log.propose([entry]) for entry in entries[start : start + 10]))
        await until(lambda: leader.log.node.raft.log.base.index > 20)
        await world.start(behind.node_id)
        await world.agree(entries)
        again = world.nodes[behind.node_id]
        assert again.state.restored > 20
        await leader.log.propose([b"after"])
        await world.agree([*entries, b"after"])
        for node in list(world.nodes.values()):
            node.kill()
        await world.start()
        await world.led()
        await world.agree([*entries, b"after"])


async def test_a_members_journal_is_not_opened_by_a_broker_without_peers(tmp_path: Path) -> None:
    async with World(tmp_path, voters=[1]) as world:
        await world.start()
        leader = await world.led()
        await leader.log.propose([b"a"])
    alone = LocalLog(str(tmp_path / "1"), disk=OsDisk(), node_id=1)
    state = State()
    with pytest.raises(Exception, match="start the broker with --peers as before"):
        await alone.start(state.restore, state.replay, state.snapshot)


async def test_a_command_that_is_in_the_log_twice_changes_the_state_once(world: World) -> None:
    leader = await world.led()
    await leader.log.propose([b"a"])
    leader.log._proposals._number = 0  # the same id again
    await leader.log.propose([b"a"])
    leader.state.index += 1  # the application's index goes on
    for node in world.nodes.values():
        if node is not leader:
            await until(lambda node=node: node.log.committed_index == 2)  # type: ignore[misc]
        assert node.state.entries == [b"a"]


async def test_a_replay_that_raises_stops_the_node_before_it_answers(world: World) -> None:
    leader = await world.led()
    await leader.log.propose([b"fine"])

    def poisoned(index: int, entry: bytes) -> None:
        raise ZeroDivisionError("a bug")

    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context.get("exception")))
    leader.log.node._replay = poisoned
    with pytest.raises(ProposalFailed) as failure:
        await leader.log.propose([b"poison"])
    assert failure.value.outcome_unknown
    assert not leader.log.is_leader and leader.log.leader_id == -1
    assert any(isinstance(error, ZeroDivisionError) for error in seen)
    await until(lambda: any(node.log.is_leader for node in world.nodes.values() if node is not leader))


async def test_a_full_disk_costs_the_leadership_and_nothing_else(tmp_path: Path) -> None:
    world = World(tmp_path)
    disks = {node_id: CrashingDisk(random.Random(node_id)) for node_id in (1, 2, 3)}
    world.disks.update(disks)
    async with world:
        await world.start()
        leader = await world.led()
        await leader.log.propose([b"a"])
        term = leader.log.term
        disks[leader.node_id].fail["write"] = 1
        try:
            await leader.log.propose([b"b"])  # the two others may have it before the leader hears of its disk
        except ProposalFailed as failure:
            assert failure.outcome_unknown
        await until(lambda: leader.log.term > term, "another term")
        successor = await world.led()
        await successor.log.propose([b"c"])
        await until(lambda: all(node.state.entries[-1:] == [b"c"] for node in world.nodes.values()))
        assert len({tuple(node.state.entries) for node in world.nodes.values()}) == 1


async def test_after_a_failed_sync_a_node_is_no_member_until_it_is_restarted(tmp_path: Path) -> None:
    world = World(tmp_path)
    disks = {node_id: CrashingDisk(random.Random(node_id)) for node_id in (1, 2, 3)}
    world.disks.update(disks)
    async with world:
        await world.start()
        leader = await world.led()
        await leader.log.propose([b"a"])
        disks[leader.node_id].fail["sync"] = 1
        with pytest.raises(ProposalFailed):
            await leader.log.propose([b"b"])
        world.nodes.pop(leader.node_id)
        successor = await world.led()
        await successor.log.propose([b"c"])
        assert leader.log.leader_id == -1 and not leader.log.node.raft.peers
        await leader.log.close()


async def test_a_node_whose_journal_takes_nothing_more_is_no_member_either(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, segment_bytes=100)
    disks = {node_id: CrashingDisk(random.Random(node_id)) for node_id in (1, 2, 3)}
    world.disks.update(disks)
    async with world:
        await world.start()
        leader = await world.led()
        follower = next(node for node in world.nodes.values() if node is not leader)
        # The next segment can neither be begun nor be taken back: a file system that can only be read by now, say.
        disks[follower.node_id].fail.update(sync_directory=1, remove=1)
        await leader.log.propose([b"a" * 100])
        await leader.log.propose([b"b"])
        await until(lambda: follower.log.node.has_failed)
        await until(lambda: not follower.log.node.raft.peers)
        assert "leaves the metadata quorum until it is restarted: cluster metadata cannot be" in caplog.text
        world.nodes.pop(follower.node_id)
        await leader.log.propose([b"c"])
        await follower.log.close()


async def test_every_node_hears_of_connections_and_a_new_leader_of_all_of_them(world: World) -> None:
    leader = await world.led()
    first, second = (node for node in world.nodes.values() if node is not leader)
    first.kill()
    await until(lambda: leader.peers[-1] == (first.node_id, False))
    del second.peers[:]
    await leader.log.transfer_leadership(second.node_id)
    await until(lambda: second.log.is_leader)
    assert (first.node_id, False) in second.peers and (leader.node_id, True) in second.peers


async def test_a_node_that_was_cut_off_and_comes_back_does_not_disturb_the_leader(world: World) -> None:
    leader = await world.led()
    term = leader.log.term
    victim = next(node for node in world.nodes.values() if node is not leader)
    for _ in range(20):
        for node in list(world.nodes.values()):
            if node is not victim:
                victim.log.peering.transport.hang_up(node.node_id, "cut off by the test")
        await until(lambda: victim.log.node.raft.peers)
    await world.led()
    assert leader.log.is_leader and leader.log.term == term


async def test_before_its_start_a_node_knows_little_and_breaks_nothing(tmp_path: Path) -> None:
    log = Node(World(tmp_path), 1, {}).log
    status = log.status()
    assert (status.leader_id, status.voters, log.leader_id, log.is_leader) == (-1, (), -1, False)
    for change in (log.add_voter(4, "h", 1), log.remove_voter(2), log.transfer_leadership(), log.barrier()):
        with pytest.raises(NotLeader):
            await change
    with pytest.raises(NotLeader):
        await log.propose([b"a"])
    await log.close()


async def test_a_small_quorum_log_keeps_its_promises_alone(tmp_path: Path) -> None:
    log = QuorumLog(str(tmp_path), node_id=7, peers={7: ("127.0.0.1", 0)}, listen=("127.0.0.1", 0),
                    monotonic=time.monotonic, disk=OsDisk(), timing=QUICK)  # fmt: skip
    state = State()
    await log.start(state.restore, state.replay, state.snapshot)
    assert log.peering.transport.port > 0
    await until(lambda: log.is_leader)
    assert await log.propose([b"a"]) == 1
    assert await log.barrier() == 1
    assert await log.take_snapshot() == 1
    await log.propose([b"b"])
    await log.close()
    log = QuorumLog(str(tmp_path), node_id=7, peers={7: ("127.0.0.1", 0)}, listen=("127.0.0.1", 0),
                    monotonic=time.monotonic, disk=OsDisk(), timing=QUICK)  # fmt: skip
    await log.start(state.restore, state.replay, state.snapshot)
    await until(lambda: state.entries == [b"a", b"b"])
    await log.close()


async def test_every_node_knows_since_when_another_is_silent(world: World) -> None:
    leader = await world.led()

    def ages() -> list[float]:
        return [member.last_contact_seconds for node in world.nodes.values() for member in node.log.status().voters]

    # Two followers may be connected a moment after both know their leader.
    await until(lambda: all(0.0 <= age < 2.0 for age in ages()), "everybody was heard of late")
    follower = next(node for node in world.nodes.values() if node is not leader)
    follower.kill()
    await until(lambda: leader.log.status().voters[follower.node_id - 1].last_contact_seconds == -1.0)
