"""Several brokers in one process, over loopback, with metadata that the test makes and hands out.

Everything is real but the controller: logs on disk, listeners, fetchers. `Cluster.change` decides a command as the
controller would, and every broker that is not told otherwise hears of it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import uvloop

from raftlog.broker.api.context import Services
from raftlog.broker.api.dispatcher import Dispatcher
from raftlog.broker.config import BrokerConfig
from raftlog.broker.core.fetch.session import FetchSessions
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.main import SystemClock
from raftlog.broker.runtime.batch_checks import BatchChecks
from raftlog.broker.runtime.broker_requests import BrokerRequests
from raftlog.broker.runtime.fetching import FetchService
from raftlog.broker.runtime.partition import Partition
from raftlog.broker.runtime.partition_manager import PartitionManager
from raftlog.broker.runtime.replication.replication import Replication
from raftlog.broker.runtime.replication.settings import FetcherSettings, ReplicationSettings
from raftlog.broker.runtime.timer_wheel import TimerWheel
from raftlog.broker.runtime.transaction_verifier import TransactionVerifier
from raftlog.broker.server.limits import ServerLimits
from raftlog.broker.server.server import Server
from raftlog.broker.store.log_manager import LogManager
from raftlog.metadata.cluster_commands import AlterPartitions, FenceBrokers, IsrProposal, PartitionsAltered
from raftlog.metadata.commands import Command, InitializeCluster, RegisterBroker
from raftlog.metadata.configs import ConfigResolver
from raftlog.metadata.controller import Environment, decide
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import (
    BrokerChangeRecord,
    Endpoint,
    PartitionChangeRecord,
    PartitionState,
    Record,
    ResourceType,
    TopicRecord,
)
from raftlog.wire.apis import APIS
from raftlog.wire.batch import Record as LogRecord
from raftlog.wire.batch import encode_batch
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import encode_request_header, parse_response_header
from raftlog.wire.schema import Message

R = TypeVar("R")

TOPIC = "t"
TOPIC_ID = b"topic id of 16 b"
DEADLINE_SECONDS = 10.0

QUICK = FetcherSettings(fetch_wait_max_ms=50, fetch_backoff_ms=50)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine as a broker's loop would."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(story(), 3 * DEADLINE_SECONDS))


class Broker:
    """One broker; `image` is what it has heard."""

    def __init__(self, cluster: Cluster, node_id: int, directory: Path) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.directory = directory
        self.port = 0
        self.host = "127.0.0.1"
        self.is_running = False
        self.deaf = False
        self.image = MetadataImage()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        config = BrokerConfig(
            {
                "node.id": str(self.node_id),
                "log.dirs": str(self.directory),
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                **self.cluster.broker_settings,
            }
        )
        self.directory.mkdir(exist_ok=True)
        clock = SystemClock()
        self.logs = LogManager(
            [str(self.directory)],
            clock,
            node_id=self.node_id,
            cluster_id="test",
            topic_config=self.topic_config,
            on_offline=lambda log, reason: self.partitions.log_offline(log, reason),
        )
        self.replication = Replication(
            loop, self.node_id, self.cluster.settings, self._alter, registered_epoch=self._registered_epoch
        )
        timers = TimerWheel(loop)
        self.partitions = PartitionManager(self.node_id, self.logs, self.topic_config, self.replication)
        sessions = FetchSessions(1000, self.cluster.next_session)
        self.fetches = FetchService(loop, timers, self.partitions, sessions, 55 << 20)
        controller = SimpleNamespace(image=self.image, controller_id=-1)
        self.controller = controller
        requests = BrokerRequests(loop, timers, self.node_id, lambda broker: self.image.address_of(broker, "PLAINTEXT"))
        self.services = Services(
            node_id=self.node_id,
            cluster_id="test",
            config=config,
            clock=clock,
            loop=loop,
            controller=cast(Any, controller),
            logs=self.logs,
            partitions=self.partitions,
            fetches=self.fetches,
            groups=cast(Any, None),
            transactions=cast(Any, None),
            timers=timers,
            requests=requests,
            lags=cast(Any, None),
            verifier=TransactionVerifier(loop, requests, lambda: self.image),
            batch_checks=BatchChecks(loop),
        )
        self.server = Server(loop, ServerLimits(), Dispatcher(self.services, {}).dispatch)
        self.host, self.port = self.server.listen("127.0.0.1", self.port)
        self.logs.start()
        for _ in self.logs.recover():
            pass
        self.is_running = True

    def topic_config(self, topic: str) -> LogConfig:
        overrides = self.image.configs_of(ResourceType.TOPIC, topic)
        return LogConfig.from_mapping({**self.cluster.topic_settings, **overrides})

    def hear(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = self.controller.image = image
        self.partitions.publish(delta, image)

    def catch_up(self) -> None:
        """Hear everything at once, as after a start."""
        delta = MetadataDelta(self.image)
        for record in self.cluster.records[self.image.version :]:
            delta.replay(record)
        image = delta.apply(len(self.cluster.records))
        if self.image.version < image.version:
            self.hear(delta, image)

    def _registered_epoch(self) -> int:
        return self.cluster.registered.get(self.node_id, -1)

    async def _alter(self, proposals: Sequence[IsrProposal]) -> PartitionsAltered:
        await asyncio.sleep(0)
        if self.cluster.controller_is_away:
            self.cluster.refused += 1
            return PartitionsAltered(ErrorCode.NOT_CONTROLLER)
        epoch = self.image.brokers[self.node_id].epoch
        return self.cluster.execute(AlterPartitions(self.node_id, epoch, tuple(proposals)))

    def kill(self) -> None:
        """As kill -9: nothing is flushed or said, connections break."""
        self.is_running = False
        self.partitions.check_invariants()
        self.fetches.check_invariants()
        self.replication.close()
        self.server.close()
        for log in self.logs:
            log.storage.abandon()
        for directory in self.logs.directories:
            directory.close()

    async def stop(self) -> None:
        """In order."""
        self.is_running = False
        self.partitions.check_invariants()
        self.fetches.check_invariants()
        self.replication.close()
        self.fetches.answer_all()
        self.server.close()
        await self.logs.close()

    def partition(self, index: int = 0, topic: str = TOPIC) -> Partition:
        """The partition as this broker hosts it; opened."""
        found = self.partitions.find_replica(topic, None, index)
        assert isinstance(found, Partition), found
        return found

    def end(self, index: int = 0) -> int:
        return self.partition(index).log.log_end_offset

    def high_watermark(self, index: int = 0) -> int:
        return self.partition(index).log.high_watermark

    def stored(self, index: int = 0, end_offset: int | None = None) -> bytes:
        """The batches as they lie in the log, up to the high watermark or `end_offset`."""
        log = self.partition(index).log
        end = log.high_watermark if end_offset is None else end_offset
        found = b""
        offset = log.log_start_offset
        while offset < end:
            chunk = log.read_bytes(offset, 1 << 20, end, min_one=True)
            found += chunk
            offset = _next_offset(chunk, offset)
        return found

    def append(self, *values: str, index: int = 0) -> int:
        """One batch as its leader; the offset of its first record."""
        partition = self.partition(index)
        assert partition.error is ErrorCode.NONE, partition.error
        result = partition.append_from_client(memoryview(bytearray(batch(*values))), self.services.clock.now_ms())
        assert result.error is ErrorCode.NONE, result
        return result.base_offset


def batch(*values: str) -> bytes:
    return encode_batch([LogRecord(number, 1_700_000_000_000, None, v.encode()) for number, v in enumerate(values)])


def _next_offset(chunk: bytes, offset: int) -> int:
    from raftlog.wire.batch import iterate_batches

    for _, header in iterate_batches(chunk):
        offset = header.next_offset
    return offset


class Cluster:
    """The brokers, and the one true metadata."""

    def __init__(
        self,
        directory: Path,
        size: int = 3,
        *,
        lag_ms_max: int = 30_000,
        topic: dict[str, str] | None = None,
        broker: dict[str, str] | None = None,
        fetcher: FetcherSettings = QUICK,
    ) -> None:
        self.settings = ReplicationSettings("PLAINTEXT", lag_ms_max, fetcher)
        self.topic_settings = topic or {}
        self.broker_settings = broker or {}
        self.records: list[Record] = []
        self.image = MetadataImage()
        self._sessions = 0
        self.registered: dict[int, int] = {}
        self.controller_is_away = False
        self.refused = 0
        self._environment = Environment(
            new_id=lambda: TOPIC_ID, resolver=ConfigResolver(1, {}), num_partitions=1, default_replication_factor=1
        )
        self.brokers = {number: Broker(self, number, directory / str(number)) for number in range(1, size + 1)}

    def __getitem__(self, node_id: int) -> Broker:
        return self.brokers[node_id]

    async def __aenter__(self) -> Cluster:
        self.execute(InitializeCluster("test", {}))
        for node_id in self.brokers:
            self.start(node_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                await broker.stop()

    def next_session(self) -> int:
        self._sessions += 1
        return self._sessions

    def start(self, node_id: int) -> None:
        """Start a broker, and register it, unfenced."""
        broker = self.brokers[node_id]
        broker.image = MetadataImage()
        broker.start()
        endpoint = Endpoint("PLAINTEXT", broker.host, broker.port)
        known = self.image.brokers.get(node_id)
        incarnation = (known.epoch if known else 0).to_bytes(8, "big") + node_id.to_bytes(8, "big")
        rack = self.broker_settings.get(f"rack.{node_id}")
        self.registered.pop(node_id, None)
        answer = self.execute(RegisterBroker(node_id, incarnation, (endpoint,), rack, fenced=True))
        self.registered[node_id] = answer.broker_epoch
        self.unfence(node_id)
        broker.catch_up()

    def kill(self, node_id: int) -> None:
        """Kill a broker, and have the controller see it: it is fenced and leaves the ISRs, and leaders change."""
        self.brokers[node_id].kill()
        epoch = self.image.brokers[node_id].epoch
        self.execute(FenceBrokers(((node_id, epoch),)))

    def execute(self, command: Command[R]) -> R:
        """Decide as the controller does, and tell everybody."""
        decision = decide(self.image, command, self._environment)
        if decision.records:
            self.change(*decision.records)
        return decision.response

    def change(self, *records: Record) -> None:
        """Commit records and tell every running broker that is not deaf."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        assert not delta.anomalies, delta.anomalies
        self.records += records
        self.image = delta.apply(len(self.records))
        self.image.check_invariants()
        for broker in self.brokers.values():
            if broker.is_running and not broker.deaf:
                broker.catch_up()

    def create_topic(self, *replicas: tuple[int, ...], isr: tuple[int, ...] | None = None) -> None:
        """A topic with a partition for each list of replicas; the first one leads."""
        partitions = tuple(
            PartitionState(index, members[0], 0, 0, members, isr or members) for index, members in enumerate(replicas)
        )
        self.change(TopicRecord(TOPIC, TOPIC_ID, partitions))

    def state(self, index: int = 0) -> PartitionState:
        return self.image.topics[TOPIC].partitions[index]

    def set_state(self, index: int = 0, **changes: Any) -> None:
        """The partition's next state: a new leader is a new leader epoch."""
        now = self.state(index)
        epoch = now.leader_epoch + (changes.get("leader", now.leader) != now.leader or "new_epoch" in changes)
        changes.pop("new_epoch", None)
        state = now._replace(partition_epoch=now.partition_epoch + 1, leader_epoch=epoch, **changes)
        self.change(PartitionChangeRecord(TOPIC_ID, (state,)))

    def fence(self, node_id: int) -> None:
        epoch = self.image.brokers[node_id].epoch
        self.change(BrokerChangeRecord(node_id, epoch, fenced=True))

    def unfence(self, node_id: int) -> None:
        broker = self.image.brokers[node_id]
        if broker.fenced:
            self.change(BrokerChangeRecord(node_id, broker.epoch, fenced=False))

    def is_replicated(self, index: int = 0) -> bool:
        """Whether every replica has everything, and knows that it is committed."""
        running = [self[node_id] for node_id in self.state(index).replicas if self[node_id].is_running]
        end = self[self.state(index).leader].end(index)
        return all(broker.end(index) == end == broker.high_watermark(index) for broker in running)


class Client:
    """Asks one broker over a connection of its own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._correlation_id = 0

    async def __aenter__(self) -> Client:
        self._reader, self._writer = await asyncio.open_connection(self.broker.host, self.broker.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, request: Message, version: int) -> Any:
        """The decoded answer."""
        await self.send(request, version)
        return await self.receive(request, version)

    async def send(self, request: Message, version: int, behind: bytes = b"") -> None:
        """Without waiting for the answer. `behind`: bytes after the last field."""
        self._correlation_id += 1
        key = request.api_key
        assert key is not None
        frame = encode_request_header(key, version, self._correlation_id, "test") + encode(request, version) + behind
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        await self._writer.drain()

    async def receive(self, request: Message, version: int) -> Any:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = await self._reader.readexactly(size)
        assert request.api_key is not None
        api = APIS[request.api_key]
        _, position = parse_response_header(api.key, version, frame)
        return decode(api.response, version, frame, position)
