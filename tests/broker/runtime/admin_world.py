"""A broker's metadata side for tests: a real controller on a real journal, and handlers called as the dispatcher does.

Requests and responses go through the codec in the version under test: what a client would see is what is checked.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.request_metrics import RequestCounts
from raftlog.broker.config import BrokerConfig
from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.memory import ReceiveMemory
from raftlog.broker.core.connection.reply import Buffer, FileRange
from raftlog.broker.core.connection.server_side import ServerSide
from raftlog.broker.core.connection.transport import Fault
from raftlog.broker.runtime.controller import Controller
from raftlog.broker.runtime.failure_detector import Suspects
from raftlog.broker.runtime.opening import open_controller, random_id
from raftlog.metadata.commands import CreateTopics, NewTopic, RegisterBroker, TopicResult
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import Endpoint
from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import InvariantViolation
from raftlog.wire.headers import parse_response_header
from raftlog.wire.schema import Message

CLUSTER_ID = "b3lsLW5vdC1hLWNsdXN0ZX"
ADVERTISED = ("broker.test", 19092)


class AdminWorld:
    """One broker without network and logs. Use as `async with`."""

    def __init__(self, directory: Path, **settings: str) -> None:
        given = {"node.id": "1", "log.dirs": str(directory), "broker.rack": "r1"}
        given.update({name.replace("_", "."): value for name, value in settings.items()})
        self.config = BrokerConfig(given)
        self.suspects = Suspects(lambda: 0.0)
        self.controller: Controller = open_controller(self.config)
        self.services: dict[str, Any] = {}

    async def __aenter__(self) -> AdminWorld:
        await self.controller.start()
        await self.controller.initialize(CLUSTER_ID)
        await self.controller.register(
            RegisterBroker(1, random_id(), self.config.registered_endpoints(), self.config["broker.rack"])
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.controller.image.check_invariants()
        await self.controller.close()

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    async def add_broker(
        self, broker_id: int, rack: str | None = None, *, host: str | None = None, fenced: bool = False
    ) -> None:
        """Register another broker that exists in metadata only."""
        endpoint = Endpoint("PLAINTEXT", f"broker-{broker_id}.test" if host is None else host, 9092)
        answer = await self.controller.execute(RegisterBroker(broker_id, random_id(), (endpoint,), rack, fenced=fenced))
        assert answer.broker_epoch > 0

    async def create(self, *topics: NewTopic | str) -> tuple[TopicResult, ...]:
        """Create topics by command; plain names get one partition."""
        wanted = tuple(topic if isinstance(topic, NewTopic) else NewTopic(topic) for topic in topics)
        return (await self.controller.execute(CreateTopics(wanted))).results

    async def call(self, key: ApiKey, request: Message, version: int) -> Any:
        """What a client of this version gets for this request."""
        api = APIS[key]
        received = decode(api.request, version, encode(request, version))
        services = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            tasks=set(),
            node_id=1,
            cluster_id=CLUSTER_ID,
            config=self.config,
            controller=self.controller,
            suspects=self.suspects,
            counts=RequestCounts(),
            **self.services,
        )
        connection = ClientConnection()
        context = RequestContext(
            services=cast(Any, services),
            api=api,
            api_version=version,
            correlation_id=7,
            client_id="test",
            listener_name="PLAINTEXT",
            advertised=ADVERTISED,
            connection=connection,
        )
        importlib.import_module(f"raftlog.broker.api.{_module(key)}").handle(context, received)
        context.handler_returned()
        frame = await connection.answer
        _, offset = parse_response_header(key, version, frame)
        return decode(api.response, version, frame, offset)


class ClientConnection(Connection):
    """A connection of which one reply is expected: what was sent, or the reason why it ended."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        memory = ReceiveMemory(loop.call_soon, loop.call_later, loop.time)
        side = ServerSide(_no_requests, memory, loop.time, request_bytes_max=0)
        self.answer: asyncio.Future[bytes] = loop.create_future()
        super().__init__(side, OneReply(self.answer), ("127.0.0.1", 1), ADVERTISED)


class OneReply:
    """A Transport that puts what it is given into a future."""

    def __init__(self, answer: asyncio.Future[bytes]) -> None:
        self.answer = answer

    def send(self, buffer: Buffer) -> int:
        self.answer.set_result(bytes(buffer)[4:])
        return len(buffer)

    def send_gathered(self, buffers: Sequence[Buffer], *, more: bool) -> int:
        return self.send(b"".join(buffers))

    def send_file(self, file: FileRange, start: int) -> int:
        raise AssertionError("only fetches send files")

    def watch_writable(self, wanted: bool) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.answer.get_loop().call_soon(callback)

    def bug(self, error: Exception) -> None:
        if isinstance(error, InvariantViolation):
            self.answer.get_loop().call_exception_handler({"message": "stopping", "exception": error})
        logging.getLogger("tests").error("a bug in serving a request", exc_info=error)

    def close(self, reason: str, fault: Fault) -> None:
        self.answer.set_exception(ConnectionError(reason))


def _no_requests(_connection: Connection, _frame: memoryview) -> None:
    raise AssertionError("nothing is received here")


def _module(key: ApiKey) -> str:
    return key.name.lower()


def versions(key: ApiKey) -> range:
    """Every version of an API."""
    return range(APIS[key].min_version, APIS[key].max_version + 1)
