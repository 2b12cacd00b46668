"""Incremental fetch sessions (KIP-227): what a consumer fetches, remembered between its requests.

Kafka walks all partitions of a session at every fetch. Here each session is told by its partitions when they
move and keeps a list of those, so that a fetch costs what changed and not what is subscribed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from raftlog.wire.errors import ErrorCode

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
CONSUMER = -1
_EPOCH_MAX = 2**31 - 1

# A session that was used within this time is not evicted for a new one. Kafka:
# min.incremental.fetch.session.eviction.ms, no configuration there either.
EVICTION_MS_MIN = 120_000

# When consumers' sessions were used is known to within so much: one that polls twice a second need not move each time.
# Of followers it is known exactly, because their place in the ISR depends on it.
_ORDER_MS = 10_000

# What all sessions together may remember, at some 400 bytes a partition. A client may name partitions that do not
# exist, and no configuration bounds how many.
PARTITIONS_MAX = 500_000

P = TypeVar("P")


class TopicKey(NamedTuple):
    """A topic as the request names it: by id since v13, by name before."""

    name: str
    topic_id: bytes


class FetchedPartition(Generic[P]):
    """One partition of a fetch. `target` is whom we read from, None when it does not exist here.

    Of a follower: `log_start_offset` is its log's, and `acknowledged` says whether the leader has noted where it
    is.
    """

    __slots__ = (
        "acknowledged",
        "error",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "partition_bytes_max",
        "sent_high_watermark",
        "sent_log_start_offset",
        "session",
        "target",
        "topic",
    )

    def __init__(self, topic: TopicKey, index: int, session: FetchSession[P]) -> None:
        self.session = session
        self.topic = topic
        self.index = index
        self.target: P | None = None
        self.error = ErrorCode.NONE
        self.fetch_offset = 0
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.partition_bytes_max = 0
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.log_start_offset = -1
        self.acknowledged = False


class Parked(Protocol):
    """A request that waits for its session's partitions to move."""

    def wake(self) -> None:
        """Some have."""

    def give_way(self) -> None:
        """The next request is here."""


