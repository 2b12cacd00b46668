"""Fetches: reading what a session asks for, and delaying the answer while there is not enough."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from raftlog.broker.core.fetch.session import NO_SESSION, FetchedPartition, FetchSession, FetchSessions
from raftlog.broker.runtime.consumer_reads import ConsumerReads
from raftlog.broker.runtime.follower_reads import FollowerReads
from raftlog.broker.runtime.partition_read import FetchParams, PartitionRead
from raftlog.broker.runtime.session_watches import SessionWatches
from raftlog.broker.runtime.timer_wheel import LAZY_FROM_SECONDS, TimerWheel
from raftlog.wire.errors import ErrorCode, InvariantViolation

if TYPE_CHECKING:
    from raftlog.broker.runtime.partition_manager import PartitionManager
    from raftlog.wire.messages.fetch import FetchRequest

DELAYED_FETCHES_MAX = 100_000
"""Fetches waiting for data over all connections. Beyond it a fetch is answered at once with what is there,
which is always a legal answer."""

LOOKS_PER_TURN = 50
"""Fetches that are looked at, because a partition has moved, before others get their turn: some 5 ms."""

Respond: TypeAlias = Callable[[list[PartitionRead]], None]
"""Is told, once, what was read. What it does with it changes nothing here."""

_NOT_DELAYED = -1


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
        # Polls that were known by what their connection asked before, and did not come through the dispatcher.
        self.repeats = 0

    # Sessions ----------------------------------------------------------------------------------------

    def apply(self, request: FetchRequest, version: int) -> FetchSession | ErrorCode:
        """The session of a request, brought up to date with what it says; or why there is none."""
        selects_replicas = self.consumers.rack_of is not None
        # A clock that only goes forward: sessions and lagging followers are judged by it.
        now_ms = int(self.loop.time() * 1000)
        session = self.sessions.apply(request, version, now_ms, selects_replicas=selects_replicas)
        self._release()
        return session

    def follower_lost(self, session: FetchSession) -> None:
        """The connection has ended over which a follower began this session."""
        session.is_lost = True
        if self.sessions.is_current(session):
            self._partitions.follower_lost(session.replica_id)

    def end_request(self, session: FetchSession) -> None:
        """A fetch was answered, or its client is gone: a session without an id has lived."""
        if session.session_id == NO_SESSION:
            self.sessions.dissolve(session)
            self._release()

    def _release(self) -> None:
        released = self.sessions.released
        while released:
            self._watches.release(released.pop())

    def _wake(self, session: FetchSession) -> None:
        self.delayed[session].wake()

    def look_at(self, delayed: DelayedFetch, *, first: bool) -> None:
        """Look at a delayed fetch in a later turn, of which each takes LOOKS_PER_TURN."""
        if not self._woken:
            self.loop.call_soon(self._look_at_woken)
        (self._woken.appendleft if first else self._woken.append)(delayed)

    def _look_at_woken(self) -> None:
        woken = self._woken
        try:
            for _ in range(min(LOOKS_PER_TURN, len(woken))):
                woken.popleft().look()
        finally:
            if woken:
                self.loop.call_soon(self._look_at_woken)

    # Fetching ----------------------------------------------------------------------------------------

    def fetch(self, session: FetchSession, params: FetchParams, respond: Respond) -> DelayedFetch | None:
        """Respond at once when there is enough; otherwise delay, and return what is delayed."""
        if session.is_waiting and session.is_follower:
            self.delayed[session].give_way()
        ends = params.wait_seconds <= 0 or not session.partitions or self.delayed_count >= DELAYED_FETCHES_MAX
        reads, total, urgent = self.read_all(session, params, ends=ends)
        if ends or urgent or total >= params.bytes_min:
            self.complete(session, reads, respond)
            return None
        delayed = DelayedFetch(self, session, params, respond)
        if session.ready and session.is_follower:
            # Its position let a commit come about, and who waited for that has appended to another of its partitions.
            delayed.wake()
        return delayed

    def complete(self, session: FetchSession, reads: list[PartitionRead], respond: Respond) -> None:
        """These reads are the answer."""
        for read in reads:
            read.note_sent()
            if read.size:
                self._watches.count_sent(read.entry, read.size)
        respond(reads)
        if session.session_id == NO_SESSION:
            self.end_request(session)

    def read_failed(self, read: PartitionRead, error: OSError) -> PartitionRead:
        """The disk has not given what was found in the log: the log is offline, and this is the answer."""
        partition = self._watches.resolve(read.entry)
        if not isinstance(partition, ErrorCode):
            self._partitions.storage_failed(partition, partition.log.fail(error))
        told = PartitionRead(read.entry, ErrorCode.KAFKA_STORAGE_ERROR)
        told.note_sent()
        return told

    def answer_all(self) -> None:
        """Answer every fetch that waits with what there is: the broker stops."""
        self.timers.expire_all(DelayedFetch)

    def read_all(
        self, session: FetchSession, params: FetchParams, *, ends: bool = False
    ) -> tuple[list[PartitionRead], int, bool]:
        """Read what is ready, oldest first: (reads, bytes of records, whether to answer without waiting).

        `ends`: the answer goes out now, whatever there is. That a partition is dirty is seldom a reason to answer, but
        every answer says it; before that they are not looked at, because there may be thousands.
        """
        reads: list[PartitionRead] = []
        total = 0
        urgent = False
        ready, dirty = session.ready, session.dirty
        some_open_later = session.is_follower and len(self._partitions.opening) > 0
        for entry in list(session.partitions.values() if params.whole_answer else ready):
            if some_open_later and self.followers.awaits_opening(entry):
                ready.pop(entry, None)
                # The next request of the session need not look at all the others again.
                urgent = urgent or (params.whole_answer and session.session_id != NO_SESSION)
                continue
            read = self._read(entry, params, params.bytes_max - total, total == 0)
            ready.pop(entry, None)
            if read.records is not None or read.more:
                # To the end of the line, so that the next fetch begins with somebody else.
                ready[entry] = None
                total += read.size
            if read.cannot_wait:
                urgent = True
                ready[entry] = None
            elif session.wakes_when_dirty and read.has_changed:
                urgent = True
            elif read.records is None and not params.whole_answer:
                if read.has_changed:
                    dirty[entry] = None
                continue
            dirty.pop(entry, None)
            reads.append(read)
        if dirty and (ends or urgent or total >= params.bytes_min or session.wakes_when_dirty):
            changed = self._read_dirty(session, params)
            urgent = urgent or (session.wakes_when_dirty and bool(changed))
            reads += changed
        return reads, total, urgent

    def _read(self, entry: FetchedPartition, params: FetchParams, budget: int, min_one: bool) -> PartitionRead:
        if entry.session.is_follower:
            return self.followers.read(entry, budget, min_one)
        return self.consumers.read(entry, params, budget, min_one)

    def _read_dirty(self, session: FetchSession, params: FetchParams) -> list[PartitionRead]:
        """What there is to say of partitions without records."""
        entries, session.dirty = session.dirty, {}
        reads = []
        for entry in entries:
            read = self._read(entry, params, 0, False)
            if read.cannot_wait:
                session.ready[entry] = None
                if session.is_waiting:
                    self._wake(session)
            elif read.has_changed:
                reads.append(read)
        return reads

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what this and the sessions promise does not hold."""
        self.sessions.check_invariants()
        if self.sessions.released:
            raise InvariantViolation(f"{self.sessions.released} are watched for nobody")
        if self.delayed_count < len(self.delayed) or not all(session.is_waiting for session in self.delayed):
            raise InvariantViolation(f"{self.delayed_count} delayed fetches, of {len(self.delayed)} sessions")


