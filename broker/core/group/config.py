"""What an operator may set about groups."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class MigrationPolicy(Enum):
    """Which groups may change their protocol while they have members (group.consumer.migration.policy)."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group with members may become a classic group."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class GroupConfig(NamedTuple):
    """Limits and times of the group coordinator; times in ms. The defaults are Kafka's."""

    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    max_size: int = 2_147_483_647  # group.max.size, members of one group
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    new_member_join_timeout_ms: int = 300_000
    """How long the JoinGroup of a new member may be delayed. It cannot send heartbeats yet, and nobody sees whether
    its connection is gone, so clients that give up and come back would fill a long rebalance with ghosts."""
    members_max_bytes: int = 128 << 20
    """How much the members of all groups may take (`MemoryBudget`). Each may bring megabytes, and stays for up to
    `max_session_timeout_ms` when it is not heard of any more; ten thousand members of two protocols take 40 MB."""
    offset_metadata_max_bytes: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 10_080 * 60_000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    commit_timeout_ms: int = 5_000  # offsets.commit.timeout.ms
    consumer_max_size: int = 2_147_483_647  # group.consumer.max.size
    consumer_assignors: tuple[str, ...] = ("uniform", "range")  # group.consumer.assignors
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
    """How old what a pattern matches may be, even if no topic was created since."""
