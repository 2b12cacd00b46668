"""Heartbeats that wait for news, on the connections of a client that goes on meanwhile."""

from __future__ import annotations

import select
import socket
from typing import Any

from confluent_kafka.admin import AdminClient

from raftlog.broker.runtime.held_heartbeats import goes_on_meanwhile
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import decode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import parse_request_header
from raftlog.wire.messages.api_versions import ApiVersionsRequest
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.core.group.group_world import subscription
from tests.conftest import Broker
from tests.system.clients.groups import until
from tests.system.traps.raw import RawConnection

PARKED_SECONDS = 0.2


class Member:
    """A member as librdkafka has it: all that it says to the coordinator goes over one connection."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self._group, self._topic = group, topic
        self.id, self.generation = "", -1
        self.connection = RawConnection(address)
        self.connection.ask(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.14.0"), 3)

    def send_join(self) -> None:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(self._topic))],
        )
        self.connection.send_request(request, 3)

    def joined(self) -> Any:
        answer = self.answer(ApiKey.JOIN_GROUP, 3)
        self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def has_coordinator(self) -> bool:
        request = FindCoordinatorRequest(coordinator_keys=[self._group])
        answer = self.connection.ask(request, 4)
        return bool(answer.coordinators[0].error_code == ErrorCode.NONE)

    def sync(self) -> None:
        plan = [SyncGroupRequestAssignment(member_id=self.id, assignment=b"plan")]
        request = SyncGroupRequest(
            group_id=self._group, generation_id=self.generation, member_id=self.id, assignments=plan
        )
        assert self.connection.ask(request, 3).error_code == ErrorCode.NONE

    def send_heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=self._group, generation_id=self.generation, member_id=self.id)
        self.connection.send_request(request, 3)

    def beat(self) -> ErrorCode:
        """The answer to the heartbeat."""
        return ErrorCode(self.answer(ApiKey.HEARTBEAT, 3).error_code)

    def send_commit(self) -> None:
        partition = OffsetCommitRequestPartition(committed_offset=1)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=[partition])],
        )
        self.connection.send_request(request, 7)

    def answer(self, key: ApiKey, version: int) -> Any:
        """The next one."""
        return self.connection.receive(key, version)[1]

    @property
    def is_parked(self) -> bool:
        """Whether no answer comes for a while."""
        return not select.select([self.connection.socket], [], [], PARKED_SECONDS)[0]


def test_a_commit_does_not_wait_behind_a_heartbeat_and_news_do_not_wait_for_the_next_one(
    broker: Broker, topic: str, name: str
) -> None:
    first, second = (Member(broker.bootstrap_servers, name, topic) for _ in range(2))
    until(first.has_coordinator, "there is a coordinator")
    first.send_join()
    assert first.joined().error_code == ErrorCode.NONE
    first.sync()
    for _ in range(3):
        first.send_heartbeat()
        assert first.is_parked
        first.send_commit()
        assert first.beat() is ErrorCode.NONE
        (topic_of_commit,) = first.answer(ApiKey.OFFSET_COMMIT, 7).topics
        assert topic_of_commit.partitions[0].error_code == ErrorCode.NONE
    first.send_heartbeat()
    second.send_join()
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    first.send_join()
    assert {first.joined().generation_id, second.joined().generation_id} == {2}
    for member in (first, second):
        member.connection.socket.close()


def test_librdkafka_is_known_by_what_it_calls_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{listening.getsockname()[1]}"})
        connection, _ = listening.accept()
        with connection:
            frame = connection.recv(1024)[4:]
    begins = parse_request_header(frame)[-1]
    hello = decode(ApiVersionsRequest, 3, frame, begins)
    assert goes_on_meanwhile(f"{hello.client_software_name} {hello.client_software_version}")
    del client
