"""One node of a quorum, driven in turns: events, commands, messages out, the disk, what waited for it, replay.

No timer is in the way of a commit: a turn begins when something has happened.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from raftlog.raft.core.entries import Entry, Kind, command_of, kind_of
from raftlog.raft.core.ids import NO_NODE, NO_TERM, NodeId, Term
from raftlog.raft.core.leadership import LocalNode, Peer
from raftlog.raft.core.messages import Message
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.replayed_commands import ReplayedCommands
from raftlog.raft.core.snapshot import SnapshotContent
from raftlog.raft.core.state import Timing, Writes
from raftlog.raft.disk_thread import DiskThread
from raftlog.raft.journal import JournalFailed
from raftlog.raft.opening import Opened
from raftlog.raft.seam import ReplayCallback, RestoreCallback
from raftlog.raft.stall_free_clock import BEAT_SECONDS, StallFreeClock

if TYPE_CHECKING:
    from raftlog.raft.hardened import HardenedSyncObj

logger = logging.getLogger("raftlog.raft")

TIMER_SLACK_SECONDS = 0.001
"""uvloop rounds to milliseconds, and who is woken too early sleeps until the next beat."""
DISK_RETRY_SECONDS = 0.5
"""A full disk may get room again."""


class NodeEvents(Protocol):
    """Who is called when something about the node has changed."""

    def leader_changed(self) -> None:
        """Another leader, or another term."""

    def leading_changed(self) -> None:
        """`is_leader` has another value."""

    def configuration_changed(self) -> None:
        """Other members may be in force."""

    def turn_ended(self) -> None:
        """Whoever waits for an entry or a reply may have got it."""

    def beat(self) -> None:
        """A fraction of a second has passed."""

    def stopped(self) -> None:
        """The node takes part no more: nobody gets an answer."""

    def failed(self) -> None:
        """Of its own accord, and until it is restarted."""


class RaftNode:
    """See the module.

    Invariants: nothing is replayed that is not on this node's disk; after a bug or a failed fsync this node neither
    votes nor answers.
    """

    def __init__(
        self,
        node_id: NodeId,
        opened: Opened,
        events: NodeEvents,
        *,
        monotonic: Callable[[], float],
        rng: random.Random,
        timing: Timing,
    ) -> None:
        """`opened`: what was in the journal. `monotonic`: seconds of a clock that is read, not cached."""
        self.node_id = node_id
        self.directory = opened.directory
        self.journal = opened.journal
        self.timing = timing
        self.disk = DiskThread(monotonic)
        self.committed_index = 0
        """The application's index of the last entry that was replayed."""
        self.is_leader = False
        """Whether this node leads and has replayed an entry of its own term."""
        self.replayed_bytes = 0
        """Entries replayed since this was last set back."""
        self.raft: Raft
        self.sync: HardenedSyncObj
        self._opened = opened
        self._events = events
        self._clock = StallFreeClock(monotonic)
        self.now = self._clock.now
        self._rng = rng
        self._replayed = ReplayedCommands()
        self._leader_and_term = (NO_NODE, NO_TERM)
        self._turn_due = False
        self._started = False
        self._closing = False
        self._failed: str | None = None
        self._writing: Writes | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- what others see -----------------------------------------------------------------------------

    @property
    def leader_id(self) -> NodeId:
        """See MetadataLog."""
        return self.raft.leader_id if self._started and self._failed is None else NO_NODE

    @property
    def term(self) -> Term:
        """See MetadataLog."""
        return self.raft.term if self._started else self._opened.hard_state.term

    @property
    def last_index(self) -> int:
        """The application's index of the last entry in the log, with those that are about to be put there."""
        log = self._opened.log
        return log.application_index(log.last_index) + (self.sync.queued if self._started else 0)

    @property
    def is_started(self) -> bool:
        """Whether `start` has ended."""
        return self._started

    @property
    def has_failed(self) -> bool:
        """Whether this node has left the quorum by itself."""
        return self._failed is not None

    @property
    def is_running(self) -> bool:
        """Whether this node has started, and neither stops nor has failed."""
        return self._started and not self._closing and self._failed is None

    # -- life ----------------------------------------------------------------------------------------

    def start(
        self,
        address: tuple[str, int],
        send: Callable[[NodeId, Message], None],
        restore: RestoreCallback,
        replay: ReplayCallback,
    ) -> None:
        """`address`: where others reach this node. `send(node id, message)` to others."""
        from raftlog.raft.hardened import HardenedSyncObj  # 35 ms that a broker without peers need not spend

        self._restore, self._replay = restore, replay
        opened, own = self._opened, LocalNode(self.node_id, Peer(self.directory, *address))
        self.raft = Raft(own, opened.log, opened.hard_state, self.timing, self._rng.random, now=self.now())
        self.sync = HardenedSyncObj(self.raft, self.now, self._replay_entry, send)
        if opened.truncated_bytes:
            what = "metadata journal %s: cut %d bytes of a write that a crash interrupted, up to entry %d is there"
            logger.warning(what, self.journal.directory, opened.truncated_bytes, opened.log.last_index)
        if opened.snapshot is not None:
            self._restore_from(opened.snapshot)
        self._started = True

    def begin_to_close(self) -> bool:
        """No turn from now on; False when that was said before."""
        if self._closing:
            return False
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._started:
            self._stop_answering()
        return True

    async def close(self) -> None:
        """Let the disk end what it does, and give it back."""
        await self.disk.drain()
        self.disk.close()
        self.journal.close()

    def fail(self, error: BaseException) -> None:
        """A bug, or a disk that cannot be trusted: this node leaves the quorum until it is restarted."""
        if self._failed is not None:
            return
        self._failed = str(error)
        logger.critical("node %d leaves the metadata quorum until it is restarted: %s", self.node_id, error)
        self._stop_answering()
        self._events.failed()
        if not isinstance(error, JournalFailed):
            asyncio.get_running_loop().call_exception_handler({"message": "metadata quorum", "exception": error})

    def _stop_answering(self) -> None:
        self.sync.fail_all()
        self._events.stopped()
        self._set_leading(False)

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
            self.sync.doTick()
            self._write()
            if self.sync.bug is not None:
                raise self.sync.bug
            self._look_at_leadership()
            self._events.turn_ended()
            if self.sync.has_more:
                self.wake()
        except Exception as error:  # noqa: BLE001  # whatever it is, it must not be answered over
            self.fail(error)

    def _look_at_leadership(self) -> None:
        raft = self.raft
        if (raft.leader_id, raft.term) != self._leader_and_term:
            self._leader_and_term = (raft.leader_id, raft.term)
            leader = f"node {raft.leader_id} leads" if raft.leader_id != NO_NODE else "no leader"
            logger.info("metadata quorum, node %d: %s in term %d", self.node_id, leader, raft.term)
            self._events.leader_changed()
        leadership = raft.leadership
        self._set_leading(leadership is not None and self.sync.applied >= leadership.first_index)

    def _set_leading(self, leads: bool) -> None:
        if leads != self.is_leader:
            self.is_leader = leads
            self._events.leading_changed()

    def beat(self) -> None:
        """Look at the clocks, now and regularly from now on."""
        if self._closing or self._failed is not None:
            return
        stall = self._clock.beat()
        if stall > self.timing.election_min:
            logger.warning("node %d stood still for %.1f s", self.node_id, stall)
        if self.disk.busy_for() > self.timing.election_max:
            self.raft.step_down(self.now())  # its disk hangs: who leads must be able to write
        self._events.beat()
        self.wake()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(loop.time() + BEAT_SECONDS, self.beat)

    def rearm_timer(self) -> None:
        """The core's deadline may have come closer than the next beat."""
        delay = self.raft.deadline - self.now()
        if delay < BEAT_SECONDS:
            asyncio.get_running_loop().call_later(max(delay, 0.0) + TIMER_SLACK_SECONDS, self.wake)

    # -- the disk ------------------------------------------------------------------------------------

    def _write(self) -> None:
        if self._writing is not None:
            return
        writes = self.raft.take_writes()
        self.sync.unwritten_bytes = 0
        if writes.must_sync:
            self._writing = writes
            self._submit(writes)
        elif writes.messages_after_sync:
            self.sync.send_all(self.raft.written(writes, self.now()))

    def _submit(self, writes: Writes) -> None:
        if self._closing or self._failed is not None:
            self._writing = None
            return
        self.disk.submit(lambda: self._save(writes), self._written)

    def _save(self, writes: Writes) -> None:
        snapshot = writes.snapshot
        if snapshot is not None:
            index, term = snapshot.base.index, snapshot.base.term
            self.journal.save_snapshot(index, term, snapshot.all_chunks(), truncate_rest=writes.truncate_rest)
        truncation = (writes.truncate_from, writes.previous_term) if writes.truncate_from else None
        if writes.hard_state or truncation or writes.entries:
            self.journal.save(writes.hard_state, truncation, writes.entries)

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
            self.sync.send_all(self.raft.written(writes, self.now()))
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
        elif isinstance(error, JournalFailed) and not self.journal.has_failed:
            if self.raft.can_lead:
                what = "node %d cannot write its metadata journal and does not lead meanwhile: %s"
                logger.error(what, self.node_id, error)
            self.raft.can_lead = False
            self.raft.step_down(self.now())
            self.wake()
            asyncio.get_running_loop().call_later(DISK_RETRY_SECONDS, self._submit, writes)
        else:
            self.fail(error)

    # -- replay --------------------------------------------------------------------------------------

    def _replay_entry(self, entry: Entry) -> int:
        """Give a committed entry to the application; the index that the application knows it by."""
        index = self.raft.log.application_index(entry.index)
        self.committed_index = index
        self.replayed_bytes += len(entry.data)
        kind = kind_of(entry.data)
        if kind is Kind.APPLICATION:
            proposer, number, payload = command_of(entry.data)
            if number == 0 or self._replayed.is_new(proposer, number):
                self._replay(index, payload)
        elif kind is Kind.CONFIGURATION:
            self._events.configuration_changed()
        return index

    def _restore_from(self, content: SnapshotContent) -> None:
        self._replayed = ReplayedCommands.decode(content.seen)
        base = content.base
        self.committed_index = base.index - base.internal
        self._restore(self.committed_index, content.chunks)
        self.sync.restored(base.index)
        self.replayed_bytes = 0
        self._events.configuration_changed()

    def encode_replayed(self) -> bytes:
        """The memory of commands, for a snapshot."""
        return self._replayed.encode()
