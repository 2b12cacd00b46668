"""The client against peers that are no Kafka brokers, do not answer, or go away."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from raftlog.client.connection import Connection
from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import BrokerUnreachable, NotKafka, Rejected, TimedOut
from raftlog.client.router import Router
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import encode_response_header, parse_request_header
from raftlog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from raftlog.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from tests.conftest import Broker

Behaviour = Callable[[socket.socket], None]


class Peer:
    """Listens on a port and treats each connection, one after the other, as `behaviour` says."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())
        self.connections = 0
        self._behaviour = behaviour
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                try:
                    self._behaviour(connection)
                except OSError:
                    pass  # the client closed first

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def peer() -> Iterator[Callable[[Behaviour], Peer]]:
    made: list[Peer] = []

    def make(behaviour: Behaviour) -> Peer:
        made.append(Peer(behaviour))
        return made[-1]

    yield make
    for each in made:
        each.close()


@asynccontextmanager
async def routed(*addresses: Address) -> AsyncIterator[Router]:
    router = Router(addresses, timeout=5)
    try:
        yield router
    finally:
        await router.close()


def read_frame(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as file:
        return file.read(int.from_bytes(file.read(4), "big"))


def send_frame(connection: socket.socket, body: bytes) -> None:
    connection.sendall(len(body).to_bytes(4, "big") + body)


def speak_versions(connection: socket.socket, apis: dict[ApiKey, tuple[int, int]]) -> None:
    """Answer the first request, ApiVersions, as a broker that serves `apis`."""
    header = parse_request_header(read_frame(connection))
    ranges = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in apis.items()]
    body = encode(ApiVersionsResponse(api_keys=ranges), header.api_version)
    send_frame(
        connection, encode_response_header(ApiKey.API_VERSIONS, header.api_version, header.correlation_id) + body
    )


async def test_a_port_where_nothing_listens_is_told_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname())
    with pytest.raises(BrokerUnreachable, match="connection refused"):
        await Connection.open(address, "test", 5)


async def test_something_else_than_kafka_is_recognised(peer: Callable[[Behaviour], Peer]) -> None:
    web = peer(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(NotKafka, match="does not answer like a Kafka broker"):
        await Connection.open(web.address, "test", 5)


async def test_a_peer_that_never_answers_is_given_up_in_time(peer: Callable[[Behaviour], Peer]) -> None:
    silent = peer(lambda connection: connection.recv(1) and connection.recv(1 << 20) and connection.recv(1))
    with pytest.raises(TimedOut, match=r"within 0\.2 s"):
        await Connection.open(silent.address, "test", 0.2)


async def test_a_peer_that_closes_is_told_as_such(peer: Callable[[Behaviour], Peer]) -> None:
    def close_after_reading(connection: socket.socket) -> None:
        read_frame(connection)

    rude = peer(close_after_reading)
    with pytest.raises(BrokerUnreachable, match="closed the connection"):
        await Connection.open(rude.address, "test", 5)


async def test_a_reply_to_another_request_is_refused(peer: Callable[[Behaviour], Peer]) -> None:
    def answer_wrongly(connection: socket.socket) -> None:
        header = parse_request_header(read_frame(connection))
        body = encode(ApiVersionsResponse(), header.api_version)
        wrong = encode_response_header(ApiKey.API_VERSIONS, header.api_version, header.correlation_id + 1)
        send_frame(connection, wrong + body)
        read_frame(connection)

    confused = peer(answer_wrongly)
    with pytest.raises(NotKafka, match="instead of"):
        await Connection.open(confused.address, "test", 5)


async def test_a_broker_that_knows_no_version_of_ours_is_told_by_request(peer: Callable[[Behaviour], Peer]) -> None:
    def too_new(connection: socket.socket) -> None:
        speak_versions(connection, {ApiKey.METADATA: (99, 100)})
        connection.recv(1)

    future = peer(too_new)
    async with routed(future.address) as router:
        with pytest.raises(NotKafka, match="Metadata"):
            await router.metadata([])


async def test_an_older_broker_answers_api_versions_in_version_0(peer: Callable[[Behaviour], Peer]) -> None:
    def old(connection: socket.socket) -> None:
        header = parse_request_header(read_frame(connection))
        assert header.api_version == 3
        refusal = encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0)
        send_frame(connection, encode_response_header(ApiKey.API_VERSIONS, 0, header.correlation_id) + refusal)
        speak_versions(connection, {ApiKey.METADATA: (0, 5)})
        connection.recv(1)

    aged = peer(old)
    (await Connection.open(aged.address, "test", 5)).close()
    assert aged.connections == 1


