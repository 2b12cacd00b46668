"""Replies to Fetch, v4 to v18, as memory and ranges of files in turn.

Written by hand, for consumers and followers alike: it takes half the time of the compiled codec, which a test holds it
equal to. Followers' requests, and what they read of replies, are the compiled messages (`messages/fetch.py`).
A partition without records has zero-length records, never null.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from struct import Struct
from typing import Any, Protocol

from raftlog.wire.errors import ErrorCode
from raftlog.wire.varint import encode_unsigned_varint

_LOG_START_SINCE = 5
_SESSIONS_SINCE = 7
_PREFERRED_REPLICA_SINCE = 11
_FLEXIBLE_FROM = 12
_IDS_SINCE = 13

_FRAME = Struct(">ii")  # length, correlation id
_TOP = Struct(">ihi")  # throttle time, error, session id (v7+)
_THROTTLE = Struct(">i")
# A whole frame that says nothing, but for its zeros: length, correlation id, session id, no topics.
_NOTHING = Struct(">ii7xiBx")
_NOTHING_LENGTH = _NOTHING.size - 4
_PARTITION = Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start offset (v5+)
_PARTITION_V4 = Struct(">ihqq")
_INT32 = Struct(">i")
_INT16 = Struct(">h")
_ABORTED = Struct(">qq")
_DIVERGING = Struct(">iq")
_LEADER = Struct(">ii")
_SHORT = 127  # a length below it is one byte
_NULL = _INT32.pack(-1)  # a null array, and "no preferred read replica"


class Topic(Protocol):
    """By name up to v12, by id from then on."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...


class Entry(Protocol):
    """Which partition."""

    topic: Any
    index: int


