"""PySyncObj, hardened: the only file that knows PySyncObj and its internals.

PySyncObj is the outside: its queue of commands and their callbacks, its replay of committed entries and its reasons for
failure, its node, transport and journal interfaces, its status. Behind them its consensus is replaced by
`raftlog.raft.core`: to cure what is wrong with it (truncation on every overlap, votes and acknowledgements without
term or voter, no fsync, pickle, no pre-vote, quorum check or read index) all of `_onTick`, `__onMessageReceived`,
`__sendAppendEntries`, `__onBecomeLeader`, the membership and the snapshot methods had to go, and that is all of its
consensus. `tests/raftlog/raft/test_pysyncobj_pin.py` fails when the pinned version or a method that is used or replaced
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf
from pysyncobj.fast_queue import Queue
from pysyncobj.journal import Journal as LibraryJournal
from pysyncobj.node import Node
from pysyncobj.transport import Transport as LibraryTransport

from raftlog.raft.core.entries import Entry
from raftlog.raft.core.errors import RaftViolation
from raftlog.raft.core.log import RaftLog
from raftlog.raft.core.messages import Message
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.snapshot import SnapshotContent
from raftlog.raft.core.state import NOBODY, Role

PINNED_VERSION = "0.3.17"
QUEUE_LENGTH_MAX = 100_000
"""Commands that are proposed and not yet in the log."""
REPLAYED_PER_TURN_MAX = 512
"""Entries replayed before the event loop gets to do something else."""

_ROLES = {Role.FOLLOWER: 0, Role.PRE_CANDIDATE: 1, Role.CANDIDATE: 1, Role.LEADER: 2}
Callback = Callable[[Any, int], None]

SUCCESS: int = FAIL_REASON.SUCCESS
QUEUE_FULL: int = FAIL_REASON.QUEUE_FULL
MISSING_LEADER: int = FAIL_REASON.MISSING_LEADER
DISCARDED: int = FAIL_REASON.DISCARDED
NOT_LEADER: int = FAIL_REASON.NOT_LEADER
LEADER_CHANGED: int = FAIL_REASON.LEADER_CHANGED
REQUEST_DENIED: int = FAIL_REASON.REQUEST_DENIED
UNKNOWN_OUTCOME: int = FAIL_REASON.UNKNOWN_OUTCOME


class LogView(LibraryJournal):  # type: ignore[misc]
    """The log as PySyncObj reads it: (command, index, term) by position, first what stands before the first entry.

    It cannot be written through: the core alone changes it.
    """

    def __init__(self, log: RaftLog) -> None:
        self._log = log

    def __len__(self) -> int:
        return self._log.last_index - self._log.base.index + 1

    def __getitem__(self, item: int | slice) -> Any:
        if isinstance(item, slice):
            start, stop, _ = item.indices(len(self))
            return [self._at(position) for position in range(start, stop)]
        return self._at(item if item >= 0 else len(self) + item)

    def _at(self, position: int) -> tuple[bytes, int, int]:
        if position == 0:
            return b"", self._log.base.index, self._log.base.term
        entry = self._log.entry(self._log.base.index + position)
        return entry.data, entry.index, entry.term

    def _refuse(self, *_: Any) -> NoReturn:
        raise RaftViolation("PySyncObj wrote to the log past the core")

    add = clear = deleteEntriesFrom = deleteEntriesTo = setRaftCommitIndex = setCurrentTerm = _refuse

    def _destroy(self) -> None:
        """Nothing to let go of."""


class TransportPort(LibraryTransport):  # type: ignore[misc]
    """PySyncObj's transport: out through a function, in through `receive`, `connected` and `lost`."""

    def __init__(self, send: Callable[[int, Message], None]) -> None:
        super().__init__(None, None, None)
        self._send = send

    def send(self, node: Node, message: Message) -> bool:
        """See PySyncObj."""
        self._send(int(node.id), message)
        return True

    def receive(self, node_id: int, message: Message) -> None:
        """A message came."""
        self._onMessageReceived(Node(str(node_id)), message)

    def connected(self, node_id: int, *, votes: bool) -> None:
        """A node's connection was made."""
        (self._onNodeConnected if votes else self._onReadonlyNodeConnected)(Node(str(node_id)))

    def lost(self, node_id: int) -> None:
        """A node's connection was lost."""
        self._onNodeDisconnected(Node(str(node_id)))
        self._onReadonlyNodeDisconnected(Node(str(node_id)))


