"""One partition of `__consumer_offsets` that this broker leads: its shard, its log, and who waits for either."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.effects import Continuation, Effects
from raftlog.broker.core.group.group import Group
from raftlog.broker.core.group.leave import expire, unload, written
from raftlog.broker.core.group.loading import GroupLogReader
from raftlog.broker.core.group.member import HeldBytes, Ticket
from raftlog.broker.core.group.offsets import expire_group, forget_missing_topics, forget_topics
from raftlog.broker.core.group.placement import GROUP_TOPIC
from raftlog.broker.core.group.records import CoordinatorRecord, OffsetRecord, encode_record
from raftlog.broker.core.group.shard import GroupShard
from raftlog.broker.core.group.state import Now
from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.metadata.image import MetadataImage
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.errors import ErrorCode
from raftlog.wire.schema import Message

log = logging.getLogger("raftlog.groups")

MAX_WRITE_BYTES = 512 * 1024
"""Keys and values of one batch that we write, well below any sensible max.message.bytes: the removal of a group with
a hundred thousand offsets goes into several."""

LOAD_CHUNK_BYTES = 64 * 1024
"""How much of the log is read and taken in before the event loop gets its turn again: about a millisecond."""

REPLAY_SLICE = 500
"""How many records are replayed before the event loop gets its turn again."""


class GroupLog(Protocol):
    """What is needed of a partition's log."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...

    def read_bytes(self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool) -> bytes:
        """Batches from the one with `offset` on, the last perhaps cut; with `min_one` at least one whole batch."""


