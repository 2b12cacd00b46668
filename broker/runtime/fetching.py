"""Fetches: reading what a session asks for, and parking the request while there is not enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from raftlog.broker.core.fetch.session import CONSUMER, NO_SESSION, FetchSession, FetchSessions
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.core.replica.following import diverging
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.broker.runtime.partition_read import Entry, PartitionRead
from raftlog.broker.runtime.replica_fetching import awaits_opening, read_for_replica
from raftlog.broker.runtime.timer_wheel import LAZY_FROM_SECONDS, TimerWheel
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.core.log.transactions import AbortedTransaction
    from raftlog.broker.runtime.partition import Partition
    from raftlog.broker.runtime.partition_manager import PartitionManager

Session: TypeAlias = "FetchSession[PartitionWatch]"

PARKED_FETCHES_MAX = 100_000
"""Fetches waiting for data over all connections. Beyond it a fetch is answered at once with what is there, which is
always a legal answer."""


class FetchTerms(NamedTuple):
    """How much, how long, and what may be seen. Bytes and seconds."""

    wait_seconds: float
    bytes_min: int
    bytes_max: int
    read_committed: bool
    whole_answer: bool  # answer about every partition, not only those with news
    min_one: bool  # the first batch is sent whole even above the limit (since v3)


class PartitionWatch:
    """Tells a fetch session that one of its partitions has moved: a consumer's when more is committed, a follower's at
    each append."""

    __slots__ = ("_entry", "_session", "partition")

    def __init__(self, entry: Entry, partition: Partition) -> None:
        self._entry = entry
        self._session = entry.session
        self.partition = partition
        partition.watch(Mark.HIGH_WATERMARK, self)
        if self._session.replica_id != CONSUMER:
            partition.watch(Mark.LOG_END, self)

    def try_complete(self, mark: Mark) -> bool:
        """See DelayedOperation: never complete, a session goes on."""
        session = self._session
        if mark is Mark.HIGH_WATERMARK and session.replica_id != CONSUMER:
            session.mark_dirty(self._entry)
        else:
            session.mark_ready(self._entry)
        return False

    def end(self) -> None:
        """Watch no more."""
        self.partition.unwatch(Mark.HIGH_WATERMARK, self)
        self.partition.unwatch(Mark.LOG_END, self)


class Answer(Protocol):
    """Who is told once what was read."""

    def finish(self, reads: list[PartitionRead]) -> None: ...


_NOT_PARKED = -1


class FetchService:
    """The fetch sessions of this broker, and the fetches that wait. `bytes_max`: fetch.max.bytes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: TimerWheel,
        partitions: PartitionManager,
        sessions: FetchSessions[PartitionWatch],
        bytes_max: int,
    ) -> None:
        self.loop = loop
        self.timers = timers
        self.partitions = partitions
        self.sessions = sessions
        self.bytes_max = bytes_max
        # With replica.selector.class: the rack of a broker that clients can use, else None.
        self.rack_of: Callable[[int], str | None] | None = None
        # Of followers: throttled, or not yet opened here. They are looked at again later.
        self.held_back: dict[Entry, None] = {}
        self.parked_count = 0

    def answer_all(self) -> None:
        """Answer every fetch that waits with what there is: the broker stops."""
        self.timers.expire_all(DelayedFetch)

    def resolve(self, entry: Entry) -> Partition | None:
        """The partition to read from; sets `entry.error` when there is none, and watches it when there is."""
        watch = entry.target
        any_replica = entry.session.reads_replicas
        if watch is not None:
            partition = watch.partition
            if partition.error is ErrorCode.NONE or (any_replica and partition.read_error is ErrorCode.NONE):
                return partition
        find = self.partitions.find_replica if any_replica else self.partitions.find
        found = find(entry.topic.name, entry.topic.topic_id, entry.index)
        if isinstance(found, ErrorCode):
            entry.error = found
            self.release(entry)
            return None
        entry.error = ErrorCode.NONE
        if watch is None or found is not watch.partition:
            self.release(entry)
            entry.target = PartitionWatch(entry, found)
        return found

    @staticmethod
    def release(entry: Entry) -> None:
        """Stop watching."""
        if entry.target is not None:
            entry.target.end()
            entry.target = None

    def read_all(
        self, session: Session, terms: FetchTerms, *, ends: bool = False
    ) -> tuple[list[PartitionRead], int, bool]:
        """Read what is ready, oldest first: (reads, bytes of records, whether to answer without waiting).

        `ends`: the answer goes out now, whatever there is. News are seldom a reason to answer, but every answer says
        them; before that they are not looked at, because there may be thousands.
        """
        reads: list[PartitionRead] = []
        total = 0
        urgent = False
        entries = session.partitions.values() if terms.whole_answer else session.ready
        for entry in list(entries):
            if session.replica_id != CONSUMER and entry.target is None and awaits_opening(self, session, entry):
                session.ready.pop(entry, None)
                # The next request of the session need not look at all the others again.
                urgent = urgent or (terms.whole_answer and session.session_id != NO_SESSION)
                continue
            read = self._read_one(entry, terms, terms.bytes_max - total, terms.min_one and total == 0)
            session.ready.pop(entry, None)
            if read.records is not None or read.more:
                # To the end of the line, so that the next fetch begins with somebody else.
                session.ready[entry] = None
                total += read.records.length if read.records is not None else 0
            if _cannot_wait(read):
                urgent = True
                session.ready[entry] = None
            elif session.wakes_for_news and self._has_news(read):
                urgent = True
            elif read.records is None and not terms.whole_answer:
                if self._has_news(read):
                    session.news[entry] = None
                continue
            session.news.pop(entry, None)
            reads.append(read)
        if session.news and (ends or urgent or total >= terms.bytes_min or session.wakes_for_news):
            news = self._read_news(session, terms)
            urgent = urgent or (session.wakes_for_news and bool(news))
            reads += news
        return reads, total, urgent

    def _read_one(self, entry: Entry, terms: FetchTerms, budget: int, min_one: bool) -> PartitionRead:
        if entry.session.replica_id != CONSUMER:
            return read_for_replica(self, entry.session, entry, budget, min_one)
        return self._read(entry, terms, budget, min_one)

    def _read_news(self, session: Session, terms: FetchTerms) -> list[PartitionRead]:
        """What there is to say of partitions without records."""
        entries, session.news = session.news, {}
        reads = []
        for entry in entries:
            read = self._read_one(entry, terms, 0, False)
            if _cannot_wait(read):
                session.mark_ready(entry)
            elif self._has_news(read):
                reads.append(read)
        return reads

    @staticmethod
    def _has_news(read: PartitionRead) -> bool:
        entry = read.entry
        return read.high_watermark != entry.sent_high_watermark or read.log_start_offset != entry.sent_log_start_offset

    def _read(self, entry: Entry, terms: FetchTerms, budget: int, min_one: bool) -> PartitionRead:
        partition = self.resolve(entry)
        if partition is None:
            return PartitionRead(entry, entry.error, -1, -1, -1, None, None)
        log = partition.log
        error = partition.check_leader_epoch(entry.leader_epoch)
        if error is ErrorCode.NONE and entry.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(entry.last_fetched_epoch)
            if epoch < 0:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            elif diverging(epoch, end_offset, entry.last_fetched_epoch, entry.fetch_offset):
                # KIP-595: the reader's last epoch ends earlier here, or is not known: it is told where to go back to.
                marks = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
                return PartitionRead(entry, error, *marks, None, None, (epoch, end_offset))
        start = entry.fetch_offset
        if error is ErrorCode.NONE and not log.log_start_offset <= start <= log.log_end_offset:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        if error is not ErrorCode.NONE:
            return PartitionRead(entry, error, -1, -1, -1, None, None)
        if entry.session.rack and (closest := self._closest(partition, entry)) >= 0:
            marks = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
            return PartitionRead(entry, error, *marks, None, None, preferred_replica=closest)
        bound = log.last_stable_offset if terms.read_committed else log.high_watermark
        records = None
        bytes_max = min(entry.partition_bytes_max, budget)
        if bytes_max < 0 and start < bound and min(terms.bytes_max, entry.partition_bytes_max) < 0:
            return PartitionRead(entry, ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1, -1, None, None)
        if start < bound and (bytes_max > 0 or min_one):
            try:
                records = log.read(start, bytes_max, bound, min_one=min_one)
            except LogUnavailable as failure:
                self.partitions.storage_failed(partition, failure)
                return PartitionRead(entry, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1, None, None)
        aborted: Sequence[AbortedTransaction] | None = None
        if terms.read_committed:
            aborted = log.aborted_transactions(start, bound) if records is not None else ()
        return PartitionRead(
            entry,
            ErrorCode.NONE,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            records,
            aborted,
            more=start < bound,
        )

    def _closest(self, partition: Partition, entry: Entry) -> int:
        """The replica that a consumer should rather read from, -1 for us."""
        leadership, rack_of = partition.leadership, self.rack_of
        if leadership is None or rack_of is None:
            return -1
        from raftlog.broker.core.replica.selector import closest_replica

        own = rack_of(partition.leader_id)
        return closest_replica(leadership, entry.session.rack, entry.fetch_offset, leader_rack=own, rack_of=rack_of)

    def fetch(self, session: Session, terms: FetchTerms, answer: Answer) -> DelayedFetch | None:
        """Answer through `answer` at once when there is enough; otherwise park, and return what is parked."""
        if session.parked is not None and session.replica_id != CONSUMER:
            session.parked.give_way()
        ends = terms.wait_seconds <= 0 or not session.partitions or self.parked_count >= PARKED_FETCHES_MAX
        reads, total, urgent = self.read_all(session, terms, ends=ends)
        if ends or urgent or total >= terms.bytes_min:
            answer.finish(reads)
            return None
        return DelayedFetch(self, session, terms, answer)


