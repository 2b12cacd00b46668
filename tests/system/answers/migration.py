"""Questions on the way from one group protocol to the other (KIP-848): both kinds of members in a group."""

from __future__ import annotations

from struct import pack
from typing import Any

from raftlog.wire.messages.describe_groups import DescribeGroupsRequest
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raftlog.wire.messages.list_groups import ListGroupsRequest
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.core.group.group_world import subscription
from tests.system.answers.asking import Asker
from tests.system.answers.consumer_groups import NOTHING_NEW, Heartbeats, describe, prepare

UNREADABLE = b"\x00"


def assignment(topic: str, *partitions: int) -> bytes:
    """A ConsumerProtocolAssignment."""
    indexes = b"".join(pack(">i", index) for index in partitions)
    return pack(">hih", 1, 1, len(topic)) + topic.encode() + pack(">i", len(partitions)) + indexes + pack(">i", -1)


class Classic:
    """A group, and what members of the classic protocol ask; `heartbeat` is that of the others."""

    def __init__(self, asker: Asker, group: str, topic: str) -> None:
        self.asker, self.group, self.topic = asker, asker.name(group), topic
        self.heartbeat = Heartbeats(asker, self.group, topic)
        self.member_id, self.generation = "", -1
        prepare(asker, self.group, topic)

    def join(self, label: str, member_id: str = "", *, version: int = 9, **fields: Any) -> Any:
        """By default with one subscription, by the name of range."""
        metadata = fields.pop("metadata", subscription(self.topic, version=0))
        protocols = [JoinGroupRequestProtocol(name=name, metadata=metadata) for name in fields.pop("names", ("range",))]
        usual = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
        request = JoinGroupRequest(
            group_id=self.group,
            member_id=member_id,
            protocols=protocols,
            **{**usual, **fields},  # type: ignore[arg-type]
        )
        return self.asker.ask(f"join, {label}", request, version)

    def sync(self, label: str, *partitions: int, **fields: Any) -> None:
        """As the member, and if there are partitions with these as its assignment."""
        plan = fields.pop("plan", assignment(self.topic, *partitions) if partitions else None)
        usual = {
            "generation_id": self.generation,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
        }
        own = SyncGroupRequestAssignment(member_id=self.member_id, assignment=plan or b"")
        request = SyncGroupRequest(
            group_id=self.group,
            assignments=[] if plan is None else [own],
            **{**usual, **fields},  # type: ignore[arg-type]
        )
        self.asker.ask(f"sync, {label}", request, 5)

    def settle(self, label: str, **fields: Any) -> None:
        """Join as the only member, and get everything."""
        plan = fields.pop("plan", assignment(self.topic, 0, 1, 2, 3))
        joined = self.join(f"{label}, for an id", **fields)
        self.member_id = joined.member_id
        if not fields.get("group_instance_id"):
            joined = self.join(label, self.member_id, **fields)
        self.generation = joined.generation_id
        kind = fields.get("protocol_type", "consumer")
        self.sync(label, plan=plan, protocol_type=kind)

    def beat(self, label: str, **fields: Any) -> None:
        usual = {"generation_id": self.generation, "member_id": self.member_id}
        request = HeartbeatRequest(group_id=self.group, **{**usual, **fields})
        self.asker.ask(f"classic heartbeat, {label}", request, 4)

    def leave(self, label: str, **identity: Any) -> None:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(**identity)])
        self.asker.ask(f"leave, {label}", request, 5)

    def look(self, label: str) -> None:
        """What the group is, by all that tells it."""
        describe(self.asker, label, self.group)
        request = DescribeGroupsRequest(groups=[self.group])
        self.asker.ask(f"describe as classic, {label}", request, 6, without=("error_message",))

        def only_this(answer: Any) -> None:
            answer.groups = [each for each in answer.groups if each.group_id == self.group]

        self.asker.ask(f"list, {label}", ListGroupsRequest(), 5, trim=only_this)


