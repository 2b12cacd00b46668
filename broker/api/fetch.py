"""Fetch (key 1), v4 to v18.

Long polls, sessions (KIP-227, v7), leader epoch checks (KIP-320, v9), closest replica (KIP-392, v11), diverging
epochs (KIP-595, v12), topic ids (KIP-516, v13), broker epochs of followers (KIP-903, v15), where the leader is now
(KIP-951, v16). Record batches go out by sendfile, as they lie in the log.

The reply is encoded here by hand, because its records are ranges of files; a test holds it equal to the
compiled codec. A partition without records has zero-length records, never null.
"""

from __future__ import annotations

import os
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING

from raftlog.broker.api.context import RawRequest, Services
from raftlog.broker.api.replica_requests import parse_replica_fetch, update_session
from raftlog.broker.core.connection.reply import PendingReply, Piece
from raftlog.broker.core.fetch.session import CONSUMER, FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession, TopicKey
from raftlog.broker.runtime.fetching import FetchTerms
from raftlog.broker.runtime.partition_read import PartitionRead
from raftlog.broker.server.limits import DECODED_REQUEST_BYTES_MAX, REMEMBERED_POLL_BYTES_MAX
from raftlog.wire.codec import decode
from raftlog.wire.errors import ErrorCode, RemoteProtocolError
from raftlog.wire.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftlog.broker.api.leader_hints import NodeAddress
    from raftlog.broker.runtime.fetching import DelayedFetch, Session

_READ_COMMITTED = 1
_ISOLATION_LEVELS = (0, _READ_COMMITTED)
_ZERO_UUID = bytes(16)
# A range that is not longer is read and sent with its frame in one call, which is cheaper than sendfile.
_INLINE_BYTES_MAX = 16 * 1024

_LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_LEADERS_SINCE = 16
_SESSIONS_SINCE = 7
_RACK_SINCE = 11
_FLEXIBLE_FROM = 12
_IDS_SINCE = 13
_NO_REPLICA_ID_SINCE = 15
_REPLICA_ID_BYTES = 4
# A whole frame without news, but for its zeros: length, correlation id, session id, no topics.
_NOTHING = Struct(">i4s7xiBx")
# max wait, min bytes, max bytes, isolation level, session id, session epoch; then the two arrays of topics
_TERMS = Struct(">iiibii")
_EPOCH_OFFSET = _TERMS.size - 4
_NO_TOPICS_COMPACT = b"\x01\x01"
_NO_TOPICS = bytes(8)

_shared_terms = lru_cache(maxsize=256)(FetchTerms)  # most consumers ask on the same ones

_FRAME = Struct(">ii")
_TOP = Struct(">ihi")  # throttle time, error, session id (v7+)
_THROTTLE = Struct(">i")
_PARTITION = Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start offset (v5+)
_PARTITION_V4 = Struct(">ihqq")
_INT32 = Struct(">i")
_INT16 = Struct(">h")
_ABORTED = Struct(">qq")
_NOBODY = _INT32.pack(-1)  # null array, and "no preferred read replica"


def serve(services: Services, raw: RawRequest) -> None:
    """Answer, or park until there is enough."""
    if len(raw.frame) > DECODED_REQUEST_BYTES_MAX:
        raise RemoteProtocolError(f"Fetch: a request of {len(raw.frame)} bytes, above {DECODED_REQUEST_BYTES_MAX}")
    if raw.version >= _SESSIONS_SINCE and (_serve_unchanged(services, raw) or _serve_replica(services, raw)):
        return
    request = decode(FetchRequest, raw.version, raw.frame, raw.offset, exact=False)
    session: Session | ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    if request.isolation_level in _ISOLATION_LEVELS:
        session = _session_of(services, request, raw.version)
    if isinstance(session, ErrorCode):
        named: Session = FetchSession(NO_SESSION, False, 0)
        if raw.version < _SESSIONS_SINCE:  # an error has no other place there
            _update(named, request)
        reads = [PartitionRead(entry, session, -1, -1, -1, None, None) for entry in named.partitions.values()]
        raw.connection.reply(_encode(raw.version, raw.correlation_id, reads, session, NO_SESSION))
        return
    terms = FetchTerms(
        wait_seconds=request.max_wait_ms / 1000,
        bytes_min=request.min_bytes,
        bytes_max=min(request.max_bytes, services.fetches.bytes_max),
        read_committed=request.isolation_level == _READ_COMMITTED,
        whole_answer=session.session_id == NO_SESSION or request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH),
        min_one=True,
    )
    _fetch(services, raw, session, terms)