def _cannot_wait(read: PartitionRead) -> bool:
    return read.error is not ErrorCode.NONE or read.diverging is not None or read.preferred_replica >= 0


class DelayedFetch:
    """A fetch that waits for enough bytes or for its time. It ends once: by answering or by being cancelled.

    When its session asks the same again, it may be used again (`wait_again`): an idle consumer's polls then cost no
    new objects.
    """

    __slots__ = (
        "_answer",
        "_due",
        "_looking",
        "_punctual",
        "_seconds",
        "_service",
        "_session",
        "_terms",
        "_tick",
    )

    def __init__(self, service: FetchService, session: Session, terms: FetchTerms, answer: Answer) -> None:
        self._service = service
        self._session = session
        self._terms = terms
        # Of terms that are shared, this is too.
        self._seconds = terms.wait_seconds
        self._answer = answer
        self._looking = False
        self._tick = _NOT_PARKED
        self._park(service.loop.time())

    def _park(self, now: float) -> None:
        service, session = self._service, self._session
        service.parked_count += 1
        session.parked = self
        self._due = due = now + self._seconds
        # While there is nothing to send, nobody minds if the answer that says so is late.
        if session.ready or self._seconds < LAZY_FROM_SECONDS:
            self._punctual = True
            self._tick = service.timers.add(self, due)
        else:
            self._punctual = False
            self._tick = service.timers.add_lazily(self, due)

    def wait_again(self) -> bool:
        """Wait once more on the same terms, for a next request that says the same and has the epoch that the session
        expects. False, and nothing is changed, if there is something to say at once, or the session is not open.
        """
        service, session = self._service, self._session
        if self._tick != _NOT_PARKED or session.ready or service.parked_count >= PARKED_FETCHES_MAX:
            return False
        now = service.loop.time()
        if (session.wakes_for_news and session.news) or not service.sessions.use(session, now * 1000):
            return False
        self._park(now)
        return True

    def wake(self) -> None:
        """A partition has moved."""
        # Looked at once per turn of the loop: one request may append to many of the session's partitions.
        if not self._looking:
            self._looking = True
            self._service.loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        if self._tick != _NOT_PARKED:
            reads, total, urgent = self._service.read_all(self._session, self._terms)
            if urgent or total >= self._terms.bytes_min:
                self.cancel()
                self._answer.finish(reads)
            elif total and not self._punctual:
                self._punctual = True
                service = self._service
                service.timers.remove(self, self._tick)
                self._tick = service.timers.add(self, self._due)

    def expire(self) -> None:
        """Answer with what there is. Called when the deadline has let go of it."""
        self._ended()
        session = self._session
        idle = not session.ready and not session.news and not self._terms.whole_answer
        self._answer.finish([] if idle else self._service.read_all(session, self._terms, ends=True)[0])

    def hurry(self) -> None:
        """Answer with what there is, before the time."""
        if self._tick != _NOT_PARKED:
            self._service.timers.remove(self, self._tick)
            self.expire()

    def give_way(self) -> None:
        """The next request of the session is here: nothing, so that it is not held up. What there is it will get."""
        self.cancel()
        self._answer.finish([])

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        if self._tick != _NOT_PARKED:
            self._service.timers.remove(self, self._tick)
            self._ended()

    def _ended(self) -> None:
        self._tick = _NOT_PARKED
        self._service.parked_count -= 1
        if self._session.parked is self:
            self._session.parked = None