class HardenedSyncObj(SyncObj):  # type: ignore[misc]
    """A SyncObj whose consensus is a `Raft`.

    The owner calls `doTick` after anything has happened, writes `raft.take_writes()`, and is told each committed entry
    by `replay`, whose result goes to the command's callback. A replay that raises is a bug: nothing is replayed or
    answered with success any more, and `bug` is set.
    """

    def __init__(
        self,
        raft: Raft,
        now: Callable[[], float],
        replay: Callable[[Entry], object],
        send: Callable[[int, Message], None],
    ) -> None:
        self.raft = raft
        self.bug: BaseException | None = None
        self.port = TransportPort(send)
        self._now = now
        self._replay_entry = replay
        self._promotions: dict[int, Callback] = {}
        self._led_term = -1
        configuration = SyncObjConf(
            autoTick=False,
            useFork=False,
            appendEntriesUseBatch=True,  # no pipe to wake a thread that is not there
            commandsQueueSize=QUEUE_LENGTH_MAX,
            pollerType="select",  # which opens nothing
        )
        others = [Node(str(node_id)) for node_id in raft.configuration.ids if node_id != raft.node_id]
        super().__init__(Node(str(raft.node_id)), others, configuration, transport=self.port)
        self._SyncObj__raftLog = LogView(raft.log)
        self._SyncObj__raftLastApplied = raft.log.base.index
        self._SyncObj__needLoadDumpFile = False
        self._mirror()

    # -- what PySyncObj shows of itself ------------------------------------------------------------------

    def _mirror(self) -> None:
        """Give PySyncObj's own fields the core's values: its getters and its replay read them."""
        raft = self.raft
        self._SyncObj__raftState = _ROLES[raft.role]
        self._SyncObj__raftCurrentTerm = raft.term
        self._SyncObj__votedForNodeId = None if raft.voted_for == NOBODY else str(raft.voted_for)
        self._SyncObj__raftLeader = None if raft.leader_id == NOBODY else Node(str(raft.leader_id))

    def getStatus(self) -> dict[str, Any]:
        """See PySyncObj."""
        raft = self.raft
        self._SyncObj__otherNodes = {Node(str(one)) for one in raft.configuration.ids if one != raft.node_id}
        progress = raft.leadership.progress if raft.leadership is not None else {}
        self._SyncObj__raftNextIndex = {Node(str(one)): progress[one].next for one in sorted(progress)}
        self._SyncObj__raftMatchIndex = {Node(str(one)): progress[one].match for one in sorted(progress)}
        status: dict[str, Any] = super().getStatus()
        status["uptime"] = int(self._now())
        return status

    def _SyncObj__generateRaftTimeout(self) -> float:
        """The core has its own deadlines, and random numbers come from there alone."""
        return 0.0

    # -- a turn ------------------------------------------------------------------------------------------

    def _onTick(self, timeToWait: float = 0.0) -> None:
        """Time, commands, messages out, replay. What is to be written is left to the owner."""
        now = self._now()
        raft = self.raft
        if now >= raft.deadline:
            raft.tick(now)
        self._checkCommandsToApply()
        for node_id, message in raft.take_messages(now):
            self._SyncObj__transport.send(Node(str(node_id)), message)
        self._mirror()
        self._fail_what_was_led()
        self._settle_promotions()
        self._apply()

    def wrote(self, messages: list[tuple[int, Message]]) -> None:
        """Send what waited for the disk."""
        for node_id, message in messages:
            self._SyncObj__transport.send(Node(str(node_id)), message)

    def _SyncObj__onMessageReceived(self, node: Node, message: Message) -> None:
        self.raft.step(int(node.id), message, self._now())

    # -- commands ----------------------------------------------------------------------------------------

    def _checkCommandsToApply(self) -> None:
        """Move what is queued into the log, all at once."""
        queue = self._SyncObj__commandsQueue
        raft = self.raft
        commands: list[bytes] = []
        callbacks: list[Callback | None] = []
        try:
            while True:
                command, callback = queue.get_nowait()
                commands.append(command)
                callbacks.append(callback)
        except Queue.Empty:
            pass
        if not commands:
            return
        if not raft.may_propose:
            for callback in callbacks:
                if callback is not None:
                    callback(None, NOT_LEADER)
            return
        waiting = self._SyncObj__commandsWaitingCommit
        for index, callback in enumerate(callbacks, raft.propose(commands)):
            if callback is not None:
                waiting[index].append((raft.term, callback))

    def _fail_what_was_led(self) -> None:
        """When this node has stopped leading, nobody here can tell what becomes of its commands."""
        raft = self.raft
        leads = raft.term if raft.leadership is not None else -1
        if leads == self._led_term:
            return
        self._led_term = leads
        waiting = self._SyncObj__commandsWaitingCommit
        for index in sorted(waiting):
            if index <= raft.committed:
                continue  # about to be replayed, and then it is known whose entry it is
            for callback in [callback for term, callback in waiting[index] if term != leads]:
                callback(None, LEADER_CHANGED)
            waiting[index] = [pair for pair in waiting[index] if pair[0] == leads]
            if not waiting[index]:
                del waiting[index]
        promotions, self._promotions = self._promotions, {}
        for callback in promotions.values():
            callback(None, LEADER_CHANGED)

    def fail_all(self) -> None:
        """This node stops: no callback may wait for ever."""
        waiting = self._SyncObj__commandsWaitingCommit
        for index in sorted(waiting):
            for _, callback in waiting.pop(index):
                callback(None, LEADER_CHANGED)
        for callback in self._promotions.values():
            callback(None, LEADER_CHANGED)
        self._promotions = {}
        queue = self._SyncObj__commandsQueue
        while True:
            try:
                _, callback = queue.get_nowait()
            except Queue.Empty:
                return
            if callback is not None:
                callback(None, NOT_LEADER)

    # -- replay ------------------------------------------------------------------------------------------

    @property
    def applied(self) -> int:
        """The index of the last entry that was replayed (or is in the snapshot)."""
        applied: int = self._SyncObj__raftLastApplied
        return applied

    @property
    def has_more(self) -> bool:
        """Whether entries wait to be replayed."""
        return self.bug is None and self.raft.appliable > self.applied

    def _apply(self) -> None:
        """Replay what may be: PySyncObj's own loop, a bounded number of entries at a time."""
        limit = min(self.raft.appliable, self.applied + REPLAYED_PER_TURN_MAX)
        if self.bug is None and limit > self.applied:
            self._SyncObj__raftCommitIndex = limit
            self._SyncObj__applyLogEntries()

    def _SyncObj__doApplyCommand(self, command: bytes) -> object:
        if self.bug is not None:
            return self.bug
        try:
            return self._replay_entry(self.raft.log.entry(self.applied + 1))
        except Exception as error:  # noqa: BLE001  # a bug, which must stop the node, and nobody may get an answer
            self.bug = error
            return error

    def restored(self, content: SnapshotContent) -> None:
        """The state is now that of a snapshot."""
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex = content.base.index
        waiting = self._SyncObj__commandsWaitingCommit
        for index in sorted(index for index in waiting if index <= content.base.index):
            for _, callback in waiting.pop(index):
                callback(None, UNKNOWN_OUTCOME)

    # -- members and leadership --------------------------------------------------------------------------

    def addNodeToCluster(self, node: Node, callback: Callback | None = None) -> None:
        """Give an observer (`node.id`, `node.host`, `node.port`) a vote once it has caught up."""
        leadership = self.raft.leadership
        settle = callback or _ignore
        if leadership is None:
            settle(None, NOT_LEADER)
            return
        refusal = leadership.may_change(self.raft.committed)
        if leadership.promotion is not None:
            refusal = f"node {leadership.promotion.node_id} is being made a voter"
        if refusal:
            settle(refusal, REQUEST_DENIED)
            return
        leadership.promote(int(node.id), (node.host, node.port), self._now())
        self._promotions[int(node.id)] = settle

    def removeNodeFromCluster(self, node: Node, callback: Callback | None = None) -> None:
        """Take a node's vote."""
        leadership = self.raft.leadership
        settle = callback or _ignore
        if leadership is None:
            settle(None, NOT_LEADER)
            return
        refusal = leadership.may_change(self.raft.committed)
        configuration = self.raft.configuration
        if configuration.ids == (int(node.id),):
            refusal = "it is the last voter"
        if refusal:
            settle(refusal, REQUEST_DENIED)
            return
        index = leadership.append_configuration(configuration.without(int(node.id)))
        self._SyncObj__commandsWaitingCommit[index].append((self.raft.term, settle))

    def _settle_promotions(self) -> None:
        leadership = self.raft.leadership
        if leadership is None or not leadership.outcomes:
            return
        outcomes, leadership.outcomes = leadership.outcomes, []
        for outcome in outcomes:
            settle = self._promotions.pop(outcome.node_id, _ignore)
            if outcome.error:
                settle(outcome.error, REQUEST_DENIED)
            else:
                self._SyncObj__commandsWaitingCommit[outcome.index].append((self.raft.term, settle))

    def transferLeadership(self, node: Node | None = None, callback: Callback | None = None) -> None:
        """Hand leadership over; success means that it was begun, with the successor's id as the result."""
        leadership = self.raft.leadership
        settle = callback or _ignore
        if leadership is None:
            settle(None, NOT_LEADER)
            return
        successor = int(node.id) if node is not None else leadership.best_successor()
        voter = self.raft.configuration.voter(successor) if successor is not None else None
        if voter is None or not leadership.counts(voter):
            settle("no voter is connected that could lead", REQUEST_DENIED)
        elif voter.node_id == self.raft.node_id:
            settle("it leads already", REQUEST_DENIED)
        elif leadership.transfer is not None:
            settle("leadership is being handed over already", REQUEST_DENIED)
        else:
            leadership.hand_over(voter.node_id, self.raft.committed, self._now())
            settle(voter.node_id, SUCCESS)

    # -- what must never run ---------------------------------------------------------------------------

    def _replaced(self, *_: Any, **__: Any) -> NoReturn:
        raise RaftViolation("a part of PySyncObj ran that the core replaces")

    _SyncObj__sendAppendEntries = _replaced
    _SyncObj__onBecomeLeader = _replaced
    _SyncObj__setCurrentTerm = _replaced
    _SyncObj__setState = _replaced
    _SyncObj__sendNextNodeIdx = _replaced
    _SyncObj__deleteEntriesFrom = _replaced
    _SyncObj__deleteEntriesTo = _replaced
    _SyncObj__tryLogCompaction = _replaced
    _SyncObj__loadDumpFile = _replaced
    _SyncObj__changeCluster = _replaced
    _SyncObj__doChangeCluster = _replaced
    _SyncObj__updateClusterConfiguration = _replaced


def _ignore(result: object, reason: int) -> None:
    """A callback for nobody."""
