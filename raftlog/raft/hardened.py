"""PySyncObj, hardened: the only file that knows PySyncObj and its internals.

PySyncObj gives the queue of commands, their callbacks and reasons for failure, the loop that replays committed entries,
and the node, transport and journal interfaces. Behind them `raftlog.raft.core` stands in place of its consensus;
docs/ARCHITECTURE.md (Consensus) tells what is wrong with that one, and which tests hold that no part of it runs. What
is touched of SyncObj is in `PRIVATE_MEMBERS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf
from pysyncobj.fast_queue import Queue
from pysyncobj.journal import Journal as LibraryJournal
from pysyncobj.node import Node
from pysyncobj.transport import Transport as LibraryTransport

from raftlog.raft.core.entries import Entry
from raftlog.raft.core.errors import RaftViolation
from raftlog.raft.core.ids import NO_NODE, NO_TERM, NodeId
from raftlog.raft.core.log import RaftLog
from raftlog.raft.core.messages import Message
from raftlog.raft.core.raft import Raft
from raftlog.raft.seam import NotLeader, ProposalFailed

PINNED_VERSION = "0.3.17"
PRIVATE_MEMBERS: Mapping[str, str] = {
    "_applyCommand": "used: puts a command and its callback into the queue",
    "_SyncObj__commandsQueue": "read: that queue; a turn moves all of it into the log at once",
    "_SyncObj__commandsWaitingCommit": "read and written: the callbacks of entries that are in the log, by index",
    "_SyncObj__applyLogEntries": "used: the loop that replays entries and calls back",
    "_SyncObj__raftLog": "written: where that loop reads entries, a view of the core's log",
    "_SyncObj__raftLastApplied": "read and written: how far the loop has come",
    "_SyncObj__raftCommitIndex": "written: how far the loop may go",
    "_SyncObj__doApplyCommand": "replaced: it would unpickle a command; here it calls the owner's replay",
    "_SyncObj__onMessageReceived": "replaced: half of the old consensus; a message goes to the core",
    "_onTick": "replaced: the other half",
}
"""All of SyncObj that is touched here beside its constructor and `doTick`, and why."""

QUEUE_LENGTH_MAX = 100_000
"""Commands that are proposed and not yet in the log."""
REPLAYED_PER_TURN_MAX = 512
"""Entries replayed before the event loop gets to do something else."""
NO_COMMAND = b""
"""What is queued to learn what becomes of the command before it."""
LOST = "leadership was lost before the entry was committed"

Callback = Callable[[Any, int], None]


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


class TransportPort(LibraryTransport):  # type: ignore[misc]
    """PySyncObj's transport: out through a function, in through `receive`. A node's `id` is the number that it has
    everywhere else.
    """

    def __init__(self, send: Callable[[NodeId, Message], None]) -> None:
        super().__init__(None, None, None)
        self._send = send
        self._nodes: dict[NodeId, Node] = {}

    def node(self, node_id: NodeId) -> Node:
        """PySyncObj's name for a node, made once."""
        found = self._nodes.get(node_id)
        if found is None:
            found = self._nodes[node_id] = Node(node_id)
        return found

    def send(self, node: Node, message: Message) -> bool:
        """See PySyncObj."""
        self._send(node.id, message)
        return True

    def receive(self, node_id: NodeId, message: Message) -> None:
        """A message came."""
        self._onMessageReceived(self.node(node_id), message)


