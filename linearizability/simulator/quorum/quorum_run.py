"""The metadata log as it is shipped, under a seed: journal, transport, PySyncObj's queue and core, on several nodes.

Everybody proposes, by itself or through the leader; the answers make a history, which the checker judges at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from random import Random

from raftlog.linearizability.checker.history import FAIL, INFO, OK, Operation
from raftlog.linearizability.checker.log.check import check_log
from raftlog.linearizability.simulator.faults import DAMAGES, Fault, Plan, schedule
from raftlog.linearizability.simulator.injector import Injector
from raftlog.linearizability.simulator.machine.loop import SimulatedLoop
from raftlog.linearizability.simulator.machine.world import Machine
from raftlog.linearizability.simulator.quorum.journals import Mirror, WatchedDisk
from raftlog.linearizability.simulator.quorum.message_sizes import SIZES, small_messages
from raftlog.linearizability.simulator.quorum.raft_invariants import RaftInvariants
from raftlog.linearizability.simulator.runs import BaseSimulation
from raftlog.linearizability.simulator.scenarios import scenario_of
from raftlog.linearizability.simulator.violation import Violation
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.state import Timing
from raftlog.raft.journal import JournalFailed
from raftlog.raft.journal_recovery import JournalDamaged
from raftlog.raft.quorum import QuorumLog
from raftlog.raft.seam import ProposalFailed

DIRECTORY = "/meta"
PORT = 9192
SETTLE_SECONDS = 15.0
ASK_SECONDS = 1.0

KINDS = (
    "kill", "power", "tear", "freeze", "cut", "deaf", "isolate", "split", "reset", "slow-disk", "full-disk",
    "sync-error", "rot", "wipe", "transfer",
)  # fmt: skip


class QuorumNode:
    """The process of one node: a metadata log, and what it replayed."""

    def __init__(self, run: QuorumRun, machine: Machine) -> None:
        self.run = run
        self.machine = machine
        self.node = machine.node
        self.state: list[bytes] = []
        self.first_index = 0
        run.disks[self.node].begin(DIRECTORY)
        self.log = QuorumLog(
            DIRECTORY,
            node_id=self.node,
            peers=run.voters,
            listen=(machine.host, PORT),
            monotonic=machine.clock.monotonic,
            disk=run.disks[self.node],
            random=machine.random,
            timing=run.timing,
            segment_bytes=2_000,
            snapshot_bytes=run.snapshot_bytes,
        )
        run.disks[self.node].begin(DIRECTORY)
        self.log.on_request(self._answer)

    async def start(self) -> None:
        """Join."""
        await self.log.start(self._restore, self._replay, self._snapshot)

    def _restore(self, index: int, chunks: Iterable[bytes]) -> None:
        self.state = list(chunks)
        if len(self.state) != index:
            self.run.failed(Violation("snapshot", f"node {self.node}: {len(self.state)} entries in one at {index}"))

    def _replay(self, index: int, entry: bytes) -> None:
        if index != len(self.state) + 1:
            self.run.failed(Violation("order", f"node {self.node} replays {index} after {len(self.state)}"))
        self.state.append(entry)
        self.run.invariants.replay(self.node, index, entry)

    def _snapshot(self) -> tuple[int, Iterable[bytes]]:
        return len(self.state), list(self.state)

    async def _answer(self, _: int, payload: bytes) -> bytes:
        index = await self.log.propose((payload,))
        return b"%d" % index

    # What its clients do ---------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Write and read for ever: a leader that nobody follows any more is read from while its writes wait."""
        await asyncio.gather(self._write_on(), self._read_on())

    async def _write_on(self) -> None:
        random = self.machine.random
        while True:
            await asyncio.sleep(0.01 + self.run.pause * random.random())
            if self.run.is_resting(self.node):
                continue
            await self._append()
            if random.random() < 0.05 and self.log.is_leader:
                try:
                    await self.log.take_snapshot()
                except ProposalFailed:
                    pass

    async def _read_on(self) -> None:
        while True:
            await asyncio.sleep(0.01 + 2 * self.run.pause * self.machine.random.random())
            if not self.run.is_resting(self.node):
                await self._read()

    async def _append(self) -> None:
        operation = self.run.begin(self, "append")
        payload = b"%d" % operation.input[0]
        try:
            if self.log.is_leader:
                index = await self.log.propose((payload,))
            else:
                index = int(await self.log.ask_leader(payload, ASK_SECONDS))
        except ProposalFailed as error:
            self.run.end(operation, INFO if error.outcome_unknown else FAIL)
        else:
            self.run.end(operation, OK, index - 1)

    async def _read(self) -> None:
        if not self.log.is_leader:
            return
        operation = self.run.begin(self, "end")
        try:
            index = await self.log.barrier()
        except ProposalFailed:
            self.run.end(operation, FAIL)
        else:
            self.run.end(operation, OK, index)


