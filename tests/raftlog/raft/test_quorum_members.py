"""Votes are given and taken, disks are lost: who belongs to a quorum, and whom a quorum waits for."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from raftlog.broker.store.disk import OsDisk
from raftlog.raft.core.entries import Entry
from raftlog.raft.core.ids import NO_NODE, Term
from raftlog.raft.handshake import HOST_LENGTH_MAX
from raftlog.raft.journal import Journal
from raftlog.raft.local import LocalLog
from raftlog.raft.opening import NotYetAQuorum
from raftlog.raft.seam import ProposalFailed
from tests.raftlog.raft.quorum_world import State, World
from tests.waiting import until


async def test_an_observer_follows_gets_a_vote_when_it_has_caught_up_and_loses_it_again(world: World) -> None:
    leader = await world.led()
    entries = [b"%d" % n for n in range(100)]
    await asyncio.gather(*(leader.log.propose([entry]) for entry in entries))
    await world.start(4)
    await world.agree(entries)
    assert [member.node_id for member in leader.log.status().observers] == [4]
    await leader.log.add_voter(4, "127.0.0.1", world.ports[4])
    assert [member.node_id for member in leader.log.status().voters] == [1, 2, 3, 4]
    with pytest.raises(ProposalFailed, match="has a vote already"):
        await leader.log.add_voter(4, "127.0.0.1", world.ports[4])
    await until(lambda: len(world.nodes[4].log.status().voters) == 4)
    await leader.log.propose([b"more"])
    await leader.log.remove_voter(4)
    assert [member.node_id for member in leader.log.status().voters] == [1, 2, 3]
    await world.agree([*entries, b"more"])
    assert leader.log.last_index == 101, "changes of the members do not count"


async def test_a_vote_is_not_taken_away_when_too_few_others_are_there_to_go_on(world: World) -> None:
    leader = await world.led()
    dead, other = (node.node_id for node in world.nodes.values() if node is not leader)
    world.nodes[dead].kill()
    await until(lambda: dead not in leader.log.node.raft.peers)
    refusal = "start those that are missing, or remove one of them first"
    for one in (other, leader.node_id):
        with pytest.raises(ProposalFailed, match=refusal):
            await leader.log.remove_voter(one)
    await leader.log.propose([b"goes on"])
    await leader.log.remove_voter(dead)
    assert [member.node_id for member in leader.log.status().voters] == sorted((leader.node_id, other))


async def test_who_has_lost_its_vote_is_called_by_nobody(world: World) -> None:
    leader = await world.led()
    await world.start(4)
    await leader.log.add_voter(4, "127.0.0.1", world.ports[4])
    follower = next(node.node_id for node in world.nodes.values() if node is not leader)
    world.nodes[follower].kill()
    await world.start(follower)  # it hears from the others whom they call a voter
    await until(lambda: all(len(node.log.status().voters) == 4 for node in world.nodes.values()))
    await leader.log.remove_voter(4)
    world.nodes[4].kill()
    others = [node.log.peering.transport for node_id, node in world.nodes.items() if node_id != 4]
    await until(lambda: all(4 not in transport._callers for transport in others))


async def test_a_new_voter_takes_part_after_everybody_was_restarted(world: World) -> None:
    leader = await world.led()
    await world.start(4)
    await leader.log.add_voter(4, "127.0.0.1", world.ports[4])
    await leader.log.propose([b"a"])
    await world.agree([b"a"])
    for node in list(world.nodes.values()):
        node.kill()
    await world.start(2, 3, 4)  # three of four, and one of them is not in --peers
    leader = await world.led()
    await leader.log.propose([b"b"])
    await world.agree([b"a", b"b"])


async def test_a_leader_that_loses_its_vote_hands_over(world: World) -> None:
    leader = await world.led()
    await leader.log.propose([b"a"])
    await leader.log.remove_voter(leader.node_id)
    await until(lambda: not leader.log.is_leader)
    await until(lambda: any(node.log.is_leader for node in world.nodes.values() if node is not leader))
    successor = await world.led()
    assert successor is not leader
    await successor.log.propose([b"b"])
    await world.agree([b"a", b"b"])


async def test_a_wiped_disk_gets_its_vote_back_only_with_everything(world: World, tmp_path: Path) -> None:
    leader = await world.led()
    entries = [b"%d" % n for n in range(20)]
    await asyncio.gather(*(leader.log.propose([entry]) for entry in entries))
    await world.agree(entries)
    victim = next(node for node in world.nodes.values() if node is not leader)
    directory = victim.log.node.directory
    victim.kill()
    shutil.rmtree(tmp_path / str(victim.node_id))
    await world.start(victim.node_id)
    await world.agree(entries)

    def has_its_vote() -> bool:
        voter = leader.log.node.raft.configuration.voter(victim.node_id)
        return voter is not None and voter.directory not in (b"", directory)

    await until(has_its_vote)
    await leader.log.propose([b"after"])
    await world.agree([*entries, b"after"])


def complain_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first complaint may come while connections are still being made; the next one tells more."""
    for name in ("FIRST_WARNING_SECONDS", "WARNING_SECONDS"):
        monkeypatch.setattr(f"raftlog.raft.members.{name}", 0.1)