class HardenedSyncObj(SyncObj):  # type: ignore[misc]
    """A SyncObj whose consensus is a `Raft`.

    The owner calls `doTick` after anything has happened, writes `raft.take_writes()`, and is given each committed entry
    by `replay`, whose result is the result of the command. A replay that raises is a bug: nothing is replayed or
    answered with success any more, and `bug` is set.
    """

    def __init__(
        self,
        raft: Raft,
        now: Callable[[], float],
        replay: Callable[[Entry], int],
        send: Callable[[NodeId, Message], None],
    ) -> None:
        self.raft = raft
        self.bug: BaseException | None = None
        self.port = TransportPort(send)
        self.queued = self.queued_bytes = 0
        """Commands that are not in the log yet, but will be after all that are."""
        self.unwritten_bytes = 0
        """Of commands that are in the log since the owner last took what is to be written."""
        self._now = now
        self._replay = replay
        self._led_term = NO_TERM
        configuration = SyncObjConf(
            autoTick=False,
            useFork=False,
            appendEntriesUseBatch=True,  # no pipe to wake a thread that is not there
            commandsQueueSize=QUEUE_LENGTH_MAX,
            pollerType="select",  # which opens nothing
        )
        super().__init__(self.port.node(raft.node_id), (), configuration, transport=self.port)
        self._SyncObj__raftLog = LogView(raft.log)
        self._SyncObj__raftLastApplied = raft.log.base.index
        self._queue = self._SyncObj__commandsQueue
        self._waiting = self._SyncObj__commandsWaitingCommit

    # -- a turn ------------------------------------------------------------------------------------------

    def _onTick(self, timeToWait: float = 0.0) -> None:
        """Time, commands, messages out, replay. What is to be written is left to the owner."""
        now = self._now()
        raft = self.raft
        if now >= raft.deadline:
            raft.tick(now)
        self._append_commands()
        self.send_all(raft.take_messages(now))
        self._fail_commands_of_lost_term()
        self._replay_committed()

    def send_all(self, messages: list[tuple[NodeId, Message]]) -> None:
        """Send messages of the core."""
        port = self.port
        for node_id, message in messages:
            port.send(port.node(node_id), message)

    def _SyncObj__onMessageReceived(self, node: Node, message: Message) -> None:
        self.raft.step(node.id, message, self._now())

    # -- commands ----------------------------------------------------------------------------------------

    def propose(self, command: bytes, done: asyncio.Future[int] | None) -> None:
        """Queue a command for the next turn. `done` gets what `replay` returned, or NotLeader or ProposalFailed."""
        self.queued += 1
        self.queued_bytes += len(command)
        self._applyCommand(command, _resolver(done) if done is not None else None)

    def share_fate(self, done: asyncio.Future[int]) -> None:
        """`done` gets what becomes of the last command in the log and the queue, which is not replayed yet."""
        if self.queued:
            self._applyCommand(NO_COMMAND, _resolver(done))
        else:
            self.on_committed(self.raft.log.last_index, done)

    def on_committed(self, index: int, done: asyncio.Future[int]) -> None:
        """The same for an entry that this node has put into the log in the present term."""
        self._waiting[index].append((self.raft.term, _resolver(done)))

    def _append_commands(self) -> None:
        """Move what is queued into the log, all at once."""
        raft = self.raft
        self.unwritten_bytes += self.queued_bytes
        self.queued = self.queued_bytes = 0
        queued: list[tuple[bytes, Callback | None]] = []
        try:
            while True:
                queued.append(self._queue.get_nowait())
        except Queue.Empty:
            pass
        if not queued:
            return
        if not raft.may_propose:
            _call([callback for _, callback in queued], FAIL_REASON.NOT_LEADER)
            return
        index = raft.propose([command for command, _ in queued if command != NO_COMMAND]) - 1
        for command, callback in queued:
            index += command != NO_COMMAND
            if callback is not None:
                self._waiting[index].append((raft.term, callback))

    def _fail_commands_of_lost_term(self) -> None:
        """When this node has stopped leading, nobody here can tell what becomes of its commands."""
        raft, waiting = self.raft, self._waiting
        leads = raft.term if raft.leadership is not None else NO_TERM
        if leads == self._led_term:
            return
        self._led_term = leads
        # Up to the commit index they are about to be replayed, and then it is known whose entry it is.
        for index in sorted(index for index in waiting if index > raft.committed):
            lost = [callback for term, callback in waiting[index] if term != leads]
            waiting[index] = [pair for pair in waiting[index] if pair[0] == leads]
            if not waiting[index]:
                del waiting[index]
            _call(lost, FAIL_REASON.LEADER_CHANGED)

    def fail_all(self) -> None:
        """This node stops: no callback may wait for ever."""
        for index in sorted(self._waiting):
            _call([callback for _, callback in self._waiting.pop(index)], FAIL_REASON.LEADER_CHANGED)
        try:
            while True:
                _call([self._queue.get_nowait()[1]], FAIL_REASON.NOT_LEADER)
        except Queue.Empty:
            pass

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

    def _replay_committed(self) -> None:
        """Replay what may be: PySyncObj's own loop, a bounded number of entries at a time."""
        limit = min(self.raft.appliable, self.applied + REPLAYED_PER_TURN_MAX)
        if self.bug is None and limit > self.applied:
            self._SyncObj__raftCommitIndex = limit
            self._SyncObj__applyLogEntries()

    def _SyncObj__doApplyCommand(self, command: bytes) -> object:
        if self.bug is not None:
            return self.bug
        try:
            return self._replay(self.raft.log.entry(self.applied + 1))
        except Exception as error:  # noqa: BLE001  # a bug, which must stop the node, and nobody may get an answer
            self.bug = error
            return error

    def restored(self, index: int) -> None:
        """The state is now that of a snapshot up to entry `index`."""
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex = index
        for covered in sorted(one for one in self._waiting if one <= index):
            _call([callback for _, callback in self._waiting.pop(covered)], FAIL_REASON.UNKNOWN_OUTCOME)


def _call(callbacks: list[Callback | None], reason: int) -> None:
    for callback in callbacks:
        if callback is not None:
            callback(None, reason)


def _resolver(done: asyncio.Future[int]) -> Callback:
    """The callback of a command whose fate `done` tells."""

    def resolve(result: Any, reason: int) -> None:
        if done.done():
            return
        if reason == FAIL_REASON.SUCCESS and isinstance(result, int):
            done.set_result(result)
        elif reason == FAIL_REASON.NOT_LEADER:
            done.set_exception(NotLeader(NO_NODE))
        elif reason == FAIL_REASON.QUEUE_FULL:
            done.set_exception(ProposalFailed("too many changes are waiting for the quorum", outcome_unknown=False))
        elif reason == FAIL_REASON.DISCARDED:
            done.set_exception(ProposalFailed("another leader's entry took its place", outcome_unknown=False))
        else:
            done.set_exception(ProposalFailed(LOST, outcome_unknown=True))

    return resolve
