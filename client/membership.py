"""Being a member of a classic consumer group: join, take a share of the partitions, stay alive, leave.

Blocking and single-threaded: the caller comes by with `poll` between two fetches, often enough for the session to live.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from raftlog.client.core.assignment import (
    Assignment,
    assign_ranges,
    read_assignment,
    write_assignment,
    write_subscription,
)
from raftlog.client.errors import ClientError, Rejected
from raftlog.client.groups import commit_offsets
from raftlog.client.router import Client, check
from raftlog.wire.errors import ErrorCode
from raftlog.wire.internal.consumer_protocol import decode_subscription
from raftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from raftlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEAT_SECONDS = 1.0
PROTOCOL_TYPE = "consumer"
ASSIGNOR = "range"
REJOIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.MEMBER_ID_REQUIRED,
}


class Membership:
    """One member. `assignment` is what it may read since the last `poll` that returned True."""

    def __init__(self, client: Client, group: str, topics: Sequence[str]) -> None:
        self._client = client
        self._group = group
        self._topics = list(topics)
        self._member_id = ""
        self._generation = -1
        self._joined = False
        self._last_heartbeat = 0.0
        self.assignment: Assignment = {}

    def poll(self) -> bool:
        """Keep the session alive; True when the assignment was made anew, so positions must be read again.

        Blocks while the group rebalances.
        """
        if self._joined and time.monotonic() - self._last_heartbeat < HEARTBEAT_SECONDS:
            return False
        if self._joined:
            self._client.retrying(self._heartbeat)
        if self._joined:
            return False
        self._client.retrying(self._join, also=REJOIN)
        return True

    def commit(self, offsets: dict[tuple[str, int], int]) -> bool:
        """Commit as this member; False when the group has moved on without it, and the next `poll` rejoins."""
        try:
            commit_offsets(self._client, self._group, offsets, generation=self._generation, member_id=self._member_id)
        except Rejected as error:
            if error.code not in REJOIN:
                raise
            if error.code != ErrorCode.REBALANCE_IN_PROGRESS:
                self._forget(error.code)
            self._joined = False
            return False
        return True

    def leave(self) -> None:
        """Tell the coordinator, so that the others need not wait for the session to run out."""
        if not self._member_id:
            return
        request = LeaveGroupRequest(group_id=self._group, members=[MemberIdentity(member_id=self._member_id)])
        try:
            self._client.ask_coordinator(self._group, request, LeaveGroupResponse)
        except ClientError:
            pass  # the session runs out by itself
        self._joined = False

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        code = self._client.ask_coordinator(self._group, request, HeartbeatResponse).error_code
        if code in REJOIN:
            self._joined = False
            self._forget(ErrorCode.of(code))
            return
        check(code, f"group {self._group!r}")
        self._last_heartbeat = time.monotonic()

    def _join(self) -> None:
        protocol = JoinGroupRequestProtocol(name=ASSIGNOR, metadata=write_subscription(self._topics))
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        wait = REBALANCE_TIMEOUT_MS / 1000
        answer = self._client.ask_coordinator(self._group, request, JoinGroupResponse, wait=wait)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id  # KIP-394: join again under the name given
        elif answer.error_code in REJOIN:
            self._forget(ErrorCode.of(answer.error_code))
        check(answer.error_code, f"group {self._group!r}")
        self._member_id, self._generation = answer.member_id, answer.generation_id
        self._sync(answer, wait)

    def _sync(self, joined: JoinGroupResponse, wait: float) -> None:
        shares = self._divide(joined) if joined.leader == joined.member_id else {}
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=write_assignment(share))
                for member, share in shares.items()
            ],
        )
        answer = self._client.ask_coordinator(self._group, request, SyncGroupResponse, wait=wait)
        if answer.error_code in REJOIN:
            self._forget(ErrorCode.of(answer.error_code))
        check(answer.error_code, f"group {self._group!r}")
        self.assignment = read_assignment(answer.assignment)
        self._joined = True
        self._last_heartbeat = time.monotonic()

    def _divide(self, joined: JoinGroupResponse) -> dict[str, Assignment]:
        subscriptions = {each.member_id: decode_subscription(each.metadata).topics for each in joined.members}
        topics = sorted({topic for theirs in subscriptions.values() for topic in theirs})
        known = self._client.metadata(topics).topics
        partitions = {topic.name or "": len(topic.partitions) for topic in known if topic.error_code == ErrorCode.NONE}
        return assign_ranges(subscriptions, partitions)

    def _forget(self, code: ErrorCode) -> None:
        """An unknown or outdated member joins as a new one or under its old name, as the code says."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        self._generation = -1
