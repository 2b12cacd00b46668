"""One connection to one broker on asyncio: requests out, replies back in the same order.

The versions of the requests are agreed on when it is made (KIP-35).
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from struct import error as StructError
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from raftlog import __version__
from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import BrokerUnreachable, Closed, KafkaError, NotKafka, TimedOut
from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.codec import decode, encode_parts
from raftlog.wire.errors import ErrorCode, RemoteProtocolError
from raftlog.wire.headers import encode_request_header, parse_response_header
from raftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raftlog.wire.schema import Message

if TYPE_CHECKING:
    import ssl

Reply = TypeVar("Reply", bound=Message)

REPLY_BYTES_MAX = 256 * 1024 * 1024
"""A longer reply is not one: whatever answers is not a Kafka broker (an HTTP server's first bytes read as 1.2 GB)."""
SOFTWARE = "raftlog-client"
TOOL = "raftlog"
"""A broker that is cut off lets its clients go, but not the command line, which may ask about just that."""
TOOL_CLIENT_ID = "raftlog-cli"
READ_BYTES = 256 * 1024
"""Short replies are received into one buffer of this size, longer ones into one of their own."""
WAITING_MAX = 1000
"""Requests without a reply on one connection; nobody has so many under way who waits for replies at all."""

# The highest versions this client fills in by itself: later ones ask for several things at once.
HIGHEST = {
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
}
LENGTH_SIZE = 4
CORRELATION_ID_SIZE = 4
UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
FIRST_API_VERSIONS = 3


class _Waiting(NamedTuple):
    correlation_id: int
    key: ApiKey
    version: int
    reply: type[Message] | None
    """None for the first ApiVersions, whose bytes are looked at before they are decoded."""
    future: asyncio.Future[Any]
    overdue: asyncio.TimerHandle
    """Closes the connection, also when nobody waits for the reply any more: others would wait behind it."""


class Connection(asyncio.BufferedProtocol):
    """Made by `open`. A request that was given up on, or cancelled, leaves its place; its late reply is dropped."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.address = address
        self.features: dict[str, int] = {}
        """Finalized features of the cluster and their levels (KIP-584)."""
        self._client_id = client_id
        self._correlation_id = 0
        self._waiting: deque[_Waiting] = deque()
        self._versions: dict[int, tuple[int, int]] = {ApiKey.API_VERSIONS: (0, FIRST_API_VERSIONS)}
        self._transport: asyncio.Transport | None = None
        self._failure: KafkaError | None = None
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._begun = 0
        """How many bytes of a frame that is not whole lie at the start of the buffer."""
        self._frame: bytearray | None = None
        self._filled = 0
        self._takes_more = asyncio.Event()
        """Whether what was written has left, or nearly."""
        self._takes_more.set()

    @classmethod
    async def open(
        cls, address: Address, client_id: str, timeout: float, *, tls: ssl.SSLContext | None = None
    ) -> Connection:
        """Connect and agree on versions. Raises BrokerUnreachable, TimedOut or NotKafka."""
        connection = cls(address, client_id)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                await loop.create_connection(lambda: connection, address.host, address.port, ssl=tls)
        except TimeoutError:
            raise BrokerUnreachable([str(address)], "no answer to the connection attempt") from None
        except OSError as error:
            raise BrokerUnreachable([str(address)], _reason(error)) from error
        try:
            await connection._negotiate(timeout)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._failure is None and self._transport is not None

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def close(self, failure: KafkaError | None = None) -> None:
        """Whoever waits for a reply gets `failure`."""
        self._fail(failure or Closed(f"the connection to {self.address} was closed"))
        if self._transport is not None:
            self._transport.abort()

    async def request(
        self, request: Message, reply: type[Reply], timeout: float, *, highest: int | None = None
    ) -> Reply:
        """Send one request and wait for its reply, at most `timeout` seconds.

        `highest` bounds the version. A broker that takes longer loses the connection, as whatever follows would wait
        behind the reply.
        """
        return cast(Reply, await self._ask(request, reply, timeout, highest))

    async def post(self, request: Message, timeout: float, *, highest: int | None = None) -> None:
        """Send a request that has no reply (Produce with acks=0), and wait until it has left, or nearly."""
        self._write(request, highest)
        try:
            async with asyncio.timeout(timeout):
                await self._takes_more.wait()
        except TimeoutError:
            raise self._too_slow(timeout) from None
        if self._failure is not None:
            raise self._failure

    def version_of(self, key: ApiKey, highest: int | None = None) -> int:
        """The version that requests of this API have here. Raises NotKafka where there is none in common."""
        api = APIS[key]
        ours = min(api.max_version, HIGHEST.get(key, api.max_version))
        lowest, newest = self._versions.get(key, (0, -1))
        version = min(ours, newest if highest is None else min(newest, highest))
        if version < max(lowest, api.min_version):
            raise NotKafka(f"{self.address} does not serve {api.name} in a version that this client speaks")
        return version

    def serves(self, key: ApiKey, version: int = 0) -> bool:
        lowest, highest = self._versions.get(key, (0, -1))
        return lowest <= highest and version <= highest

    async def _ask(
        self, request: Message, reply: type[Message] | None, timeout: float, highest: int | None = None
    ) -> Any:
        if self._failure is not None:
            raise self._failure
        if len(self._waiting) >= WAITING_MAX:
            raise TimedOut(f"{self.address} owes {WAITING_MAX} replies")
        correlation_id, key, version = self._write(request, highest)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        overdue = loop.call_later(timeout, self._too_slow, timeout)
        self._waiting.append(_Waiting(correlation_id, key, version, reply, future, overdue))
        return await future

    def _too_slow(self, timeout: float) -> TimedOut:
        slow = TimedOut(f"{self.address} did not answer within {timeout:g} s")
        slow.broker = str(self.address)
        self.close(slow)
        return slow

    def _write(self, request: Message, highest: int | None = None) -> tuple[int, ApiKey, int]:
        assert request.api_key is not None, f"{type(request).__name__} is not a request"
        if self._failure is not None:
            raise self._failure
        assert self._transport is not None
        key = ApiKey(request.api_key)
        version = self.version_of(key, highest)
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        header = encode_request_header(key, version, self._correlation_id, self._client_id)
        parts = encode_parts(request, version, bytes(LENGTH_SIZE) + header)
        parts[0][:LENGTH_SIZE] = (sum(map(len, parts)) - LENGTH_SIZE).to_bytes(LENGTH_SIZE, "big")
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)
        return self._correlation_id, key, version

    async def _negotiate(self, timeout: float) -> None:
        software = TOOL if self._client_id == TOOL_CLIENT_ID else SOFTWARE
        hello = ApiVersionsRequest(client_software_name=software, client_software_version=__version__)
        waiting, frame = await self._ask(hello, None, timeout)
        if frame[CORRELATION_ID_SIZE:][:2] == UNSUPPORTED_VERSION:
            # A broker that does not know our version answers in the form of version 0 (KIP-511).
            self._versions = {ApiKey.API_VERSIONS: (0, 0)}
            answer = await self.request(ApiVersionsRequest(), ApiVersionsResponse, timeout)
        else:
            answer = cast(ApiVersionsResponse, self._understand(waiting._replace(reply=ApiVersionsResponse), frame))
        if answer.error_code != ErrorCode.NONE:
            raise NotKafka(f"{self.address} refuses ApiVersions with error {answer.error_code}")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        self.features = {each.name: each.max_version_level for each in answer.finalized_features}

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._failure is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        reason = "it closed the connection" if error is None else _reason(error)
        self._fail(BrokerUnreachable([str(self.address)], reason))

    def pause_writing(self) -> None:
        self._takes_more.clear()

    def resume_writing(self) -> None:
        self._takes_more.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return self._buffer[self._begun :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is not None:
            self._filled += nbytes
            if self._filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._deliver(frame)
            return
        end, start = self._begun + nbytes, 0
        while end - start >= LENGTH_SIZE:
            length = int.from_bytes(self._buffer[start : start + LENGTH_SIZE], "big")
            if not CORRELATION_ID_SIZE <= length <= REPLY_BYTES_MAX:
                self.close(NotKafka(f"{self.address} does not answer like a Kafka broker"))
                return
            start += LENGTH_SIZE
            if length > end - start:
                if length + LENGTH_SIZE > READ_BYTES // 2:
                    self._frame = bytearray(length)
                    self._filled = end - start
                    self._frame[: self._filled] = self._buffer[start:end]
                    start = end
                else:
                    start -= LENGTH_SIZE
                break
            self._deliver(bytearray(self._buffer[start : start + length]))
            start += length
        self._begun = end - start
        if start and self._begun:
            self._buffer[: self._begun] = bytes(self._buffer[start:end])

    def eof_received(self) -> bool:
        return False

    def _deliver(self, frame: bytearray) -> None:
        if not self._waiting:
            self.close(NotKafka(f"{self.address} answered what it was not asked"))
            return
        waiting = self._waiting.popleft()
        waiting.overdue.cancel()
        if waiting.future.done():
            return
        try:
            result = (waiting, frame) if waiting.reply is None else self._understand(waiting, frame)
        except NotKafka as error:
            waiting.future.set_exception(error)
            self.close(error)
            return
        waiting.future.set_result(result)

    def _understand(self, waiting: _Waiting, frame: bytearray) -> Message:
        assert waiting.reply is not None
        try:
            answered, offset = parse_response_header(waiting.key, waiting.version, frame)
            if answered != waiting.correlation_id:
                raise NotKafka(f"{self.address} answered request {answered} instead of {waiting.correlation_id}")
            return decode(waiting.reply, waiting.version, frame, offset)
        except (RemoteProtocolError, StructError) as error:
            raise NotKafka(f"{self.address} sent a malformed {waiting.reply.__name__}: {error}") from error

    def _fail(self, failure: KafkaError) -> None:
        if self._failure is None:
            self._failure = failure
        self._takes_more.set()
        while self._waiting:
            waiting = self._waiting.popleft()
            waiting.overdue.cancel()
            if not waiting.future.done():
                waiting.future.set_exception(self._failure)


def _reason(error: Exception) -> str:
    # asyncio words these in its own way; a name that is not found has no errno of the system.
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text or type(error).__name__).lower()