def _serve_unchanged(services: Services, raw: RawRequest) -> bool:
    """Serve a request that says "the same as before", which is all that an idle consumer ever says.

    False when it says more, or names a session that is not as it thinks: then it is decoded in full.
    """
    offset = raw.offset + (_REPLICA_ID_BYTES if raw.version < _NO_REPLICA_ID_SINCE else 0)
    no_topics = _NO_TOPICS_COMPACT if raw.version >= _FLEXIBLE_FROM else _NO_TOPICS
    end = offset + _TERMS.size + len(no_topics)
    if len(raw.frame) < end or raw.frame[offset + _TERMS.size : end] != no_topics:
        return False
    wait_ms, bytes_min, bytes_max, isolation, session_id, epoch = _TERMS.unpack_from(raw.frame, offset)
    if epoch <= INITIAL_EPOCH or isolation not in _ISOLATION_LEVELS:
        return False
    sessions = services.fetches.sessions
    session = sessions.resume(session_id, epoch, raw.version >= _IDS_SINCE, _now_ms(services))
    if isinstance(session, ErrorCode):
        return False
    sessions.advance(session)
    bytes_max = min(bytes_max, services.fetches.bytes_max)
    terms = _shared_terms(wait_ms / 1000, bytes_min, bytes_max, isolation == _READ_COMMITTED, False, True)
    answer = _fetch(services, raw, session, terms)
    if answer is not None:
        answer.arm(raw, offset + _EPOCH_OFFSET)
    return True


def _serve_replica(services: Services, raw: RawRequest) -> bool:
    """Serve what a follower sends in its session; False for everything else, which is decoded in full."""
    if raw.version < _NO_REPLICA_ID_SINCE:
        return False
    request = parse_replica_fetch(raw.frame, raw.offset)
    if request is None or request.session_epoch <= INITIAL_EPOCH:
        return False
    fetches = services.fetches
    session = fetches.sessions.resume(request.session_id, request.session_epoch, True, _now_ms(services))
    if isinstance(session, ErrorCode) or session.replica_id != request.replica_id:
        return False
    fetches.sessions.advance(session)
    update_session(fetches, session, request)
    bytes_max = min(request.bytes_max, fetches.bytes_max)
    whole = session.session_id == NO_SESSION
    _fetch(services, raw, session, FetchTerms(request.wait_ms / 1000, request.bytes_min, bytes_max, False, whole, True))
    return True


def _fetch(services: Services, raw: RawRequest, session: Session, terms: FetchTerms) -> _Answer | None:
    """Answer, or park; what is parked."""
    answer = _Answer(services, raw, session)
    answer.parked = services.fetches.fetch(session, terms, answer)
    if answer.parked is None:
        return None
    raw.connection.park_in(answer)
    return answer


@lru_cache(maxsize=256)
def _poll_layout(terms_length: int, rest_length: int) -> Struct:
    """An idle consumer's request: what is before its correlation id, that, what is before its session epoch, that, and
    the rest. The first two lengths are those of every frame: size, API key and version; correlation id."""
    return Struct(f">8s4s{terms_length}si{rest_length}s")


