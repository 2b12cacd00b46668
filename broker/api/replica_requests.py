"""Fetch requests of followers, v15 to v18, read by hand: each is the acknowledgement of what was appended before.

Knows the bytes that `broker/runtime/replication/fetch_codec.py` writes. Anything else is left to the compiled decoder.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, NamedTuple

from raftlog.broker.core.fetch.session import TopicKey

if TYPE_CHECKING:
    from raftlog.broker.runtime.fetching import FetchService, Session

# wait, least bytes, most bytes, isolation, session id, session epoch
_TERMS = Struct(">iiibii")
_WANTED = Struct(">iiqiqiB")
_INT32 = Struct(">i")
# No rack; one tagged field, number 1, of 13 bytes: replica id and broker epoch, no tags.
_TAIL = Struct(">BBBBiqB")
_TAIL_START = (1, 1, 1, 13)
_UUID_BYTES = 16

_Wanted = tuple[int, int, int, int, int, int, int]


class ReplicaFetch(NamedTuple):
    """What a follower's request says. `wanted` and `forgotten` are by topic id."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    session_id: int
    session_epoch: int
    replica_id: int
    replica_epoch: int
    wanted: list[tuple[bytes, list[_Wanted]]]
    forgotten: list[tuple[bytes, list[int]]]


def parse_replica_fetch(frame: memoryview, position: int) -> ReplicaFetch | None:
    """The request whose body begins at `position`; None if it is not of the usual form."""
    if len(frame) - position < _TERMS.size + _TAIL.size + 2:
        return None
    *start, replica_id, replica_epoch, tags = _TAIL.unpack_from(frame, len(frame) - _TAIL.size)
    if tuple(start) != _TAIL_START or replica_id < 0 or tags:
        return None
    try:
        wait_ms, bytes_min, bytes_max, _, session_id, epoch = _TERMS.unpack_from(frame, position)
        wanted, position = _read_wanted(frame, position + _TERMS.size)
        forgotten, position = _read_forgotten(frame, position)
    except (StructError, IndexError, ValueError):
        return None
    if position != len(frame) - _TAIL.size:
        return None
    return ReplicaFetch(
        wait_ms, bytes_min, bytes_max, session_id, epoch, replica_id, replica_epoch, wanted, forgotten
    )


def _read_wanted(frame: memoryview, position: int) -> tuple[list[tuple[bytes, list[_Wanted]]], int]:
    wanted: list[tuple[bytes, list[_Wanted]]] = []
    topics, position = _count(frame, position)
    for _ in range(topics):
        topic_id = bytes(frame[position : position + _UUID_BYTES])
        count, position = _count(frame, position + _UUID_BYTES)
        partitions = []
        for _ in range(count):
            partition = _WANTED.unpack_from(frame, position)
            if partition[-1]:
                raise ValueError("a partition has tags")
            partitions.append(partition)
            position += _WANTED.size
        wanted.append((topic_id, partitions))
        position = _no_tags(frame, position)
    return wanted, position


def _read_forgotten(frame: memoryview, position: int) -> tuple[list[tuple[bytes, list[int]]], int]:
    forgotten: list[tuple[bytes, list[int]]] = []
    topics, position = _count(frame, position)
    for _ in range(topics):
        topic_id = bytes(frame[position : position + _UUID_BYTES])
        count, position = _count(frame, position + _UUID_BYTES)
        indexes = [_INT32.unpack_from(frame, position + 4 * number)[0] for number in range(count)]
        forgotten.append((topic_id, indexes))
        position = _no_tags(frame, position + 4 * count)
    return forgotten, position


def _count(frame: memoryview, position: int) -> tuple[int, int]:
    """The length of a compact array, which must fit into what is left."""
    byte = frame[position]
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        position += 1
        byte = frame[position]
        value |= (byte & 0x7F) << shift
        shift += 7
    if not 0 < value <= len(frame) - position:
        raise ValueError("no length of an array")
    return value - 1, position + 1


def _no_tags(frame: memoryview, position: int) -> int:
    if frame[position]:
        raise ValueError("a topic has tags")
    return position + 1


def update_session(fetches: FetchService, session: Session, request: ReplicaFetch) -> None:
    """Bring the follower's session up to date with what its request says."""
    session.replica_epoch = request.replica_epoch
    for topic_id, partitions in request.wanted:
        key = TopicKey("", topic_id)
        for index, leader_epoch, offset, last_epoch, log_start, bytes_max, _ in partitions:
            entry = session.put(key, index)
            entry.leader_epoch = leader_epoch
            entry.fetch_offset = offset
            entry.last_fetched_epoch = last_epoch
            entry.log_start_offset = log_start
            entry.partition_bytes_max = bytes_max
            entry.acknowledged = False
            # A follower passes over what it was sent before it told this, the high watermark included: say it again.
            entry.sent_high_watermark = entry.sent_log_start_offset = -1
    for topic_id, indexes in request.forgotten:
        key = TopicKey("", topic_id)
        for index in indexes:
            removed = session.remove(key, index)
            if removed is not None:
                fetches.release(removed)
    fetches.sessions.count(session)
