"""A member of a classic group: join, sync, heartbeat, leave (KIP-62, 345, 394, 429), without I/O.

With a cooperative assignor partitions are kept over a rebalance, and what has to move is given up in a second one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from raftlog.client.core.assignment import (
    partitions_of,
    read_assignment,
    takes_partitions,
    write_assignment,
    write_subscription,
)
from raftlog.client.core.assignors import COOPERATIVE, Subscription, assign
from raftlog.client.core.errors import KafkaError, Rejected
from raftlog.client.core.membership import Action, Assign, Fail, Learn, Lose, Partitions, Revoke, Send, Wait
from raftlog.client.core.settings import ConsumerSettings
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.internal.consumer_protocol import decode_subscription
from raftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raftlog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from raftlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from raftlog.wire.schema import Message

PROTOCOL_TYPE = "consumer"
RETRY_SECONDS = 0.1
HELD_SECONDS = 3.0
"""A coordinator may keep a heartbeat for so long, to answer it when there is news."""
NEVER = float("-inf")
NOTHING: Partitions = frozenset()


class State(Enum):
    UNJOINED = "unjoined"
    JOINING = "joining"
    LEARNING = "learning"
    SYNCING = "syncing"
    STABLE = "stable"
    LEFT = "left"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNJOINED: frozenset({State.JOINING, State.LEFT}),
    State.JOINING: frozenset({State.UNJOINED, State.LEARNING, State.SYNCING, State.LEFT}),
    State.LEARNING: frozenset({State.UNJOINED, State.SYNCING, State.LEFT}),
    State.SYNCING: frozenset({State.UNJOINED, State.STABLE, State.LEFT}),
    State.STABLE: frozenset({State.UNJOINED, State.LEFT}),
    State.LEFT: frozenset(),
}


class ClassicMember:
    """See `membership.Member`."""

    def __init__(self, group: str, settings: ConsumerSettings, topics: frozenset[str]) -> None:
        self.state = State.UNJOINED
        self.owned: Partitions = NOTHING
        self.member_id = ""
        self.generation = -1
        self.assigned_generation = -1
        self.is_cooperative = False
        self._group = group
        self._settings = settings
        self._topics = topics
        self._revoking: Partitions | None = None
        """What is being given up, until `revoked`; None for nothing."""
        self._then: list[Action] = []
        """What is due before anything else."""
        self._heard = 0.0
        """When the coordinator last knew us."""
        self._asked = NEVER
        self._is_beating = False
        """Whether the answer to a heartbeat is still to come: no other is sent until then."""
        self._retry_at = 0.0
        self._reason = ""
        self._is_outdated = False
        """Whether what it asks for now rests on topics or partitions that are others by now."""
        self._protocol = ""
        self._members: list[JoinGroupResponseMember] = []
        self._shares: dict[str, bytes] = {}

    def next(self, now: float) -> Action:
        if self._then:
            return self._then.pop(0)
        if self._retry_at > now:
            return Wait(self._retry_at)
        if self._revoking is not None:
            return self._keep_alive(now) if self.generation >= 0 else Wait(now + self._settings.heartbeat_interval)
        match self.state:
            case State.UNJOINED:
                return self._begin_to_join()
            case State.JOINING:
                return self._join()
            case State.LEARNING:
                return Learn(tuple(sorted({topic for each in self._subscriptions().values() for topic in each.topics})))
            case State.SYNCING:
                return self._sync()
            case State.STABLE:
                return self._keep_alive(now)
            case State.LEFT:
                return Wait(now + self._settings.session_timeout)

    def answered(self, answer: Message, now: float) -> None:
        """What was asked before the group went on without this member is answered to nobody."""
        self._heard = now
        match answer:
            case JoinGroupResponse():
                if self.state is State.JOINING:
                    self._joined(answer, now)
            case SyncGroupResponse():
                if self.state is State.SYNCING:
                    self._synced(answer, now)
            case HeartbeatResponse():
                is_beating, self._is_beating = self._is_beating, False
                if is_beating and self.generation >= 0:
                    self._beat(ErrorCode.of(answer.error_code), now)
            case _:
                raise InvariantViolation(f"{type(answer).__name__} was not asked for")

    def unanswered(self, error: KafkaError, now: float) -> None:
        self._is_beating = False
        if not error.retriable:
            self._then.append(Fail(error))
            return
        self._retry_at = now + RETRY_SECONDS
        if self.generation >= 0 and now - self._heard > self._settings.session_timeout:
            self.fenced()

    def learned(self, partitions: Mapping[str, int]) -> None:
        if self.state is State.LEARNING:
            members = self._subscriptions()
            shares = assign(self._protocol, members, partitions)
            self._shares = {
                member: write_assignment(
                    share, takes=self.is_cooperative and not members[member].owned <= partitions_of(share)
                )
                for member, share in shares.items()
            }
            self._go(State.SYNCING)

    def revoked(self) -> None:
        if self._revoking is None:
            return  # lost meanwhile
        self.owned -= self._revoking
        self._revoking = None

    def subscribe(self, topics: frozenset[str]) -> None:
        if topics != self._topics:
            self._topics = topics
            self.changed("the subscription changed")

    def changed(self, reason: str) -> None:
        self._is_outdated = self.state in (State.JOINING, State.LEARNING, State.SYNCING)
        self.rejoin(reason)

    def rejoin(self, reason: str) -> None:
        self._reason = reason
        if self.state is State.STABLE:
            self._go(State.UNJOINED)

    def fenced(self, *, keeps_name: bool = False) -> None:
        """The group went on without this member: it joins as a new one, or under its id if that is known still.

        Under a new id it would have to wait until the session of the old one is over.
        """
        if self._settings.group_instance_id is None and not keeps_name:
            self.member_id = ""
        self.generation = self.assigned_generation = -1
        self._lose()
        if self.state is not State.LEFT:
            self._back_to_unjoined()

    def leave(self) -> Send | None:
        known = self.member_id and self.state is not State.LEFT
        self._go(State.LEFT) if self.state is not State.LEFT else None
        if not known or self._settings.group_instance_id is not None:
            return None  # a static member comes back, or its session runs out (KIP-345)
        identity = MemberIdentity(member_id=self.member_id, reason="the consumer was closed")
        request = LeaveGroupRequest(group_id=self._group, members=[identity])
        return Send(request, LeaveGroupResponse)

    def _begin_to_join(self) -> Action:
        if self.owned and not self.is_cooperative:
            self._revoking = self.owned
            return Revoke(self.owned)
        gone = frozenset(each for each in self.owned if each[0] not in self._topics)
        if gone:
            self._revoking = gone
            return Revoke(gone)
        self._is_outdated = False
        self._go(State.JOINING)
        return self._join()

    def _join(self) -> Send:
        self._is_beating = False
        settings = self._settings
        protocols = []
        for name in settings.assignors:
            owned = self.owned if name in (COOPERATIVE, "sticky") else NOTHING
            metadata = write_subscription(sorted(self._topics), owned, self.generation, settings.client_rack)
            protocols.append(JoinGroupRequestProtocol(name=name, metadata=metadata))
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=int(settings.session_timeout * 1000),
            rebalance_timeout_ms=int(settings.rebalance_timeout * 1000),
            member_id=self.member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=self._reason or None,
        )
        return Send(request, JoinGroupResponse, settings.rebalance_timeout)

    def _joined(self, answer: JoinGroupResponse, now: float) -> None:
        code = ErrorCode.of(answer.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id  # KIP-394: join again under the name given
            return
        if code != ErrorCode.NONE:
            self._refused(code, now)
            return
        if not self._is_outdated:
            self._reason = ""
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.assigned_generation = -1
        self._protocol = answer.protocol_name or self._settings.assignors[0]
        self.is_cooperative = self._protocol == COOPERATIVE
        self._members, self._shares = answer.members, {}
        is_leader = answer.leader == answer.member_id and not answer.skip_assignment
        self._go(State.LEARNING if is_leader else State.SYNCING)

    def _sync(self) -> Send:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=share) for member, share in self._shares.items()
            ],
        )
        return Send(request, SyncGroupResponse, self._settings.rebalance_timeout)

    def _synced(self, answer: SyncGroupResponse, now: float) -> None:
        code = ErrorCode.of(answer.error_code)
        if code != ErrorCode.NONE:
            self._refused(code, now)
            return
        assigned = partitions_of(read_assignment(answer.assignment))
        self._go(State.STABLE)
        self.assigned_generation = self.generation
        self._asked = NEVER  # a coordinator that keeps heartbeats has one from now on
        added, taken = assigned - self.owned, self.owned - assigned
        if not self.is_cooperative and self.owned:
            # A change of assignor, from cooperative to eager.
            self._then.append(Lose(taken)) if taken else None
            self.owned = self.owned & assigned
        elif taken or takes_partitions(answer.assignment):
            if taken:
                self._revoking = taken
                self._then.append(Revoke(taken))
            # Else they were taken from a static member that ended before it joined again: the group still waits for
            # that, and its next one gets the same assignment.
            self.rejoin("partitions were given up for others")
        self.owned |= added
        self._then.append(Assign(added))
        if self._is_outdated:
            self.rejoin(self._reason)

    def _keep_alive(self, now: float) -> Action:
        due = self._asked + self._settings.heartbeat_interval
        if self._is_beating:
            return Wait(now + self._settings.session_timeout)
        if now < due:
            return Wait(due)
        self._asked = now
        self._is_beating = True
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
        )
        return Send(request, HeartbeatResponse, HELD_SECONDS, is_beside=True)

    def _beat(self, code: ErrorCode, now: float) -> None:
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin("the group is rebalancing")
        elif code != ErrorCode.NONE:
            self._refused(code, now)

    def _refused(self, code: ErrorCode, now: float) -> None:
        match code:
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                self.fenced(keeps_name=code == ErrorCode.ILLEGAL_GENERATION)
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._back_to_unjoined()
            case _ if code.retriable:
                self._retry_at = now + RETRY_SECONDS
                if self.state in (State.SYNCING, State.LEARNING):
                    self._back_to_unjoined()
            case _:
                self._then.append(Fail(Rejected(code, f"group {self._group!r}")))

    def _lose(self) -> None:
        self._revoking = None
        self._then = [action for action in self._then if not isinstance(action, Assign | Revoke)]
        if self.owned:
            self._then.append(Lose(self.owned))
        self.owned = NOTHING

    def _back_to_unjoined(self) -> None:
        if self.state is not State.UNJOINED:
            self._go(State.UNJOINED)

    def _subscriptions(self) -> dict[str, Subscription]:
        found = {}
        for member in self._members:
            told = decode_subscription(member.metadata)
            owned = frozenset((each.topic, index) for each in told.owned_partitions for index in each.partitions)
            found[member.member_id] = Subscription(told.topics, owned, told.generation_id, member.group_instance_id)
        return found

    def _go(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantViolation(f"a member cannot go from {self.state.value} to {state.value}")
        self.state = state

    def check_invariants(self) -> None:
        if self._revoking is not None and not self._revoking <= self.owned:
            raise InvariantViolation("what is given up is not owned")
        if self.state is State.STABLE and self.generation < 0:
            raise InvariantViolation("stable without a generation")