class DelayedFetch:
    """A fetch that waits for enough bytes or for its time. It ends once: by answering or by being cancelled.

    When its session asks the same again, it may be used again (`repeat`): an idle consumer's polls then cost no
    new objects.
    """

    __slots__ = (
        "_due",
        "_is_punctual",
        "_params",
        "_respond",
        "_service",
        "_session",
        "_tick",
        "_will_look",
    )

    def __init__(self, service: FetchService, session: FetchSession, params: FetchParams, respond: Respond) -> None:
        self._service = service
        self._session = session
        self._params = params
        self._respond = respond
        self._will_look = False
        self._tick = _NOT_DELAYED
        self._delay(service.loop.time())

    def _delay(self, now: float) -> None:
        service, session, seconds = self._service, self._session, self._params.wait_seconds
        service.delayed_count += 1
        service.delayed[session] = self
        session.is_waiting = True
        self._due = due = now + seconds
        # While there is nothing to send, nobody minds if the answer that says so is late.
        self._is_punctual = bool(session.ready) or seconds < LAZY_FROM_SECONDS
        if self._is_punctual:
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

    def look(self) -> None:
        """Answer if there is enough now."""
        self._will_look = False
        if self._tick == _NOT_DELAYED:
            return
        service = self._service
        reads, total, urgent = service.read_all(self._session, self._params)
        if urgent or total >= self._params.bytes_min:
            self._remove()
            service.complete(self._session, reads, self._respond)
        elif total and not self._is_punctual:
            self._is_punctual = True
            service.timers.remove(self, self._tick)
            self._tick = service.timers.add(self, self._due)

    def expire(self) -> None:
        """Answer with what there is. Called when the deadline has let go of it."""
        self._ended()
        service, session = self._service, self._session
        if session.ready or session.dirty or self._params.whole_answer:
            service.complete(session, service.read_all(session, self._params, ends=True)[0], self._respond)
        else:
            # An idle client in its session: there is nothing to note or to end.
            self._respond([])

    def complete_early(self) -> None:
        """Answer with what there is, before the time."""
        if self._tick != _NOT_DELAYED:
            self._service.timers.remove(self, self._tick)
            self.expire()

    def give_way(self) -> None:
        """The next request of the session is here: nothing, so that it is not held up. What there is it will get."""
        self._remove()
        self._service.complete(self._session, [], self._respond)

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        self._remove()
        self._service.end_request(self._session)

    def leave(self) -> None:
        """The client is gone, and will more likely begin anew than repeat this."""
        if not self._session.is_waiting:
            self._service.sessions.leave(self._session)

    def _remove(self) -> None:
        if self._tick != _NOT_DELAYED:
            self._service.timers.remove(self, self._tick)
            self._ended()

    def _ended(self) -> None:
        service, session = self._service, self._session
        self._tick = _NOT_DELAYED
        service.delayed_count -= 1
        if service.delayed.get(session) is self:
            del service.delayed[session]
            session.is_waiting = False