async def test_two_empty_disks_of_three_do_not_begin_a_new_log(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    complain_often(monkeypatch)
    leader = await world.led()
    await leader.log.propose([b"precious"])
    await world.agree([b"precious"])
    for node in list(world.nodes.values()):
        node.kill()
    others = [node_id for node_id in world.voters if node_id != leader.node_id]
    for node_id in others:
        shutil.rmtree(tmp_path / str(node_id))
    await world.start(*others)
    await until(lambda: all(world.nodes[one].log.node.raft._election.attempts > 2 for one in others))
    assert all((world.nodes[one].log.leader_id, world.nodes[one].log.term) == (-1, 0) for one in others)
    await world.start(leader.node_id)
    await until(lambda: f"is not the one that has the vote: {sorted(others)}" in caplog.text)
    await until(lambda: "all voters are connected. This directory has no metadata" in caplog.text)
    assert "all without any; one that has some says what it waits for" in caplog.text
    assert all(node.log.leader_id == -1 for node in world.nodes.values()), "most disks are gone: a person decides"


async def test_a_quorum_of_one_grows_out_of_a_broker_that_ran_alone(tmp_path: Path) -> None:
    state = State()
    alone = LocalLog(str(tmp_path / "1"), disk=OsDisk(), node_id=1, snapshot_bytes=1000)
    await alone.start(state.restore, state.replay, state.snapshot)
    for n in range(100):
        await alone.propose([b"%d of the old entries" % n])
    await alone.close()
    with pytest.raises(NotYetAQuorum, match="naming only itself"):
        await World(tmp_path).start(1)
    async with World(tmp_path, voters=[1]) as world:
        await world.start(1)
        leader = await world.led()
        await until(lambda: leader.state.entries == state.entries)
        assert leader.log.committed_index == 100
        await world.start(2)
        await leader.log.add_voter(2, "127.0.0.1", world.ports[2])
        await leader.log.propose([b"new"])
        await world.agree([*state.entries, b"new"])


async def test_an_observer_that_is_killed_while_it_copies_what_a_broker_wrote_alone_goes_on(tmp_path: Path) -> None:
    state = State()
    alone = LocalLog(str(tmp_path / "1"), disk=OsDisk(), node_id=1)
    await alone.start(state.restore, state.replay, state.snapshot)
    await asyncio.gather(*(alone.propose([b"%d" % n]) for n in range(20)))
    await alone.close()
    async with World(tmp_path, voters=[1]) as world:
        await world.start(1)
        await world.led()
        copied = Journal(str(tmp_path / "2"), OsDisk())
        entries = [Entry(index, Term(1), entry) for index, entry in enumerate(state.entries[:10], 1)]
        copied.save((Term(2), NO_NODE), None, entries)
        copied.close()
        await world.start(2)
        await until(lambda: world.nodes[2].state.entries == state.entries)


async def test_a_voter_at_an_address_that_no_greeting_can_name_is_not_added(world: World) -> None:
    leader = await world.led()
    await world.start(4, listen=None)
    await until(lambda: 4 in leader.log.node.raft.peers)
    for host, port in (("x" * (HOST_LENGTH_MAX + 1), 9), ("host", -1)):
        with pytest.raises(ProposalFailed, match="is no address") as failure:
            await leader.log.add_voter(4, host, port)
        assert not failure.value.outcome_unknown
    await leader.log.add_voter(4, "x" * HOST_LENGTH_MAX, 9)
    follower = next(node for node in world.nodes.values() if node.node_id not in (leader.node_id, 4))
    follower.kill()
    await world.start(follower.node_id)
    await until(lambda: world.nodes[follower.node_id].log.leader_id == leader.node_id)


async def test_a_voter_that_does_not_follow_is_not_added(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlog.raft.core.leadership.APPEAR_SECONDS_MAX", 0.1)
    leader = await world.led()
    with pytest.raises(ProposalFailed, match="start it with --observer") as failure:
        await leader.log.add_voter(4, "127.0.0.1", 1)
    assert not failure.value.outcome_unknown
    with pytest.raises(ProposalFailed, match="has no vote"):
        await leader.log.remove_voter(4)


async def test_a_wiped_voter_that_is_killed_before_it_has_caught_up_is_let_in_again(
    world: World, tmp_path: Path
) -> None:
    leader = await world.led()
    await leader.log.propose([b"a"])
    victim = next(node for node in world.nodes.values() if node is not leader)
    victim.kill()
    shutil.rmtree(tmp_path / str(victim.node_id))
    await world.start(victim.node_id)
    await until(lambda: leader.log.node.raft.configuration.voter(victim.node_id) is None)
    world.nodes[victim.node_id].kill()
    await world.start(victim.node_id)
    await until(lambda: leader.log.node.raft.configuration.voter(victim.node_id) is not None)
    await world.agree([b"a"])


async def test_a_node_that_is_awaited_can_be_removed_and_gets_no_vote_when_it_comes(
    world: World, tmp_path: Path
) -> None:
    leader = await world.led()
    raft = leader.log.node.raft
    await leader.log.propose([b"a"])
    victim = next(node for node in world.nodes.values() if node is not leader)
    victim.kill()
    shutil.rmtree(tmp_path / str(victim.node_id))
    await world.start(victim.node_id)
    await until(lambda: raft.configuration.voter(victim.node_id) is None)
    world.nodes[victim.node_id].kill()
    await until(lambda: raft.log.configuration_index <= raft.committed)
    await leader.log.remove_voter(victim.node_id)
    assert not raft.configuration.awaited
    others = {one: ("127.0.0.1", world.ports[one]) for one in world.voters if one != victim.node_id}
    await world.start(victim.node_id, peers=others)
    await until(lambda: world.nodes[victim.node_id].state.entries == [b"a"])
    assert raft.configuration.voter(victim.node_id) is None


async def test_a_voter_without_a_log_is_let_in_though_the_members_have_changed(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.start()
        leader = await world.led()
        fresh = next(node for node in world.nodes.values() if node is not leader)
        fresh.kill()
        for path in (tmp_path / str(fresh.node_id)).glob("*.journal"):
            path.unlink()
        # It has voted for the first leader, and been sent nothing yet.
        journal = Journal(str(tmp_path / str(fresh.node_id)), OsDisk())
        journal.vote(1, leader.node_id)
        journal.close()
        await world.start(4)
        await leader.log.add_voter(4, "127.0.0.1", world.ports[4])
        await world.start(fresh.node_id)
        await leader.log.propose([b"a"])
        await until(lambda: world.nodes[fresh.node_id].state.entries == [b"a"])


async def test_a_quorum_that_cannot_begin_says_whom_it_waits_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    complain_often(monkeypatch)
    async with World(tmp_path) as world:
        with caplog.at_level("WARNING", "raftlog.raft"):
            await world.start(1, 2)
            await until(lambda: "connected: [3] (3: connection refused at 127.0.0.1:" in caplog.text)
        await world.start(3)
        await world.led()


async def test_an_observer_says_whom_it_waits_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    complain_often(monkeypatch)
    async with World(tmp_path) as world:
        await world.start(4)
        await until(lambda: "connected: [1, 2, 3] (1: connection refused at 127.0.0.1:" in caplog.text)


async def test_a_peer_list_that_is_not_that_of_the_log_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.led()
    peers = {node: ("127.0.0.1", world.ports[node]) for node in (1, 2)}
    world.nodes[3].kill()
    await world.start(3, peers=peers)
    assert "--peers names [1, 2], and the voters in the metadata log are [1, 2, 3]" in caplog.text
    await world.led()


async def test_a_voter_on_the_directory_of_another_is_told_which_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    complain_often(monkeypatch)
    async with World(tmp_path) as world:
        await world.start()
        leader = await world.led()
        await leader.log.propose([b"first"])
        await world.agree([b"first"])
        for node in list(world.nodes.values()):
            node.kill()
        first, second = tmp_path / "1", tmp_path / "2"
        first.rename(tmp_path / "aside")
        second.rename(first)
        (tmp_path / "aside").rename(second)
        await world.start(1)
        assert f"the vote of node 1 belongs to another metadata directory than {first}" in caplog.text
        await until(lambda: "The vote of this node belongs to another metadata directory: bring" in caplog.text)
