"""One long story of groups, request by request, against what Apache Kafka 4.3.1 answered.

`groups_story.txt` is Kafka's side, member ids replaced by m1, m2, … in order of appearance. With
RAFTLOG_TEST_BOOTSTRAP_SERVERS set to a Kafka, the test holds that file against Kafka itself; run as a program with an
address and a topic of one partition, this file prints the story as that broker tells it.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from struct import Struct
from typing import Any
from uuid import uuid4

from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import encode_request_header, parse_response_header
from raftlog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from raftlog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from raftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from raftlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from raftlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from raftlog.wire.schema import Message
from tests.broker.core.group.group_world import subscription
from tests.conftest import Broker
from tests.system.clients.groups import make_topic, until

STORY = Path(__file__).with_name("groups_story.txt")
ANSWER_SECONDS = 20.0
PARKED_SECONDS = 0.2
_LENGTH = Struct(">i")


class Wire:
    """A connection on which requests go out one at a time; the answer is read later, or found missing."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS)
        self._expected: tuple[type[Message], int, int] | None = None

    def send(self, request: Message, response: type[Message], version: int) -> Wire:
        key = request.api_key
        assert key is not None and self._expected is None
        self._expected = response, key, version
        frame = encode_request_header(key, version, 1, "client") + encode(request, version)
        self._socket.sendall(_LENGTH.pack(len(frame)) + frame)
        return self

    @property
    def is_parked(self) -> bool:
        """Whether no answer comes for a while."""
        self._socket.settimeout(PARKED_SECONDS)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(ANSWER_SECONDS)
        return False

    def receive(self) -> Any:
        assert self._expected is not None
        (cls, key, version), self._expected = self._expected, None
        frame = self._read(_LENGTH.unpack(self._read(4))[0])
        return decode(cls, version, frame, parse_response_header(key, version, frame)[1])

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the connection was closed"
            data += more
        return data

    def close(self) -> None:
        self._socket.close()


