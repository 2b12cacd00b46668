"""One blocking connection to one broker: requests out, replies back in the same order.

The versions of the requests are agreed on when it is made (KIP-35).
"""

from __future__ import annotations

import socket
import time
from typing import TypeVar

from raftlog.client.addresses import Address
from raftlog.client.errors import BrokerUnreachable, NotKafka, TimedOut
from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import ErrorCode, RemoteProtocolError
from raftlog.wire.headers import encode_request_header, parse_response_header
from raftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raftlog.wire.schema import Message

Reply = TypeVar("Reply", bound=Message)

REPLY_BYTES_MAX = 256 * 1024 * 1024
"""A longer reply is not one: whatever answers is not a Kafka broker (an HTTP server's first bytes read as 1.2 GB)."""

# The highest versions this client fills in by itself: later ones name topics by id or ask for several groups at once.
HIGHEST = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.METADATA: 11,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.JOIN_GROUP: 6,
    ApiKey.SYNC_GROUP: 4,
    ApiKey.INIT_PRODUCER_ID: 4,
}
CORRELATION_ID_SIZE = 4
UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class Connection:
    """Connects when made, and agrees on versions. Raises BrokerUnreachable, TimedOut or NotKafka."""

    def __init__(self, address: Address, client_id: str, timeout: float) -> None:
        self.address = address
        self._client_id = client_id
        self._correlation_id = 0
        self._waiting: list[tuple[int, ApiKey, int]] = []
        self._versions: dict[int, tuple[int, int]] = {ApiKey.API_VERSIONS: (0, 3)}
        try:
            self._socket = socket.create_connection(address, timeout)
        except TimeoutError:
            raise BrokerUnreachable([str(address)], "no answer to the connection attempt") from None
        except OSError as error:
            raise BrokerUnreachable([str(address)], (error.strerror or str(error)).lower()) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._negotiate(timeout)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Message, reply: type[Reply], timeout: float) -> Reply:
        """Send one request and wait for its reply, at most `timeout` seconds."""
        self.send(request, timeout)
        return self.receive(reply, timeout)

    def send(self, request: Message, timeout: float) -> None:
        """Send without waiting; `receive` takes the replies in the order of the requests."""
        assert request.api_key is not None, f"{type(request).__name__} is not a request"
        key = ApiKey(request.api_key)
        version = self._choose_version(key)
        self._correlation_id += 1
        header = encode_request_header(key, version, self._correlation_id, self._client_id)
        body = encode(request, version)
        frame = b"".join(((len(header) + len(body)).to_bytes(4, "big"), header, body))
        self._waiting.append((self._correlation_id, key, version))
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(frame)
        except TimeoutError:
            raise self._too_slow(timeout) from None
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, reply: type[Reply], timeout: float) -> Reply:
        """The reply to the oldest request that has none yet."""
        return self._understand(self._read_frame(timeout), reply)

    def _negotiate(self, timeout: float) -> None:
        from raftlog import __version__

        self.send(ApiVersionsRequest(client_software_name="raftlog", client_software_version=__version__), timeout)
        frame = self._read_frame(timeout)
        if frame[CORRELATION_ID_SIZE:][:2] == UNSUPPORTED_VERSION:
            # A broker that does not know our version answers in the form of version 0 (KIP-511).
            self._waiting.clear()
            self._versions = {ApiKey.API_VERSIONS: (0, 0)}
            answer = self.call(ApiVersionsRequest(), ApiVersionsResponse, timeout)
        else:
            answer = self._understand(frame, ApiVersionsResponse)
        if answer.error_code != ErrorCode.NONE:
            raise NotKafka(f"{self.address} refuses ApiVersions with error {answer.error_code}")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def _understand(self, frame: bytearray, reply: type[Reply]) -> Reply:
        correlation_id, key, version = self._waiting.pop(0)
        try:
            answered, offset = parse_response_header(key, version, frame)
            if answered != correlation_id:
                raise NotKafka(f"{self.address} answered request {answered} instead of {correlation_id}")
            return decode(reply, version, frame, offset)
        except RemoteProtocolError as error:
            raise NotKafka(f"{self.address} sent a malformed {reply.__name__}: {error}") from error

    def _choose_version(self, key: ApiKey) -> int:
        api = APIS[key]
        ours = min(api.max_version, HIGHEST.get(key, api.max_version))
        lowest, highest = self._versions.get(key, (0, -1))
        version = min(ours, highest)
        if version < max(lowest, api.min_version):
            raise NotKafka(f"{self.address} does not serve {api.name} in a version that this client speaks")
        return version

    def _read_frame(self, timeout: float) -> bytearray:
        deadline = time.monotonic() + timeout
        length = int.from_bytes(self._read(4, deadline, timeout), "big")
        if not CORRELATION_ID_SIZE <= length <= REPLY_BYTES_MAX:
            raise NotKafka(f"{self.address} does not answer like a Kafka broker")
        return self._read(length, deadline, timeout)

    def _read(self, size: int, deadline: float, timeout: float) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._too_slow(timeout)
            self._socket.settimeout(left)
            try:
                count = self._socket.recv_into(view)
            except TimeoutError:
                raise self._too_slow(timeout) from None
            except OSError as error:
                raise self._lost(error) from error
            if not count:
                raise BrokerUnreachable([str(self.address)], "it closed the connection")
            view = view[count:]
        return data

    def _too_slow(self, timeout: float) -> TimedOut:
        return TimedOut(f"{self.address} did not answer within {timeout:g} s")

    def _lost(self, error: OSError) -> BrokerUnreachable:
        return BrokerUnreachable([str(self.address)], (error.strerror or str(error)).lower())
