"""A member of a group of the consumer protocol (KIP-848), without I/O: heartbeats carry all that is said and told.

The coordinator tells what the member shall have; the member gives up what it shall not, says so, and only then takes
what is new. Only what changed is sent, and all of it again after a heartbeat whose answer was lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.client.core.errors import KafkaError, Rejected
from raftlog.client.core.membership import Action, Assign, Fail, Learn, Lose, Partitions, Revoke, Send, Wait
from raftlog.client.core.settings import ConsumerSettings
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from raftlog.wire.schema import Message

JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2
RETRY_SECONDS = 0.1
NOTHING: Partitions = frozenset()
_FIRST_INTERVAL_SECONDS = 5.0


class ConsumerMember:
    """See `membership.Member`. `names` is asked for the name of a topic id, and may not know it yet."""

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        topics: frozenset[str],
        *,
        member_id: str,
        names: Mapping[bytes, str],
        ids: Mapping[str, bytes],
    ) -> None:
        self.owned: Partitions = NOTHING
        self.member_id = member_id
        self._epoch = JOIN
        self._group = group
        self._settings = settings
        self._topics = topics
        self._pattern: str | None = None
        self._names = names
        self._ids = ids
        self._target: Mapping[bytes, list[int]] | None = None
        """What the coordinator wants the member to have, when that is not done yet."""
        self._revoking: Partitions | None = None
        self._then: list[Action] = []
        self._interval = _FIRST_INTERVAL_SECONDS
        self._asked: float | None = None
        self._retry_at = 0.0
        self._says_all = True
        self._has_lost = False
        """Whether it was thrown out since its last heartbeat was sent."""
        self._acknowledges = False
        self._said: Partitions | None = None
        self._left = False
        self._learns_until = 0.0

    @property
    def generation(self) -> int:
        return self._epoch if self._epoch > 0 else -1

    @property
    def assigned_generation(self) -> int:
        return self.generation

    def match(self, pattern: str) -> None:
        """All topics that match a regular expression of RE2, which the brokers evaluate."""
        self._pattern = pattern
        self._says_all = True

    def next(self, now: float) -> Action:
        if self._then:
            return self._then.pop(0)
        if self._retry_at > now:
            return Wait(self._retry_at)
        if self._left:
            return Wait(now + self._interval)
        if self._target is not None and self._revoking is None and (step := self._reconcile(now)) is not None:
            return step
        if self._asked is None or self._acknowledges or now >= self._asked + self._interval:
            self._asked = now
            return Send(self._heartbeat(), ConsumerGroupHeartbeatResponse)
        return Wait(self._asked + self._interval)

    def answered(self, answer: Message, now: float) -> None:
        if not isinstance(answer, ConsumerGroupHeartbeatResponse):
            raise InvariantViolation(f"{type(answer).__name__} was not asked for")
        code = ErrorCode.of(answer.error_code)
        if code != ErrorCode.NONE:
            self._refused(code, answer.error_message, now)
            return
        if self._has_lost:
            return  # asked before the group went on without this member
        self._says_all = False
        self._epoch = answer.member_epoch
        self._interval = answer.heartbeat_interval_ms / 1000
        if answer.member_id:
            self.member_id = answer.member_id
        if answer.assignment is not None:
            self._target = {bytes(each.topic_id): each.partitions for each in answer.assignment.topic_partitions}

    def unanswered(self, error: KafkaError, now: float) -> None:
        if not error.retriable:
            self._then.append(Fail(error))
            return
        self._says_all = True
        self._asked = None
        # Whether its session is over says the coordinator alone: one that gave itself up and came back under its name
        # and epoch would read again what a transaction of its own is about to commit.
        self._retry_at = now + RETRY_SECONDS

    def learned(self, partitions: Mapping[str, int]) -> None:
        """The names are read where they are kept; nothing to take over."""

    def revoked(self) -> None:
        if self._revoking is None:
            return  # lost meanwhile
        self.owned -= self._revoking
        self._revoking = None
        self._acknowledges = True

    def subscribe(self, topics: frozenset[str]) -> None:
        if topics != self._topics:
            self._topics = topics
            self._says_all = True
            self._asked = None

    def changed(self, reason: str) -> None:
        self.rejoin(reason)

    def rejoin(self, reason: str) -> None:
        """The coordinator sees to that; the next heartbeat tells."""
        self._asked = None

    def fenced(self, *, keeps_name: bool = False) -> None:
        self._epoch = JOIN
        self._has_lost = True
        self._says_all = True
        self._asked = None
        self._target = None
        self._revoking = None
        self._acknowledges = False
        self._then = [action for action in self._then if not isinstance(action, Assign | Revoke)]
        if self.owned:
            self._then.append(Lose(self.owned))
        self.owned = NOTHING

    def leave(self) -> Send | None:
        if self._left or self._said is None:  # a heartbeat without an answer may have let it in
            self._left = True
            return None
        self._left = True
        static = self._settings.group_instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=LEAVE_STATIC if static else LEAVE,
            instance_id=self._settings.group_instance_id,
        )
        return Send(request, ConsumerGroupHeartbeatResponse)

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        acknowledges, self._acknowledges, self._has_lost = self._acknowledges, False, False
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self.member_id, member_epoch=self._epoch
        )
        settings = self._settings
        if self._says_all:
            request.instance_id = settings.group_instance_id
            request.rack_id = settings.client_rack
            request.rebalance_timeout_ms = int(settings.rebalance_timeout * 1000)
            request.subscribed_topic_names = sorted(self._topics)
            request.subscribed_topic_regex = self._pattern
            request.server_assignor = settings.server_assignor
        if self._says_all or acknowledges or self._said != self.owned:
            request.topic_partitions = self._owned_by_id() if self._epoch > 0 else []
            self._said = self.owned
        return request

    def _owned_by_id(self) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        indexes: dict[str, list[int]] = {}
        for topic, index in sorted(self.owned):
            indexes.setdefault(topic, []).append(index)
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=self._ids[topic], partitions=each)
            for topic, each in indexes.items()
            if topic in self._ids
        ]

    def _reconcile(self, now: float) -> Action | None:
        assert self._target is not None
        unknown = [topic_id for topic_id in self._target if topic_id not in self._names]
        if unknown and now >= self._learns_until:
            # A topic of a pattern, or made anew: its name is to be learned, and asked for again if that takes longer.
            self._learns_until = now + RETRY_SECONDS
            return Learn(())
        wanted = frozenset(
            (self._names[topic_id], index)
            for topic_id, indexes in self._target.items()
            if topic_id in self._names
            for index in indexes
        )
        taken, added = self.owned - wanted, wanted - self.owned
        if taken:
            self._revoking = taken
            return Revoke(taken)
        if not unknown:
            self._target = None
            self._acknowledges = True
        self.owned |= added
        return Assign(added) if added or not unknown else None

    def _refused(self, code: ErrorCode, message: str | None, now: float) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.fenced()
        elif code.retriable:
            self._says_all = True
            self._asked = None
            self._retry_at = now + RETRY_SECONDS
        else:
            self._then.append(Fail(Rejected(code, f"group {self._group!r}", message)))

    def check_invariants(self) -> None:
        if self._revoking is not None and not self._revoking <= self.owned:
            raise InvariantViolation("what is given up is not owned")
        if self._epoch < 0:
            raise InvariantViolation("an epoch below 0 is for leaving")
