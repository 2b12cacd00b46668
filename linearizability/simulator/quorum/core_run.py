"""The Raft core alone under a seed: messages are lost, doubled, delayed and swapped, which TCP would not allow.

A node here is a small shell around `raftlog.raft.core.raft.Raft` with a real journal on a simulated disk. The shell
that is shipped runs in `quorum_run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from zlib import crc32

from raftlog.linearizability.simulator.faults import Fault, Plan, schedule
from raftlog.linearizability.simulator.injector import Injector
from raftlog.linearizability.simulator.machine.loop import Timer
from raftlog.linearizability.simulator.machine.world import Machine
from raftlog.linearizability.simulator.quorum.journals import Mirror, WatchedDisk
from raftlog.linearizability.simulator.quorum.message_sizes import SIZES, small_messages
from raftlog.linearizability.simulator.quorum.raft_invariants import RaftInvariants
from raftlog.linearizability.simulator.runs import BaseSimulation
from raftlog.linearizability.simulator.scenarios import ECHO_SECONDS, ECHOES, scenario_of
from raftlog.linearizability.simulator.violation import Violation
from raftlog.raft.core.configuration import Configuration
from raftlog.raft.core.entries import Entry, Kind, application_data, kind_of
from raftlog.raft.core.ids import NodeId
from raftlog.raft.core.leadership import LocalNode, Peer
from raftlog.raft.core.log import Base, RaftLog
from raftlog.raft.core.messages import AppendEntriesReply, Message, to_wire
from raftlog.raft.core.progress import OutgoingSnapshot
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.snapshot import SnapshotContent
from raftlog.raft.core.state import HardState, Role, Timing, Writes
from raftlog.raft.journal import Journal, JournalFailed
from raftlog.raft.journal_recovery import JournalDamaged

DIRECTORY = "/meta"
SETTLE_SECONDS = 12.0
"""After the last fault a quorum must be well again within this time."""
TIMINGS = (
    Timing(heartbeat=0.1, election_min=0.4, election_max=0.8, fast_election_min=0.005, fast_election_max=0.05),
    # Everybody stands at about the same moment, and votes are split.
    Timing(heartbeat=0.1, election_min=0.3, election_max=0.31, fast_election_min=0.005, fast_election_max=0.006),
)

KINDS = (
    "kill", "power", "tear", "freeze", "cut", "deaf", "isolate", "split", "reset", "slow-disk", "full-disk",
    "sync-error", "rot", "transfer",
)  # fmt: skip


@dataclass(slots=True)
class Unreliable:
    """Probabilities for each message."""

    lost: float
    doubled: float
    delayed: float


class CoreNode:
    """The process of one node: drives a Raft machine."""

    def __init__(self, run: CoreRun, machine: Machine) -> None:
        self.run = run
        self.machine = machine
        self.node = NodeId(machine.node)
        self.loop = machine.loop
        self.state: list[tuple[int, int]] = []  # (index, checksum) of each application entry
        self.journal = Journal(DIRECTORY, run.disks[self.node], segment_bytes=2_000)
        recovered = self.journal.recovered
        base = Base(configuration=run.configuration)
        if recovered.snapshot is not None:
            content = SnapshotContent.of_chunks(*recovered.snapshot)
            base = content.base
            self._restore(content)
        entries = recovered.entries
        directory = b"%d" % self.node
        self.raft = Raft(
            LocalNode(self.node, Peer(directory, machine.host, 1)),
            RaftLog(base, entries),
            HardState(recovered.term, recovered.voted_for),
            run.timing,
            machine.random.random,
            now=self.loop.time(),
        )
        self.applied = base.index
        self.snapshot = recovered.snapshot
        self.writing = False
        self.stopped: asyncio.Future[None] = self.loop.create_future()
        self._timer: Timer | None = None
        self._number = 0

    # Events --------------------------------------------------------------------------------------------------

    def receive(self, sender: NodeId, message: Message) -> None:
        """A message has come."""
        self.raft.step(sender, message, self.loop.time())
        self.pump()

    def connected(self, peer: NodeId) -> None:
        """A peer is there."""
        self.raft.connected(peer, Peer(b"%d" % peer, f"host{peer}", 1), self.loop.time())
        self.pump()

    def disconnected(self, peer: NodeId) -> None:
        """A peer's connection broke."""
        self.raft.disconnected(peer, self.loop.time())
        self.pump()

    def tick(self) -> None:
        """Time has passed."""
        self.raft.tick(self.loop.time())
        self.pump()

    def propose(self) -> None:
        """Somebody wants something written."""
        if self.raft.may_propose:
            self._number += 1
            payload = b"%d.%d.%d" % (self.node, self.machine.incarnation, self._number)
            index = self.raft.propose([application_data(self.node, self._number, payload)])
            self.run.proposed(self, index)
            self.pump()

    # Effects -------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send, write and replay what the machine wants."""
        raft = self.raft
        self._send(raft.take_messages(self.loop.time()))
        if not self.writing:
            writes = raft.take_writes()
            if writes.must_sync:
                self.writing = True
                self.loop.run_in_executor(None, self._write, writes).add_done_callback(partial(self._written, writes))
            elif writes.messages_after_sync:
                self._send(raft.written(writes, self.loop.time()))
        self._replay()
        self.run.looked_at(self)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(max(raft.deadline, self.loop.time() + 0.001), self.tick)

    def _send(self, messages: Sequence[tuple[int, Message]]) -> None:
        for target, message in messages:
            self.run.send(self.node, target, message)

    def _write(self, writes: Writes) -> None:
        journal = self.journal
        if writes.snapshot is not None:
            base = writes.snapshot.base
            if writes.truncate_rest and journal.last_index > base.index:
                journal.replace_from(base.index + 1, base.term, [])
            journal.save_snapshot(base.index, base.term, writes.snapshot.all_chunks())
        if writes.hard_state is not None:
            journal.vote(*writes.hard_state)
        entries = writes.entries
        if writes.truncate_from:
            journal.replace_from(writes.truncate_from, writes.previous_term, entries)
        else:
            journal.append(entries)

    def _written(self, writes: Writes, done: asyncio.Future[None]) -> None:
        self.writing = False
        error = done.exception()
        if isinstance(error, JournalFailed):
            # As a broker whose metadata disk fails: it stops, and is started again.
            if not self.stopped.done():
                self.stopped.set_result(None)
            return
        if error is not None:
            raise error
        self._send(self.raft.written(writes, self.loop.time()))
        self.pump()

    def _replay(self) -> None:
        raft = self.raft
        if raft.installed is not None:
            self._restore(raft.installed)
            self.applied = max(self.applied, raft.installed.base.index)
            raft.installed = None
        while self.applied < raft.appliable:
            self.applied += 1
            if self.applied <= raft.log.base.index:
                continue
            entry = raft.log.entry(self.applied)
            self.run.invariants.replay(self.node, entry.index, entry.data)
            if kind_of(entry.data) is Kind.APPLICATION:
                self.state.append((entry.index, crc32(entry.data)))
            self.run.replayed(self, entry)
        leadership = raft.leadership
        if leadership is not None and leadership.snapshot_wanted and not self.writing:
            self.take_snapshot()

    def _restore(self, content: SnapshotContent) -> None:
        self.state = [(int(row[0]), int(row[1])) for row in (chunk.split(b" ") for chunk in content.chunks)]

    def take_snapshot(self) -> None:
        """Of what is replayed; offered to followers that need it."""
        raft = self.raft
        index = min(self.applied, raft.log.last_index)
        term = raft.log.term_at(index)
        if index == 0 or term is None or self.writing:
            return
        configuration_index, configuration = raft.log.configuration_at(index)
        base = Base(index, term, configuration, configuration_index, raft.log.internal_up_to(index))
        content = SnapshotContent(base, b"", [b"%d %d" % row for row in self.state])
        try:
            self.journal.save_snapshot(index, term, content.all_chunks())
        except JournalFailed:
            return
        raft.log.compact(index - 3)
        if raft.leadership is not None:
            raft.leadership.offer_snapshot(OutgoingSnapshot(index, term, content.encode()))