class _Answer(PendingReply):
    """Turns what was read into the reply, now or in the place that it is itself.

    When all that the client says is "the same as before", the next request of its connection is probably this one again
    but for correlation id and session epoch. One that is waits again with the objects of the last one.
    """

    __slots__ = (
        "_client",
        "_correlation_id",
        "_expected",
        "_layout",
        "_services",
        "_session",
        "_version",
        "parked",
    )

    def __init__(self, services: Services, raw: RawRequest, session: Session) -> None:
        super().__init__(raw.connection)
        self._services = services
        self._client = raw.connection
        self._version = raw.version
        self._correlation_id = _INT32.pack(raw.correlation_id)
        self._session = session
        self._layout: Struct | None = None
        self._expected = b""
        self.parked: DelayedFetch | None = None

    def finish(self, reads: list[PartitionRead]) -> None:
        """Answer with what was read."""
        session_id = self._session.session_id
        if not reads and self._version >= _FLEXIBLE_FROM:
            pieces: Sequence[Piece] = (_NOTHING.pack(_NOTHING.size - _INT32.size, self._correlation_id, session_id, 1),)
        else:
            nodes: Sequence[NodeAddress] = ()
            if self._version >= _LEADERS_SINCE and any(read.error in _LED_ELSEWHERE for read in reads):
                reads, nodes = self._with_leaders(reads)
            (correlation_id,) = _INT32.unpack(self._correlation_id)
            pieces = _encode(self._version, correlation_id, reads, ErrorCode.NONE, session_id, nodes=nodes)
        if session_id == NO_SESSION:
            self._services.fetches.sessions.dissolve(self._session)
        if self.parked is None:
            self._client.reply(pieces)
        else:
            self.complete(pieces)

    def _with_leaders(self, reads: list[PartitionRead]) -> tuple[list[PartitionRead], list[NodeAddress]]:
        from raftlog.broker.api.leader_hints import addresses_of

        services = self._services
        told = []
        for read in reads:
            if read.error in _LED_ELSEWHERE:
                topic = read.entry.topic
                read = read._replace(
                    leader=services.partitions.leader_of(topic.name, topic.topic_id, read.entry.index)
                )
            told.append(read)
        leaders = [read.leader[0] for read in told if read.leader is not None]
        return told, addresses_of(services, self._client, leaders)

    def arm(self, raw: RawRequest, epoch_offset: int) -> None:
        """The next request of the connection may be this one again. `epoch_offset`: where its session epoch is."""
        request = _INT32.pack(len(raw.frame)) + raw.frame
        if len(request) > REMEMBERED_POLL_BYTES_MAX:
            return
        epoch_at = epoch_offset + _INT32.size
        terms_at, rest_at = _FRAME.size + _INT32.size, epoch_at + _INT32.size
        self._layout = layout = _poll_layout(epoch_at - terms_at, len(request) - rest_at)
        before, _, terms, _, rest = layout.unpack(request)
        self._expected = before + terms + rest
        raw.connection.repeat_matcher = self

    def serve_repeat(self, received: memoryview, count: int) -> PendingReply | None:
        """See RepeatMatcher."""
        layout = self._layout
        if layout is None or count != layout.size:
            return None
        before, correlation_id, terms, epoch, rest = layout.unpack_from(received)
        if epoch != self._session.epoch or before + terms + rest != self._expected:
            return None
        parked = self.parked
        if parked is None or not parked.wait_again():
            return None
        self._correlation_id = correlation_id
        self.pieces = None
        return self

    def disconnected(self) -> None:
        """See RepeatMatcher."""
        if self._session.parked is None:
            self._services.fetches.sessions.leave(self._session)

    def complete_early(self) -> None:
        """See PendingReply. Metadata, offsets and coordinators that a consumer asks for while it polls for records
        would otherwise reach it only when the poll is over, half a second later with most clients."""
        if self.parked is not None:
            self.parked.hurry()

    def abandon(self) -> None:
        """The connection is gone."""
        super().abandon()
        if self.parked is not None:
            self.parked.cancel()
        if self._session.session_id == NO_SESSION:
            self._services.fetches.sessions.dissolve(self._session)


def _now_ms(services: Services) -> int:
    """A clock that only goes forward: sessions and lagging followers are judged by it."""
    return int(services.loop.time() * 1000)


