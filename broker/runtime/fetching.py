"""Fetches: reading what a session asks for, and delaying the answer while there is not enough."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from raftlog.broker.core.fetch.session import NO_SESSION, FetchedPartition, FetchSession, FetchSessions
from raftlog.broker.runtime.consumer_reads import ConsumerReads
from raftlog.broker.runtime.follower_reads import FollowerReads
from raftlog.broker.runtime.partition_read import FetchParams, PartitionRead
from raftlog.broker.runtime.session_watches import SessionWatches
from raftlog.broker.runtime.timer_wheel import LAZY_FROM_SECONDS, TimerWheel
from raftlog.wire.errors import ErrorCode, InvariantViolation

if TYPE_CHECKING:
    from raftlog.broker.runtime.partition_manager import PartitionManager
    from raftlog.wire.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic

DELAYED_FETCHES_MAX = 100_000
"""Fetches waiting for data over all connections. Beyond it a fetch is answered at once with what is there,
which is always a legal answer."""

LOOKS_PER_TURN = 50
"""Fetches that are looked at, because a partition has moved, before others get their turn: some 5 ms."""

READS_PER_TURN = 500
"""Partitions that are read, of one fetch or of several that are looked at, before others get their turn: as long."""

OPENING_AS_READS = 250
"""A log that has to be opened first takes as long as reading so many: a millisecond or two, more on a busy disk."""

_NOT_DELAYED, _UNTIMED = -1, -2


class Reply(Protocol):
    """Where the answer to a fetch goes. What it does with it changes nothing here."""

    def send(self, reads: list[PartitionRead]) -> None:
        """This was read, and is the answer. Called once."""

    def waits(self) -> None:
        """All was read, in more than one turn, and there is not enough yet."""


class Reading:
    """One pass over the partitions of a session, in one turn or in several.

    `reads` is what there is to say so far, `total` its records in bytes. `is_urgent`: it is said without waiting.
    `ends`: it is said whatever there is, for nobody waits any longer.
    """

    __slots__ = ("ends", "entries", "is_urgent", "reads", "total")

    def __init__(self, *, ends: bool) -> None:
        self.ends = ends
        self.is_urgent = False
        self.reads: list[PartitionRead] = []
        self.total = 0
        # Those that it has not come to yet; None before it begins.
        self.entries: Iterable[FetchedPartition] | None = None

    def is_enough(self, params: FetchParams) -> bool:
        """Whether it is answered now."""
        return self.ends or self.is_urgent or self.total >= params.bytes_min


class FetchService:
    """The fetch sessions of this broker, and the fetches that wait. `bytes_max`: fetch.max.bytes.

    Invariants: a session is in `delayed` exactly when it is waiting; partitions that a session releases are watched no
    more.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: TimerWheel,
        partitions: PartitionManager,
        sessions: FetchSessions,
        bytes_max: int,
    ) -> None:
        self.loop = loop
        self.timers = timers
        self.sessions = sessions
        self._partitions = partitions
        self.bytes_max = bytes_max
        self._watches = SessionWatches(partitions, self._wake)
        self.consumers = ConsumerReads(partitions, self._watches)
        self.followers = FollowerReads(loop, timers, partitions, self._watches, self._wake)
        # The latest fetch of each session that waits.
        self.delayed: dict[FetchSession, DelayedFetch] = {}
        self.delayed_count = 0
        # Those whose partitions have moved; followers first, for producers wait for them.
        self._woken: deque[DelayedFetch] = deque()
        self._will_look = False
        # How many partitions may still be read in this turn.
        self._left = 0
        # Polls that were known by what their connection asked before, and did not come through the dispatcher.
        self.repeats = 0

    # Sessions ----------------------------------------------------------------------------------------

    def apply(self, request: FetchRequest, version: int) -> FetchSession | ErrorCode:
        """The session of a request, brought up to date with what it says; or why there is none."""
        selects_replicas = self.consumers.rack_of is not None
        # A clock that only goes forward: sessions and lagging followers are judged by it.
        now_ms = int(self.loop.time() * 1000)
        session = self.sessions.apply(request, version, now_ms, selects_replicas=selects_replicas)
        if self.sessions.released:
            self._release()
        return session

    def open(self, request: FetchRequest, version: int) -> FetchSession | ErrorCode:
        """The session of a request that names very much, which it has not taken yet: see `change`."""
        selects_replicas = self.consumers.rack_of is not None
        session = self.sessions.open(request, version, int(self.loop.time() * 1000), selects_replicas=selects_replicas)
        self._release()
        return session

    def change(
        self, session: FetchSession, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic] = ()
    ) -> None:
        """Take a part of what such a request names, and of what it forgets."""
        self.sessions.change(session, topics, forgotten)
        self._release()

    def follower_lost(self, session: FetchSession) -> None:
        """The connection has ended over which a follower began this session."""
        session.is_lost = True
        if self.sessions.is_current(session):
            self._partitions.follower_lost(session.replica_id)

    def end_request(self, session: FetchSession) -> None:
        """A fetch was answered, or its client is gone: a session without an id has lived."""
        if session.session_id == NO_SESSION:
            self.sessions.dissolve(session)
            if self.sessions.released:
                self._release()

    def _release(self) -> None:
        released = self.sessions.released
        while released:
            self._watches.release(released.pop())

    def watch(self, session: FetchSession, entries: Iterable[FetchedPartition]) -> None:
        """From now on a session hears when its partitions move: of those that it has read, `entries`, at once."""
        session.is_watched = True
        for entry in entries:
            self._watches.resolve(entry)

    def _wake(self, session: FetchSession) -> None:
        self.delayed[session].wake()

    def look_at(self, delayed: DelayedFetch, *, first: bool) -> None:
        """Look at a delayed fetch in a later turn, of which each takes LOOKS_PER_TURN."""
        (self._woken.appendleft if first else self._woken.append)(delayed)
        self._will_look_soon()

    def go_on(self, delayed: DelayedFetch) -> None:
        """It has read as much as one turn allows: after the others that are to be looked at it reads on."""
        self._woken.append(delayed)
        self._will_look_soon()

    def _will_look_soon(self) -> None:
        if not self._will_look:
            self._will_look = True
            self.loop.call_soon(self._look_at_woken)

    def _look_at_woken(self) -> None:
        woken = self._woken
        self._left = READS_PER_TURN
        try:
            for _ in range(min(LOOKS_PER_TURN, len(woken))):
                woken.popleft().look()
                if self._left <= 0:
                    break
        finally:
            self._will_look = False
            if woken:
                self._will_look_soon()

    # Fetching ----------------------------------------------------------------------------------------

    def fetch(self, session: FetchSession, params: FetchParams, reply: Reply) -> DelayedFetch | None:
        """Reply at once when there is enough; otherwise delay, and return what is delayed."""
        if session.is_waiting and session.is_follower:
            self.delayed[session].give_way()
        ends = params.wait_seconds <= 0 or not session.partitions or self.delayed_count >= DELAYED_FETCHES_MAX
        self._left = READS_PER_TURN
        reading = Reading(ends=ends)
        is_whole = self.read(reading, session, params)
        if is_whole and reading.is_enough(params):
            self.complete(session, reading.reads, reply)
            return None
        delayed = DelayedFetch(self, session, params, reply, None if is_whole else reading)
        if is_whole and session.ready and session.is_follower:
            # Its position let a commit come about, and who waited for that has appended to another of its partitions.
            delayed.wake()
        return delayed

    def begin_turn(self) -> None:
        """As much may be read now as in any turn."""
        self._left = READS_PER_TURN

    def complete(self, session: FetchSession, reads: list[PartitionRead], reply: Reply) -> None:
        """These reads are the answer."""
        for read in reads:
            read.note_sent()
        reply.send(reads)
        if session.session_id == NO_SESSION:
            self.end_request(session)

    def read_failed(self, read: PartitionRead, error: OSError) -> PartitionRead:
        """The disk has not given what was found in the log: the log is offline, and this is the answer."""
        partition = self._watches.find(read.entry)
        if not isinstance(partition, ErrorCode):
            self._partitions.storage_failed(partition, partition.log.fail(error))
        told = PartitionRead(read.entry, ErrorCode.KAFKA_STORAGE_ERROR)
        told.note_sent()
        return told

    def answer_all(self) -> None:
        """Answer every fetch that waits with what there is: the broker stops."""
        self.timers.expire_all(DelayedFetch)

    def read(self, reading: Reading, session: FetchSession, params: FetchParams) -> bool:
        """Read what is ready, oldest first: begin a pass, or go on with it. False if this turn was too short for all.

        That a partition is dirty is seldom a reason to answer, but every answer says it; before that they are not
        looked at, because there may be thousands. What the session loses between two turns is left out.
        """
        ready, dirty, partitions = session.ready, session.dirty, self._partitions
        entries = reading.entries
        is_resumed = entries is not None
        if entries is None:
            entries = iter(list(session.partitions.values() if params.whole_answer else ready))
        reads, total, is_urgent = reading.reads, reading.total, reading.is_urgent
        left, opened = self._left, partitions.opened
        some_open_later = session.is_follower and len(partitions.opening) > 0
        for entry in entries:
            if left <= 0:
                reading.entries = chain((entry,), entries)
                break
            if is_resumed and not session.has(entry):
                continue
            left -= 1
            if some_open_later and self.followers.awaits_opening(entry):
                ready.pop(entry, None)
                # The next request of the session need not look at all the others again.
                is_urgent = is_urgent or (params.whole_answer and session.session_id != NO_SESSION)
                continue
            read = self._read(entry, params, params.bytes_max - total, total == 0)
            if partitions.opened != opened:
                left -= OPENING_AS_READS * (partitions.opened - opened)
                opened = partitions.opened
            if read.records is not None or not read.more:
                ready.pop(entry, None)
            if read.records is not None or read.more:
                # Who had something goes to the end of the line, and who found no room keeps its place.
                ready[entry] = None
                total += read.size
            if read.cannot_wait:
                is_urgent = True
                ready[entry] = None
            elif session.wakes_when_dirty and read.has_changed:
                is_urgent = True
            elif read.records is None and not params.whole_answer:
                if read.has_changed:
                    dirty[entry] = None
                continue
            dirty.pop(entry, None)
            reads.append(read)
        else:
            reading.entries = ()
            reading.total, reading.is_urgent = total, is_urgent
            self._left = left
            return not (dirty and (reading.is_enough(params) or session.wakes_when_dirty)) or (
                self._read_dirty(reading, session, params)
            )
        reading.total, reading.is_urgent = total, is_urgent
        self._left = left
        return False

    def _read(self, entry: FetchedPartition, params: FetchParams, budget: int, min_one: bool) -> PartitionRead:
        if entry.session.is_follower:
            return self.followers.read(entry, budget, min_one)
        return self.consumers.read(entry, params, budget, min_one)

    def _read_dirty(self, reading: Reading, session: FetchSession, params: FetchParams) -> bool:
        """What there is to say of partitions without records; False if this turn was too short for all."""
        for entry in list(session.dirty):
            if self._left <= 0:
                return False
            self._left -= 1
            session.dirty.pop(entry, None)
            read = self._read(entry, params, 0, False)
            if read.cannot_wait:
                session.ready[entry] = None
                if session.is_waiting:
                    self._wake(session)
            elif read.has_changed:
                reading.reads.append(read)
                reading.is_urgent |= session.wakes_when_dirty
        return True

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what this and the sessions promise does not hold."""
        self.sessions.check_invariants()
        if self.sessions.released:
            raise InvariantViolation(f"{self.sessions.released} are watched for nobody")
        if self.delayed_count < len(self.delayed) or not all(session.is_waiting for session in self.delayed):
            raise InvariantViolation(f"{self.delayed_count} delayed fetches, of {len(self.delayed)} sessions")


class DelayedFetch:
    """A fetch that waits for enough bytes or for its time, or that has so many partitions that they are read in several
    turns. It ends once: by answering or by being cancelled.

    When its session asks the same again, it may be used again (`repeat`): an idle consumer's polls then cost no
    new objects.
    """

    __slots__ = (
        "_due",
        "_has_moved",
        "_is_punctual",
        "_params",
        "_reading",
        "_reply",
        "_service",
        "_session",
        "_tick",
        "_will_look",
    )

    def __init__(
        self,
        service: FetchService,
        session: FetchSession,
        params: FetchParams,
        reply: Reply,
        reading: Reading | None = None,
    ) -> None:
        """`reading` is a pass that has begun."""
        self._service = service
        self._session = session
        self._params = params
        self._reply = reply
        self._will_look = self._has_moved = False
        self._tick = _NOT_DELAYED
        self._reading = reading
        if not session.is_watched and (reading is None or not (reading.ends or reading.is_urgent)):
            read = session.partitions.values() if reading is None else [each.entry for each in reading.reads]
            service.watch(session, read)
        self._delay(service.loop.time())
        if reading is not None:
            self._go_on(reading)

    def _delay(self, now: float) -> None:
        service, session, seconds = self._service, self._session, self._params.wait_seconds
        service.delayed_count += 1
        service.delayed[session] = self
        session.is_waiting = True
        self._due = due = now + seconds
        # While there is nothing to send, nobody minds if the answer that says so is late.
        self._is_punctual = bool(session.ready) or seconds < LAZY_FROM_SECONDS
        if self._reading is not None and self._reading.ends:
            self._tick = _UNTIMED
        elif self._is_punctual:
            self._tick = service.timers.add(self, due)
        else:
            self._tick = service.timers.add_lazily(self, due)

    def repeat(self) -> bool:
        """Wait once more on the same terms, for a next request that says the same and has the epoch that the session
        expects. False, and nothing is changed, if there is something to say at once, or the session is not open.
        """
        service, session = self._service, self._session
        if self._tick != _NOT_DELAYED or session.ready or service.delayed_count >= DELAYED_FETCHES_MAX:
            return False
        now = service.loop.time()
        if (session.wakes_when_dirty and session.dirty) or not service.sessions.repeat(session, int(now * 1000)):
            return False
        self._delay(now)
        service.repeats += 1
        return True

    def wake(self) -> None:
        """A partition has moved."""
        # Looked at once per turn of the loop: one request may append to many of the session's partitions.
        if not self._will_look:
            self._will_look = True
            self._service.look_at(self, first=self._session.is_follower)
        else:
            self._has_moved = True

    def _go_on(self, reading: Reading) -> None:
        self._reading = reading
        self._will_look = True
        self._service.go_on(self)

    def look(self) -> None:
        """Answer if there is enough now."""
        self._will_look = False
        if self._tick == _NOT_DELAYED:
            return
        service, session, params = self._service, self._session, self._params
        reading = goes_on = self._reading
        if reading is None:
            reading = Reading(ends=self._tick == _UNTIMED)
            self._has_moved = False
        if not service.read(reading, session, params):
            self._go_on(reading)
            return
        self._reading = None
        if reading.is_enough(params):
            self._remove()
            service.complete(session, reading.reads, self._reply)
            return
        if goes_on is not None:
            self._reply.waits()
            if self._has_moved:
                self.wake()
        if reading.total and not self._is_punctual:
            self._is_punctual = True
            service.timers.remove(self, self._tick)
            self._tick = service.timers.add(self, self._due)

    def expire(self) -> None:
        """Answer with what there is. Called when the deadline has let go of it."""
        session = self._session
        self._tick = _UNTIMED
        if self._reading is not None:
            self._reading.ends = True
        elif session.ready or session.dirty or self._params.whole_answer:
            self._service.begin_turn()
            self.look()
        else:
            # An idle client in its session: there is nothing to note or to end.
            self._ended()
            self._reply.send([])

    def complete_early(self) -> None:
        """Answer with what there is, before the time."""
        if self._tick not in (_NOT_DELAYED, _UNTIMED):
            self._service.timers.remove(self, self._tick)
            self.expire()

    @property
    def is_reading(self) -> bool:
        """Not all was read yet."""
        return self._reading is not None

    def give_way(self) -> None:
        """The next request of the session is here: nothing, so that it is not held up. What there is it will get."""
        self._remove()
        self._service.complete(self._session, [], self._reply)

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        self._remove()
        self._service.end_request(self._session)

    def leave(self) -> None:
        """The client is gone, and will more likely begin anew than repeat this."""
        if not self._session.is_waiting:
            self._service.sessions.leave(self._session)

    def _remove(self) -> None:
        if self._tick == _NOT_DELAYED:
            return
        if self._tick != _UNTIMED:
            self._service.timers.remove(self, self._tick)
        self._ended()
        reading, self._reading = self._reading, None
        if reading is not None:
            # Nobody was told of it: the next request is.
            session = self._session
            session.ready.update((read.entry, None) for read in reading.reads if session.has(read.entry))

    def _ended(self) -> None:
        service, session = self._service, self._session
        self._tick = _NOT_DELAYED
        service.delayed_count -= 1
        if service.delayed.get(session) is self:
            del service.delayed[session]
            session.is_waiting = False