def there_and_back(asker: Asker) -> None:
    group = Classic(asker, "g", asker.topic("a", 4))
    group.settle("c1")
    group.beat("c1")
    group.look("classic")
    group.heartbeat("n1 joins", member_id="n1")
    group.look("both")
    group.beat("c1 hears of it")
    _commit(group, "c1 in its old generation")
    group.generation = group.join("c1 again", group.member_id).generation_id
    group.sync("c1 again")
    group.look("c1 has joined again")
    group.beat("c1 afterwards")
    group.heartbeat("n1", member_id="n1", member_epoch=group.generation, **NOTHING_NEW)
    group.join("another protocol type", group.member_id, protocol_type="connect")
    group.join("a subscription that cannot be read", group.member_id, metadata=UNREADABLE)
    group.join("no protocol", group.member_id, names=())
    group.sync("a wrong generation", generation_id=99)
    group.sync("a wrong protocol", protocol_name="sticky")
    group.sync("a member that is not there", member_id="qqqqqqq", generation_id=1)
    group.beat("a member that is not there", member_id="qqqqqqq", generation_id=1)
    group.beat("of a member of the other kind", member_id="n1", generation_id=1)
    group.leave("an instance that is not there", group_instance_id="no")
    group.leave("a member of the other kind", member_id="n1")
    group.look("only classic members")
    group.heartbeat("n1 leaves once more", member_id="n1", member_epoch=-1)
    group.beat("c1, of the classic group")
    group.generation = group.join("c1, of the classic group", group.member_id).generation_id
    group.sync("c1, of the classic group", 0, 1, 2, 3)
    group.look("classic again")


def _commit(group: Classic, label: str) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group.group,
        generation_id_or_member_epoch=group.generation,
        member_id=group.member_id,
        topics=[OffsetCommitRequestTopic(name=group.topic, partitions=[partition])],
    )
    group.asker.ask(f"commit, {label}", request, 8)


def newcomers(asker: Asker) -> None:
    """Classic members that come into a group of the consumer protocol."""
    group = Classic(asker, "g", asker.topic("a", 4))
    group.heartbeat("n1 joins", member_id="n1")
    group.join("one with an id of its own", "zzzzzzz")
    group.join("one of an old version", version=3)
    group.join("one without an id")
    group.look("three")


def empty_groups(asker: Asker) -> None:
    group = Classic(asker, "g", asker.topic("a", 4))
    group.settle("c1")
    group.leave("c1", member_id=group.member_id)
    group.look("empty and classic")
    group.heartbeat("x1 takes it", member_id="x1")
    group.look("not classic any more")
    group.heartbeat("x1 leaves", member_id="x1", member_epoch=-1)
    group.look("empty and not classic")
    member_id = group.join("c2 takes it, for an id").member_id
    group.join("c2 takes it", member_id)
    group.look("classic again")


def groups_that_cannot_be_changed(asker: Asker) -> None:
    topic = asker.topic("a", 4)
    connect = Classic(asker, "connect", topic)
    connect.settle("of another type", protocol_type="connect", metadata=b"abc", plan=b"x")
    connect.heartbeat("into one of another type", member_id="n1")
    connect.look("of another type")
    rebalancing = Classic(asker, "rebalancing", topic)
    member_id = rebalancing.join("in a rebalance, for an id").member_id
    rebalancing.join("in a rebalance", member_id)
    asker.counts_partitions = True
    rebalancing.heartbeat("into a rebalance", member_id="n1")
    rebalancing.look("in a rebalance")
    asker.counts_partitions = False
    unreadable = Classic(asker, "unreadable", topic)
    unreadable.settle("that cannot be read", metadata=UNREADABLE, plan=b"x")
    unreadable.heartbeat("into one that cannot be read", member_id="n1")
    unreadable.look("that cannot be read")


def instances(asker: Asker) -> None:
    group = Classic(asker, "g", asker.topic("a", 4))
    group.settle("i1", group_instance_id="i1")
    group.heartbeat("i1 comes back", member_id="n1", instance_id="i1")
    group.look("i1 is of the other kind")
    group.beat("the classic i1", group_instance_id="i1")
    group.join("i1 comes back as it was", group_instance_id="i1")
    group.look("i1 is as it was")