class FetchSession(Generic[P]):
    """The state of one consumer's fetches.

    `ready` holds, oldest first, the partitions that may have something to send; a partition leaves it when a
    read found nothing, and comes back when the partition or the client's position moves. `parked` is the request of the
    session that waits, the latest if there are several. `news` holds the partitions without records to send, of which
    the other side does not know the high watermark or the log's start: the next answer says them. A follower's session
    has its broker's id and epoch (KIP-903).
    """

    __slots__ = (
        "counted",
        "epoch",
        "last_used_ms",
        "news",
        "parked",
        "partitions",
        "rack",
        "reads_replicas",
        "ready",
        "replica_epoch",
        "replica_id",
        "session_id",
        "uses_ids",
        "wakes_for_news",
    )

    def __init__(self, session_id: int, uses_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_ids = uses_ids
        self.epoch = INITIAL_EPOCH
        self.last_used_ms = now_ms
        # How many of its partitions FetchSessions has counted: none when it has ended.
        self.counted = 0
        self.partitions: dict[tuple[TopicKey, int], FetchedPartition[P]] = {}
        self.ready: dict[FetchedPartition[P], None] = {}
        self.news: dict[FetchedPartition[P], None] = {}
        self.replica_id = CONSUMER
        self.replica_epoch = -1
        # A follower that serves consumers of its rack is told of the high watermark at once.
        self.wakes_for_news = False
        # A consumer that may be sent to a replica in its rack, or be served by a follower (KIP-392).
        self.rack = ""
        self.reads_replicas = False
        self.parked: Parked | None = None

    def mark_ready(self, partition: FetchedPartition[P]) -> None:
        """Look at `partition` at the next read."""
        self.ready[partition] = None
        if self.parked is not None:
            self.parked.wake()

    def mark_dirty(self, partition: FetchedPartition[P]) -> None:
        """The high watermark moved: a follower hears of it with its next answer, and is seldom woken for that."""
        self.news[partition] = None
        if self.wakes_for_news and self.parked is not None:
            self.parked.wake()

    def put(self, topic: TopicKey, index: int) -> FetchedPartition[P]:
        """The partition's entry, made if it is new, marked as ready."""
        key = (topic, index)
        partition = self.partitions.get(key)
        if partition is None:
            partition = self.partitions[key] = FetchedPartition(topic, index, self)
        self.ready[partition] = None
        return partition

    def remove(self, topic: TopicKey, index: int) -> FetchedPartition[P] | None:
        """Forget the partition; returns what was there."""
        partition = self.partitions.pop((topic, index), None)
        if partition is not None:
            self.ready.pop(partition, None)
            self.news.pop(partition, None)
        return partition


class FetchSessions(Generic[P]):
    """The sessions of a broker, at most `slots` (max.incremental.fetch.session.cache.slots).

    `release` is called with each partition of a session that ends. Session ids come from `new_id`, so that a
    client of an earlier run of the broker does not find a stranger's session.
    """

    def __init__(
        self, slots: int, new_id: Callable[[], int], release: Callable[[FetchedPartition[P]], None]
    ) -> None:
        self._slots = slots
        self._new_id = new_id
        self._release = release
        # In order of last use.
        self._sessions: dict[int, FetchSession[P]] = {}
        # Whose clients have gone away. They may come back, but are the first to make room.
        self._left: dict[int, None] = {}
        self._of_replicas: dict[int, int] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, uses_ids: bool, now_ms: int, *, replica_id: int = CONSUMER) -> FetchSession[P]:
        """A new session; one without an id (which lives for one request) when all slots are in use.

        A follower always gets one. It takes the place of the one before: a follower has one connection, and what it
        left behind would be told of every append for ever.
        """
        if replica_id != CONSUMER:
            self.close(self._of_replicas.get(replica_id, NO_SESSION))
        elif not self._make_room(now_ms):
            return FetchSession(NO_SESSION, uses_ids, now_ms)
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session: FetchSession[P] = FetchSession(session_id, uses_ids, now_ms)
        self._sessions[session_id] = session
        if replica_id != CONSUMER:
            self._of_replicas[replica_id] = session_id
        return session

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if self._left:
            self.close(next(iter(self._left)))
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or oldest.parked is not None or now_ms - oldest.last_used_ms < EVICTION_MS_MIN:
            return False
        self.close(oldest.session_id)
        return True

    def resume(self, session_id: int, epoch: int, uses_ids: bool, now_ms: int) -> FetchSession[P] | ErrorCode:
        """The session of a request with a positive epoch, or why there is none."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        self._touch(session, now_ms)
        return session

    def _touch(self, session: FetchSession[P], now_ms: int) -> None:
        """It is now the one that was used last."""
        session.last_used_ms = now_ms
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session
        if self._left:
            self._left.pop(session.session_id, None)

    def leave(self, session: FetchSession[P]) -> None:
        """The client is gone, and will more likely begin anew than come back for its session.

        Kafka keeps the session for EVICTION_MS_MIN: where all slots are in use, a thousand consumers that are started
        again have none for two minutes.
        """
        if session.replica_id == CONSUMER and session.session_id in self._sessions:
            self._left[session.session_id] = None

    def use(self, session: FetchSession[P], now_ms: float) -> bool:
        """Resume the session with the epoch that it expects, for an accepted request; False if it is not open, or has
        no partitions."""
        if not session.counted:
            return False
        if now_ms - session.last_used_ms >= _ORDER_MS or session.replica_id != CONSUMER:
            self._touch(session, int(now_ms))
        self.advance(session)
        return True

    def advance(self, session: FetchSession[P]) -> None:
        """The request was accepted: the next one carries the next epoch (1 follows the highest)."""
        session.epoch = 1 if session.epoch >= _EPOCH_MAX else session.epoch + 1

    def count(self, session: FetchSession[P]) -> None:
        """The session's partitions have changed. If all sessions together now remember more than PARTITIONS_MAX, this
        one is remembered no longer: it becomes one that lives for its request."""
        if session.session_id == NO_SESSION:
            return
        self._partitions += len(session.partitions) - session.counted
        session.counted = len(session.partitions)
        if self._partitions > PARTITIONS_MAX:
            self._forget(session.session_id)
            session.session_id = NO_SESSION

    def _forget(self, session_id: int) -> FetchSession[P] | None:
        session = self._sessions.pop(session_id, None)
        self._left.pop(session_id, None)
        if session is not None:
            self._partitions -= session.counted
            session.counted = 0
        return session

    def close(self, session_id: int) -> None:
        """End the session, if it is there."""
        session = self._forget(session_id)
        if session is not None:
            self.dissolve(session)

    def dissolve(self, session: FetchSession[P]) -> None:
        """Let go of a session's partitions; also for one that has no id."""
        for partition in session.partitions.values():
            self._release(partition)
        session.partitions.clear()
        session.ready.clear()
        session.news.clear()
