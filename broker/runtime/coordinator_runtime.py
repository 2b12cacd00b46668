"""What every coordinator of a broker has in common: which partitions of its topic are led here, and loaded.

Kafka's `CoordinatorRuntime`. What is kept, and what is asked, the subclass knows (`group_coordinator.py`).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from raftlog.broker.core.coordinator.shared import Now, coordinator_error, coordinator_partition
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.runtime.loading_pause import collector_paused
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId

if TYPE_CHECKING:
    from raftlog.broker.ports import Clock
    from raftlog.broker.runtime.coordinator_host import CoordinatorHost, CoordinatorPartition
    from raftlog.metadata.delta import MetadataDelta
    from raftlog.metadata.image import MetadataImage, TopicImage
    from raftlog.wire.ids import LeaderEpoch

log = logging.getLogger("raftlog.coordinator")

LOAD_WAIT_SECONDS = 1.0
"""How long a request waits for its shard to be loaded before its client is told to come again."""

SLICE_SECONDS = 0.002
SLICE_STEPS = 1_000
"""How long background work may hold the event loop at a time, and how many steps of it at most."""

REMEMBERED_KEYS = 65_536
"""Of how many keys the partition is remembered rather than computed."""


class Metadata(Protocol):
    """What is needed of the controller."""

    @property
    def image(self) -> MetadataImage: ...

    def subscribe(self, listener: Callable[[MetadataDelta, MetadataImage], None]) -> None: ...


class Partitions(Protocol):
    """What is needed of the partition manager."""

    def find_by_name(self, name: bytes, index: int) -> CoordinatorPartition | ErrorCode: ...

    def is_on_disk(self, name: str, index: int) -> bool: ...


H = TypeVar("H", bound="CoordinatorHost[Any]")
"""A coordinator's hosts."""


