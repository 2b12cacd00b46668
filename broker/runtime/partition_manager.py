"""The partitions that this broker hosts: from the metadata image to open logs and roles.

The log of a partition without followers is opened when it is first used, so that ten thousand idle ones cost nothing;
replicated ones are opened soon after the metadata name them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.core.traffic import IsrChanges, Traffic
from raftlog.broker.runtime.flushing import Flusher
from raftlog.broker.runtime.opening_queue import OpeningQueue
from raftlog.broker.runtime.partition import Partition
from raftlog.broker.runtime.settings_queue import SettingsQueue
from raftlog.metadata.records import NO_LEADER
from raftlog.wire.errors import ErrorCode, RemoteProtocolError
from raftlog.wire.ids import BrokerId

if TYPE_CHECKING:
    from raftlog.broker.core.replica.throttle import Throttles
    from raftlog.broker.runtime.replication.replication import Replication
    from raftlog.broker.store.log_manager import LogManager
    from raftlog.broker.store.partition_log import PartitionLog
    from raftlog.broker.store.store import UnavailableLog
    from raftlog.metadata.cluster_commands import IsrProposal
    from raftlog.metadata.delta import MetadataDelta
    from raftlog.metadata.image import MetadataImage, TopicImage
    from raftlog.metadata.records import PartitionState

log = logging.getLogger("raftlog.partitions")

# An enum's attribute costs more than a call.
_NONE = ErrorCode.NONE

OPENING_AGAIN_SECONDS = 10.0
"""After what time a replica that could not be made is tried again."""


class HostedTopic:
    """A topic of the image, with those of its partitions that are open, and why others could not be."""

    __slots__ = ("config", "image", "name_bytes", "partitions", "traffic", "unopened")

    def __init__(self, image: TopicImage, config: LogConfig) -> None:
        self.image = image
        self.config = config
        self.name_bytes = image.name.encode()
        self.partitions: dict[int, Partition] = {}
        self.unopened: dict[int, str] = {}
        self.traffic = Traffic()

    def replicas_of(self, index: int) -> tuple[int, ...]:
        """Who has the partition."""
        return self.image.partitions[index].replicas


class PartitionManager:
    """All hosted partitions, by name and by id; Kafka's ReplicaManager.

    One class, though it has many methods: requests, the metadata and failing disks all find and change the same two
    tables, and parts of it could do nothing without the whole. What stands by itself has been taken out of it
    (Replication, OpeningQueue, Flusher, IsrChanges).

    `opening` are those that wait for their turn to be opened. `topic_config` resolves a topic's settings (topic, then
    broker, then default). Without `replication` only partitions without followers can be hosted.
    """

    def __init__(
        self,
        node_id: BrokerId,
        logs: LogManager,
        topic_config: Callable[[str], LogConfig],
        replication: Replication | None = None,
    ) -> None:
        self._replication = replication
        self._node_id = node_id
        self._logs = logs
        self._topic_config = topic_config
        self._image: MetadataImage | None = None
        self._by_name: dict[bytes, HostedTopic] = {}
        self._by_id: dict[bytes, HostedTopic] = {}
        self.opening = OpeningQueue(self._open_in_turn, self._tell_gained)
        self._new_settings = SettingsQueue(self._configure)
        self._flusher = Flusher(logs, self.storage_failed)
        logs.store.on_retention = self._log_start_moved
        # Led in new epochs since that was last told.
        self._gained = 0
        # How many logs were opened so far: each takes a thousand times as long as to find one that is open.
        self.opened = 0
        self.isr_changes = IsrChanges()
        self.traffic_of_deleted = Traffic()
        # Told of partitions that cannot be made, for which other brokers wait.
        self.on_no_room: Callable[[str], None] | None = None
        self.is_in_contact: Callable[[], bool] = lambda: True
        """Set where there is a quorum. See PartitionOwner."""

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
        return partition if partition.error is _NONE else partition.error

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
        return partition if partition.error is _NONE else partition.error

    def find(self, name: str, topic_id: bytes | None, index: int) -> Partition | ErrorCode:
        """By name if there is one, else by id."""
        if name or topic_id is None:
            return self.find_by_name(name.encode(), index)
        return self.find_by_id(topic_id, index)

    def find_replica(self, name: str, topic_id: bytes | None, index: int) -> Partition | ErrorCode:
        """The partition, if it can be read here, led or followed (KIP-392)."""
        found = self.find(name, topic_id, index)
        if found is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            topic = self._by_id.get(topic_id) if topic_id and not name else self._by_name.get(name.encode())
            partition = topic.partitions.get(index) if topic is not None else None
            if partition is not None:
                return partition if partition.read_error is _NONE else partition.read_error
        return found

    def follower_lost(self, broker_id: BrokerId) -> None:
        """A follower's connection has ended."""
        if self._replication is not None:
            self._replication.follower_lost(broker_id)

    @property
    def throttles(self) -> Throttles | None:
        """What holds back replicas that are not in sync; None when nothing does."""
        replication = self._replication
        return None if replication is None or replication.throttles.is_idle else replication.throttles

    @property
    def all_throttles(self) -> Throttles | None:
        """The same, idle or not; None for a broker alone."""
        return None if self._replication is None else self._replication.throttles

    def is_on_disk(self, name: str, index: int) -> bool:
        """Whether the partition has a log in a directory of ours. One that has none yet is empty."""
        return self._logs.get(name, index) is not None

    def unwritten(self) -> Iterator[tuple[str, int]]:
        """Topic and number of each partition of this broker that has no log yet, because nobody has used it."""
        for topic in self._image.topics.values() if self._image is not None else ():
            for state in topic.partitions:
                if self._is_hosted(state) and not self.is_on_disk(topic.name, state.partition_id):
                    yield topic.name, state.partition_id

    def _is_hosted(self, state: PartitionState) -> bool:
        # The only replica may lie in a directory that is missing now: it must not be begun anew in another one.
        return self._node_id in state.replicas and (state.leader == self._node_id or len(state.replicas) > 1)

    def open_partitions(self) -> Iterator[Partition]:
        """Those that are open, in the order in which they were opened, by topic."""
        for topic in self._by_name.values():
            yield from topic.partitions.values()

    def traffic_by_topic(self) -> Iterator[tuple[str, Traffic]]:
        """What has gone through each topic that was used here."""
        for topic in self._by_name.values():
            yield topic.image.name, topic.traffic

    def _host(self, image: TopicImage) -> HostedTopic:
        topic = HostedTopic(image, self._topic_config(image.name))
        self._by_name[topic.name_bytes] = topic
        self._by_id[image.topic_id] = topic
        return topic

    def _open(self, topic: HostedTopic, index: int) -> Partition | ErrorCode:
        image = topic.image
        if not 0 <= index < len(image.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state = image.partitions[index]
        if not self._is_hosted(state):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        config = topic.config
        self.opened += 1
        try:
            partition_log = self._logs.open(image.name, index, image.topic_id, config)
        except LogUnavailable as failure:
            self._tell_unopened(topic, index, str(failure))
            found = self._logs.get(image.name, index)
            is_refused = found is None or found.offline_reason is None
            if is_refused and self.on_no_room is not None and self._node_id in state.isr and len(state.isr) > 1:
                self.on_no_room(str(failure))
            return ErrorCode.KAFKA_STORAGE_ERROR
        topic.unopened.pop(index, None)
        partition = Partition(image.name, image.topic_id, index, partition_log, self)
        partition.traffic = topic.traffic
        partition.internal = image.internal
        partition.min_isr = min(config.min_insync_replicas, len(state.replicas))
        topic.partitions[index] = partition
        self._take_role(partition, state)
        self.opening.opened(image.topic_id, index)
        return partition if partition.error is _NONE else partition.error

    @staticmethod
    def _tell_unopened(topic: HostedTopic, index: int, reason: str) -> None:
        """Once for each reason, and not for every request of every client that tries again."""
        if topic.unopened.get(index) != reason:
            topic.unopened[index] = reason
            log.error("partition=%s-%d cannot be opened: %s", topic.image.name, index, reason)

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what partitions, or replication, promise does not hold."""
        for partition in self.open_partitions():
            partition.check_invariants()
        if self._replication is not None:
            self._replication.check_invariants()

    # ── roles ─────────────────────────────────────────────────────────────────────────────────────────────

    def _take_role(self, partition: Partition, state: PartitionState) -> None:
        """Be what the metadata say: a new leader, a new follower, or the same in a new leader epoch."""
        replication = self._replication
        if state.leader == self._node_id:
            leadership = None
            if len(state.replicas) > 1 and replication is not None and partition.log.offline_reason is None:
                leadership = replication.lead(partition, state)
            elif replication is not None:
                replication.forget(partition)
            partition.become_leader(state, leadership)
            if leadership is not None and replication is not None:
                log.debug("partition=%r leads epoch=%d from=%d", partition, state.leader_epoch, leadership.start_offset)
                self._gained += 1
                replication.recover(partition)
        else:
            partition.become_follower(state)
            if replication is not None and partition.log.offline_reason is None:
                replication.follow(partition, state)

    def _change_role(self, partition: Partition, state: PartitionState) -> None:
        if (state.leader, state.leader_epoch) != (partition.leader_id, partition.leader_epoch):
            self._take_role(partition, state)
            return
        leadership = partition.leadership
        if (leadership is None) is (state.leader != self._node_id or len(state.replicas) == 1):
            if leadership is not None:
                self._count_isr_change(len(partition.isr), len(state.isr))
            partition.apply_state(state)
            if leadership is not None and leadership.change(state, self.monotonic_ms()):
                partition.maybe_advance_high_watermark()
                partition.try_complete_delayed()
        else:
            # The first follower was added, or the last one removed.
            self._take_role(partition, state)

    def _count_isr_change(self, before: int, after: int) -> None:
        if after < before:
            self.isr_changes.shrinks += 1
        elif after > before:
            self.isr_changes.expands += 1

    def _open_soon(self, image: TopicImage, states: Iterable[PartitionState] | None = None) -> None:
        """Open the partitions of a topic, all or some, that have replicas here and elsewhere."""
        if self._replication is None:
            return
        topic = self._by_id.get(image.topic_id)
        for state in image.partitions if states is None else states:
            hosted = topic is not None and state.partition_id in topic.partitions
            if not hosted and len(state.replicas) > 1 and self._node_id in state.replicas:
                self.opening.add(image.topic_id, state.partition_id)

    def _open_in_turn(self, topic_id: bytes, index: int) -> None:
        if self.find_by_id(topic_id, index) is ErrorCode.KAFKA_STORAGE_ERROR:
            self._open_later(topic_id, index)

    def _open_later(self, topic_id: bytes, index: int) -> None:
        """A disk without room may get some, and nobody asks a follower; a log that failed stays as it is."""
        topic = self._by_id.get(topic_id)
        found = self._logs.get(topic.image.name, index) if topic is not None else None
        if topic is not None and (found is None or found.offline_reason is None):
            asyncio.get_running_loop().call_later(OPENING_AGAIN_SECONDS, lambda: self._open_soon(topic.image))

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back."""
        return self._replication.monotonic_ms() if self._replication is not None else 0

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Ask the controller for another ISR."""
        assert self._replication is not None
        self._replication.propose(partition, proposal)

    def flush(self, partition: Partition) -> None:
        """Bring the log to the disk; the partition is told as that goes on."""
        self._flusher.flush(partition)

    # ── following the metadata ────────────────────────────────────────────────────────────────────────────

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take a new image: called after each commit, in order."""
        self._image = image
        if self._replication is not None:
            self._replication.publish(delta, image)
        for deleted in delta.deleted_topics:
            self._delete(deleted)
        for created in delta.created_topics:
            self._open_soon(created)
        reconfigured = dict.fromkeys(delta.topics_with_changed_configs(image))
        for name in delta.changed_topics:
            # Its settings first, as they were set: what a leader may acknowledge depends on both.
            self._change(image.topics[name], reconfigured=name in reconfigured or name in self._new_settings)
        self._new_settings.add(reconfigured)
        if self._node_id in delta.changed_brokers:
            # It may have been away while partitions moved, or were deleted.
            self._remove_strays(list(self._logs))
        if not self.opening:
            self._tell_gained()

    def _tell_gained(self) -> None:
        """One line for all: thousands change hands at once."""
        if self._gained:
            log.info("leads %d replicated partitions in new epochs", self._gained)
            self._gained = 0

    def _delete(self, image: TopicImage) -> None:
        name = image.name.encode()
        topic = self._by_name.get(name)
        if topic is not None and topic.image.topic_id == image.topic_id:
            del self._by_name[name]
            self.traffic_of_deleted.add(topic.traffic)
            for partition in topic.partitions.values():
                self._drop(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        self._by_id.pop(image.topic_id, None)
        for state in image.partitions:
            self._logs.delete(image.name, state.partition_id, image.topic_id)

    def _drop(self, partition: Partition, error: ErrorCode, reason: str) -> None:
        if self._replication is not None:
            self._replication.forget(partition)
        partition.fail(error, reason)

    def _change(self, image: TopicImage, *, reconfigured: bool) -> None:
        topic = self._by_id.get(image.topic_id)
        if topic is None:
            self._open_soon(image)
            return
        if reconfigured:
            topic.config = self._topic_config(image.name)
        before, topic.image = topic.image.partitions, image
        # The others are what they were: ten thousand partitions get their ISRs back in a thousand small changes.
        changed = [state for was, state in zip_longest(before, image.partitions) if state is not was]
        for state in changed:
            partition = topic.partitions.get(state.partition_id)
            if partition is not None:
                self._change_partition(topic, partition, state)
        self._open_soon(image, changed)

    def _change_partition(self, topic: HostedTopic, partition: Partition, state: PartitionState) -> None:
        if self._node_id in state.replicas:
            # What comes together may have been raised before the ISR shrank, and lowered after the leader changed.
            min_isr = min(topic.config.min_insync_replicas, len(state.replicas))
            self._set_min_isr(partition, max(min_isr, partition.min_isr))
            self._change_role(partition, state)
            self._set_min_isr(partition, min_isr)
            return
        # A reassignment has moved it away.
        del topic.partitions[partition.index]
        self._drop(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is on other brokers now")
        self._remove_strays([partition.log])

    def _remove_strays(self, candidates: Iterable[PartitionLog]) -> None:
        """Remove logs of partitions that are on other brokers now, or gone, once the metadata are current."""
        image, replication = self._image, self._replication
        if image is None or replication is None or not replication.is_current:
            return
        for partition_log in candidates:
            state = image.partition(partition_log.topic, partition_log.index)
            if state is None or self._node_id not in state.replicas:
                log.info("partition=%s-%d is not on this broker any more", partition_log.topic, partition_log.index)
                self._logs.delete(partition_log.topic, partition_log.index)

    def _configure(self, name: str) -> int:
        """Take up a topic's settings; of how many partitions they are."""
        image = self._image.topics.get(name) if self._image is not None else None
        if image is None:
            return 0  # it was deleted meanwhile
        config = self._topic_config(name)
        for index in range(len(image.partitions)):
            # Also those that nobody has used yet: retention and compaction look at them.
            partition_log = self._logs.get(image.name, index)
            if partition_log is not None:
                partition_log.reconfigure(config)
        topic = self._by_name.get(name.encode())
        if topic is not None:
            topic.config = config
            for partition in topic.partitions.values():
                self._set_min_isr(partition, min(config.min_insync_replicas, len(topic.replicas_of(partition.index))))
        return len(image.partitions)

    @staticmethod
    def _set_min_isr(partition: Partition, min_isr: int) -> None:
        if min_isr != partition.min_isr:
            partition.min_isr = min_isr
            if partition.leadership is not None:
                partition.leadership.min_isr = min_isr
                partition.maybe_advance_high_watermark()
                partition.try_complete_delayed()

    # ── failures ──────────────────────────────────────────────────────────────────────────────────────────

    def log_offline(self, partition_log: UnavailableLog, reason: str) -> None:
        """The store gave a log up."""
        partition = self._partition_of(partition_log)
        if partition is not None and partition.log is partition_log:
            self.storage_failed(partition, LogUnavailable(reason))
        if self._replication is not None and self._has_other_replicas(partition_log):
            # The controller knows of directories only: it has others lead what lies there, as Kafka does.
            self._logs.fail_directory_of(partition_log, reason)

    def _log_start_moved(self, partition_log: UnavailableLog) -> None:
        """Retention has removed records: fetch sessions say so, or followers keep theirs while nothing is written."""
        partition = self._partition_of(partition_log)
        if partition is not None:
            partition.try_complete_delayed()

    def log_back(self, refused: UnavailableLog) -> None:
        """A log that went offline for want of room, or of descriptors, may be used again."""
        partition_log = self._logs.get(refused.topic, refused.index)
        if partition_log is None:
            return
        partition_log.storage.try_again()
        partition = self._partition_of(partition_log)
        topic = self._by_name.get(partition_log.topic.encode())
        if partition is None or topic is None or partition.log is not partition_log:
            return
        log.warning("partition=%r is used again", partition)
        del topic.partitions[partition.index]
        self._open_soon(topic.image, [topic.image.partitions[partition.index]])

    def others_can_lead(self, partition_log: UnavailableLog) -> bool:
        """Whether this broker leads the partition of a log, and somebody else is in sync."""
        partition = self._partition_of(partition_log)
        return partition is not None and partition.leadership is not None and len(partition.leadership.isr) > 1

    def others_wait(self, partition_log: UnavailableLog) -> bool:
        """Whether another broker leads the partition of a log, and has to wait for this one as it is in sync."""
        partition = self._partition_of(partition_log)
        return partition is not None and partition.leader_id not in (NO_LEADER, self._node_id) and (
            self._node_id in partition.isr
        )

    def _partition_of(self, partition_log: UnavailableLog) -> Partition | None:
        topic = self._by_name.get(partition_log.topic.encode())
        return topic.partitions.get(partition_log.index) if topic is not None else None

    def _has_other_replicas(self, partition_log: UnavailableLog) -> bool:
        state = self._image.partition(partition_log.topic, partition_log.index) if self._image is not None else None
        return state is not None and len(state.replicas) > 1

    def storage_failed(self, partition: Partition, failure: BaseException) -> None:
        """The log cannot be used any more; who waits is told, and the other partitions go on."""
        if partition.read_error is not _NONE:
            return
        # That of its log, or its directory, is told as an error.
        log.debug("partition=%r offline: %s", partition, failure)
        self._drop(partition, ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
