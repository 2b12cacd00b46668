"""One partition of `__consumer_offsets` that this broker leads, with the groups in it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from raftlog.broker.core.coordinator.shared import GROUP_TOPIC, Now
from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.consumer.large_target import assign_in_steps
from raftlog.broker.core.group.consumer.regexes import regexes_resolved, resolve
from raftlog.broker.core.group.effects import (
    Continuation,
    Decision,
    Effects,
    RegexResolution,
    Write,
)
from raftlog.broker.core.group.events import complete_write, expire, unload
from raftlog.broker.core.group.group import Group
from raftlog.broker.core.group.loading import replay_common_offsets
from raftlog.broker.core.group.member import MemoryBudget, Ticket
from raftlog.broker.core.group.offsets import expire_group, forget_missing_topics, forget_topics
from raftlog.broker.core.group.records import (
    CoordinatorRecord,
    OffsetRecord,
    TopicOffsets,
    decode_record,
    encode_record,
)
from raftlog.broker.core.group.shard import GroupCoordinatorShard, GroupSettings
from raftlog.broker.core.group.topic_offsets import pack_topic_offsets
from raftlog.broker.core.log.producers import TransactionEnd
from raftlog.broker.runtime.coordinator_host import (
    CoordinatorHost,
    CoordinatorPartition,
    Encoded,
    Producer,
    give_answer,
)
from raftlog.broker.runtime.held_heartbeats import HeldHeartbeats
from raftlog.broker.runtime.timer_wheel import TimedWait, TimerWheel
from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.ids import ProducerId
from raftlog.wire.schema import Message

log = logging.getLogger("raftlog.groups")

ANSWERED_AT_ONCE = 100
"""So many members of a group are answered in one go; more than that in steps."""

AFTER_LEAVE_SECONDS = 0.02
"""Where one member leaves others often do, too: an application ends. Who has joined again by then cannot commit what it
has done (REBALANCE_IN_PROGRESS), so that the others hear of it a little later."""

D = TypeVar("D")


def answer(respond: Callable[[Any], None], make: Callable[[], Message]) -> None:
    """Make an answer and give it."""
    respond(make())


class GroupHost(CoordinatorHost[CoordinatorRecord]):
    """The shard, its requests, and its upkeep.

    Invariant: `_unanswered` are the tickets that the shard holds or that a write of its own will answer. They need no
    limit: a member has at most two.
    """

    def __init__(
        self,
        index: int,
        partition: CoordinatorPartition,
        clock: Callable[[], Now],
        timers: TimerWheel,
        *,
        config: GroupConfig,
        memory: MemoryBudget,
        image: MetadataImage,
        settings: GroupSettings,
        in_background: Callable[[Iterator[None]], None],
    ) -> None:
        """`memory` counts the members of all hosts of a broker; `in_background` takes steps, a few at a time."""
        name = f"{GROUP_TOPIC}-{index}"
        self.shard = GroupCoordinatorShard(config, memory, image, settings)
        self._in_background = in_background
        super().__init__(
            name,
            partition,
            clock,
            timers,
            next_look_ms=self.shard.timers.next_look_ms,
            commit_timeout_ms=config.commit_timeout_ms,
        )
        self._unanswered: dict[Ticket, Callable[[Any], None]] = {}
        self._last_ticket = 0
        # Answers that were decided and are not made yet.
        self._late: deque[Callable[[], None]] = deque()
        self.held_heartbeats = HeldHeartbeats(timers)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────

    def commit_in_transaction(
        self,
        decision: Decision[D],
        producer: Producer,
        respond: Callable[[D], None],
        refuse: Callable[[ErrorCode], None],
    ) -> None:
        """As `commit`, with records that count when the producer's transaction commits."""
        self.write(decision.records, partial(give_answer, decision.response, respond, refuse), producer)

    def complete_transaction(self, end: TransactionEnd, respond: Callable[[ErrorCode], None]) -> None:
        """Write the marker that ends a producer's transaction here: its offsets count from now on, or are gone.
        `respond` hears when that is committed, or the log's error.
        """
        result = self.partition.append_marker(end, self.now().wall_ms)
        if result.error is not ErrorCode.NONE:
            respond(result.error)
            return
        self.shard.end_transaction(end.producer_id, committed=end.committed)
        self.on_committed(respond)

    def take(self, event: Callable[[Ticket, Now], Effects], respond: Callable[[Any], None]) -> None:
        """Begin something that is answered by ticket, perhaps only after others have come."""
        self._last_ticket += 1
        ticket = Ticket(self._last_ticket)
        self._unanswered[ticket] = respond
        self.execute(event(ticket, self.now()))

    def execute(self, effects: Effects) -> None:
        """Answer who can be answered, and write what is to be written."""
        for group_id, what in effects.notes:
            log.info("group=%s %s", group_id, what)
        for ticket, response in effects.replies:
            self._unanswered.pop(ticket)(response)
        if effects.late_replies:
            self._answer_late(partial(answer, self._unanswered.pop(each), make) for each, make in effects.late_replies)
        for group_id in effects.rejoins:
            self._tell_news(group_id)
        for group_id in effects.rejoins_soon:
            self._tell_of_leave(group_id)
        for write in effects.writes:
            self._write(write)
        self.shard.remember_rebalances(effects.rebalances, self.now())
        for resolution in effects.resolutions:
            if self.shard.groups.get(resolution.group_id) is not None:
                self.shard.resolving[resolution.group_id] = None
                self._in_background(self._resolve(resolution))
        for group_id in effects.assignments:
            if group_id in self.shard.assigning:
                continue
            self.shard.assigning[group_id] = None
            self._in_background(self._assign(group_id))
        self.schedule()

    def _tell_news(self, group_id: str) -> None:
        self._answer_late(self.held_heartbeats.take(group_id))

    def _tell_of_leave(self, group_id: str) -> None:
        group = self.shard.classic(group_id)
        if group is not None:
            self._answer_late(self.held_heartbeats.take(group_id, but=group.members))
        TimedWait(self._timers, AFTER_LEAVE_SECONDS, lambda _: self._tell_news(group_id))

    def _answer_late(self, answers: Iterable[Callable[[], None]]) -> None:
        """A few are answered now; many in steps, beside which others are served. Who was decided upon first is told
        first."""
        late = self._late
        is_answering = bool(late)
        late.extend(answers)
        if self.is_closed or len(late) <= ANSWERED_AT_ONCE:
            self._answer_rest()
        elif not is_answering:
            self._in_background(self._answer_in_steps())

    def _answer_in_steps(self) -> Iterator[None]:
        while self._late:
            self._late.popleft()()
            yield

    def _answer_rest(self) -> None:
        while self._late:
            self._late.popleft()()

    def _write(self, write: Write) -> None:
        records, then, appended = write
        if appended is None and then is not None:
            self.write(records, partial(self._complete, then))
            return
        error = self.append(records)
        if appended is not None:
            self.execute(appended(error, self.now()))
        if then is None:
            return
        if error is ErrorCode.NONE:
            self.on_committed(partial(self._complete, then))
        else:
            self._complete(then, error)

    def _resolve(self, resolution: RegexResolution) -> Iterator[None]:
        """Match topics with patterns, and then tell the group."""
        resolved = yield from resolve(resolution, self.shard.image, self.now())
        if not self.is_closed:
            self.execute(regexes_resolved(self.shard, resolution.group_id, resolved, self.now()))

    def _assign(self, group_id: str) -> Iterator[None]:
        """Compute the target assignment of a large group."""
        for effects in assign_in_steps(self.shard, group_id, self.now()):
            if effects is not None:
                self.execute(effects)
            yield
            if self.is_closed:
                return

    def _complete(self, then: Continuation, error: ErrorCode) -> None:
        self.execute(complete_write(self.shard, then, error, self.now()))

    # ── what a coordinator's host asks ────────────────────────────────────────────────────────────────────

    decode = staticmethod(decode_record)

    def encode(self, record: CoordinatorRecord) -> Encoded:
        """See CoordinatorHost."""
        return pack_topic_offsets(record) if isinstance(record, TopicOffsets) else encode_record(record)

    def replay(self, record: CoordinatorRecord) -> None:
        """See CoordinatorHost."""
        self.shard.replay(record)

    def replay_common(self, pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes] | None]:
        """See CoordinatorHost."""
        return replay_common_offsets(self.shard, pairs)

    def replay_pending(self, producer_id: ProducerId, record: CoordinatorRecord) -> None:
        """See CoordinatorHost."""
        self.shard.replay_pending(producer_id, record)

    def restore(self) -> Iterator[None]:
        """See CoordinatorHost. Members have a session time-out to be heard."""
        now = self.now()
        for group in list(self.shard.groups.values()):
            self.shard.restore(group, now)
            yield
        # Nobody could hear of them meanwhile, and other shards may have been loaded beside.
        self.shard.timers.postpone(self.now().monotonic_ms - now.monotonic_ms)

    def tick(self) -> None:
        """See CoordinatorHost."""
        self.execute(expire(self.shard, self.now()))

    def too_large(self, record: CoordinatorRecord) -> str:
        """See CoordinatorHost."""
        return (
            f"group={record.group_id} is too large to be stored. Give it fewer members, subscriptions or partitions, or"
            f" raise max.message.bytes of the topic {GROUP_TOPIC}"
        )

    def contents(self) -> str:
        """See CoordinatorHost."""
        return f"groups={len(self.shard.groups)}"

    def close(self, error: ErrorCode) -> None:
        """See CoordinatorHost. Members have to look for the new coordinator."""
        effects = unload(self.shard, self.now())
        super().close(error)
        self.execute(effects)
        self._answer_rest()
        self.held_heartbeats.answer_all()

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
        now = self.now()
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

    def check_invariants(self) -> None:
        """Raises InvariantViolation if host and shard contradict each other."""
        self.shard.check_invariants()
        members = [member for group in self.shard.classic_groups() for member in group.members.values()]
        held = {ticket for m in members for ticket in (m.join_ticket, m.sync_ticket) if ticket is not None}
        if not held <= self._unanswered.keys():
            raise InvariantViolation(f"{self.name}: a member waits for an answer that nobody can give")
        if held and not self.is_loaded:
            raise InvariantViolation(f"{self.name}: members wait before it is loaded")