class Aborted(Protocol):
    """A transaction whose records are to be left out."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class PartitionReply(Protocol):
    """What is said of one partition; `PartitionRead` has the meanings. `records` are bytes, or something that stands
    for `length` bytes and comes out as a piece of its own."""

    entry: Any
    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Any
    aborted: Any
    diverging: tuple[int, int] | None
    preferred_replica: int
    leader: tuple[int, int] | None


class Node(Protocol):
    """Where a broker is."""

    @property
    def node_id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def rack(self) -> str | None: ...


def encode_fetch_reply(
    version: int,
    correlation_id: int,
    error: ErrorCode,
    session_id: int,
    reads: Sequence[PartitionReply],
    *,
    nodes: Sequence[Node] = (),
) -> list[Any]:
    """The whole frame, with its length and header: buffers, and the ranges among the records as they were given."""
    if not reads and not error and version >= _FLEXIBLE_FROM:
        return [_NOTHING.pack(_NOTHING_LENGTH, correlation_id, session_id, 1)]
    head, writer, by_topic = _begun(version, error, session_id, reads)
    for topic, topic_reads in by_topic.items():
        writer.topic(topic)
        writer.count(len(topic_reads))
        for read in topic_reads:
            writer.partition(read)
        writer.end_topic()
    return _ended(head, writer, correlation_id, nodes)


def fetch_reply_in_steps(
    version: int,
    correlation_id: int,
    error: ErrorCode,
    session_id: int,
    reads: Sequence[PartitionReply],
    *,
    step: int,
    nodes: Sequence[Node] = (),
) -> Generator[None, None, list[Any]]:
    """The same in steps of so many partitions."""
    head, writer, by_topic = _begun(version, error, session_id, reads)
    left = step
    for topic, topic_reads in by_topic.items():
        writer.topic(topic)
        writer.count(len(topic_reads))
        for read in topic_reads:
            if left <= 0:
                yield
                left = step
            left -= 1
            writer.partition(read)
        writer.end_topic()
    return _ended(head, writer, correlation_id, nodes)


def _begun(
    version: int, error: ErrorCode, session_id: int, reads: Sequence[PartitionReply]
) -> tuple[bytearray, _Writer, dict[Topic, list[PartitionReply]]]:
    by_topic: dict[Topic, list[PartitionReply]] = {}
    for read in reads:
        by_topic.setdefault(read.entry.topic, []).append(read)
    head = bytearray(_FRAME.size)
    if version >= _FLEXIBLE_FROM:
        head += b"\x00"
    head += _TOP.pack(0, error, session_id) if version >= _SESSIONS_SINCE else _THROTTLE.pack(0)
    writer = _Writer(version, head)
    writer.count(len(by_topic))
    return head, writer, by_topic


def _ended(head: bytearray, writer: _Writer, correlation_id: int, nodes: Sequence[Node]) -> list[Any]:
    if writer.flexible:
        writer.nodes(nodes)
    memory, pieces = writer.memory, writer.pieces
    if memory:
        pieces.append(memory)
    _FRAME.pack_into(head, 0, writer.length + len(memory) - _INT32.size, correlation_id)
    return pieces


class _Writer:
    """Writes fields into memory, and starts a new buffer behind each range. `length`: of all before that buffer."""

    __slots__ = ("flexible", "length", "memory", "pieces", "version")

    def __init__(self, version: int, head: bytearray) -> None:
        self.version = version
        self.flexible = version >= _FLEXIBLE_FROM
        self.memory = head
        self.pieces: list[Any] = []
        self.length = 0

    def end_topic(self) -> None:
        if self.flexible:
            self.memory.append(0)

    def count(self, count: int) -> None:
        if not self.flexible:
            self.memory += _INT32.pack(count)
        elif count < _SHORT:
            self.memory.append(count + 1)
        else:
            self.memory += encode_unsigned_varint(count + 1)

    def topic(self, topic: Topic) -> None:
        if self.version >= _IDS_SINCE:
            self.memory += topic.topic_id
            return
        name = topic.name.encode()
        if self.flexible:
            self.count(len(name))
        else:
            self.memory += _INT16.pack(len(name))
        self.memory += name

    def partition(self, read: PartitionReply) -> None:
        index = read.entry.index
        if self.version >= _LOG_START_SINCE:
            self.memory += _PARTITION.pack(
                index, read.error, read.high_watermark, read.last_stable_offset, read.log_start_offset
            )
        else:
            self.memory += _PARTITION_V4.pack(index, read.error, read.high_watermark, read.last_stable_offset)
        if read.aborted is None:
            self.memory += b"\x00" if self.flexible else _NULL
        else:
            self._aborted(read.aborted)
        if self.version >= _PREFERRED_REPLICA_SINCE:
            self.memory += _NULL if read.preferred_replica < 0 else _INT32.pack(read.preferred_replica)
        self._records(read.records)
        if self.flexible:
            self._tags(read)

    def _aborted(self, aborted: Iterable[Aborted]) -> None:
        transactions = list(aborted)
        self.count(len(transactions))
        for transaction in transactions:
            self.memory += _ABORTED.pack(transaction.producer_id, transaction.first_offset)
            if self.flexible:
                self.memory.append(0)

    def _records(self, records: Any) -> None:
        is_range = records is not None and not isinstance(records, bytes)
        length = records.length if is_range else len(records or b"")
        self.count(length)
        if is_range:
            self.length += len(self.memory) + length
            self.pieces += (self.memory, records)
            self.memory = bytearray()
        elif length:
            self.memory += records

    def _tags(self, read: PartitionReply) -> None:
        if read.diverging is None and read.leader is None:
            self.memory.append(0)
            return
        self.memory.append((read.diverging is not None) + (read.leader is not None))
        if read.diverging is not None:
            # Number 0: diverging epoch, of 4 + 8 bytes and an empty tag section.
            self.memory += b"\x00\x0d" + _DIVERGING.pack(*read.diverging) + b"\x00"
        if read.leader is not None:
            # Number 1: leader id and epoch, of 4 + 4 bytes and an empty tag section.
            self.memory += b"\x01\x09" + _LEADER.pack(*read.leader) + b"\x00"

    def nodes(self, nodes: Sequence[Node]) -> None:
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
        self.memory += b"\x01\x00" + encode_unsigned_varint(len(field)) + field

    def _text(self, text: str) -> None:
        data = text.encode()
        self.memory += encode_unsigned_varint(len(data) + 1) + data
