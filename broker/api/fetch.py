"""Fetch (key 1), v4 to v18.

Long polls, sessions (KIP-227, v7), leader epoch checks (KIP-320, v9), closest replica (KIP-392, v11), diverging
epochs (KIP-595, v12), topic ids (KIP-516, v13). Record batches go out by sendfile, as they lie in the log.

The reply is encoded here by hand, because its records are ranges of files; a test holds it equal to the
compiled codec. A partition without records has zero-length records, never null.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import TYPE_CHECKING

from raftlog.broker.api.context import RawRequest, Services
from raftlog.broker.core.fetch.session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession, TopicKey
from raftlog.broker.runtime.fetching import FetchTerms, PartitionRead
from raftlog.broker.server.limits import DECODED_REQUEST_BYTES_MAX
from raftlog.broker.server.reply import Piece
from raftlog.wire.codec import decode
from raftlog.wire.errors import ErrorCode, RemoteProtocolError
from raftlog.wire.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from raftlog.broker.runtime.fetching import Session

_READ_COMMITTED = 1
_ZERO_UUID = bytes(16)
# A range that is not longer is read and sent with its frame in one call, which is cheaper than sendfile.
_INLINE_BYTES_MAX = 16 * 1024

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
    request = decode(FetchRequest, raw.version, raw.frame, raw.offset, exact=False)
    connection, version, correlation_id = raw.connection, raw.version, raw.correlation_id
    session = _session_of(services, request, version)
    if isinstance(session, ErrorCode):
        connection.reply(_encode(version, correlation_id, [], session, NO_SESSION))
        return
    transient = session.session_id == NO_SESSION
    terms = FetchTerms(
        wait_ms_max=request.max_wait_ms,
        bytes_min=request.min_bytes,
        bytes_max=min(request.max_bytes, services.fetches.bytes_max),
        read_committed=request.isolation_level == _READ_COMMITTED,
        whole_answer=transient or request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH),
        min_one=True,
    )

    def pieces(reads: list[PartitionRead]) -> list[Piece]:
        if transient:
            services.fetches.sessions.dissolve(session)
        return _encode(version, correlation_id, reads, ErrorCode.NONE, session.session_id)

    answer: list[Piece] = []
    place = None

    def finish(reads: list[PartitionRead]) -> None:
        encoded = pieces(reads)
        if place is None:
            answer.extend(encoded)
        else:
            place.complete(encoded)

    parked = services.fetches.fetch(session, terms, finish)
    if parked is None:
        connection.reply(answer)
        return
    place = connection.park()

    def abandon() -> None:
        parked.cancel()
        if transient:
            services.fetches.sessions.dissolve(session)

    place.on_abandon = abandon


def _session_of(services: Services, request: FetchRequest, version: int) -> Session | ErrorCode:
    """The session that the request names, updated with what it says; or one that lives for this request."""
    sessions = services.fetches.sessions
    uses_ids = version >= 13
    now_ms = services.clock.now_ms()
    epoch = request.session_epoch
    session: Session | ErrorCode
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        # A new session is worth its memory only for a client that has partitions to fetch.
        wants_session = epoch == INITIAL_EPOCH and request.topics
        session = sessions.open(uses_ids, now_ms) if wants_session else FetchSession(NO_SESSION, uses_ids, now_ms)
    else:
        session = sessions.resume(request.session_id, epoch, uses_ids, now_ms)
        if isinstance(session, ErrorCode):
            return session
    sessions.advance(session)
    if request.topics:
        _update(session, request)
    for forgotten in request.forgotten_topics_data:
        key = TopicKey(forgotten.topic, forgotten.topic_id)
        for index in forgotten.partitions:
            removed = session.remove(key, index)
            if removed is not None:
                services.fetches.release(removed)
    return session


def _update(session: Session, request: FetchRequest) -> None:
    for topic in request.topics:
        key = TopicKey(topic.topic, topic.topic_id)
        for wanted in topic.partitions:
            entry = session.put(key, wanted.partition)
            entry.fetch_offset = wanted.fetch_offset
            entry.leader_epoch = wanted.current_leader_epoch
            entry.last_fetched_epoch = wanted.last_fetched_epoch
            entry.partition_bytes_max = wanted.partition_max_bytes


def _encode(
    version: int, correlation_id: int, reads: list[PartitionRead], error: ErrorCode, session_id: int
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
        writer.memory.append(0)
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
        if self.version >= 11:
            self.memory += _NOBODY
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
        if read.diverging is None:
            self.memory.append(0)
            return
        # One tagged field, number 0: diverging epoch, of 4 + 8 bytes and an empty tag section.
        self.memory += b"\x01\x00\x0d" + Struct(">iq").pack(*read.diverging) + b"\x00"