class NodeSlot:
    """Where a node is, whether or not it runs: what the invariants look at."""

    def __init__(self, run: CoreRun, node: int) -> None:
        self.run = run
        self.node = node
        self.process: CoreNode | None = None

    @property
    def raft(self) -> Raft | None:
        """See Watched."""
        return self.process.raft if self.process is not None else None

    @property
    def mirror(self) -> Mirror:
        """See Watched."""
        return self.run.disks[self.node].mirror


class CoreRun(BaseSimulation):
    """One run of the core."""

    part = "core"

    def __init__(self, seed: int, faults: Sequence[Fault] | None, kept_lines: int | None) -> None:
        super().__init__(seed, kept_lines)
        random = self.random
        self.size = random.choice((3, 3, 3, 5, 5, 5, 2, 4))
        nodes = range(1, self.size + 1)
        seconds = 3.0 if self.size <= 3 else 2.5
        plan = Plan(self.size, 0.1, seconds, 3, 14, KINDS, (self.size - 1) // 2)
        own = schedule(random, plan)
        scenario = scenario_of(seed, plan, self.size, loose=True)
        self.echo = scenario.echo if scenario is not None else None
        if faults is None:
            faults = own if scenario is None else scenario.faults
        self.faults = self.take(faults, self.size)
        self.last_fault = self.fault_seconds = seconds
        self.unreliable = Unreliable(
            lost=random.choice((0.0, 0.0, 0.02, 0.1)),
            doubled=random.choice((0.0, 0.0, 0.1, 0.3, 0.5)),
            delayed=random.choice((0.0, 0.0, 0.02, 0.1, 0.4)),
        )
        if scenario is not None:
            self.unreliable.doubled = max(self.unreliable.doubled, scenario.doubled)
        self.timing = random.choice((TIMINGS[0], TIMINGS[1], TIMINGS[1]))
        self.rng = Random(f"{seed} messages")
        self.configuration = Configuration.of_addresses({node: (f"host{node}", 1) for node in nodes})
        self.disks: dict[int, WatchedDisk] = {}
        self.slots = [NodeSlot(self, node) for node in nodes]
        self.invariants = RaftInvariants(self.slots, self.failed)
        self.acknowledged: dict[int, int] = {}
        self._proposed: dict[tuple[int, int], bytes] = {}
        self.connected: dict[tuple[int, int], bool] = {}
        for node in nodes:
            machine = self.world.add_machine(node, f"host{node}")
            disk = self.disks[node] = WatchedDisk(machine.disk)
            disk.on_frame = partial(self.invariants.wrote, node)
            disk.on_synced = partial(self.invariants.synced, node)
            disk.on_snapshot = partial(self.invariants.wrote_snapshot, node)
        self.world.on_death = self._died
        self.world.on_refusal = self._refused
        self.injector = Injector(self.world, list(nodes), self._leader)
        self.injector.rotten_part = DIRECTORY + "/"
        # A quorum that has never committed anything begins only with all of its voters.
        self.injector.may_damage = lambda: self.invariants.last_committed > 0
        self.injector.transfer = self._transfer
        self.injector.on_damage = lambda machine: self.invariants.disk_lost(machine.node)

    # Life of nodes ---------------------------------------------------------------------------------------------

    async def _program(self, machine: Machine) -> None:
        slot = self.slots[machine.node - 1]
        self.disks[machine.node].begin(DIRECTORY)
        node = CoreNode(self, machine)
        self.disks[machine.node].begin(DIRECTORY)
        slot.process = node
        self.invariants.disk_settled(machine.node, self._copy(machine))
        for other in self.slots:
            if other.process is not None and other.node != machine.node:
                self._connect_later(machine.node, other.node)
        node.pump()
        machine.loop.call_later(0.02, self._work, node)
        await node.stopped

    def _copy(self, machine: Machine) -> Mirror:
        watched = WatchedDisk(machine.disk)
        watched.begin(DIRECTORY)
        return watched.mirror

    def _work(self, node: CoreNode) -> None:
        if not self.is_resting(node.node):
            node.propose()
        if self.rng.random() < 0.02:
            node.take_snapshot()
        machine = node.machine
        machine.loop.call_later(0.005 + 0.05 * machine.random.random(), self._work, node)

    def _died(self, machine: Machine, power: bool) -> None:
        slot = self.slots[machine.node - 1]
        if slot.process is None and not power:
            return
        slot.process = None
        if power:
            self.disks[machine.node].begin(DIRECTORY)
            self.invariants.disk_settled(machine.node, self._copy(machine))
        for other in self.slots:
            self._disconnect_later(other.node, machine.node, silent=power)

    def _refused(self, machine: Machine, error: BaseException) -> None:
        if isinstance(error, Violation):
            self.failed(error)
        elif isinstance(error, JournalDamaged) and self.injector.done.get("rot", 0) + self.injector.done.get(
            "sync-error", 0
        ):
            self.injector.damaged[machine.node] = str(error)
            self.invariants.disk_lost(machine.node)
        elif not isinstance(error, JournalFailed | OSError):
            self.failed(Violation("bug", f"node {machine.node} does not start: {error!r}"))

    # Messages and connections ------------------------------------------------------------------------------------

    def _connect_later(self, a: int, b: int) -> None:
        delay = 0.001 + 0.01 * self.rng.random()
        self.world.scheduler.at(self.world.now + delay, self._try_to_connect, a, b)

    def _try_to_connect(self, a: int, b: int) -> None:
        first, second = self.slots[a - 1].process, self.slots[b - 1].process
        if first is None or second is None:
            return
        if self.world.links.blocked(a, b) or self.world.links.blocked(b, a):
            self.world.scheduler.at(self.world.now + 0.1, self._try_to_connect, a, b)
            return
        for here, there in ((first, b), (second, a)):
            if self.connected.get((here.node, there)):
                here.loop.call_soon(here.disconnected, there)
            self.connected[here.node, there] = True
            here.loop.call_soon(here.connected, there)

    def _disconnect_later(self, node: int, lost: int, *, silent: bool) -> None:
        self.connected[lost, node] = False
        if not silent:
            self.world.scheduler.at(self.world.now + 0.001, self._disconnect, node, lost)

    def _disconnect(self, node: int, lost: int) -> None:
        process = self.slots[node - 1].process
        if process is not None and self.connected.get((node, lost)):
            self.connected[node, lost] = False
            process.loop.call_soon(process.disconnected, lost)

    def reset(self, a: int, b: int) -> int:
        """Both ends lose their connection and make a new one."""
        if not self.connected.get((a, b)):
            return 0
        self._disconnect(a, b)
        self._disconnect(b, a)
        self._connect_later(a, b)
        return 1

    def send(self, source: int, target: int, message: Message) -> None:
        """A message leaves; it may be lost, come twice, late, and before others."""
        world, rng = self.world, self.rng
        if not self.connected.get((source, target)):
            return
        self.invariants.said(source, target, message)
        world.trace.add(world.now, source, target, crc32(repr(to_wire(message)).encode()))
        unreliable = self.unreliable
        copies = 1
        if unreliable.lost and rng.random() < unreliable.lost:
            copies = 0
        if unreliable.doubled and rng.random() < unreliable.doubled:
            copies += 1
        leaves = self.slots[source - 1].process
        now = leaves.loop.time() if leaves is not None else world.now
        for copy in range(copies):
            delay = world.links.delays.draw(rng)
            if copy and rng.random() < 0.2:
                delay += 3.0 * rng.random()
            if unreliable.delayed and rng.random() < unreliable.delayed:
                delay += 2.5 * rng.random() ** 3
            world.scheduler.at(now + delay, self._arrive, source, target, message)
        echo = self.echo
        if echo is not None and source == echo.node and isinstance(message, AppendEntriesReply) and now <= echo.until:
            for _ in range(ECHOES):
                again = echo.until + ECHO_SECONDS * rng.random()
                world.scheduler.at(again, self._arrive, source, target, message)

    def _arrive(self, source: int, target: int, message: Message) -> None:
        process = self.slots[target - 1].process
        if process is not None and not self.world.links.blocked(source, target):
            process.loop.call_soon(process.receive, source, message)

    # What is watched ---------------------------------------------------------------------------------------------

    def looked_at(self, node: CoreNode) -> None:
        """After each step of a node."""
        self.invariants.check(self.slots[node.node - 1])

    def proposed(self, node: CoreNode, index: int) -> None:
        """A leader took an entry."""
        self._proposed[index, node.raft.term] = node.raft.log.entry(index).data

    def replayed(self, node: CoreNode, entry: Entry) -> None:
        """A leader that replays its own entry answers who asked for it."""
        if self._proposed.get((entry.index, entry.term)) == entry.data and node.raft.leadership is not None:
            self.acknowledged.setdefault(entry.index, crc32(entry.data))

    def _leader(self) -> int | None:
        leading = [
            (slot.raft.term, slot.node)
            for slot in self.slots
            if slot.raft is not None and slot.raft.role is Role.LEADER
        ]
        return max(leading)[1] if leading else None

    def _transfer(self, machine: Machine, to: int) -> None:
        process = self.slots[machine.node - 1].process
        if process is not None and process.raft.leadership is not None and to in process.raft.peers:
            raft, leadership = process.raft, process.raft.leadership
            leadership.hand_over(NodeId(to), raft.committed, machine.loop.time())
            machine.loop.call_soon(process.pump)

    # The run -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """See Simulation."""
        with small_messages(self.random.choice(SIZES)):
            self._run()

    def _run(self) -> None:
        self.world.network.reset_connections = self.reset  # type: ignore[method-assign]
        self.injector.schedule(self.faults)
        for machine in self.world.machines.values():
            machine.start(self._program)
        self.advance(self.last_fault + 0.5)
        self.injector.heal()
        self.unreliable = Unreliable(0.0, 0.0, 0.0)
        self.advance(self.world.now + 0.2)
        # Who stopped meanwhile because of its disk, and connections that power cuts left half open.
        for machine in self.world.machines.values():
            self.injector.restart(machine)
        for a in range(1, self.size + 1):
            for b in range(a + 1, self.size + 1):
                self._connect_later(a, b)
        self._settle()

    def _settle(self) -> None:
        end = self.world.now + SETTLE_SECONDS
        wanted = self.invariants.last_committed + 3
        while self.world.now < end:
            self.advance(self.world.now + 0.25)
            alive = [slot for slot in self.slots if slot.node not in self.injector.damaged]
            if all(slot.process is not None and slot.process.applied >= wanted for slot in alive):
                break
        else:
            reached = {slot.node: slot.process.applied if slot.process else None for slot in self.slots}
            raise Violation("liveness", f"entry {wanted} is not replayed everywhere after all is well: {reached}")
        self._check_states([slot.process for slot in alive if slot.process is not None])

    def _check_states(self, processes: list[CoreNode]) -> None:
        longest = max((process.state for process in processes), key=len)
        for process in processes:
            if process.state != longest[: len(process.state)]:
                raise Violation("state machine safety", f"node {process.node} has another state than others")
        states = dict(longest)
        for index, checksum in sorted(self.acknowledged.items()):
            if states.get(index) != checksum and index <= longest[-1][0]:
                raise Violation("durability", f"entry {index} was acknowledged and is not in the final state")

    def counts(self) -> dict[str, int]:
        """See Simulation."""
        return {
            "committed": self.invariants.last_committed,
            "acknowledged": len(self.acknowledged),
            "elections": self.invariants.elections,
        }

    def done(self) -> dict[str, int]:
        """See Simulation."""
        return self.injector.done