class GroupPartition(Protocol):
    """What is needed of a partition that this broker leads."""

    @property
    def leader_epoch(self) -> int: ...
    @property
    def log(self) -> GroupLog: ...

    def append(self, records: bytes, now_ms: int) -> AppendResult:
        """Append one batch as leader."""

    def wait(self, mark: Mark, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once the mark is at least `offset`, or with why it never will be."""


class _CommitWait:
    """A callback that waits for the high watermark, but not for ever."""

    __slots__ = ("callback", "deadline_ms")

    def __init__(self, callback: Callable[[ErrorCode], None], deadline_ms: int) -> None:
        self.callback: Callable[[ErrorCode], None] | None = callback
        self.deadline_ms = deadline_ms

    def done(self, error: ErrorCode) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(error)


class GroupShardHost:
    """The shard of one partition, from the moment this broker leads it until it does so no more.

    Invariant: an answer leaves only when everything that was written before it was decided is committed.
    """

    __slots__ = ("_answer", "_clock", "_told", "_waits", "is_loaded", "leader_epoch", "partition", "shard")

    def __init__(
        self,
        index: int,
        config: GroupConfig,
        partition: GroupPartition,
        clock: Callable[[], Now],
        answer: Callable[[Ticket, Message], None],
        *,
        held: HeldBytes,
    ) -> None:
        self.shard = GroupShard(index, config, held)
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self._clock = clock
        self._answer = answer
        self._waits: deque[_CommitWait] = deque()
        # The failure that was logged last; NONE once a write has succeeded since.
        self._told = ErrorCode.NONE
        self.is_loaded = False

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────

    def carry_out(self, effects: Effects) -> None:
        """Answer who can be answered, and write what is to be written."""
        for group_id, what in effects.notes:
            log.info("group=%s %s", group_id, what)
        for ticket, response in effects.replies:
            self._answer(ticket, response)
        for records, then in effects.writes:
            error = self.append(records)
            if error is ErrorCode.NONE:
                self.when_safe(partial(self._go_on, then))
            else:
                self._go_on(then, error)

    def _go_on(self, then: Continuation, error: ErrorCode) -> None:
        self.carry_out(written(self.shard, then, error, self._clock()))

    def append(self, records: Sequence[CoordinatorRecord]) -> ErrorCode:
        """Write records and replay them. With an error the first ones may have been written, if they are many."""
        now_ms = self._clock().wall_ms
        encoded = [encode_record(record) for record in records]
        first = 0
        for end in _batch_ends(encoded):
            batch = encode_batch([Record(i, now_ms, key, value) for i, (key, value) in enumerate(encoded[first:end])])
            result = self.partition.append(batch, now_ms)
            if result.error is not ErrorCode.NONE:
                self._tell_failure(result, records[first].group_id)
                return result.error
            for record in records[first:end]:
                self.shard.replay(record)
            first = end
        self._told = ErrorCode.NONE
        return ErrorCode.NONE

    def _tell_failure(self, result: AppendResult, group_id: str) -> None:
        """Log it, but not for every commit of every consumer."""
        if result.error is self._told:
            return
        self._told = result.error
        reason = result.message or result.error.message
        if result.error is ErrorCode.MESSAGE_TOO_LARGE:
            log.error(
                "group=%s is too large to be stored: %s. Give it fewer members, subscriptions or partitions, or raise"
                " max.message.bytes of the topic %s",
                group_id,
                reason,
                GROUP_TOPIC,
            )
        else:
            log.error("partition=%s-%d takes no group records: %s", GROUP_TOPIC, self.shard.index, reason)

    @property
    def is_safe(self) -> bool:
        """Whether all that was written is committed."""
        partition_log = self.partition.log
        return partition_log.high_watermark >= partition_log.log_end_offset

    def when_safe(self, callback: Callable[[ErrorCode], None]) -> None:
        """Call back when all that has been written so far is committed, or has failed to be in time."""
        if self.is_safe:
            callback(ErrorCode.NONE)
            return
        wait = _CommitWait(callback, self._clock().monotonic_ms + self.shard.config.commit_timeout_ms)
        self._waits.append(wait)
        self.partition.wait(Mark.HIGH_WATERMARK, self.partition.log.log_end_offset, wait.done)

    def next_look_ms(self) -> int:
        """When `tick` has something to do; NEVER if nothing."""
        while self._waits and self._waits[0].callback is None:
            self._waits.popleft()
        timers = self.shard.timers.next_look_ms()
        return min(timers, self._waits[0].deadline_ms) if self._waits else timers

    def tick(self) -> None:
        """Do what is due by now."""
        now = self._clock()
        while self._waits and (self._waits[0].callback is None or self._waits[0].deadline_ms <= now.monotonic_ms):
            self._waits.popleft().done(ErrorCode.REQUEST_TIMED_OUT)
        if self.shard.timers.next_look_ms() <= now.monotonic_ms:
            self.carry_out(expire(self.shard, now))

    def close(self) -> None:
        """This broker leads the partition no more: everybody who waits has to look for the new coordinator."""
        effects = unload(self.shard, self._clock())
        while self._waits:
            self._waits.popleft().done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.carry_out(effects)

    # ── loading ───────────────────────────────────────────────────────────────────────────────────────────

    def load(self) -> Iterator[None]:
        """Load the shard, a slice at each step. Raises ValueError for a log that cannot be understood."""
        partition_log = self.partition.log
        reader = GroupLogReader(partition_log.log_start_offset)
        end_offset = partition_log.log_end_offset
        while reader.next_offset < end_offset:
            before = reader.next_offset
            reader.feed(partition_log.read_bytes(before, LOAD_CHUNK_BYTES, end_offset, min_one=True))
            if reader.next_offset == before:
                raise ValueError(f"the log ends at {before} and not at {end_offset}")
            yield
        for count, record in enumerate(reader.survivors()):
            self.shard.replay(record)
            if count % REPLAY_SLICE == REPLAY_SLICE - 1:
                yield
        now = self._clock()
        for count, group in enumerate(list(self.shard.groups.values())):
            self.shard.restore(group, now)
            if count % REPLAY_SLICE == REPLAY_SLICE - 1:
                yield
        if reader.unknown_kinds:
            log.warning(
                "partition=%s-%d holds %d records of group protocols that are not served; they stay as they are",
                GROUP_TOPIC,
                self.shard.index,
                reader.unknown_kinds,
            )
        self.is_loaded = True

    # ── upkeep ────────────────────────────────────────────────────────────────────────────────────────────

    def forget_topics(self, names: Sequence[str]) -> None:
        """Remove all offsets of topics that were deleted."""
        records = forget_topics(self.shard, names)
        if records:
            self.append(records)

    def forget_missing_topics(self, image: MetadataImage) -> Iterator[None]:
        """Remove offsets of topics that were deleted while the shard was not loaded, a group at each step."""
        return self._upkeep(lambda group: forget_missing_topics(group, image))

    def expire_offsets(self) -> Iterator[None]:
        """Remove offsets that have expired by now, and groups that have none left, a group at each step."""
        now = self._clock()
        return self._upkeep(lambda group: self._expired(group, now))

    def _expired(self, group: Group, now: Now) -> list[CoordinatorRecord]:
        records = expire_group(self.shard.config, group, now)
        if records:
            offsets = sum(isinstance(record, OffsetRecord) for record in records)
            rest = ", and with them the group" if offsets < len(records) else ""
            log.info("group=%s committed offsets expired: %d%s", group.group_id, offsets, rest)
        return records

    def _upkeep(self, removals: Callable[[Group], list[CoordinatorRecord]]) -> Iterator[None]:
        for group in list(self.shard.groups.values()):
            # Between two steps anything may happen, the loss of the whole shard included.
            if self.shard.groups.get(group.group_id) is group:
                records = removals(group)
                if records:
                    self.append(records)
            yield


def _batch_ends(encoded: Sequence[tuple[bytes, bytes | None]]) -> Iterator[int]:
    """Where to cut, so that no batch of several records has more than MAX_WRITE_BYTES of keys and values."""
    size = 0
    for position, (key, value) in enumerate(encoded):
        more = len(key) + len(value or b"")
        if size and size + more > MAX_WRITE_BYTES:
            yield position
            size = 0
        size += more
    if encoded:
        yield len(encoded)
