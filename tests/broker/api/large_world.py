"""A dispatcher with clients whose turns come when a test says so; its partitions are not there."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from raftlog.broker.api.dispatcher import Dispatcher
from raftlog.broker.api.request_metrics import RequestCounts
from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.memory import ReceiveMemory
from raftlog.broker.core.connection.server_side import ServerSide
from raftlog.broker.core.fetch.session import FetchSessions
from raftlog.broker.runtime.fetching import FetchService
from raftlog.wire.codec import decode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from raftlog.wire.schema import Message
from tests.broker.core.connection.fake_transport import FakeTransport


class Future:
    """Of the loop; there is no loop."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._call_soon = call_soon
        self._is_done = False
        self._value: Any = None
        self._callbacks: list[Callable[[Any], None]] = []

    def set_result(self, value: Any) -> None:
        self._is_done, self._value = True, value
        for callback in self._callbacks:
            self._call_soon(partial(callback, self))

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if self._is_done:
            self._call_soon(partial(callback, self))
        else:
            self._callbacks.append(callback)

    def result(self) -> Any:
        return self._value


class Timers:
    """What waits for its time, by tick."""

    def __init__(self) -> None:
        self.waiting: dict[int, Any] = {}
        self._last = 0

    def add(self, waiting: Any, _: float) -> int:
        self._last += 1
        self.waiting[self._last] = waiting
        return self._last

    add_lazily = add

    def remove(self, _: Any, tick: int) -> None:
        del self.waiting[tick]

    def expire(self) -> None:
        """The time is up for all."""
        waiting, self.waiting = self.waiting, {}
        for each in waiting.values():
            each.expire()


class Client:
    """A connection from an address."""

    def __init__(self, world: World, address: str) -> None:
        self.transport = FakeTransport()
        self.connection = Connection(world.side, self.transport, (address, 1), ("broker", 9092))
        self._on_the_way = b""
        self._told = 0

    def send(self, requests: bytes) -> None:
        self._on_the_way += requests
        self.arrive()

    def arrive(self) -> None:
        """As much as is read."""
        while self._on_the_way and self.transport.is_reading and not self.connection.closed:
            buffer = self.connection.receive_buffer()
            taken = min(len(buffer), len(self._on_the_way))
            buffer[:taken] = self._on_the_way[:taken]
            self._on_the_way = self._on_the_way[taken:]
            self.connection.received(taken)

    def answers(self, kind: type[Message] = OffsetForLeaderEpochResponse, version: int = 3) -> list[tuple[int, Any]]:
        """Those that have come since, with their correlation ids."""
        found = []
        while len(self.transport.sent) > self._told:
            size, number = struct.unpack_from(">ii", self.transport.sent, self._told)
            body = bytes(self.transport.sent[self._told + 8 : self._told + 4 + size])
            found.append((number, decode(kind, version, body)))
            self._told += 4 + size
        return found


class World:
    """A dispatcher and its clients; `looked_up` are the topics that were, in order."""

    def __init__(self) -> None:
        self.looked_up: list[str] = []
        self.soon: list[Callable[[], None]] = []
        self.sessions = FetchSessions(10, iter(range(1, 100)).__next__)
        self.timers = Timers()
        # As if a log had to be opened for each that is looked up.
        self.opens = False
        self.partitions = SimpleNamespace(find=self.find, find_replica=self.find, opened=0, opening=())
        loop: Any = SimpleNamespace(
            call_soon=lambda call, *given: self.soon.append(lambda: call(*given)),
            create_future=lambda: Future(self.soon.append),
            time=lambda: 1.0,
        )
        partitions: Any = self.partitions
        timers: Any = self.timers
        self.fetches = FetchService(loop, timers, partitions, self.sessions, 1 << 20)
        # Runs an operation on a group, or refuses it.
        self.run_on_group: Callable[..., None] = lambda *_: None
        self.services = services = SimpleNamespace(
            loop=loop,
            counts=RequestCounts(),
            partitions=partitions,
            fetches=self.fetches,
            groups=SimpleNamespace(run=lambda *given: self.run_on_group(*given)),
            controller=SimpleNamespace(image=SimpleNamespace(topics={})),
        )
        self.counts = services.counts
        memory = ReceiveMemory(self.soon.append, lambda _, call: self.soon.append(call), lambda: 1.0)
        self.memory = memory
        self.side = ServerSide(Dispatcher(cast(Any, services), {}).dispatch, memory, lambda: 1.0, 8 << 20)
        self.clients: list[Client] = []

    def find(self, topic: str, _: bytes | None, index: int) -> ErrorCode:
        self.looked_up.append(topic)
        self.partitions.opened += self.opens
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if index % 2 else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def client(self, address: str = "10.0.0.1") -> Client:
        self.clients.append(Client(self, address))
        return self.clients[-1]

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for call in soon:
            call()
        for client in self.clients:
            client.transport.turn()
            client.arrive()
            client.connection.check_invariants()

    def turns(self, until: Callable[[], object]) -> int:
        """How many it takes."""
        for count in range(10_000):
            if until():
                return count
            self.turn()
        raise AssertionError("it does not come to an end")
