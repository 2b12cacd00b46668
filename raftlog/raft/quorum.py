"""A metadata log that several nodes keep together: the seam's promises on top of Raft, a journal and connections.

Knows the order of things in a turn: events, commands, messages out, the disk, what waited for it, replay, answers. No
timer is in the way of a commit: a turn begins when something has happened.
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from raftlog.raft.channel import Kind
from raftlog.raft.core.configuration import Configuration
from raftlog.raft.core.entries import Entry, command_of, kind_of
from raftlog.raft.core.entries import Kind as EntryKind
from raftlog.raft.core.errors import RaftViolation
from raftlog.raft.core.leadership import LocalNode, Peer
from raftlog.raft.core.messages import Message, to_wire
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.seen import SeenCommands
from raftlog.raft.core.snapshot import SnapshotContent
from raftlog.raft.core.state import NOBODY, Timing, Writes
from raftlog.raft.disk_thread import DiskThread
from raftlog.raft.files import Files, OsFiles
from raftlog.raft.journal import DEFAULT_SEGMENT_BYTES, JournalFailed
from raftlog.raft.members import Members
from raftlog.raft.opening import open_log
from raftlog.raft.peering import Peering
from raftlog.raft.proposals import Proposals
from raftlog.raft.reads import Reads
from raftlog.raft.requests import Requests
from raftlog.raft.seam import (
    LeadershipListener,
    PeerListener,
    QuorumStatus,
    ReplayCallback,
    RequestHandler,
    RestoreCallback,
    SnapshotSource,
)
from raftlog.raft.snapshots import Snapshots
from raftlog.raft.stall_free_clock import BEAT_SECONDS, StallFreeClock
from raftlog.raft.transport import Address

if TYPE_CHECKING:
    from raftlog.raft.hardened import HardenedSyncObj

logger = logging.getLogger("raftlog.raft")

DEFAULT_SNAPSHOT_BYTES = 4 * 1024 * 1024
TIMER_SLACK_SECONDS = 0.001
"""uvloop rounds to milliseconds, and who is woken too early sleeps until the next beat."""
DISK_RETRY_SECONDS = 0.5
"""A full disk may get room again."""


class QuorumLog:
    """See raftlog.raft.seam.MetadataLog.

    Invariants: nothing is replayed that is not on this node's disk; nothing is answered that is not on a majority's;
    after a bug or a failed fsync this node neither votes nor answers.
    """

    def __init__(
        self,
        directory: str,
        *,
        node_id: int,
        peers: Mapping[int, Address],
        listen: Address | None,
        monotonic: Callable[[], float],
        observer: bool = False,
        cluster_id_hint: str = "",
        files: Files | None = None,
        random: randomness.Random | None = None,
        timing: Timing = Timing(),  # noqa: B008  # frozen
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES,
    ) -> None:
        """Open the journal in `directory`; nothing is sent or listened to before `start`.

        `peers`: the voters' ids and addresses, this node's among them when it is one; the log knows better once it has
        entries. `listen`: where others call this node; None for an observer that only calls. `monotonic`: seconds of a
        clock that is read, not cached (to tell a slow disk). `random`: what makes ids and time-outs differ.

        Raises JournalDamaged, JournalLocked, NotYetAQuorum, OSError.
        """
        self._node_id = node_id
        self.peers = dict(sorted(peers.items()))
        self._listen = listen
        self.observer = observer or node_id not in peers
        self.cluster_id = cluster_id_hint
        self._rng = random or randomness.SystemRandom()
        self._timing = timing
        self.incarnation = self._rng.getrandbits(62)
        bootstrap = Configuration.of_addresses(self.peers)
        self.opened = open_log(
            directory, node_id, bootstrap, files=files or OsFiles(), segment_bytes=segment_bytes, rng=self._rng
        )
        self._journal = self.opened.journal
        self.advertised = self.peers.get(node_id) or (listen if listen is not None else ("", 0))
        self._clock = StallFreeClock(monotonic)
        self._disk = DiskThread(monotonic)
        self._seen = SeenCommands()
        self._committed_index = 0
        self._is_leader = False
        self._was: tuple[int, int] = (NOBODY, 0)
        self._turn_due = False
        self._started = False
        self._closing = False
        self._failed: str | None = None
        self._writing: Writes | None = None
        self._leadership_listeners: list[LeadershipListener] = []
        self._timer: asyncio.TimerHandle | None = None
        self.peering = Peering(self, self._clock.now, self._rng)
        self.requests = Requests(self, self.peering.transport.send, self.incarnation)
        self.members = Members(self)
        self._reads = Reads(self)
        self._proposals = Proposals(self)
        self._snapshots = Snapshots(self, snapshot_bytes)

    # -- what others see -----------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        """See MetadataLog."""
        return self._node_id

    @property
    def leader_id(self) -> int:
        """See MetadataLog."""
        return self.raft.leader_id if self._started and self._failed is None else NOBODY

    @property
    def term(self) -> int:
        """See MetadataLog."""
        return self.raft.term if self._started else self.opened.hard_state.term

    @property
    def last_index(self) -> int:
        """See MetadataLog."""
        if not self._started:
            return self.opened.log.application_index(self.opened.log.last_index)
        return self.raft.log.application_index(self.raft.log.last_index) + self._proposals.queued

    @property
    def committed_index(self) -> int:
        """See MetadataLog."""
        return self._committed_index

    @property
    def is_leader(self) -> bool:
        """See MetadataLog."""
        return self._is_leader

    @property
    def takes_part(self) -> bool:
        """Whether this node has started, and neither stops nor has failed."""
        return self._started and not self._closing and self._failed is None

    @property
    def port(self) -> int:
        """Where this node takes calls, or -1."""
        return self.peering.transport.port

    @property
    def refusals(self) -> Mapping[int, str]:
        """Voters that will not talk with this node, and why."""
        return self.peering.transport.refusals

    # -- life ----------------------------------------------------------------------------------------

    async def start(self, restore: RestoreCallback, replay: ReplayCallback, snapshot: SnapshotSource) -> None:
        """See MetadataLog. What is committed is replayed when a leader says what that is. Raises OSError when the
        address to listen on cannot be had.
        """
        from raftlog.raft.hardened import HardenedSyncObj  # 35 ms that a broker without peers need not spend

        self._restore, self._replay = restore, replay
        opened = self.opened
        if self._listen is not None:
            await self.peering.transport.listen(*self._listen)
            if self.advertised[1] == 0:
                self.advertised = (self.advertised[0], self.peering.transport.port)
        own = LocalNode(self._node_id, Peer(opened.directory, *self.advertised))
        self.raft = Raft(own, opened.log, opened.hard_state, self._timing, self._rng.random, now=self._clock.now())
        self.sync: HardenedSyncObj = HardenedSyncObj(self.raft, self._clock.now, self._replay_entry, self._send)
        self._snapshots.open(self._journal, snapshot)
        self.members.warn_of_role()
        if opened.truncated_bytes:
            what = "metadata journal %s: cut %d bytes of a write that a crash interrupted, up to entry %d is there"
            logger.warning(what, self._journal.directory, opened.truncated_bytes, opened.log.last_index)
        if opened.snapshot is not None:
            self._restore_from(opened.snapshot)
        self._started = True
        self.peering.transport.start()
        self.peering.connect_to_voters()
        self._beat()

    async def close(self) -> None:
        """See MetadataLog."""
        if self._closing:
            return
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._started:
            self._stop_answering()
            await self._snapshots.close()
            await self.peering.transport.close()
            await self._disk.drain()
        self._disk.close()
        self._journal.close()

    def _stop_answering(self) -> None:
        self.sync.fail_all()
        self.requests.close()
        self.members.close()
        self._reads.fail()
        self._proposals.fail()
        self._set_leader(False)

    def fail(self, error: BaseException) -> None:
        """A bug, or a disk that cannot be trusted: this node leaves the quorum until it is restarted."""
        if self._failed is not None:
            return
        self._failed = str(error)
        logger.critical("node %d leaves the metadata quorum: %s", self._node_id, error)
        loop = asyncio.get_running_loop()
        self._stop_answering()
        self._closer = loop.create_task(self.peering.transport.close())
        if not isinstance(error, JournalFailed):
            loop.call_exception_handler({"message": "metadata quorum", "exception": error})

    # -- turns ---------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something happened: have a turn soon, together with whatever else happens until then."""
        if not self._turn_due and not self._closing and self._failed is None:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        if self._closing or self._failed is not None:
            return
        try:
            self._proposals.taken()  # the tick moves it
            self.sync.doTick()
            self._write()
            if self.sync.bug is not None:
                raise self.sync.bug
            self._after_replay()
        except RaftViolation as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001  # whatever it is, it must not be answered over
            self.fail(error)

    def _beat(self) -> None:
        if self._closing or self._failed is not None:
            return
        stall = self._clock.beat()
        if stall > self._timing.election_min:
            logger.warning("node %d stood still for %.1f s", self._node_id, stall)
        if self._disk.busy_for() > self._timing.election_max:
            self.raft.step_down(self._clock.now())  # its disk hangs: who leads must be able to write
        self.members.warn_without_leader(self._clock.now())
        self._turn_now_and_arm()

    def _turn_now_and_arm(self) -> None:
        self.wake()
        loop = asyncio.get_running_loop()
        self._beat_at = loop.time() + BEAT_SECONDS
        self._timer = loop.call_at(self._beat_at, self._beat)

    def rearm_timer(self) -> None:
        """The core's deadline may have come closer than the next beat."""
        delay = self.raft.deadline - self._clock.now()
        if delay < BEAT_SECONDS:
            asyncio.get_running_loop().call_later(max(delay, 0.0) + TIMER_SLACK_SECONDS, self.wake)

    def _send(self, node_id: int, message: Message) -> None:
        self.peering.transport.send(node_id, Kind.RAFT, *to_wire(message))

    def _after_replay(self) -> None:
        """Whoever waited for what this turn brought."""
        raft = self.raft
        leadership = raft.leadership
        applied = self.sync.applied
        leads = leadership is not None and applied >= leadership.first_index
        if (raft.leader_id, raft.term) != self._was:
            self._was = (raft.leader_id, raft.term)
            self._reads.fail()
            self._proposals.fail()
            self.peering.connect_to_voters()
            self.requests.changed()
            self.members.changed()
            leader = f"node {raft.leader_id} leads" if raft.leader_id != NOBODY else "no leader"
            logger.info("metadata quorum, node %d: %s in term %d", self._node_id, leader, raft.term)
        if leads != self._is_leader:
            self._set_leader(leads)
        self._reads.after_replay(applied)
        self._proposals.after_replay()
        self.members.after_replay()
        self._snapshots.after_replay(self.sync.applied)
        if self.sync.has_more:
            self.wake()

    def _set_leader(self, leads: bool) -> None:
        if leads == self._is_leader:
            return
        self._is_leader = leads
        for listener in self._leadership_listeners:
            listener(leads)
        if leads:
            self.peering.announce_all()
        self.requests.changed()

    # -- the disk ------------------------------------------------------------------------------------

    def _write(self) -> None:
        if self._writing is not None:
            return
        writes = self.raft.take_writes()
        if not writes.must_sync:
            if writes.messages_after_sync:
                self.sync.wrote(self.raft.written(writes, self._clock.now()))
            return
        self._writing = writes
        self._submit(writes)

    def _submit(self, writes: Writes) -> None:
        if self._closing or self._failed is not None:
            self._writing = None
            return
        self._disk.submit(lambda: self._save(writes), self._written)

    def _save(self, writes: Writes) -> None:
        snapshot = writes.snapshot
        if snapshot is not None:
            index, term = snapshot.base.index, snapshot.base.term
            self._journal.save_snapshot(index, term, snapshot.all_chunks(), truncate_rest=writes.truncate_rest)
        truncation = (writes.truncate_from, writes.previous_term) if writes.truncate_from else None
        if writes.hard_state or truncation or writes.entries:
            self._journal.save(writes.hard_state, truncation, writes.entries)

    def _written(self, error: BaseException | None) -> None:
        writes = self._writing
        assert writes is not None
        if error is not None:
            self._not_written(writes, error)
            return
        self._writing = None
        self.raft.can_lead = True
        if self._closing or self._failed is not None:
            return
        try:
            self.sync.wrote(self.raft.written(writes, self._clock.now()))
            if self.raft.installed is not None:
                content, self.raft.installed = self.raft.installed, None
                self._restore_from(content)
        except Exception as failure:  # noqa: BLE001  # as in a turn
            self.fail(failure)
            return
        self.wake()

    def _not_written(self, writes: Writes, error: BaseException) -> None:
        if self._closing or self._failed is not None:
            self._writing = None
        elif isinstance(error, JournalFailed) and not error.on_disk_unknown:
            if self.raft.can_lead:
                logger.error("node %d cannot write its metadata journal and does not lead meanwhile: %s",
                             self._node_id, error)  # fmt: skip
            self.raft.can_lead = False
            self.raft.step_down(self._clock.now())
            self.wake()
            asyncio.get_running_loop().call_later(DISK_RETRY_SECONDS, self._submit, writes)
        else:
            self.fail(error)

    def disk(self) -> DiskThread:
        """Where steps on the journal go."""
        return self._disk

    # -- replay --------------------------------------------------------------------------------------

    def _replay_entry(self, entry: Entry) -> int:
        """Give a committed entry to the application; the index that the application knows it by."""
        index = self.raft.log.application_index(entry.index)
        self._committed_index = index
        self._snapshots.replayed(len(entry.data))
        kind = kind_of(entry.data)
        if kind is EntryKind.APPLICATION:
            proposer, number, payload = command_of(entry.data)
            if number == 0 or self._seen.is_new(proposer, number):
                self._replay(index, payload)
        elif kind is EntryKind.CONFIGURATION:
            self.peering.connect_to_voters()
        return index

    def _restore_from(self, content: SnapshotContent) -> None:
        self._seen = SeenCommands.decode(content.seen)
        base = content.base
        self._committed_index = base.index - base.internal
        self._restore(self._committed_index, content.chunks)
        self.sync.restored(content)
        self._snapshots.restored()
        self.peering.connect_to_voters()

    def encode_seen(self) -> bytes:
        """The memory of commands, for a snapshot."""
        return self._seen.encode()

    # -- entries -------------------------------------------------------------------------------------

    def propose(self, entries: Sequence[bytes]) -> Awaitable[int]:
        """See MetadataLog."""
        return self._proposals.propose(entries)

    async def barrier(self) -> int:
        """See MetadataLog."""
        return await self._reads.read()

    async def take_snapshot(self) -> int:
        """See MetadataLog."""
        return await self._snapshots.take()

    # -- what the seam has for the quorum ------------------------------------------------------------------

    async def ask_leader(self, payload: bytes, timeout_seconds: float) -> bytes:
        """See MetadataLog."""
        return await self.requests.ask(payload, timeout_seconds)

    def on_request(self, handler: RequestHandler) -> None:
        """See MetadataLog."""
        self.requests.handle_with(handler)

    def on_leadership(self, listener: LeadershipListener) -> None:
        """See MetadataLog."""
        self._leadership_listeners.append(listener)
        if self._is_leader:
            listener(True)

    def on_peer(self, listener: PeerListener) -> None:
        """See MetadataLog. Whoever becomes leader is told of every node anew."""
        self.peering.listeners.append(listener)

    def hung_up(self) -> frozenset[int]:
        """See MetadataLog."""
        return self.peering.transport.hung_up()

    def know_cluster(self, cluster_id: str) -> None:
        """See MetadataLog."""
        self.cluster_id = cluster_id

    def status(self) -> QuorumStatus:
        """See MetadataLog."""
        if not self._started:
            return QuorumStatus(self._node_id, NOBODY, self.term, 0, self.last_index, (), ())
        return self.members.status(self._clock.now())

    async def add_voter(self, node_id: int, host: str, port: int) -> None:
        """See MetadataLog."""
        await self.members.add(node_id, host, port)

    async def remove_voter(self, node_id: int) -> None:
        """See MetadataLog."""
        await self.members.remove(node_id)

    async def transfer_leadership(self, to: int | None = None) -> int:
        """See MetadataLog."""
        return await self.members.transfer(to)
