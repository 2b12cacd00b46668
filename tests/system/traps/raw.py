"""A connection on which a test says exactly what it wants, byte by byte if it must.

Every wait has a deadline.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from types import TracebackType
from typing import Any

from raftlog.wire.apis import APIS
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import encode_request_header, parse_response_header
from raftlog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from raftlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raftlog.wire.messages.metadata import MetadataRequest
from raftlog.wire.schema import Message
from tests.waiting import wait_until

DEADLINE_SECONDS = 30.0
CREATE_TOPICS_VERSION = 7
METADATA_VERSION = 12
LIST_OFFSETS_VERSION = 7


class Closed(Exception):
    """The broker closed the connection, where a reply was wanted."""


def framed(body: bytes) -> bytes:
    """The four bytes of length, and the rest."""
    return struct.pack(">i", len(body)) + body


def request_frame(request: Message, version: int, correlation_id: int = 1, client_id: str | None = "raw") -> bytes:
    """A whole request, ready to be sent."""
    assert request.api_key is not None
    return framed(encode(request, version, encode_request_header(request.api_key, version, correlation_id, client_id)))


class RawConnection:
    """One socket to a broker. Requests may be pipelined; replies are read in order."""

    def __init__(self, bootstrap_servers: str, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=deadline_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────

    def send(self, data: bytes) -> None:
        """These bytes and no others. A broker that has closed the connection meanwhile is noticed when reading."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def send_request(self, request: Message, version: int, *, client_id: str | None = "raw") -> int:
        """A well-formed request; returns its correlation id."""
        self._correlation_id += 1
        self.send(request_frame(request, version, self._correlation_id, client_id))
        return self._correlation_id

    def end_sending(self) -> None:
        """Half-close: the broker reads end-of-file, and may still answer."""
        self.socket.shutdown(socket.SHUT_WR)

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────

    def receive_frame(self) -> bytes:
        """The next reply without its length. Raises Closed, and TimeoutError after the deadline."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def receive(self, api_key: int, version: int) -> tuple[int, Any]:
        """The next reply, decoded: (correlation id, response)."""
        frame = self.receive_frame()
        correlation_id, offset = parse_response_header(api_key, version, frame)
        return correlation_id, decode(APIS[api_key].response, version, frame, offset)

    def ask(self, request: Message, version: int, *, client_id: str | None = "raw") -> Any:
        """Send, and return the decoded reply, which must carry the request's correlation id."""
        sent = self.send_request(request, version, client_id=client_id)
        assert request.api_key is not None
        correlation_id, response = self.receive(request.api_key, version)
        assert correlation_id == sent, f"the reply to request {sent} carries the correlation id {correlation_id}"
        return response

    def wait_until_closed(self) -> bytes:
        """What the broker still sent before it closed the connection. Raises TimeoutError if it does not."""
        received = bytearray()
        try:
            while chunk := self.socket.recv(65536):
                received += chunk
        except ConnectionResetError:
            pass
        return bytes(received)

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                chunk = self.socket.recv(size - len(received))
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise Closed(f"the broker closed the connection after {len(received)} of {size} bytes")
            received += chunk
        return bytes(received)


def create_topic(
    bootstrap_servers: str, name: str, *, partitions: int = 1, settings: dict[str, str] | None = None
) -> bytes:
    """Make a topic that is not there yet; returns its id."""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    with RawConnection(bootstrap_servers) as connection:
        response = connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CREATE_TOPICS_VERSION)
        (result,) = response.topics
        assert result.error_code == ErrorCode.NONE, f"{name}: {result.error_code} {result.error_message}"
        wait_until_led(connection, name, partitions)
    return bytes(result.topic_id)


def wait_until_led(connection: RawConnection, topic: str, partitions: int) -> None:
    """Until every partition can be used: ours when it is created, those of Kafka (tests/conftest.py) a bit later."""
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])

    def is_led() -> bool:
        (answer,) = connection.ask(request, LIST_OFFSETS_VERSION).topics
        return not any(partition.error_code for partition in answer.partitions)

    wait_until(is_led, f"{topic} was created and can be used", DEADLINE_SECONDS)


def serves(bootstrap_servers: str) -> bool:
    """Whether a connection of its own is accepted and answered."""
    try:
        with RawConnection(bootstrap_servers) as connection:
            connection.ask(MetadataRequest(topics=[]), METADATA_VERSION)
    except (OSError, Closed):
        return False
    return True
