"""Requests to other brokers: each gets one answer, or the reason why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raftlog.broker.runtime import broker_requests
from raftlog.broker.runtime.broker_requests import BrokerRequests, RequestFailure
from raftlog.broker.runtime.timer_wheel import TimerWheel
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import RegisterBrokerRecord
from raftlog.wire.codec import decode, encode
from raftlog.wire.headers import parse_request_header
from raftlog.wire.ids import BrokerEpoch
from raftlog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from raftlog.wire.schema import Message
from tests.waiting import until

SELF, OTHER = 1, 2
VERSION = 1


class OtherBroker:
    """Answers each request with its client id, while it is told to."""

    def __init__(self) -> None:
        self.answers = True
        self.connections = 0
        self.received = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.server: asyncio.Server | None = None
        self.port = 0

    async def listen(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while size := int.from_bytes(await reader.readexactly(4), "big"):
                header = parse_request_header(await reader.readexactly(size))
                self.received += 1
                if self.answers:
                    response = DescribeClusterResponse(cluster_id=header.client_id or "")
                    frame = header.correlation_id.to_bytes(4, "big") + b"\0" + encode(response, VERSION)
                    writer.write(len(frame).to_bytes(4, "big") + frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def stop(self) -> None:
        assert self.server is not None
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()


class World:
    def __init__(self, other: OtherBroker, timeout_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.other = other
        self.addresses = {OTHER: ("127.0.0.1", other.port)}
        self.requests = BrokerRequests(loop, TimerWheel(loop), SELF, self.addresses.get)
        self.sender = self.requests.sender("test", timeout_seconds)
        self.answers: list[Any] = []

    def send(self, broker_id: int = OTHER) -> None:
        self.sender.send(broker_id, DescribeClusterRequest(), VERSION, self.take)

    def take(self, answer: DescribeClusterResponse | RequestFailure) -> None:
        self.answers.append(answer if isinstance(answer, RequestFailure) else answer.cluster_id)

    async def expect(self, *answers: str | RequestFailure) -> None:
        await until(lambda: len(self.answers) >= len(answers), "all are answered")
        assert self.answers == list(answers)
        self.answers.clear()


@asynccontextmanager
async def world(timeout_seconds: float = 10.0) -> AsyncIterator[World]:
    other = OtherBroker()
    await other.listen()
    made = World(other, timeout_seconds)
    try:
        yield made
    finally:
        made.requests.close()
        other.stop()


async def test_each_request_gets_its_response_over_one_connection() -> None:
    async with world() as w:
        w.send()
        w.send()
        assert not w.answers
        await w.expect("test-1", "test-1")
        w.send()
        await w.expect("test-1")
        assert w.other.connections == 1


async def test_each_sender_has_connections_of_its_own() -> None:
    async with world() as w:
        w.other.answers = False
        w.send()
        await until(lambda: w.other.received == 1)
        w.other.answers = True
        w.requests.sender("second", 10.0).send(OTHER, DescribeClusterRequest(), VERSION, w.take)
        await w.expect("second-1")


async def test_a_request_to_this_broker_takes_no_connection() -> None:
    async with world() as w:

        def serve_here(request: Message, version: int, take: Any) -> None:
            assert isinstance(request, DescribeClusterRequest) and version == VERSION
            take(decode(DescribeClusterResponse, VERSION, encode(DescribeClusterResponse(cluster_id="own"), VERSION)))

        w.send(SELF)
        await w.expect(RequestFailure.UNREACHABLE)
        w.requests.serve_here = serve_here
        w.send(SELF)
        assert not w.answers
        await w.expect("own")


async def test_a_broker_that_is_not_registered_is_not_asked() -> None:
    async with world() as w:
        w.send(9)
        assert not w.answers
        await w.expect(RequestFailure.UNKNOWN_BROKER)


async def test_a_broker_that_is_down_is_tried_again_after_a_back_off() -> None:
    async with world() as w:
        w.other.stop()
        w.send()
        await w.expect(RequestFailure.UNREACHABLE)
        w.send()
        await w.expect(RequestFailure.UNREACHABLE)
        await w.other.listen()
        await until(lambda: w.send() or "test-1" in w.answers, "it is there again")
        assert w.other.connections == 1


async def test_a_lost_connection_fails_what_was_sent_and_is_made_again() -> None:
    async with world() as w:
        w.other.answers = False
        w.send()
        await until(lambda: w.other.received == 1)
        for writer in w.other.writers:
            writer.transport.abort()
        await w.expect(RequestFailure.DISCONNECTED)
        w.other.answers = True
        w.send()
        await w.expect("test-1")


async def test_who_sends_again_when_told_of_a_lost_connection_is_answered() -> None:
    async with world() as w:
        w.other.answers = False

        def again(answer: Any) -> None:
            w.take(answer)
            w.other.answers = True
            w.send()

        w.sender.send(OTHER, DescribeClusterRequest(), VERSION, again)
        await until(lambda: w.other.received == 1)
        w.other.writers[0].transport.abort()
        await w.expect(RequestFailure.DISCONNECTED, "test-1")


async def test_a_request_without_an_answer_times_out_and_ends_the_connection() -> None:
    async with world(timeout_seconds=0.05) as w:
        w.other.answers = False
        w.send()
        w.send()
        await until(lambda: len(w.answers) == 2)
        assert w.answers[0] is RequestFailure.TIMED_OUT
        assert w.answers[1] in (RequestFailure.TIMED_OUT, RequestFailure.DISCONNECTED)
        w.answers.clear()
        w.other.answers = True
        await until(lambda: w.send() or "test-1" in w.answers, "a new connection serves")


async def test_nobody_waits_for_a_broker_that_was_fenced() -> None:
    """Its host has lost power: it closes no connection, and answers nothing."""
    async with world(timeout_seconds=60.0) as w:
        w.other.answers = False
        w.send()
        await until(lambda: w.other.received == 1)
        for broker_id, fenced in ((OTHER, False), (SELF, True), (OTHER, True)):
            assert not w.answers
            delta = MetadataDelta(MetadataImage())
            delta.replay(RegisterBrokerRecord(broker_id, bytes(16), BrokerEpoch(1), (), None, fenced))
            w.requests.publish(delta, delta.apply(1))
            await asyncio.sleep(0)
        await w.expect(RequestFailure.DISCONNECTED)


async def test_what_has_no_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_requests, "OUTSTANDING_MAX", 2)
    async with world() as w:
        w.other.answers = False
        w.send()
        w.send()
        w.send()
        await w.expect(RequestFailure.TOO_MANY)


async def test_what_is_outstanding_when_the_broker_stops_is_told() -> None:
    async with world() as w:
        w.other.answers = False
        w.requests.serve_here = lambda request, version, take: None
        w.send()
        w.send(SELF)
        await until(lambda: w.other.received == 1)
        w.requests.close()
        await w.expect(RequestFailure.CLOSED, RequestFailure.CLOSED)
        w.send()
        await w.expect(RequestFailure.CLOSED)
