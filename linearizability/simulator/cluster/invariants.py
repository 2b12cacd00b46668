"""What must hold in every cluster at every step: leaders, in-sync replicas, high watermarks and committed records.

Checked after each turn of a broker's loop, where that broker's metadata or logs have moved; what its parts promise of
themselves every few turns.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlog.broker.broker import Broker
from raftlog.broker.runtime.controller import Controller
from raftlog.broker.runtime.partition import Partition
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.linearizability.simulator.cluster.client_invariants import ClientInvariants
from raftlog.linearizability.simulator.cluster.compacted_logs import CompactedLogs
from raftlog.linearizability.simulator.cluster.log_starts import LogStarts
from raftlog.linearizability.simulator.cluster.replica_contents import (
    Batch,
    batch_of,
    batches_of,
    first_from,
    raw_batches_of,
    records_of,
)
from raftlog.linearizability.simulator.cluster.state import ClusterState, Key
from raftlog.linearizability.simulator.cluster.transaction_ends import TransactionEnds
from raftlog.linearizability.simulator.machine.loop import SimulatedLoop
from raftlog.linearizability.simulator.machine.world import World
from raftlog.linearizability.simulator.violation import Violation
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import NO_LEADER, PartitionState
from raftlog.wire.batch import decode_batch
from raftlog.wire.errors import ErrorCode, InvariantViolation

TURNS_OF_A_WHOLE_CHECK = 4
"""What a broker's parts promise takes a quarter of a run's time to check each turn, and what is broken stays so."""


class _Seen:
    """One replica in one life of its broker, as it was last looked at; one that was moved away and back is another."""

    __slots__ = ("checked_end", "cleaned", "high_watermark", "leads", "log_end", "log_start", "partition", "stable")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.high_watermark = 0
        self.checked_end = 0
        self.log_end = -1
        self.log_start = -1
        self.cleaned = -1
        self.stable = 0
        self.leads = -1


class ClusterInvariants(ClusterState):
    """What is looked at after each turn of a broker.

    `ends`: where each replica's log ends, also of those that are down; None when its host lost power since. `had`:
    where the logs of those ended before that may have lost something. `min_isr`: of topics where it is not 2.
    `compacts`: whether compacted topics are compacted. `clocks_jump`: whether a clock has.
    """

    def __init__(self, world: World, nodes: list[int], failed: Callable[[Violation], None]) -> None:
        super().__init__(world, nodes)
        self.ends: dict[tuple[int, Key], int | None] = {}
        self.states: dict[tuple[Key, int], PartitionState] = {}
        self.leaders: dict[tuple[Key, int], int] = {}
        self.deleted: set[Key] = set()
        self.had: dict[tuple[int, Key], int] = {}
        self.min_isr: dict[str, int] = {}
        self.elections = 0
        self.compacts = self.clocks_jump = False
        self.clients = ClientInvariants()
        self.log_starts = LogStarts()
        self.compacted = CompactedLogs()
        self.transaction_ends = TransactionEnds(self.newest, self.deleted)
        self._failed = failed
        self._watched: dict[int, Controller] = {}
        self._newest_version = -1
        self._seen: dict[tuple[int, Key], _Seen] = {}
        self._turns = 0

    def _fail(self, invariant: str, text: str) -> None:
        self._failed(Violation(invariant, f"{text} (at {self.world.now:.3f} s)"))

    # Steps -----------------------------------------------------------------------------------------------------

    def after_turn(self, loop: SimulatedLoop) -> None:
        """A process has had a turn."""
        machine = self.world.machines.get(loop.node)
        if loop.node not in self.nodes:
            self._look_at_clients()
            return
        if machine is None or loop.dead:
            return
        broker: Broker | None = machine.parts.get("broker")
        if broker is None:
            return
        controller = broker.controller
        if self._watched.get(loop.node) is not controller:
            self._watched[loop.node] = controller
            # Each change by itself: a node may follow several in one turn.
            controller.subscribe(lambda _, image: self._look_at_image(image))
        # Who looks on from outside is no part of what runs: no disk fails meanwhile.
        failing, machine.disk.failing = machine.disk.failing, {}
        try:
            for partition in broker.partitions.open_partitions() if broker.has_logs else ():
                self._look_at_replica(loop.node, partition)
            self._turns += 1
            if self._turns % TURNS_OF_A_WHOLE_CHECK == 0:
                broker.check_invariants()
        except InvariantViolation as violation:
            self._fail("broker", f"{loop.node}: {violation}")
        finally:
            machine.disk.failing = failing
        self.transaction_ends.check(self._fail)

    def _look_at_clients(self) -> None:
        try:
            self.clients.after_turn()
        except InvariantViolation as violation:
            self._fail("client", str(violation))

    def died(self, node: int, power: bool) -> None:
        """A broker is no more; what its host wrote stays, unless the power went."""
        self._watched.pop(node, None)
        for key in [key for key in self._seen if key[0] == node]:
            # In the middle of its last turn it may have told of what nobody has looked at.
            self.transaction_ends.reached(key[1], self._seen.pop(key).partition.log.high_watermark)
        if power:
            self.lost_disk(node)

    def lost_disk(self, node: int) -> None:
        """What a node had may be gone, some of it or all."""
        self._taint(node)
        for key in self.ends:
            if key[0] == node:
                self.ends[key] = None

    def _taint(self, node: int) -> None:
        self.tainted[node] = True
        for key, end in self.ends.items():
            if key[0] == node and end is not None:
                self.had[key] = max(end, self.had.get(key, 0))

    # Metadata --------------------------------------------------------------------------------------------------

    def _look_at_image(self, image: MetadataImage) -> None:
        newest = image.version > self._newest_version
        if newest:
            self._newest_version = image.version
            try:
                image.check_invariants()
                image.check_decisions()
            except InvariantViolation as violation:
                self._fail("metadata", str(violation))
        for topic in image.topics.values():
            for state in topic.partitions:
                key = (topic.name, state.partition_id, topic.topic_id)
                known = self.states.setdefault((key, state.partition_epoch), state)
                if known != state:
                    self._fail("metadata", f"{key} at partition epoch {state.partition_epoch}: {known} and {state}")
                if known is state:
                    self._check_state(key, state)
                if newest:
                    self._change(key, state)
        if newest:
            for key in [key for key in self.newest if key[2] not in image.topics_by_id]:
                del self.newest[key]
                self.deleted.add(key)

    def _check_state(self, key: Key, state: PartitionState) -> None:
        if not set(state.isr) <= set(state.replicas):
            self._fail("ISR", f"{key}: ISR {state.isr} outside the replicas {state.replicas}")
        if state.leader != NO_LEADER and state.leader not in state.isr:
            self._fail("ISR", f"{key}: leader {state.leader} outside its ISR {state.isr}")
        if set(state.isr) & set(state.eligible_leader_replicas):
            self._fail("ISR", f"{key}: {state.eligible_leader_replicas} are eligible beside the ISR {state.isr}")
        moving = (*state.adding_replicas, *state.removing_replicas)
        if len(set(moving)) != len(moving) or not set(moving) <= set(state.replicas):
            self._fail("reassignment", f"{key}: {state} adds or removes what is no replica, or one replica twice")

    def _change(self, key: Key, state: PartitionState) -> None:
        before = self.newest.get(key)
        self.newest[key] = state
        if before is None or before == state:
            return
        if state.partition_epoch <= before.partition_epoch or state.leader_epoch < before.leader_epoch:
            self._fail("epochs", f"{key} goes from {before} to {state}")
        for node in set(before.replicas) - set(state.replicas):
            self.ends.pop((node, key), None)
            self.had.pop((node, key), None)
        if state.leader == NO_LEADER or state.leader_epoch == before.leader_epoch:
            return
        self.elections += 1
        # The change that lets the last replica into the ISR that a move waits for takes the old leader away.
        moved = before.removing_replicas and not state.removing_replicas
        if state.leader not in (*before.isr, *before.eligible_leader_replicas, *(state.isr if moved else ())):
            self._fail("clean election", f"{key}: leader {state.leader} of {state}, elected from {before}")

    # Replicas --------------------------------------------------------------------------------------------------

    def _look_at_replica(self, node: int, partition: Partition) -> None:
        log = partition.log
        if log.offline_reason is not None or not log.is_open:
            return
        key = (partition.topic, partition.index, partition.topic_id)
        seen = self._seen.get((node, key))
        if seen is None or seen.partition is not partition:
            seen = self._seen[node, key] = _Seen(partition)
            self.ends.pop((node, key), None)
        end, high_watermark = log.log_end_offset, log.high_watermark
        if end != seen.log_end or (node, key) not in self.ends or self.ends[node, key] is None:
            if self._is_compacted(log) and 0 <= seen.log_end < end:
                self.compacted.grown(node, key, records_of(partition, seen.log_end, end), seen.log_end, end)
            seen.log_end = end
            self.ends[node, key] = end
            log.check_invariants()
        leads = partition.error is ErrorCode.NONE
        if leads and partition.leader_epoch != seen.leads and self.world.machines[node].parts.get("open"):
            seen.leads = partition.leader_epoch
            self._leads(node, key, partition.leader_epoch, end)
        is_cut = high_watermark < seen.high_watermark and self._may_be_cut(node, log)
        if high_watermark != seen.high_watermark:
            self._look_at_high_watermark(node, key, partition, seen)
        if log.last_stable_offset < seen.stable and not is_cut:
            self._fail("last stable offset", f"{key}: on {node} from {seen.stable} back to {log.last_stable_offset}")
        if log.last_stable_offset > high_watermark:
            self._fail("last stable offset", f"{key}: on {node} at {log.last_stable_offset}, above {high_watermark}")
        seen.stable = log.last_stable_offset
        if log.log_start_offset != seen.log_start:
            self._look_at_log_start(node, key, log, seen)
        if self._is_compacted(log) and log.cleaned_offset != seen.cleaned and node not in self.held:
            seen.cleaned = log.cleaned_offset
            if (wrong := self._compaction(node, key, partition)) is not None:
                self._fail("compaction", f"{key}: on {node} {wrong}")

    def _look_at_high_watermark(self, node: int, key: Key, partition: Partition, seen: _Seen) -> None:
        high_watermark, end = partition.log.high_watermark, partition.log.log_end_offset
        if high_watermark < seen.high_watermark and not self._may_be_cut(node, partition.log):
            self._fail("high watermark", f"{key}: on {node} from {seen.high_watermark} back to {high_watermark}")
        if high_watermark > end:
            self._fail("high watermark", f"{key}: on {node} at {high_watermark}, behind the log's end {end}")
        seen.high_watermark = high_watermark
        self.transaction_ends.reached(key, high_watermark)
        if partition.error is ErrorCode.NONE and high_watermark > self.committed_end(key):
            self._check_isr_has(key, node, partition.leader_epoch, high_watermark)
        if node in self.held:
            # What its disk says may be wrong; who is told so has a checksum.
            return
        self._compare(node, key, partition, seen)

    def _may_be_cut(self, node: int, log: PartitionLog) -> bool:
        """An offset that rotted on the disk makes a log longer than it is: cut off, it takes what lay there with it."""
        return node in self.held and log.high_watermark == log.log_end_offset

    def _look_at_log_start(self, node: int, key: Key, log: PartitionLog, seen: _Seen) -> None:
        """Within one life of a broker the start only grows; one that died may have forgotten where it was."""
        start, before = log.log_start_offset, seen.log_start
        seen.log_start = start
        if start < before:
            self._fail("log start", f"{key}: on {node} from {before} back to {start}")
        if node in self.held:
            self.log_starts.taken(key, start)
            return
        now_ms = self.world.machines[node].clock.now_ms()
        committed = self.committed.get(key, [])
        if (wrong := self.log_starts.moved(key, log, committed, now_ms, is_found=before < 0)) is not None:
            self._fail("log start", f"{key}: on {node} {wrong}")

    def _is_compacted(self, log: PartitionLog) -> bool:
        return self.compacts and log.config.compact

    def _compaction(self, node: int, key: Key, partition: Partition) -> str | None:
        """What is wrong with what compaction has left."""
        log = partition.log
        # Above its high watermark it may have what was never committed, and what supersedes a record that is gone.
        end = min(log.high_watermark, self.committed_end(key))
        records = records_of(partition, log.log_start_offset, log.log_end_offset)
        if (wrong := self.compacted.altered(key, [record for record in records if record.offset < end])) is not None:
            return wrong
        return self.compacted.lost(node, key, records, log.log_start_offset, (end, log.log_end_offset))

    def _leads(self, node: int, key: Key, epoch: int, end: int) -> None:
        """A broker leads, and can be reached: until it is registered anew, one that lost power leads in name only."""
        other = self.leaders.setdefault((key, epoch), node)
        if other != node:
            self._fail("one leader", f"{key}: {other} and {node} both lead epoch {epoch}")
        newest = self.newest.get(key)
        committed = self.committed_end(key)
        if newest is not None and newest.leader_epoch == epoch and end < committed:
            text = f"{key}: leader {node} of epoch {epoch} ends at {end}, committed is {committed}"
            self._fail("leader completeness", text)

    def _check_isr_has(self, key: Key, node: int, epoch: int, high_watermark: int) -> None:
        """What is newly committed must be on every in-sync replica, and on enough of them.

        A replica that had it and lost power counts: nobody can know before its broker has registered anew. By then it
        may have left the ISR: a leader that was cut off takes in one turn the change that lets it commit, and that one.
        """
        state = self.newest.get(key)
        if state is None or state.leader_epoch != epoch:
            return
        holders = 0
        for member in state.replicas:
            end = self.ends.get((member, key))
            lost_power = member in self.tainted and not self.is_whole(member)
            had_it = self.had.get((member, key), 0) >= high_watermark
            if (end is not None and end >= high_watermark) or (lost_power and (member in state.isr or had_it)):
                holders += 1
            elif member in state.isr and end is not None:
                text = f"{key}: {node} commits {high_watermark}, and {member} of the ISR {state.isr} ends at {end}"
                self._fail("high watermark", text)
        if holders < min(self.min_isr.get(key[0], 2), len(state.replicas)):
            self._fail("min.insync.replicas", f"{key}: {node} commits {high_watermark}, which {holders} replicas have")

    def _compare(self, node: int, key: Key, partition: Partition, seen: _Seen) -> None:
        """What is below a high watermark is the same everywhere, for ever."""
        start = max(seen.checked_end, partition.log.log_start_offset)
        known = self.committed.setdefault(key, [])
        compacted = self._is_compacted(partition.log)
        position = first_from(known, start)
        for header, data in raw_batches_of(partition, start, partition.log.high_watermark):
            batch = batch_of(header, data)
            if header.base_offset < self.committed_end(key):
                if not compacted and _fills_gap(known, position, batch):
                    known.insert(position, batch)
                elif text := self._differs(key, known, position, batch, data if compacted else None):
                    self._fail("committed records", f"{key}: {node} has {text}")
                    return
            else:
                # What nobody could look at may be deleted by now: the leader's disk was bad.
                first = batch.base_offset == partition.log.log_start_offset
                if known and known[-1].end_offset != batch.base_offset and not first:
                    self._fail("committed records", f"{key}: {batch} on {node} after {known[-1]}")
                    return
                known.append(batch)
                self.transaction_ends.commit(key, header, data)
                if compacted:
                    self.compacted.commit(key, data)
            position += 1
            seen.checked_end = batch.end_offset

    def _differs(
        self, key: Key, known: list[Batch], position: int, batch: Batch, compacted: bytes | None
    ) -> str | None:
        if compacted is not None:
            return self.compacted.altered(key, decode_batch(compacted))
        there = known[position] if position < len(known) else None
        return None if there == batch else f"{batch} where {there} was committed"

    # At the end ------------------------------------------------------------------------------------------------------

    def hold(self, node: int) -> None:
        """A disk of the node is bad from now on."""
        self._taint(node)
        self.held.add(node)

    def compare_logs(self) -> None:
        """Raises Violation unless all replicas hold the same bytes, from where the last of them begins.

        Of compacted logs: unless each has what it must.
        """
        for key in self.newest:
            replicas = self.replicas_of(key)
            logs = [partition.log for partition in replicas.values()]
            if any(self._is_compacted(log) for log in logs):
                self._judge_compacted(key, replicas)
                continue
            start = max((log.log_start_offset for log in logs), default=0)
            contents = {
                node: list(batches_of(partition, start, partition.log.log_end_offset))
                for node, partition in replicas.items()
            }
            first = next(iter(contents.values()), [])
            if any(content != first for content in contents.values()):
                raise Violation("identical logs", f"{key}: {contents}")
            known = self.committed.get(key, [])
            known = known[first_from(known, start) :]
            if first[: len(known)] != known:
                raise Violation("committed records", f"{key}: what was committed is not in the final log")

    def _judge_compacted(self, key: Key, replicas: dict[int, Partition]) -> None:
        for node, partition in replicas.items():
            if (wrong := self._compaction(node, key, partition)) is not None:
                raise Violation("compaction", f"{key}: on {node} {wrong}")


def _fills_gap(known: list[Batch], position: int, batch: Batch) -> bool:
    """Whether it is where nobody could look: a bad disk's leader committed it, and who was looked at next began behind
    it, which a power cut has made another forget.
    """
    before = known[position - 1].end_offset if position else 0
    return position < len(known) and before <= batch.base_offset and batch.end_offset <= known[position].base_offset
