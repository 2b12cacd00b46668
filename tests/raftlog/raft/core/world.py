"""Raft nodes in memory under a seed: messages are lost, doubled and reordered, writes take their time, nodes crash,
lose their disk, join and leave. After each step the invariants of Raft are checked.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from raftlog.raft.core.configuration import Configuration, Voter
from raftlog.raft.core.entries import Entry, application_data, kind_of
from raftlog.raft.core.entries import Kind as EntryKind
from raftlog.raft.core.ids import NO_NODE
from raftlog.raft.core.leadership import LocalNode, Peer
from raftlog.raft.core.log import Base, RaftLog
from raftlog.raft.core.messages import Message, from_wire, to_wire
from raftlog.raft.core.progress import OutgoingSnapshot
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.snapshot import SnapshotContent
from raftlog.raft.core.state import HardState, Role, Timing, Writes

TIMING = Timing(heartbeat=0.1, election_min=0.5, election_max=1.0)


@dataclass
class Disk:
    """What survives a crash: exactly what was written."""

    directory: bytes
    snapshot: SnapshotContent | None = None
    entries: list[Entry] = field(default_factory=list)
    hard_state: HardState = field(default_factory=lambda: HardState(0, NO_NODE))

    def write(self, writes: Writes) -> None:
        if writes.snapshot is not None:
            base = writes.snapshot.base
            if writes.truncate_rest:
                self.entries = []
            self.snapshot = writes.snapshot
            self.entries = [entry for entry in self.entries if entry.index > base.index]
        if writes.hard_state is not None:
            self.hard_state = writes.hard_state
        if writes.truncate_from:
            self.entries = [entry for entry in self.entries if entry.index < writes.truncate_from]
        for entry in writes.entries:
            assert entry.index == self.last_index + 1, "a gap on the disk"
            self.entries.append(entry)

    @property
    def last_index(self) -> int:
        if self.entries:
            return self.entries[-1].index
        return self.snapshot.base.index if self.snapshot else 0

    def has(self, index: int, term: int) -> bool:
        if self.snapshot is not None and index <= self.snapshot.base.index:
            return True  # what is in a snapshot was committed, and that is checked elsewhere
        first = self.entries[0].index if self.entries else 1
        place = index - first
        return 0 <= place < len(self.entries) and self.entries[place].term == term


class Node:
    """A node, its disk and its state machine (the list of application entries)."""

    def __init__(self, world: CoreWorld, node_id: int, disk: Disk) -> None:
        self.world = world
        self.node_id = node_id
        self.disk = disk
        self.writing: Writes | None = None
        self.applied = 0
        self.state: list[bytes] = []
        self.start()

    def start(self) -> None:
        disk = self.disk
        base = disk.snapshot.base if disk.snapshot else Base(configuration=self.world.bootstrap)
        if disk.snapshot:
            self.state = list(disk.snapshot.chunks)
        self.applied = base.index
        self.writing = None
        self.raft = Raft(
            LocalNode(self.node_id, Peer(disk.directory, "h", 1)),
            RaftLog(base, disk.entries),
            disk.hard_state,
            TIMING,
            self.world.rng.random,
            now=self.world.now,
        )

    def flush(self) -> None:
        """What the shell does in a turn."""
        world = self.world
        world.send(self.node_id, self.raft.take_messages(world.now))
        if self.writing is None:
            self.writing = self.raft.take_writes()
            if not self.writing.must_sync:
                self.wrote()
        self.apply()
        leadership = self.raft.leadership
        if leadership is not None and leadership.snapshot_wanted and self.disk.snapshot is not None:
            content = self.disk.snapshot
            leadership.offer_snapshot(OutgoingSnapshot(content.base.index, content.base.term, content.encode()))

    def wrote(self) -> None:
        writes, self.writing = self.writing, None
        assert writes is not None
        self.disk.write(writes)
        self.world.send(self.node_id, self.raft.written(writes, self.world.now))
        if self.raft.installed is not None:
            content, self.raft.installed = self.raft.installed, None
            self.state = list(content.chunks)
            self.applied = content.base.index
            self.world.check_state(self)

    def apply(self) -> None:
        while self.applied < self.raft.appliable:
            entry = self.raft.log.entry(self.applied + 1)
            self.applied += 1
            self.world.check_applied(self, entry)
            if kind_of(entry.data) is EntryKind.APPLICATION:
                self.state.append(entry.data)

    def take_snapshot(self) -> None:
        log = self.raft.log
        if self.writing is not None or self.applied <= (self.disk.snapshot.base.index if self.disk.snapshot else 0):
            return
        term = log.term_at(self.applied)
        assert term is not None
        index, configuration = log.configuration_at(self.applied)
        base = Base(self.applied, term, configuration, index, log.internal_up_to(self.applied))
        content = SnapshotContent(base, b"", list(self.state))
        self.disk.snapshot = content
        self.disk.entries = [entry for entry in self.disk.entries if entry.index > base.index]
        log.compact(max(log.base.index, base.index - self.world.rng.choice([0, 3])))


class CoreWorld:
    """See the module. `loss`: the chance that a message is lost."""

    def __init__(self, seed: int, voters: int = 3, spare: int = 1, loss: float = 0.05, wipes: int = 0) -> None:
        """`wipes`: how many disks are lost, instead of changes of the members by hand."""
        self.rng = random.Random(seed)
        self.wipes = wipes
        self.members_fixed = wipes > 0
        self.now = 0.0
        self.loss = loss
        self.trouble = self.rng.choice([0.02, 0.05, 0.1])
        self.pace = self.rng.choice([1, 2, 8])
        self.reorder = self.rng.choice([0.0, 0.2, 0.6])
        self.doubling = self.rng.choice([0.0, 0.1, 0.4])
        self.bootstrap = Configuration.of_addresses(dict.fromkeys(range(1, voters + 1), ("h", 1)))
        self.bag: list[tuple[int, int, int, Message]] = []  # (from, to, the receiver's session, message)
        self.nodes: dict[int, Node] = {}
        self.down: dict[int, Disk] = {}
        self.sessions: dict[tuple[int, int], int] = {}
        self.session = 0
        self.cut: set[tuple[int, int]] = set()
        self.leaders: dict[int, int] = {}
        self.entries: dict[tuple[int, int], tuple[int, bytes]] = {}
        self.committed: dict[int, Entry] = {}
        self.commits: dict[int, int] = {}
        self.acknowledged: list[bytes] = []
        self.proposed = 0
        self.wiped = 0
        for node_id in range(1, voters + spare + 1):
            self.nodes[node_id] = Node(self, node_id, Disk(bytes([node_id]) * 16))
        for one in self.nodes:
            for other in self.nodes:
                if one < other:
                    self.connect(one, other)

    # -- the network -------------------------------------------------------------------------------

    def pair(self, one: int, other: int) -> tuple[int, int]:
        return (min(one, other), max(one, other))

    def connect(self, one: int, other: int) -> None:
        pair = self.pair(one, other)
        if pair in self.sessions or pair in self.cut or one not in self.nodes or other not in self.nodes:
            return
        self.session += 1
        self.sessions[pair] = self.session
        for node_id, peer in (pair, pair[::-1]):
            directory = self.nodes[peer].disk.directory
            self.nodes[node_id].raft.connected(peer, Peer(directory, "h", 1), self.now)
            self.nodes[node_id].flush()

    def disconnect(self, one: int, other: int) -> None:
        if self.sessions.pop(self.pair(one, other), None) is None:
            return
        for node_id, peer in ((one, other), (other, one)):
            if node_id in self.nodes:
                self.nodes[node_id].raft.disconnected(peer, self.now)
                self.nodes[node_id].flush()

    def send(self, sender: int, messages: list[tuple[int, Message]]) -> None:
        for to, message in messages:
            session = self.sessions.get(self.pair(sender, to))
            if session is None or self.rng.random() < self.loss:
                continue
            copies = 2 if self.rng.random() < self.doubling else 1
            for _ in range(copies):
                self.bag.append((sender, to, session, from_wire(_tuples(to_wire(message)))))

    def deliver(self, place: int) -> None:
        sender, to, session, message = self.bag.pop(place)
        if to in self.nodes and self.sessions.get(self.pair(sender, to)) == session:
            self.nodes[to].raft.step(sender, message, self.now)
            self.nodes[to].flush()

    # -- the nodes ---------------------------------------------------------------------------------

    def crash(self, node_id: int) -> None:
        node = self.nodes.pop(node_id)
        if node.writing is not None and self.rng.random() < 0.5:
            node.disk.write(node.writing)
        self.down[node_id] = node.disk
        self.commits.pop(node_id, None)
        for other in list(self.nodes):
            self.disconnect(node_id, other)

    def restart(self, node_id: int) -> None:
        self.nodes[node_id] = Node(self, node_id, self.down.pop(node_id))
        for other in list(self.nodes):
            if other != node_id:
                self.connect(node_id, other)

    def wipe(self, node_id: int) -> None:
        """Replace the disk of a node that is down."""
        self.wiped += 1
        self.down[node_id] = Disk(bytes([node_id, 100 + self.wiped]) * 8)

    def leader(self) -> Node | None:
        leaders = [node for node in self.nodes.values() if node.raft.role is Role.LEADER]
        return max(leaders, key=lambda node: node.raft.term, default=None)

    # -- what happens ------------------------------------------------------------------------------

    def step(self) -> None:
        """One random event, then the checks."""
        rng = self.rng
        roll = rng.random()
        if roll < 0.5:
            for _ in range(rng.randint(1, self.pace)):
                if self.bag:
                    reordered = rng.random() < self.reorder
                    self.deliver(rng.randrange(len(self.bag)) if reordered else 0)
        elif roll < 0.7:
            writing = [node for node in self.nodes.values() if node.writing is not None]
            if writing:
                node = rng.choice(writing)
                node.wrote()
                node.flush()
        elif roll < 0.85 - self.trouble:
            self.now += rng.choice([0.01, 0.03, 0.1, 0.3])
            for node in list(self.nodes.values()):
                if self.now >= node.raft.deadline:
                    node.raft.tick(self.now)
                    node.flush()
        elif roll < 1 - self.trouble:
            self.propose()
        else:
            self.disturb()
        self.check()

    def propose(self) -> None:
        leading = [node for node in self.nodes.values() if node.raft.may_propose]
        if leading:
            node = self.rng.choice(leading)
            for _ in range(self.rng.randint(1, 3)):
                self.proposed += 1
                node.raft.propose([application_data(9, self.proposed, b"x" * self.rng.choice([1, 40]))])
            node.flush()

    def disturb(self) -> None:
        rng = self.rng
        roll = rng.random()
        up = sorted(self.nodes)
        if roll < 0.25 and up:
            leader = self.leader()
            self.crash(leader.node_id if leader is not None and rng.random() < 0.5 else rng.choice(up))
        elif roll < 0.55 and self.down:
            node_id = rng.choice(sorted(self.down))
            if self.wiped < self.wipes and rng.random() < 0.3 and node_id in self.bootstrap.ids:
                self.wipe(node_id)
            self.restart(node_id)
        elif roll < 0.65 and len(up) > 1:
            one, other = rng.sample(up, 2)
            if rng.random() < 0.5:
                self.cut.add(self.pair(one, other))
            self.disconnect(one, other)
        elif roll < 0.74:
            self.cut.clear()
            for one in up:
                for other in up:
                    if one < other:
                        self.connect(one, other)
        elif roll < 0.82 and up:
            self.nodes[rng.choice(up)].take_snapshot()
        elif roll < 0.87:
            self.transfer()
        elif not self.members_fixed:
            self.change_members()

    def transfer(self) -> None:
        node = self.leader()
        if node is not None and node.raft.leadership is not None and node.raft.leadership.transfer is None:
            to = node.raft.leadership.best_successor()
            if to is not None:
                node.raft.leadership.hand_over(to, node.raft.committed, self.now)
                node.flush()

    def change_members(self) -> None:
        node = self.leader()
        if node is None or node.raft.leadership is None:
            return
        leadership, configuration = node.raft.leadership, node.raft.configuration
        if leadership.may_change(node.raft.committed) or leadership.promotion is not None:
            return
        others = [n for n in sorted({*self.nodes, *self.down}) if n not in configuration.ids]
        if others and self.rng.random() < 0.6:
            leadership.promote(self.rng.choice(others), ("h", 1), self.now)
        elif len(configuration.voters) > 2:
            leadership.append_configuration(configuration.without(self.rng.choice(configuration.ids)))
        node.flush()

    def heal(self, seconds: float = 30.0) -> None:
        """No more trouble, for a while."""
        self.loss = 0.0
        self.cut.clear()
        for node_id in sorted(self.down):
            self.restart(node_id)
        until = self.now + seconds
        while self.now < until:
            for one in sorted(self.nodes):
                for other in sorted(self.nodes):
                    if one < other:
                        self.connect(one, other)
            self.settle()
            self.now += 0.02
            for node in list(self.nodes.values()):
                if self.now >= node.raft.deadline:
                    node.raft.tick(self.now)
                    node.flush()
            self.check()

    def settle(self) -> None:
        """Deliver and write until nothing is under way."""
        for _ in range(10_000):
            for node in self.nodes.values():
                if node.writing is not None:
                    node.wrote()
                node.flush()
            if not self.bag and all(node.writing is None for node in self.nodes.values()):
                return
            while self.bag:
                self.deliver(0)
        raise AssertionError("messages without end")

    # -- the invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        for node in self.nodes.values():
            raft = node.raft
            if raft.role is Role.LEADER and self.leaders.setdefault(raft.term, node.node_id) != node.node_id:
                raise AssertionError(f"two leaders in term {raft.term}")
            if raft.role is Role.LEADER:
                self.check_complete(node)
            assert raft.committed >= self.commits.get(node.node_id, 0), "the commit index went back"
            self.commits[node.node_id] = raft.committed
            raft.check_invariants()
            raft.log.check_invariants()
            self.check_log(node)
            self.check_committed(node)

    def check_log(self, node: Node) -> None:
        """Log matching: an entry's index and term tell its content and what is before it."""
        log = node.raft.log
        before = log.base.term
        for entry in log.between(log.base.index + 1, log.last_index):
            known = self.entries.setdefault((entry.index, entry.term), (before, entry.data))
            assert known == (before, entry.data), f"log matching is broken at {entry.index}"
            before = entry.term

    def check_committed(self, node: Node) -> None:
        raft = node.raft
        first = max(raft.log.base.index + 1, 1)
        index = raft.committed
        while index >= first and index not in self.committed:
            entry = raft.log.entry(index)
            if raft.role is Role.LEADER:
                self.check_durable(node, entry)
            self.committed[index] = entry
            index -= 1
        if first <= raft.committed <= raft.log.last_index:
            assert self.committed[raft.committed] == raft.log.entry(raft.committed), "two entries are committed"

    def check_durable(self, leader: Node, entry: Entry) -> None:
        disks = {node_id: node.disk for node_id, node in self.nodes.items()} | self.down
        having = [
            voter.node_id
            for voter in leader.raft.configuration.voters
            if disks[voter.node_id].has(entry.index, entry.term)
            and voter.directory == disks[voter.node_id].directory
        ]
        assert leader.raft.configuration.is_majority(having), f"{entry.index} is committed and on {having} only"

    def check_complete(self, leader: Node) -> None:
        log = leader.raft.log
        for index in range(len(self.committed), max(log.base.index, len(self.committed) - 5), -1):
            entry = self.committed.get(index)
            if entry is not None and entry.term < leader.raft.term:
                has_it = index <= log.last_index and log.entry(index) == entry
                assert has_it, f"the leader lacks committed entry {index}"

    def check_applied(self, node: Node, entry: Entry) -> None:
        known = self.committed.setdefault(entry.index, entry)
        assert known == entry, f"node {node.node_id} replays another entry {entry.index}"
        assert node.disk.has(entry.index, entry.term), "replayed before it is on the disk"

    def check_state(self, node: Node) -> None:
        expected = [
            self.committed[index].data
            for index in range(1, node.applied + 1)
            if kind_of(self.committed[index].data) is EntryKind.APPLICATION
        ]
        assert node.state == expected, f"node {node.node_id} has another state at {node.applied}"


def _tuples(value: object) -> object:
    return tuple(_tuples(one) for one in value) if isinstance(value, list | tuple) else value


__all__ = ["CoreWorld", "Disk", "Node", "Voter"]
