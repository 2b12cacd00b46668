"""What PySyncObj does out of the box, and what the quorum does in its place: lost commits, shrinking logs, poisoned
commands, slow commits.
"""

from __future__ import annotations

import asyncio
import collections
import copy
import logging
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pysyncobj.syncobj
import pytest
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node as LibraryNode
from pysyncobj.transport import Transport

from raftlog.raft.core.entries import application_data
from raftlog.raft.core.log import RaftLog
from raftlog.raft.core.messages import AppendEntries
from raftlog.raft.seam import ProposalFailed
from tests.raftlog.raft.core.world import CoreWorld
from tests.raftlog.raft.quorum_world import NEVER, World
from tests.waiting import DEADLINE_SECONDS, until

COMMANDS = 60


# -- an acknowledged command is lost when a leader dies --------------------------------------------------


class Net:
    """Plain PySyncObj nodes, joined by queues, on a clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.queues: dict[tuple[str, str], collections.deque[Any]] = collections.defaultdict(collections.deque)
        self.ports: dict[str, Transport] = {}

    def deliver(self, sender: str, to: str, count: int = 10**9) -> None:
        queue = self.queues[sender, to]
        for _ in range(min(count, len(queue))):
            self.ports[to]._onMessageReceived(LibraryNode(sender), queue.popleft())


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Iterator[Net]:
    net = Net()
    monkeypatch.setattr(pysyncobj.syncobj, "monotonicTime", lambda: net.now)
    logging.getLogger("pysyncobj").setLevel(logging.CRITICAL + 1)
    yield net
    logging.getLogger("pysyncobj").setLevel(logging.NOTSET)


class PlainPort(Transport):  # type: ignore[misc]
    def __init__(self, net: Net, node_id: str) -> None:
        super().__init__(None, None, None)
        self.net, self.node_id = net, node_id
        net.ports[node_id] = self

    def send(self, node: LibraryNode, message: Any) -> bool:
        self.net.queues[self.node_id, node.id].append(copy.deepcopy(message))
        return True


class Plain(SyncObj):  # type: ignore[misc]
    def __init__(self, net: Net, node_id: str) -> None:
        self.items: list[bytes] = []
        others = [LibraryNode(other) for other in "ABC" if other != node_id]
        conf = SyncObjConf(autoTick=False, appendEntriesBatchSizeBytes=400, raftMinTimeout=0.4, raftMaxTimeout=0.6)
        super().__init__(LibraryNode(node_id), others, conf, transport=PlainPort(net, node_id))

    @replicated  # type: ignore[untyped-decorator]
    def add(self, item: bytes) -> None:
        self.items.append(item)


def connect(net: Net, *pairs: str) -> None:
    for one, other in pairs:
        net.ports[one]._onNodeConnected(LibraryNode(other))
        net.ports[other]._onNodeConnected(LibraryNode(one))


def settle(net: Net, nodes: dict[str, Plain], names: str, seconds: float) -> None:
    end = net.now + seconds
    while net.now < end:
        net.now += 0.02
        for name in names:
            nodes[name].doTick(0)
        for one in names:
            for other in names:
                if one != other:
                    net.deliver(one, other)


def test_plain_pysyncobj_loses_acknowledged_commands_with_one_leader_crash(net: Net) -> None:
    nodes = {name: Plain(net, name) for name in "ABC"}
    connect(net, "AB")  # C is down: still a quorum
    settle(net, nodes, "AB", 3.0)
    leader = next(name for name in "AB" if nodes[name]._isLeader())
    follower = "B" if leader == "A" else "A"
    acknowledged: list[int] = []

    def callback(number: int) -> Callable[[Any, int], None]:
        return lambda _, error: acknowledged.append(number) if error == 0 else None

    for number in range(COMMANDS):
        nodes[leader].add(number.to_bytes(2, "big") * 50, callback=callback(number))
    for _ in range(3):
        nodes[leader].doTick(0)
    net.now += 0.11
    nodes[leader].doTick(0)
    net.deliver(leader, follower)
    net.deliver(follower, leader, 3)  # the first few acknowledgements: the next index goes backwards
    net.now += 0.11
    nodes[leader].doTick(0)  # so entries are sent again
    net.deliver(follower, leader)
    nodes[leader].doTick(0)
    assert len(acknowledged) > 40
    net.deliver(leader, follower, 1)  # one of them arrives, and the leader dies
    net.queues.clear()
    net.ports[follower]._onNodeDisconnected(LibraryNode(leader))
    connect(net, follower + "C")
    settle(net, nodes, follower + "C", 5.0)
    survivor = next(nodes[name] for name in follower + "C" if nodes[name]._isLeader())
    kept = {int.from_bytes(item[:2], "big") for item in survivor.items}
    assert len([number for number in acknowledged if number not in kept]) > 20, "is the fault cured? then say so"


def test_the_quorum_keeps_them_in_the_same_story() -> None:
    world = CoreWorld(1, voters=3, spare=0, loss=0.0)
    world.doubling = world.trouble = 0.0
    world.heal(3.0)
    leader = world.leader()
    assert leader is not None and leader.raft.leadership is not None
    follower, third = (node for node in world.nodes.values() if node is not leader)
    world.crash(third.node_id)
    for number in range(COMMANDS):
        leader.raft.propose([application_data(9, number + 1, b"x" * 50)])
        leader.flush()
    appends = [item for item in world.bag if item[1] == follower.node_id and isinstance(item[3], AppendEntries)]
    world.settle()
    committed = leader.raft.committed
    assert len(leader.state) == COMMANDS, "acknowledged"
    first = appends[0]
    world.bag = [(first[0], first[1], first[2], first[3])]  # the first of them once more, and the leader dies
    world.settle()
    assert follower.raft.log.last_index >= committed
    world.crash(leader.node_id)
    world.restart(third.node_id)
    for _ in range(200):
        world.now += 0.05
        for node in world.nodes.values():
            node.raft.tick(world.now)
        world.settle()
        world.check()
    successor = world.leader()
    assert successor is not None and len(successor.state) == COMMANDS


# -- followers shrink in a healthy cluster ----------------------------------------------------------------


async def test_no_follower_shrinks_below_what_it_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrunk: list[int] = []
    accept = RaftLog.accept

    def watched(self: RaftLog, *arguments: Any) -> Any:
        before = self.last_index
        result = accept(self, *arguments)
        if self.last_index < before:
            shrunk.append(before)
        return result

    monkeypatch.setattr(RaftLog, "accept", watched)
    async with World(tmp_path, timing=NEVER) as world:
        await world.start()
        leader = await world.led()
        entries = [b"%d" % n + b"x" * 100 for n in range(3000)]
        for start in range(0, len(entries), 50):
            await asyncio.gather(*(leader.log.propose([entry]) for entry in entries[start : start + 50]))
        await world.agree(entries)
    assert not shrunk


# -- poisoned and awkward commands ---------------------------------------------------------------------------


@pytest.mark.parametrize("multiple", [1, 2, 16])
async def test_commands_of_every_awkward_length_arrive(tmp_path: Path, multiple: int) -> None:
    async with World(tmp_path, timing=NEVER) as world:
        await world.start()
        leader = await world.led()
        entries = [b"x" * (65536 * multiple + difference) for difference in range(-40, 5, 4)]
        for entry in entries:
            await asyncio.wait_for(leader.log.propose([entry]), DEADLINE_SECONDS)
        await world.agree(entries)


async def test_a_command_that_is_too_large_is_refused_and_the_next_one_goes_through(tmp_path: Path) -> None:
    async with World(tmp_path, timing=NEVER) as world:
        await world.start()
        leader = await world.led()
        with pytest.raises(ProposalFailed, match="exceeds") as failure:
            await leader.log.propose([bytes(33 * 1024 * 1024)])
        assert not failure.value.outcome_unknown
        assert await leader.log.propose([b"fine"]) == 1


async def test_a_poisoned_command_stops_the_nodes_that_replay_it_and_nobody_waits_for_ever(tmp_path: Path) -> None:
    async with World(tmp_path, timing=NEVER) as world:
        await world.start()
        leader = await world.led()
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)

        def replay(index: int, entry: bytes) -> None:
            raise ValueError("boom")

        for node in world.nodes.values():
            node.log.node._replay = replay
        with pytest.raises(ProposalFailed) as failure:
            await asyncio.wait_for(leader.log.propose([b"poison"]), 5.0)
        assert failure.value.outcome_unknown
        with pytest.raises(ProposalFailed):
            await asyncio.wait_for(leader.log.propose([b"after"]), 5.0)


# -- latency ----------------------------------------------------------------------------------------------------


async def test_a_commit_takes_a_round_trip_and_an_fsync_and_no_timer(tmp_path: Path) -> None:
    async with World(tmp_path, timing=NEVER) as world:
        await world.start()

        async def answer(node_id: int, payload: bytes) -> bytes:
            leader = world.leader()
            assert leader is not None
            await leader.log.propose([payload])
            return b"done"

        for node in world.nodes.values():
            node.log.on_request(answer)
        leader = await world.led()
        follower = next(node for node in world.nodes.values() if node is not leader)
        times: dict[str, list[float]] = {"leader": [], "follower": []}
        for _ in range(60):
            began = time.perf_counter()
            await leader.log.propose([b"x" * 100])
            times["leader"].append(time.perf_counter() - began)
            began = time.perf_counter()
            await follower.log.ask_leader(b"x" * 100, 5.0)
            times["follower"].append(time.perf_counter() - began)
        await until(lambda: follower.log.committed_index == 120)
        # PySyncObj: 101 ms and 203 ms. A disk that is busy with something else is what these bounds leave room for.
        assert statistics.median(times["leader"]) < 0.03
        assert statistics.median(times["follower"]) < 0.04