class Story:
    """The requests, in short, and what was told, as lines."""

    def __init__(self, address: str, topic: str) -> None:
        self.lines: list[str] = []
        self.topic = topic
        self._suffix = uuid4().hex
        self._names: dict[str, str] = {"": "-"}
        self.a, self.b, self.c, self.admin = (Wire(address) for _ in range(4))
        until(self._has_coordinator, "there is a coordinator")

    def _has_coordinator(self) -> bool:
        request = FindCoordinatorRequest(coordinator_keys=[self._suffix])
        answer = self.admin.send(request, FindCoordinatorResponse, 4).receive()
        return bool(answer.coordinators[0].error_code == ErrorCode.NONE)

    def close(self) -> None:
        for wire in (self.a, self.b, self.c, self.admin):
            wire.close()

    # --- telling

    def name(self, member_id: str) -> str:
        if member_id == "stranger":
            return member_id
        return self._names.setdefault(member_id, f"m{len(self._names)}")

    def tell(self, what: str, wire: Wire) -> Any:
        answer = wire.receive()
        self.lines.append(f"{what}: {self._words(answer)}")
        return answer

    def tell_parked(self, what: str, wire: Wire) -> None:
        self.lines.append(f"{what}: {'parked' if wire.is_parked else 'answered'}")

    def _words(self, answer: Any) -> str:
        match answer:
            case JoinGroupResponse():
                members = sorted(f"{self.name(m.member_id)}/{m.group_instance_id}" for m in answer.members)
                return (
                    f"{_error(answer)} generation={answer.generation_id} type={answer.protocol_type} protocol="
                    f"{answer.protocol_name} leader={self.name(answer.leader)} me={self.name(answer.member_id)}"
                    f" skip={answer.skip_assignment} members={members}"
                )
            case SyncGroupResponse():
                plan = bytes(answer.assignment).decode()
                return f"{_error(answer)} {answer.protocol_type} {answer.protocol_name} assignment={plan!r}"
            case LeaveGroupResponse():
                members = [f"{self.name(m.member_id)}/{m.group_instance_id}={_error(m)}" for m in answer.members]
                return f"{_error(answer)} {members}"
            case OffsetCommitResponse():
                return " ".join(_error(p) for t in answer.topics for p in t.partitions)
            case OffsetFetchResponse():
                found = [p.committed_offset for g in answer.groups for t in g.topics for p in t.partitions]
                return f"{[_error(g) for g in answer.groups]} {found}"
            case DescribeGroupsResponse():
                (group,) = answer.groups
                members = sorted(
                    f"{self.name(m.member_id)}/{m.group_instance_id} {'subscribed' if m.member_metadata else '-'} "
                    f"{bytes(m.member_assignment).decode()!r}"
                    for m in group.members
                )
                return f"{_error(group)} {group.group_state} {group.protocol_type} {group.protocol_data} {members}"
            case DeleteGroupsResponse():
                return " ".join(_error(result) for result in answer.results)
        return _error(answer)

    # --- requests

    def join(self, wire: Wire, group: str, member_id: str = "", **options: Any) -> Wire:
        version = options.pop("version", 9)
        protocols = options.pop("protocols", {"range": subscription(self.topic)})
        request = JoinGroupRequest(
            group_id=group + self._suffix,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type=options.pop("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols.items()],
            group_instance_id=options.pop("instance", None),
        )
        assert not options
        return wire.send(request, JoinGroupResponse, version)

    def handshake(self, wire: Wire, group: str) -> str:
        """Get an id and join with it; the answer to that is still to come."""
        member_id: str = self.tell("handshake", self.join(wire, group)).member_id
        self.join(wire, group, member_id)
        return member_id

    def sync(self, wire: Wire, group: str, generation: int, member_id: str, **options: Any) -> Wire:
        plan = options.pop("plan", {})
        request = SyncGroupRequest(
            group_id=group + self._suffix,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=options.pop("instance", None),
            protocol_type="consumer",
            protocol_name=options.pop("protocol", "range"),
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=p.encode()) for m, p in plan.items()],
        )
        assert not options
        return wire.send(request, SyncGroupResponse, 5)

    def beat(self, group: str, generation: int, member_id: str, instance: str | None = None) -> None:
        request = HeartbeatRequest(
            group_id=group + self._suffix,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        self.tell("heartbeat", self.admin.send(request, HeartbeatResponse, 4))

    def leave(self, group: str, *members: str, instance: str | None = None) -> None:
        identities = [MemberIdentity(member_id=m, group_instance_id=instance) for m in members]
        request = LeaveGroupRequest(group_id=group + self._suffix, members=identities)
        self.tell("leave", self.admin.send(request, LeaveGroupResponse, 5))

    def commit(self, group: str, generation: int, member_id: str, instance: str | None = None) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=group + self._suffix,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        self.tell("commit", self.admin.send(request, OffsetCommitResponse, 9))

    def describe(self, group: str) -> None:
        request = DescribeGroupsRequest(groups=[group + self._suffix])
        self.tell("describe", self.admin.send(request, DescribeGroupsResponse, 6))

    def fetch(self, group: str) -> None:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group + self._suffix, topics=None)])
        self.tell("fetch", self.admin.send(request, OffsetFetchResponse, 9))

    def delete(self, group: str) -> None:
        request = DeleteGroupsRequest(groups_names=[group + self._suffix])
        self.tell("delete", self.admin.send(request, DeleteGroupsResponse, 2))


def _error(answer: Any) -> str:
    return ErrorCode.of(answer.error_code).name


def two_dynamic_members(story: Story) -> None:
    a = story.handshake(story.a, "d")
    story.tell("a joined", story.a)
    story.describe("d")
    story.beat("d", 1, a)
    story.commit("d", 1, a)
    story.tell("a synced", story.sync(story.a, "d", 1, a, plan={a: "all"}))
    story.describe("d")
    story.tell("a synced again", story.sync(story.admin, "d", 1, a))
    b = story.handshake(story.b, "d")
    story.tell_parked("b joins", story.b)
    story.describe("d")
    story.beat("d", 1, a)
    story.tell("a synced late", story.sync(story.admin, "d", 1, a))
    story.commit("d", 1, a)
    story.tell("a joined", story.join(story.a, "d", a))
    story.tell("b joined", story.b)
    story.sync(story.b, "d", 2, b)
    story.tell_parked("b syncs", story.b)
    story.tell("a synced", story.sync(story.a, "d", 2, a, plan={a: "half", b: "other half"}))
    story.tell("b synced", story.b)
    story.describe("d")
    story.tell("b joined again", story.join(story.b, "d", b))
    for generation, member in ((2, a), (1, a), (-1, ""), (-1, a), (2, "stranger")):
        story.commit("d", generation, member)
    story.delete("d")
    story.tell("another type", story.join(story.admin, "d", protocol_type="connect"))
    story.tell("another protocol", story.join(story.admin, "d", protocols={"x": b""}))
    story.leave("d", b)
    story.describe("d")
    story.tell("a joined", story.join(story.a, "d", a))
    story.tell("a synced", story.sync(story.a, "d", 3, a, plan={a: "all"}))
    story.leave("d", a)
    story.leave("d", a, "stranger")
    story.describe("d")
    story.beat("d", 4, a)
    story.tell("a joined", story.join(story.admin, "d", a))
    story.fetch("d")
    story.commit("d", -1, "")
    story.delete("d")
    story.fetch("d")
    story.describe("d")


