"""Heartbeats that the broker answers when there is news: nothing that a member does waits for the answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.client import Client, Consumer
from raftlog.client.connection import Connection
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.join_group import JoinGroupRequest
from raftlog.wire.messages.leave_group import LeaveGroupRequest
from tests.conftest import Broker
from tests.waiting import DEADLINE_SECONDS, until


class Traffic:
    """What clients say to brokers, in the order of sending, and what came back: None for what has no answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[Any] = []
        self.answers: list[Any] = []
        ask = Connection.request

        async def request(connection: Connection, message: Any, *args: Any, **options: Any) -> Any:
            at = len(self.requests)
            self.requests.append(message)
            self.answers.append(None)
            answer = self.answers[at] = await ask(connection, message, *args, **options)
            return answer

        monkeypatch.setattr(Connection, "request", request)

    def last(self, kind: type[Any], *, behind: int = -1) -> int:
        """The place of the last such request that was sent behind another; -1 for none."""
        found = [at for at, each in enumerate(self.requests) if isinstance(each, kind) and at > behind]
        return found[-1] if found else -1

    async def held_heartbeat(self, consumer: Consumer) -> int:
        """The place of the one that is not answered, of a member that has its partitions."""
        await consumer.assigned()
        await until(lambda: self.answers and self.answers[self.last(HeartbeatRequest)] is None, "a heartbeat waits")
        return self.last(HeartbeatRequest)


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    return Traffic(monkeypatch)


@pytest.fixture
async def client(broker: Broker) -> Any:
    async with Client(broker.bootstrap_servers) as made:
        yield made


async def test_a_member_hears_of_a_rebalance_in_answer_to_a_heartbeat_of_before(
    client: Client, topic: str, traffic: Traffic
) -> None:
    options = {"group": topic, "heartbeat_interval": 0.05}
    async with client.consumer(topic, **options) as first:  # type: ignore[arg-type]
        beat = await traffic.held_heartbeat(first)
        async with client.consumer(topic, **options) as second:  # type: ignore[arg-type]
            await until(lambda: traffic.answers[beat] is not None, "the heartbeat is answered")
            assert traffic.answers[beat].error_code == ErrorCode.REBALANCE_IN_PROGRESS
            assert second._runner is not None
            member = second._runner.member
            await until(lambda: member.generation >= 0, "the second is in the group")


async def test_a_commit_and_a_new_join_do_not_wait_for_the_answer_to_a_heartbeat(
    client: Client, topic: str, traffic: Traffic
) -> None:
    async with client.consumer(topic, group=topic) as consumer:
        beat = await traffic.held_heartbeat(consumer)
        await consumer.commit({(topic, 0): 0})
        assert traffic.answers[beat] is None
        await client.admin.create_partitions(topic, 2)
        await consumer._look_for_partitions()
        await until(lambda: traffic.last(JoinGroupRequest, behind=beat) >= 0, "it joins anew")
        assert traffic.answers[beat] is None
        async with asyncio.timeout(DEADLINE_SECONDS):
            while consumer.assignment != {(topic, 0), (topic, 1)}:
                await consumer.poll(timeout=0.1)


async def test_who_leaves_does_not_wait_for_the_answer_to_a_heartbeat(
    client: Client, topic: str, traffic: Traffic
) -> None:
    async with client.consumer(topic, group=topic) as consumer:
        beat = await traffic.held_heartbeat(consumer)
    assert traffic.answers[beat] is None
    left = traffic.last(LeaveGroupRequest, behind=beat)
    assert left >= 0 and traffic.answers[left].members[0].error_code == ErrorCode.NONE