class CoordinatorRuntime(ABC, Generic[H]):
    """The hosts of all partitions of one topic that are led here.

    A host comes into being when it is first asked for, or in the background if it has a log already; it goes when the
    broker leads its partition no more.
    """

    host_module: ClassVar[str]
    """Where the class of the hosts is. It is imported when it is first needed: a broker without starts sooner."""

    def __init__(
        self,
        topic_name: str,
        node_id: BrokerId,
        *,
        metadata: Metadata,
        partitions: Partitions,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.topic_name = topic_name
        self.hosts: dict[int, H] = {}
        self._node_id = node_id
        self._metadata = metadata
        self._partitions = partitions
        self._clock = clock
        self._loop = loop
        self._topic: TopicImage | None = None
        self._index_of: dict[str, int] = {}
        # Partitions with a log that nobody has loaded yet.
        self._to_load: dict[int, None] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        # Partitions whose log cannot be read, until their leaders change or the broker is restarted.
        self._unreadable: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self._is_imported = False

    # ── what the subclass knows ───────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def make_host(self, index: int, partition: CoordinatorPartition) -> H:
        """A host for a partition, not loaded."""

    @abstractmethod
    def after_load(self, host: H) -> Iterator[None]:
        """What is to be put right in a host that was loaded, in small steps."""

    @abstractmethod
    def follow(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """What a change of the metadata means to hosts that stay."""

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Follow the metadata, and load what is there."""
        self._metadata.subscribe(self._follow)

    def stop(self) -> None:
        """Answer everybody who waits, and serve nobody any more."""
        self._is_stopped = True
        for task in list(self._tasks):
            task.cancel()
        for index in list(self.hosts):
            self._close(index)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run background work until it ends or the coordinator is stopped; a failure is a bug."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "a task of a coordinator", "exception": bug})

    def now(self) -> Now:
        """This instant on both clocks."""
        return Now(int(self._clock.monotonic() * 1000), self._clock.now_ms())

    # ── following the metadata ────────────────────────────────────────────────────────────────────────────

    def _follow(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._is_stopped:
            return
        topic = image.topics.get(self.topic_name)
        if topic is not self._topic:
            self._follow_topic(topic)
        self.follow(delta, image)

    def _follow_topic(self, topic: TopicImage | None) -> None:
        before, self._topic = self._topic, topic
        if before is None or topic is None or len(before.partitions) != len(topic.partitions):
            self._index_of.clear()
        was_replaced = before is not None and (topic is None or before.topic_id != topic.topic_id)
        for index, host in list(self.hosts.items()):
            if was_replaced or self._epoch_led(index) != host.leader_epoch:
                self._close(index)
        # Another copy of a log that could not be read may be here now.
        self._unreadable.clear()
        self._to_load.clear()
        for index in range(len(topic.partitions) if topic is not None else 0):
            led = self._epoch_led(index) is not None
            if led and index not in self.hosts and self._partitions.is_on_disk(self.topic_name, index):
                self._to_load[index] = None
        if topic is not None and not self._is_imported:
            self._import_ahead(topic)
        if self._to_load:
            self.spawn(self._load_in_background())

    def _import_ahead(self, topic: TopicImage) -> None:
        """Who follows a partition may lead it any moment, and its clients shall not wait for an import then."""
        if any(self._node_id in partition.replicas for partition in topic.partitions):
            self._is_imported = True
            Thread(target=import_module, args=(self.host_module,), name="import", daemon=True).start()

    def log_back(self, topic_name: str, index: int) -> None:
        """A log that was offline is opened anew, perhaps one of this topic: what was built from it is built anew, for
        the partition that its host has is out of service for good.
        """
        if topic_name != self.topic_name or self._is_stopped:
            return
        self._unreadable.discard(index)
        if index in self.hosts:
            self._close(index)
        if self._epoch_led(index) is not None:
            self._to_load[index] = None
            self.spawn(self._load_in_background())

    def _epoch_led(self, index: int) -> LeaderEpoch | None:
        """The epoch in which this broker leads the partition, or None."""
        topic = self._topic
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        partition = topic.partitions[index]
        return partition.leader_epoch if partition.leader == self._node_id else None

    def _close(self, index: int, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        host = self.hosts.pop(index)
        loading = self._loading.pop(index, None)
        if loading is not None:
            loading.cancel()
        host.close(error)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────

    def run(self, key: str, operation: Callable[[H], None], refuse: Callable[[ErrorCode], None]) -> None:
        """Run the operation on the host that keeps `key`, now or once it is loaded; or refuse, if that is not here, or
        does not come to be loaded in time. Exactly one of the two is called, once.
        """
        index = self._index_of.get(key)
        if index is None:
            index = self.partition_of(key)
        if index is None:
            refuse(ErrorCode.NOT_COORDINATOR)
        else:
            self.run_at(index, operation, refuse)

    def run_at(self, index: int, operation: Callable[[H], None], refuse: Callable[[ErrorCode], None]) -> None:
        """The same for a partition."""
        host = self.hosts.get(index) or self._open(index)
        if isinstance(host, ErrorCode):
            refuse(host)
        elif host.is_loaded:
            operation(host)
            host.schedule()
        else:
            host.on_loaded(LOAD_WAIT_SECONDS, partial(self._run_loaded, host, operation, refuse))

    @staticmethod
    def _run_loaded(
        host: H, operation: Callable[[H], None], refuse: Callable[[ErrorCode], None], error: ErrorCode
    ) -> None:
        if error is ErrorCode.NONE:
            operation(host)
        elif error is ErrorCode.REQUEST_TIMED_OUT:
            refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            refuse(coordinator_error(error))

    def partition_of(self, key: str) -> int | None:
        """The partition that keeps `key`; None while there is no topic."""
        index = self._index_of.get(key)
        if index is None and self._topic is not None:
            if len(self._index_of) >= REMEMBERED_KEYS:
                self._index_of.clear()
            index = self._index_of[key] = coordinator_partition(key, len(self._topic.partitions))
        return index

    def partitions_in_use(self) -> list[int]:
        """The partitions led here that have something in them, as far as one can tell before they are loaded."""
        return sorted({*self.hosts, *self._to_load, *self._unreadable})

    # ── loading ───────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, index: int) -> H | ErrorCode:
        """Begin to host a partition; one with an empty log is loaded at once."""
        if self._is_stopped or index in self._unreadable:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._epoch_led(index) is None:
            return ErrorCode.NOT_COORDINATOR
        partition = self._partitions.find_by_name(self.topic_name.encode(), index)
        if isinstance(partition, ErrorCode):
            return coordinator_error(partition)
        self._to_load.pop(index, None)
        host = self.hosts[index] = self.make_host(index, partition)
        if partition.log.log_start_offset == partition.log.log_end_offset:
            host.loaded()
        else:
            self._loading[index] = self.spawn(self._load(index, host))
        return host

    async def _load(self, index: int, host: H) -> None:
        began = self._clock.monotonic()
        try:
            with collector_paused():
                await self.in_slices(host.load())
        except (ValueError, LogUnavailable) as failure:
            log.error(
                "partition=%s what it holds is not served: %s. Restore this partition's directory from a replica or a"
                " copy and restart the broker",
                host.name,
                failure,
            )
            del self._loading[index]
            self._unreadable.add(index)
            self._close(index, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        del self._loading[index]
        log.info("partition=%s loaded %s seconds=%.3f", host.name, host.contents(), self._clock.monotonic() - began)
        await self.in_slices(self.after_load(host))

    async def _load_in_background(self) -> None:
        """One after the other; a shard that somebody asks for meanwhile is loaded beside them."""
        while self._to_load:
            index = next(iter(self._to_load))
            del self._to_load[index]
            if index not in self.hosts:
                self._open(index)
            if index in self._loading:
                await asyncio.wait({self._loading[index]})

    async def look_for_ever(self, interval_ms: int, look: Callable[[H], Iterator[None]]) -> None:
        """Take the steps of `look` in every host that is loaded, again and again."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for host in list(self.hosts.values()):
                if host.is_loaded:
                    await self.in_slices(look(host))

    async def in_slices(self, steps: Iterator[None]) -> None:
        """Take the steps, giving way to the event loop every now and then."""
        clock = self._clock.monotonic
        end = clock() + SLICE_SECONDS
        for count, _ in enumerate(steps, 1):
            # By count too: a simulated clock stands still meanwhile.
            if clock() >= end or count % SLICE_STEPS == 0:
                await asyncio.sleep(0)
                end = clock() + SLICE_SECONDS