def _session_of(services: Services, request: FetchRequest, version: int) -> Session | ErrorCode:
    """The session that the request names, updated with what it says; or one that lives for this request."""
    sessions = services.fetches.sessions
    uses_ids = version >= 13
    now_ms = _now_ms(services)
    epoch = request.session_epoch
    session: Session | ErrorCode
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        # A new session is worth its memory only for a client that has partitions to fetch.
        wants_session = epoch == INITIAL_EPOCH and request.topics
        replica_id, replica_epoch = _replica_of(request, version)
        if wants_session:
            session = sessions.open(uses_ids, now_ms, replica_id=replica_id)
        else:
            session = FetchSession(NO_SESSION, uses_ids, now_ms)
        session.replica_id, session.replica_epoch = replica_id, replica_epoch
        selects = services.fetches.rack_of is not None
        if session.replica_id >= 0:
            session.wakes_for_news = selects
        else:
            session.reads_replicas = version >= _RACK_SINCE
            session.rack = request.rack_id if selects else ""
    else:
        session = sessions.resume(request.session_id, epoch, uses_ids, now_ms)
        if isinstance(session, ErrorCode):
            return session
        if session.replica_id >= 0:
            # A follower may learn its epoch after its first fetches.
            session.replica_epoch = _replica_of(request, version)[1]
    sessions.advance(session)
    if request.topics:
        _update(session, request)
    for forgotten in request.forgotten_topics_data:
        key = TopicKey(forgotten.topic, forgotten.topic_id)
        for index in forgotten.partitions:
            removed = session.remove(key, index)
            if removed is not None:
                services.fetches.release(removed)
    sessions.count(session)
    return session


def _replica_of(request: FetchRequest, version: int) -> tuple[int, int]:
    """The follower that fetches, and its broker epoch (KIP-903); -1 each for a consumer. Kafka's tool that compares
    replicas gives -2: it is a consumer too.
    """
    if version < _NO_REPLICA_ID_SINCE:
        return max(request.replica_id, CONSUMER), -1
    return max(request.replica_state.replica_id, CONSUMER), request.replica_state.replica_epoch


def _update(session: Session, request: FetchRequest) -> None:
    for topic in request.topics:
        key = TopicKey(topic.topic, topic.topic_id)
        for wanted in topic.partitions:
            entry = session.put(key, wanted.partition)
            entry.fetch_offset = wanted.fetch_offset
            entry.leader_epoch = wanted.current_leader_epoch
            entry.last_fetched_epoch = wanted.last_fetched_epoch
            entry.log_start_offset = wanted.log_start_offset
            entry.acknowledged = False
            entry.partition_bytes_max = wanted.partition_max_bytes


def _encode(
    version: int,
    correlation_id: int,
    reads: list[PartitionRead],
    error: ErrorCode,
    session_id: int,
    *,
    nodes: Sequence[NodeAddress] = (),
) -> list[Piece]:
    """The whole frame: memory and file ranges in turn."""
    flexible = version >= 12
    by_topic: dict[TopicKey, list[PartitionRead]] = {}
    for read in reads:
        by_topic.setdefault(read.entry.topic, []).append(read)
    head = bytearray(_FRAME.size)
    if flexible:
        head += b"\x00"
    head += _TOP.pack(0, error, session_id) if version >= 7 else _THROTTLE.pack(0)
    writer = _Writer(version, head)
    writer.count(len(by_topic))
    for key, topic_reads in by_topic.items():
        writer.topic(key)
        writer.count(len(topic_reads))
        for read in topic_reads:
            writer.partition(read)
        if flexible:
            writer.memory.append(0)
    if flexible:
        writer.nodes(nodes)
    pieces = writer.finish()
    _FRAME.pack_into(head, 0, writer.length - 4, correlation_id)
    return pieces