def static_members(story: Story) -> None:
    a = story.tell("one joined", story.join(story.a, "s", instance="one")).member_id
    story.tell("one synced", story.sync(story.a, "s", 1, a, instance="one", plan={a: "all"}))
    story.join(story.b, "s", instance="two")
    story.tell_parked("two joins", story.b)
    story.tell("one joined", story.join(story.a, "s", a, instance="one"))
    b = story.tell("two joined", story.b).member_id
    plan = {a: "for one", b: "for two"}
    story.tell("one synced", story.sync(story.a, "s", 2, a, instance="one", plan=plan))
    story.tell("two synced", story.sync(story.b, "s", 2, b, instance="two"))
    c = story.tell("two restarted", story.join(story.c, "s", instance="two")).member_id
    story.describe("s")
    story.beat("s", 2, b, "two")
    story.beat("s", 2, b)
    story.beat("s", 2, c, "nobody")
    story.beat("s", 2, c, "two")
    story.tell("the old one joined", story.join(story.b, "s", b, instance="two"))
    story.tell("two synced", story.sync(story.c, "s", 2, c, instance="two"))
    one = story.tell("the leader restarted", story.join(story.a, "s", instance="one")).member_id
    story.tell("one synced", story.sync(story.a, "s", 2, one, instance="one"))
    one = story.tell("it restarted, an old client", story.join(story.a, "s", instance="one", version=8)).member_id
    story.commit("s", 2, a, "one")
    story.commit("s", 2, one, "one")
    story.leave("s", one, instance="two")
    story.leave("s", "", instance="two")
    story.leave("s", "", instance="nobody")
    story.describe("s")
    story.leave("s", one, instance="one")
    story.describe("s")


def a_third_member_comes_while_two_wait(story: Story) -> None:
    a = story.handshake(story.a, "c")
    story.tell("a joined", story.a)
    b = story.handshake(story.b, "c")
    story.tell("a joined", story.join(story.a, "c", a))
    story.tell("b joined", story.b)
    story.sync(story.b, "c", 2, b)
    story.tell_parked("b syncs", story.b)
    c = story.handshake(story.c, "c")
    story.tell("b synced", story.b)
    story.tell_parked("c joins", story.c)
    story.tell("a synced", story.sync(story.a, "c", 2, a, plan={a: "x"}))
    story.join(story.a, "c", a)
    story.join(story.b, "c", b)
    for what, wire in (("a joined", story.a), ("b joined", story.b), ("c joined", story.c)):
        story.tell(what, wire)
    story.tell("b joined again", story.join(story.b, "c", b))
    story.tell("b synced wrongly", story.sync(story.b, "c", 2, b))
    story.tell("b synced wrongly", story.sync(story.b, "c", 3, b, protocol="other"))
    story.leave("c", a, b, c)
    story.describe("c")


def tell_all(address: str, topic: str) -> Iterator[str]:
    """The whole story as the broker at `address` tells it."""
    for chapter in (two_dynamic_members, static_members, a_third_member_comes_while_two_wait):
        story = Story(address, topic)
        try:
            chapter(story)
        finally:
            story.close()
        yield f"# {chapter.__name__}"
        yield from story.lines


def test_groups_answer_as_kafka_does(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers, 1)
    told = list(tell_all(broker.bootstrap_servers, topic))
    expected = STORY.read_text().splitlines()
    assert told == expected, "\n".join(unified_diff(expected, told, "Kafka", "this broker", lineterm="", n=2))


if __name__ == "__main__":
    print("\n".join(tell_all(*sys.argv[1:])))