async def test_the_next_bootstrap_address_is_tried_when_one_is_dead(broker: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = Address(*listener.getsockname())
    host, _, port = broker.bootstrap_servers.rpartition(":")
    async with routed(dead, Address(host, int(port))) as router:
        assert (await router.metadata([])).brokers


async def test_a_lost_connection_is_made_again_within_a_retried_call(peer: Callable[[Behaviour], Peer]) -> None:
    answers = iter([False, False, True])

    def flaky(connection: socket.socket) -> None:
        speak_versions(connection, {ApiKey.METADATA: (0, 5)})
        header = parse_request_header(read_frame(connection))
        if not next(answers):
            return
        answer = MetadataResponse(brokers=[MetadataResponseBroker(node_id=7, host="h", port=1)])
        send_frame(
            connection,
            encode_response_header(ApiKey.METADATA, header.api_version, header.correlation_id)
            + encode(answer, header.api_version),
        )

    unsteady = peer(flaky)
    async with routed(unsteady.address) as router:
        (found,) = (await router.retrying(lambda: router.metadata([]))).brokers
    assert found.node_id == 7 and unsteady.connections == 3


@pytest.mark.long
async def test_a_broker_that_stands_still_is_left_by_a_call_whose_time_was_over_first(
    broker: Broker, peer: Callable[[Behaviour], Peer]
) -> None:
    """The call gives up before the request in it does: who asks next is not to wait behind that."""

    def silent(connection: socket.socket) -> None:
        speak_versions(connection, {ApiKey.METADATA: (0, 12)})
        while connection.recv(1 << 16):
            pass

    host, _, port = broker.bootstrap_servers.rpartition(":")
    router = Router([peer(silent).address, Address(host, int(port))], timeout=2)
    with pytest.raises(TimedOut):
        await router.retrying(lambda: router.metadata([]))
    assert (await router.retrying(lambda: router.metadata([]))).brokers
    await router.close()


async def test_a_coordinator_that_did_not_answer_in_time_is_looked_for_anew() -> None:
    router = Router([Address("127.0.0.1", 1)], timeout=0.01)
    router._coordinators["group", 0] = 1
    with pytest.raises(TimedOut):
        await router.retrying(asyncio.Event().wait)
    assert not router._coordinators


async def test_retriable_codes_are_retried_and_others_are_not() -> None:
    router = Router([Address("127.0.0.1", 1)], timeout=5)
    codes = iter([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.TOPIC_ALREADY_EXISTS])

    async def attempt() -> None:
        raise Rejected(next(codes), "something")

    with pytest.raises(Rejected) as refused:
        await router.retrying(attempt)
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_topic_nobody_knows_is_not_waited_for_unless_wanted() -> None:
    router = Router([Address("127.0.0.1", 1)], timeout=5)
    calls: list[int] = []

    async def attempt() -> MetadataResponseTopic:
        calls.append(1)
        if len(calls) < 3:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't'")
        return MetadataResponseTopic(name="t")

    with pytest.raises(Rejected):
        await router.retrying(attempt)
    assert len(calls) == 1
    assert (await router.retrying(attempt, also=[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])).name == "t"


def test_importing_the_client_brings_in_no_more_than_a_connection_needs() -> None:
    """An import that may take 60 ms: producers, consumers and the messages of administration come when asked for."""
    listed = "import sys; from raftlog.client import Client; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True).stdout.split())
    assert {each for each in loaded if each.startswith("raftlog.wire.messages.")} == {
        f"raftlog.wire.messages.{name}" for name in ("api_versions", "find_coordinator", "metadata")
    }
    assert not loaded & {"numpy", "pyarrow", "uvloop", "raftlog.client.producer", "raftlog.client.consumer"}
