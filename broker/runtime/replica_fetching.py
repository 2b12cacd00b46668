"""Fetches of followers: what they say of themselves, and what they are given."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.core.replica.following import UNDEFINED, diverging
from raftlog.broker.runtime.partition_read import Entry, PartitionRead
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.core.replica.throttle import Throttles
    from raftlog.broker.runtime.fetching import FetchService, Session
    from raftlog.broker.runtime.partition import Partition

HELD_BACK_MS_MAX = 1000
"""After this time a throttled follower is looked at again: the rate may have changed."""


def read_for_replica(
    service: FetchService, session: Session, entry: Entry, bytes_max: int, min_one: bool
) -> PartitionRead:
    """What a follower is sent of one partition; its offset is taken as acknowledgement when it is new."""
    partition = service.resolve(entry)
    if partition is None:
        return _refused(entry, entry.error)
    error = partition.check_leader_epoch(entry.leader_epoch)
    if error is not ErrorCode.NONE:
        return _refused(entry, error)
    log = partition.log
    if not entry.acknowledged:
        refusal = _acknowledge(session, entry, partition)
        if refusal is not None:
            return refusal
    start, end = entry.fetch_offset, log.log_end_offset
    if start < log.log_start_offset:
        # What it was to fetch next has expired while it was away, or waited.
        return _refused(entry, ErrorCode.OFFSET_OUT_OF_RANGE)
    records = None
    bytes_max = min(entry.partition_bytes_max, bytes_max)
    throttles = service.partitions.throttles
    throttled = throttles is not None and _is_throttled(throttles, session, partition)
    if throttles is not None and throttled and _hold_back(service, throttles, session, entry):
        end = start
    if start < end and (bytes_max > 0 or min_one):
        try:
            records = log.read(start, bytes_max, end, min_one=min_one)
        except LogUnavailable as failure:
            service.partitions.storage_failed(partition, failure)
            return _refused(entry, ErrorCode.KAFKA_STORAGE_ERROR)
        if throttles is not None and throttled and records is not None:
            throttles.leaders.used(records.length, _now_ms(service))
    return PartitionRead(
        entry,
        ErrorCode.NONE,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        records,
        None,
        more=start < end,
    )


def _refused(entry: Entry, error: ErrorCode) -> PartitionRead:
    return PartitionRead(entry, error, -1, -1, -1, None, None)


def _is_throttled(throttles: Throttles, session: Session, partition: Partition) -> bool:
    """KIP-73: a follower in sync is never throttled."""
    return session.replica_id not in partition.isr and throttles.on_leader(
        partition.topic, partition.index, session.replica_id
    )


def _hold_back(service: FetchService, throttles: Throttles, session: Session, entry: Entry) -> bool:
    wait_ms = throttles.leaders.wait_ms(_now_ms(service))
    if wait_ms > 0 and entry not in service.held_back:
        service.held_back[entry] = None
        service.loop.call_later(min(wait_ms, HELD_BACK_MS_MAX) / 1000, _look_again, service, session, entry)
    return wait_ms > 0


def awaits_opening(service: FetchService, session: Session, entry: Entry) -> bool:
    """Whether the partition has yet to be opened, in its turn; it is looked at again then.

    A follower that comes back asks for thousands at once, and need not be told of each in its first answer.
    """
    topic_id, partitions = entry.topic.topic_id, service.partitions
    if not partitions.opens_soon(topic_id, entry.index):
        return False
    if entry not in service.held_back:
        service.held_back[entry] = None
        partitions.when_open(topic_id, entry.index, partial(_look_again, service, session, entry))
    return True


def _look_again(service: FetchService, session: Session, entry: Entry) -> None:
    del service.held_back[entry]
    if session.partitions.get((entry.topic, entry.index)) is entry:
        session.mark_ready(entry)


def _now_ms(service: FetchService) -> int:
    return int(service.loop.time() * 1000)


def _acknowledge(session: Session, entry: Entry, partition: Partition) -> PartitionRead | None:
    """Take note of where the follower is, unless it is where we have never been; then what to tell it."""
    leadership = partition.leadership
    if leadership is None:
        # It knows of followers and we do not, yet.
        return _refused(entry, ErrorCode.UNKNOWN_LEADER_EPOCH)
    follower = leadership.follower(session.replica_id, session.replica_epoch)
    if isinstance(follower, ErrorCode):
        return _refused(entry, follower)
    log, offset = partition.log, entry.fetch_offset
    if entry.last_fetched_epoch >= 0:
        epoch, end_offset = log.end_offset_for_epoch(entry.last_fetched_epoch)
        if epoch == UNDEFINED or offset < log.log_start_offset:
            return _refused(entry, ErrorCode.OFFSET_OUT_OF_RANGE)
        if diverging(epoch, end_offset, entry.last_fetched_epoch, offset):
            marks = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
            return PartitionRead(entry, ErrorCode.NONE, *marks, None, None, (epoch, end_offset))
    if not log.log_start_offset <= offset <= log.log_end_offset:
        return _refused(entry, ErrorCode.OFFSET_OUT_OF_RANGE)
    entry.acknowledged = True
    follower.contact = session
    partition.acknowledged(follower, offset, entry.log_start_offset)
    return None