class _Writer:
    """Writes fields into memory, and starts a new buffer behind each file range."""

    __slots__ = ("flexible", "length", "memory", "pieces", "version")

    def __init__(self, version: int, head: bytearray) -> None:
        self.version = version
        self.flexible = version >= 12
        self.memory = head
        self.pieces: list[Piece] = []
        self.length = 0

    def finish(self) -> list[Piece]:
        self.length += len(self.memory)
        if self.memory:
            self.pieces.append(self.memory)
        return self.pieces

    def count(self, count: int) -> None:
        if self.flexible:
            self.varint(count + 1)
        else:
            self.memory += _INT32.pack(count)

    def varint(self, value: int) -> None:
        memory = self.memory
        while value > 0x7F:
            memory.append(value & 0x7F | 0x80)
            value >>= 7
        memory.append(value)

    def topic(self, key: TopicKey) -> None:
        if self.version >= 13:
            self.memory += key.topic_id
            return
        name = key.name.encode()
        if self.flexible:
            self.varint(len(name) + 1)
        else:
            self.memory += _INT16.pack(len(name))
        self.memory += name

    def partition(self, read: PartitionRead) -> None:
        entry = read.entry
        if self.version >= 5:
            self.memory += _PARTITION.pack(
                entry.index, read.error, read.high_watermark, read.last_stable_offset, read.log_start_offset
            )
        else:
            self.memory += _PARTITION_V4.pack(entry.index, read.error, read.high_watermark, read.last_stable_offset)
        entry.sent_high_watermark = read.high_watermark
        entry.sent_log_start_offset = read.log_start_offset
        self._aborted(read)
        if self.version >= _RACK_SINCE:
            self.memory += _NOBODY if read.preferred_replica < 0 else _INT32.pack(read.preferred_replica)
        self._records(read)
        if self.flexible:
            self._tags(read)

    def _aborted(self, read: PartitionRead) -> None:
        if read.aborted is None:
            self.memory += b"\x00" if self.flexible else _NOBODY
            return
        self.count(len(read.aborted))
        for transaction in read.aborted:
            self.memory += _ABORTED.pack(transaction.producer_id, transaction.first_offset)
            if self.flexible:
                self.memory.append(0)

    def _records(self, read: PartitionRead) -> None:
        records = read.records
        length = records.length if records is not None else 0
        if self.flexible:
            self.varint(length + 1)
        else:
            self.memory += _INT32.pack(length)
        if records is None:
            return
        if length <= _INLINE_BYTES_MAX:
            data = os.pread(records.fileno(), length, records.position)
            if len(data) == length:
                self.memory += data
                return
        self.length += len(self.memory) + length
        self.pieces.append(self.memory)
        self.pieces.append(records)
        self.memory = bytearray()

    def _tags(self, read: PartitionRead) -> None:
        if read.diverging is None and read.leader is None:
            self.memory.append(0)
            return
        self.memory.append((read.diverging is not None) + (read.leader is not None))
        if read.diverging is not None:
            # Number 0: diverging epoch, of 4 + 8 bytes and an empty tag section.
            self.memory += b"\x00\x0d" + Struct(">iq").pack(*read.diverging) + b"\x00"
        if read.leader is not None:
            # Number 1: leader id and epoch, of 4 + 4 bytes and an empty tag section.
            self.memory += b"\x01\x09" + Struct(">ii").pack(*read.leader) + b"\x00"

    def nodes(self, nodes: Sequence[NodeAddress]) -> None:
        """The tags at the end: number 0, where leaders are (KIP-951)."""
        if not nodes:
            self.memory.append(0)
            return
        end = self.memory
        self.memory = bytearray()
        self.count(len(nodes))
        for node in nodes:
            self.memory += _INT32.pack(node.node_id)
            self._text(node.host)
            self.memory += _INT32.pack(node.port)
            if node.rack is None:
                self.memory.append(0)
            else:
                self._text(node.rack)
            self.memory.append(0)
        field, self.memory = self.memory, end
        self.memory += b"\x01\x00"
        self.varint(len(field))
        self.memory += field

    def _text(self, text: str) -> None:
        data = text.encode()
        self.varint(len(data) + 1)
        self.memory += data