class NodeSlot:
    """Where a node is, whether or not it runs."""

    def __init__(self, run: QuorumRun, node: int) -> None:
        self.run = run
        self.node = node
        self.process: QuorumNode | None = None

    @property
    def raft(self) -> Raft | None:
        """See Watched."""
        return getattr(self.process.log.node, "raft", None) if self.process is not None else None

    @property
    def mirror(self) -> Mirror:
        """See Watched."""
        return self.run.disks[self.node].mirror


class QuorumRun(BaseSimulation):
    """One run of the metadata log."""

    part = "quorum"

    def __init__(self, seed: int, faults: Sequence[Fault] | None, kept_lines: int | None) -> None:
        super().__init__(seed, kept_lines)
        random = self.random
        self.size = random.choice((3, 3, 3, 3, 4, 5))
        voting = self.size if random.random() < 0.7 else min(3, self.size - 1)
        self.voters = {node: (f"host{node}", PORT) for node in range(1, voting + 1)}
        self.reconfigures = random.random() < 0.3
        self.timing = random.choice((Timing(), Timing(0.05, 0.3, 0.5, 0.005, 0.05)))
        self.pause = random.choice((0.02, 0.1))
        self.snapshot_bytes = random.choice((800, 3_000, 1_000_000))
        # With members that come and go, two voters may be left, which can do without neither; and who has lost both its
        # vote and its disk must be started in another way (--observer), by a person.
        kinds = tuple(kind for kind in KINDS if kind not in DAMAGES or not self.reconfigures)
        plan = Plan(self.size, 0.2, 2.5, 2, 9, kinds, (voting - 1) // 2)
        # Before the schedule is drawn: with the same faults out of a file they are the same.
        self.sizes = random.choice(SIZES)
        scenario = scenario_of(seed, plan, voting, loose=False)
        if faults is None:
            faults = schedule(random, plan) if scenario is None else scenario.faults
        self.faults = self.take(faults, self.size)
        self.last_fault = self.fault_seconds = plan.last
        self.operations: list[Operation] = []
        self.disks: dict[int, WatchedDisk] = {}
        self.slots = {node: NodeSlot(self, node) for node in range(1, self.size + 1)}
        self.invariants = RaftInvariants(list(self.slots.values()), self.failed)
        for node in self.slots:
            machine = self.world.add_machine(node, f"host{node}")
            disk = self.disks[node] = WatchedDisk(machine.disk)
            disk.on_frame = partial(self.invariants.wrote, node)
            disk.on_synced = partial(self.invariants.synced, node)
            disk.on_snapshot = partial(self.invariants.wrote_snapshot, node)
        self.world.on_death = self._died
        self.world.on_refusal = self._refused
        self.world.scheduler.after_turn = self._after_turn
        self.injector = Injector(self.world, list(self.slots), self._leader)
        self.injector.rotten_part = DIRECTORY + "/"
        # A quorum that has never committed anything begins only with all of its voters.
        self.injector.may_damage = lambda: self.invariants.last_committed > 0
        self.injector.transfer = self._transfer
        self.injector.on_damage = self._damaged
        self._rng = Random(f"{seed} members")

    # History ---------------------------------------------------------------------------------------------------

    def begin(self, node: QuorumNode, function: str) -> Operation:
        """A call of a client of a node."""
        given = (len(self.operations),) if function == "append" else None
        process = f"{node.node}.{node.machine.incarnation}.{function}"
        operation = Operation(process, function, given, call=self._stamp(), index=len(self.operations))
        self.operations.append(operation)
        return operation

    def _stamp(self) -> int:
        return int(self.world.now * 1e9)

    def end(self, operation: Operation, outcome: object, output: object = None) -> None:
        """Its end."""
        operation.returned = self._stamp()
        operation.outcome, operation.output = outcome, output  # type: ignore[assignment]

    # Nodes ----------------------------------------------------------------------------------------------------

    async def _program(self, machine: Machine) -> None:
        slot = self.slots[machine.node]
        node = QuorumNode(self, machine)
        slot.process = node
        self.invariants.disk_settled(machine.node, self._copy(machine))
        await node.start()
        await node.work()

    def _copy(self, machine: Machine) -> Mirror:
        watched = WatchedDisk(machine.disk)
        watched.begin(DIRECTORY)
        return watched.mirror

    def _after_turn(self, loop: SimulatedLoop) -> None:
        slot = self.slots.get(loop.node)
        if slot is not None and slot.process is not None:
            self.invariants.check(slot)

    def _died(self, machine: Machine, power: bool) -> None:
        self.slots[machine.node].process = None
        if power:
            self.disks[machine.node].begin(DIRECTORY)
            self.invariants.disk_settled(machine.node, self._copy(machine))

    def _damaged(self, machine: Machine) -> None:
        self.invariants.disk_lost(machine.node)
        self.disks[machine.node].begin(DIRECTORY)

    def _refused(self, machine: Machine, error: BaseException) -> None:
        done = self.injector.done
        if isinstance(error, Violation):
            self.failed(error)
        elif isinstance(error, JournalDamaged) and (done.get("rot") or done.get("sync-error")):
            self.injector.damaged[machine.node] = str(error)
            self.invariants.disk_lost(machine.node)
        elif isinstance(error, JournalFailed | OSError):
            self.injector.restart_after(machine, 0.3)
        else:
            self.failed(Violation("bug", f"node {machine.node} ends: {error!r}"))

    def _leader(self) -> int | None:
        leading = [
            (slot.process.log.term, node)
            for node, slot in self.slots.items()
            if slot.process is not None and slot.process.log.is_leader
        ]
        return max(leading)[1] if leading else None

    def _transfer(self, machine: Machine, to: int) -> None:
        process = self.slots[machine.node].process
        if process is not None and machine.running and not machine.loop.frozen:
            machine.loop.call_soon(self._spawn, process, process.log.transfer_leadership(to))

    def _spawn(self, process: QuorumNode, work: object) -> None:
        process.machine.loop.create_task(_quietly(work))

    def _reconfigure(self) -> None:
        """The leader is asked to give or take a vote, now and then."""
        if self.injector.over:
            return
        leader = self._leader()
        if leader is not None:
            process = self.slots[leader].process
            assert process is not None
            node = self._rng.randint(1, self.size)
            ids = process.log.node.raft.configuration.ids
            if node not in ids:
                process.machine.loop.call_soon(self._spawn, process, process.log.add_voter(node, f"host{node}", PORT))
            elif len(ids) > 2 and not self.invariants.lost_disks:
                process.machine.loop.call_soon(self._spawn, process, process.log.remove_voter(node))
        self.world.scheduler.at(self.world.now + 0.1 + 0.6 * self._rng.random(), self._reconfigure)

    # The run ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """See Simulation."""
        with small_messages(self.sizes):
            self._run()

    def _run(self) -> None:
        self.injector.schedule(self.faults)
        for machine in self.world.machines.values():
            machine.start(self._program)
        if self.reconfigures:
            self.world.scheduler.at(0.5, self._reconfigure)
        self.advance(self.last_fault + 0.3)
        self.injector.heal()
        self._restart_failed()
        self._settle()
        self._judge()

    def _restart_failed(self) -> None:
        """As an operator does with a node that left the quorum because of its disk."""
        for slot in self.slots.values():
            if slot.process is not None and slot.process.log.node.has_failed:
                machine = slot.process.machine
                machine.kill()
                self.injector.restart(machine)

    def _settle(self) -> None:
        end = self.world.now + SETTLE_SECONDS
        acknowledged = sum(op.outcome is OK and op.function == "append" for op in self.operations)
        while self.world.now < end:
            self.advance(self.world.now + 0.25)
            members = self._members()
            now = sum(op.outcome is OK and op.function == "append" for op in self.operations)
            states = [len(slot.process.state) for slot in members if slot.process is not None]
            if now > acknowledged + 3 and len(states) == len(members) and max(states) - min(states) < 20:
                return
        reached = {slot.node: len(slot.process.state) if slot.process else None for slot in members}
        raise Violation("liveness", f"{now - acknowledged} appends since all is well, entries replayed: {reached}")

    def _members(self) -> list[NodeSlot]:
        return [slot for slot in self.slots.values() if slot.node not in self.injector.damaged]

    def _judge(self) -> None:
        states = [slot.process.state for slot in self._members() if slot.process is not None]
        longest = max(states, key=len)
        if any(state != longest[: len(state)] for state in states):
            raise Violation("state machine safety", "two nodes replayed different entries")
        final = Operation("end", "read", 0, (tuple(map(int, longest)), False), call=self._stamp())
        final.returned, final.outcome = self._stamp(), OK
        done = [operation for operation in self.operations if operation.returned is not None]
        # What was never answered may have happened.
        done += [operation for operation in self.operations if operation.returned is None]
        done.sort(key=lambda operation: float("inf") if operation.returned is None else operation.returned)
        violation = check_log([*done, final], complete=True)
        if violation is not None:
            raise Violation("linearizability", f"{violation.kind} at {violation.offset}: {violation.operations}")

    def counts(self) -> dict[str, int]:
        """See Simulation."""
        return {
            "committed": self.invariants.last_committed,
            "acknowledged": sum(op.outcome is OK and op.function == "append" for op in self.operations),
            "reads": sum(op.outcome is OK and op.function == "end" for op in self.operations),
            "elections": self.invariants.elections,
        }

    def done(self) -> dict[str, int]:
        """See Simulation."""
        return self.injector.done


async def _quietly(work: object) -> None:
    try:
        await work  # type: ignore[misc]
    except ProposalFailed:
        pass
