"""The group coordinator of a running broker: groups and committed offsets, kept in `__consumer_offsets`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from raftlog.broker.core.coordinator.shared import GROUP_TOPIC
from raftlog.broker.core.group.config import GroupConfig, MigrationPolicy
from raftlog.broker.core.group.member import MEMBER_BYTES, MemoryBudget
from raftlog.broker.runtime.coordinator_runtime import CoordinatorRuntime, Metadata, Partitions
from raftlog.wire.errors import InvariantViolation

if TYPE_CHECKING:
    from raftlog.broker.config import BrokerConfig
    from raftlog.broker.ports import Clock
    from raftlog.broker.runtime.coordinator_host import CoordinatorPartition
    from raftlog.broker.runtime.group_host import GroupHost
    from raftlog.broker.runtime.timer_wheel import TimerWheel
    from raftlog.metadata.delta import MetadataDelta
    from raftlog.metadata.image import MetadataImage


class GroupCoordinator(CoordinatorRuntime["GroupHost"]):
    """All groups of this broker. Requests come through `run`, and go on in `GroupHost`."""

    host_module = "raftlog.broker.runtime.group_host"

    def __init__(
        self,
        config: BrokerConfig,
        *,
        metadata: Metadata,
        partitions: Partitions,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        timers: TimerWheel,
    ) -> None:
        """`config` has Kafka's names."""
        super().__init__(
            GROUP_TOPIC, config["node.id"], metadata=metadata, partitions=partitions, clock=clock, loop=loop
        )
        self.config = group_config(config)
        self._settings = config.resolver.group_settings
        self._timers = timers
        self._memory = MemoryBudget()

    def start(self) -> None:
        """See CoordinatorRuntime. Offsets expire from now on."""
        super().start()
        interval_ms = self.config.offsets_retention_check_interval_ms
        self.spawn(self.look_for_ever(interval_ms, lambda host: host.expire_offsets()))

    def make_host(self, index: int, partition: CoordinatorPartition) -> GroupHost:
        """See CoordinatorRuntime."""
        # Imported here, with the protocol of groups and its messages: a broker that has no groups starts without them.
        from raftlog.broker.runtime.group_host import GroupHost

        return GroupHost(
            index,
            partition,
            self.now,
            self._timers,
            config=self.config,
            memory=self._memory,
            image=self._metadata.image,
            settings=self._settings,
            in_background=self._in_background,
        )

    def _in_background(self, steps: Iterator[None]) -> None:
        self.spawn(self.in_slices(steps))

    def after_load(self, host: GroupHost) -> Iterator[None]:
        """See CoordinatorRuntime."""
        return host.forget_missing_topics(self._metadata.image)

    def follow(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See CoordinatorRuntime."""
        if not self.hosts:
            return
        changes = delta.topic_changes
        changed = [topic.name for change in changes if (topic := change.after or change.before) is not None]
        has_new_topics = bool(delta.created_topics)
        deleted = [topic.name for topic in delta.deleted_topics]
        for host in list(self.hosts.values()):
            host.shard.follow(image, changed, has_new_topics=has_new_topics)
            if deleted and host.is_loaded:
                host.forget_topics(deleted)

    def check_invariants(self) -> None:
        """Raises InvariantViolation if hosts, shards and the memory counted contradict each other."""
        used = 0
        for host in self.hosts.values():
            host.check_invariants()
            used += sum(group.member_bytes for group in host.shard.consumer_groups())
            for group in host.shard.classic_groups():
                used += sum(member.size for member in group.members.values())
                used += MEMBER_BYTES * len(group.pending_joins)
        if self._memory.used != used:
            raise InvariantViolation(f"members take {used} bytes, and {self._memory.used} are counted")


def group_config(config: Mapping[str, Any]) -> GroupConfig:
    """The limits of groups from the broker's settings."""
    return GroupConfig(
        min_session_timeout_ms=config["group.min.session.timeout.ms"],
        max_session_timeout_ms=config["group.max.session.timeout.ms"],
        max_size=config["group.max.size"],
        initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_ms=config["offsets.retention.minutes"] * 60_000,
        offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
        commit_timeout_ms=config["offsets.commit.timeout.ms"],
        consumer_max_size=config["group.consumer.max.size"],
        consumer_assignors=config["group.consumer.assignors"],
        migration_policy=MigrationPolicy(config["group.consumer.migration.policy"].lower()),
        regex_refresh_interval_ms=config["group.consumer.regex.refresh.interval.ms"],
    )
