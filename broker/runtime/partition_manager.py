"""The partitions that this broker hosts: from the metadata image to open logs.

Knows which topics exist, which of their partitions are led here, and keeps their logs' settings true. Refuses to
know requests. A partition's log is opened when it is first used, so that ten thousand idle ones cost nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.runtime.partition import Partition
from raftlog.wire.errors import ErrorCode, RemoteProtocolError

if TYPE_CHECKING:
    from raftlog.broker.store.log_manager import LogManager
    from raftlog.broker.store.managed_log import ManagedLog
    from raftlog.metadata.delta import MetadataDelta
    from raftlog.metadata.image import MetadataImage, TopicImage

log = logging.getLogger("raftlog.partitions")


class HostedTopic:
    """A topic of the image, with those of its partitions that are open."""

    __slots__ = ("image", "name_bytes", "partitions")

    def __init__(self, image: TopicImage) -> None:
        self.image = image
        self.name_bytes = image.name.encode()
        self.partitions: dict[int, Partition] = {}


class PartitionManager:
    """All hosted partitions, by name and by id.

    `topic_config` resolves a topic's settings (topic, then broker, then default).
    """

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        topic_config: Callable[[str], LogConfig],
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._topic_config = topic_config
        self._flushes: set[asyncio.Task[None]] = set()
        self._image: MetadataImage | None = None
        self._by_name: dict[bytes, HostedTopic] = {}
        self._by_id: dict[bytes, HostedTopic] = {}

    # ── looking up ────────────────────────────────────────────────────────────────────────────────────────

    def find_by_name(self, name: bytes, index: int) -> Partition | ErrorCode:
        """The partition, if it is led here and usable. `name` is as it came over the wire.

        Raises RemoteProtocolError when that is not UTF-8.
        """
        topic = self._by_name.get(name)
        if topic is None:
            try:
                text = name.decode()
            except UnicodeDecodeError as error:
                raise RemoteProtocolError(f"the name of a topic is not UTF-8: {error.reason}") from error
            image = self._image.topics.get(text) if self._image else None
            if image is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topic = self._host(image)
        partition = topic.partitions.get(index)
        if partition is None:
            return self._open(topic, index)
        return partition if partition.error is ErrorCode.NONE else partition.error

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        """The partition, if it is led here and usable."""
        topic = self._by_id.get(topic_id)
        if topic is None:
            image = self._image.topics_by_id.get(topic_id) if self._image else None
            if image is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            topic = self._host(image)
        partition = topic.partitions.get(index)
        if partition is None:
            return self._open(topic, index)
        return partition if partition.error is ErrorCode.NONE else partition.error

    def find(self, name: str, topic_id: bytes | None, index: int) -> Partition | ErrorCode:
        """By name if there is one, else by id."""
        if name or topic_id is None:
            return self.find_by_name(name.encode(), index)
        return self.find_by_id(topic_id, index)

    def is_on_disk(self, name: str, index: int) -> bool:
        """Whether the partition has a log in a directory of ours. One that has none yet is empty."""
        return self._logs.get(name, index) is not None

    def open_partitions(self) -> Iterator[Partition]:
        """Those that are open, in the order in which they were opened, by topic."""
        for topic in self._by_name.values():
            yield from topic.partitions.values()

    def _host(self, image: TopicImage) -> HostedTopic:
        topic = HostedTopic(image)
        self._by_name[topic.name_bytes] = topic
        self._by_id[image.topic_id] = topic
        return topic

    def _open(self, topic: HostedTopic, index: int) -> Partition | ErrorCode:
        image = topic.image
        if not 0 <= index < len(image.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state = image.partitions[index]
        if state.leader != self._node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        config = self._topic_config(image.name)
        try:
            partition_log = self._logs.open(image.name, index, image.topic_id, config)
        except LogUnavailable as failure:
            log.error("partition=%s-%d cannot be opened: %s", image.name, index, failure)
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = Partition(image.name, image.topic_id, index, partition_log, self._flush)
        partition.leader_epoch = state.leader_epoch
        partition_log.assign_epoch(state.leader_epoch)
        partition.internal = image.internal
        partition.isr_size = len(state.isr)
        partition.min_isr = config.min_insync_replicas
        topic.partitions[index] = partition
        partition.advance(partition_log.log_end_offset)
        return partition

    # ── flushing before an acknowledgement (flush.messages) ───────────────────────────────────────────────

    def _flush(self, partition: Partition) -> None:
        if not partition.flushing:
            partition.flushing = True
            task = asyncio.get_running_loop().create_task(self._flush_until_done(partition))
            self._flushes.add(task)
            task.add_done_callback(self._flushes.discard)

    async def _flush_until_done(self, partition: Partition) -> None:
        """What is appended meanwhile shares the next sync."""
        try:
            while partition.log.flush_due and partition.error is ErrorCode.NONE:
                await self._logs.flush(partition.log)
                partition.advance(partition.log.recovery_point)
        except LogUnavailable as failure:
            self.storage_failed(partition, failure)
        finally:
            partition.flushing = False

    # ── following the metadata ────────────────────────────────────────────────────────────────────────────

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take a new image: called after each commit, in order."""
        self._image = image
        for deleted in delta.deleted_topics:
            self._delete(deleted)
        for name in delta.changed_topics:
            self._change(image.topics[name])
        for name in delta.topics_with_changed_configs(image):
            self._configure(image.topics[name])

    def _delete(self, image: TopicImage) -> None:
        name = image.name.encode()
        topic = self._by_name.get(name)
        if topic is not None and topic.image.topic_id == image.topic_id:
            del self._by_name[name]
            for partition in topic.partitions.values():
                partition.fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        self._by_id.pop(image.topic_id, None)
        for state in image.partitions:
            self._logs.delete(image.name, state.index, image.topic_id)

    def _change(self, image: TopicImage) -> None:
        topic = self._by_id.get(image.topic_id)
        if topic is None:
            return
        topic.image = image
        for index, partition in topic.partitions.items():
            state = image.partitions[index]
            partition.leader_epoch = state.leader_epoch
            partition.log.assign_epoch(state.leader_epoch)
            partition.isr_size = len(state.isr)
            partition.notify()

    def _configure(self, image: TopicImage) -> None:
        config = self._topic_config(image.name)
        for index in range(len(image.partitions)):
            # Also those that nobody has used yet: retention and compaction look at them.
            partition_log = self._logs.get(image.name, index)
            if partition_log is not None:
                partition_log.reconfigure(config)
        topic = self._by_name.get(image.name.encode())
        if topic is not None:
            for partition in topic.partitions.values():
                partition.min_isr = config.min_insync_replicas

    # ── failures ──────────────────────────────────────────────────────────────────────────────────────────

    def log_offline(self, partition_log: ManagedLog, reason: str) -> None:
        """The store gave a log up."""
        topic = self._by_name.get(partition_log.topic.encode())
        partition = topic.partitions.get(partition_log.index) if topic is not None else None
        if partition is not None and partition.log is partition_log:
            self.storage_failed(partition, LogUnavailable(reason))

    def storage_failed(self, partition: Partition, failure: BaseException) -> None:
        """The log cannot be used any more; who waits is told, and the other partitions go on."""
        if partition.error is not ErrorCode.NONE:
            return
        log.error("partition=%r offline: %s", partition, failure)
        partition.fail(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
