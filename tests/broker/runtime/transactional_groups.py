"""One partition of groups on a real log in memory, whose consumers commit in transactions and outside of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.admin import delete_group
from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.core.group.member import MemoryBudget
from raftlog.broker.core.group.records import CommittedOffset, OffsetRecord
from raftlog.broker.core.log.producers import TransactionEnd
from raftlog.broker.core.log.results import AppendOrigin, AppendResult
from raftlog.broker.core.log.verification import VerificationGuard
from raftlog.broker.runtime.coordinator_host import Producer
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.broker.runtime.timer_wheel import TimerWheel
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.metadata.group_configs import ConsumerGroupSettings
from raftlog.metadata.image import MetadataImage
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tests.broker.runtime.manual_loop import ManualLoop
from tests.broker.store.compaction_world import CompactedLog

Known = dict[str, tuple[dict[str, dict[int, CommittedOffset]], dict[tuple[str, int], list[Any]]]]
"""By group: its committed offsets, and what is pending."""


class LedPartition:
    """A partition without followers on a log; up to `end_offset`, if that is given."""

    def __init__(self, log: Any) -> None:
        self.leader_epoch = LeaderEpoch(0)
        self.log = log

    def append(
        self, records: bytes, now_ms: int, *, guard: VerificationGuard | None = None, transaction_version: int = 0
    ) -> AppendResult:
        assert isinstance(self.log, PartitionLog)
        result = self.log.append_as_leader(
            records, LeaderEpoch(0), now_ms, origin=AppendOrigin.COORDINATOR, transaction_version=transaction_version
        )
        self.log.update_high_watermark(self.log.log_end_offset)
        return result

    def append_marker(self, end: TransactionEnd, now_ms: int) -> AppendResult:
        batch = encode_transaction_marker(
            TransactionMarker(end.committed, end.coordinator_epoch),
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            timestamp=now_ms,
        )
        return self.append(batch, now_ms, transaction_version=end.transaction_version)

    def wait(self, mark: Mark, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        raise AssertionError("everything is committed at once")


class Prefix:
    """A log as it was when it ended at `log_end_offset`."""

    def __init__(self, log: PartitionLog, end_offset: int) -> None:
        self._log = log
        self.log_start_offset = log.log_start_offset
        self.high_watermark = self.log_end_offset = end_offset

    def read_bytes(self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool) -> bytes:
        return self._log.read_bytes(offset, max_bytes, end_offset, min_one=min_one)


class TransactionalGroups:
    """Requests to one host; every answer must come at once and be NONE, unless a test looks at it."""

    def __init__(self) -> None:
        self.world = CompactedLog()
        self.host = self._host(self.world.log)
        self.host.loaded()
        # The state by where the log ended.
        self.history: dict[int, Known] = {}
        self.remember()

    def _host(self, log: Any) -> GroupHost:
        return GroupHost(
            0,
            LedPartition(log),
            lambda: Now(0, self.world.clock.now_ms()),
            TimerWheel(ManualLoop()),  # type: ignore[arg-type]
            config=GroupConfig(),
            memory=MemoryBudget(),
            image=MetadataImage(),
            settings=lambda image, group_id: ConsumerGroupSettings(),
            in_background=list,
        )

    def remember(self) -> None:
        self.host.check_invariants()
        self.history[self.world.log.log_end_offset] = known(self.host)

    def loaded(self, end_offset: int | None = None) -> GroupHost:
        """What another broker makes of the log, or of its beginning."""
        log = self.world.log
        host = self._host(log if end_offset is None else Prefix(log, end_offset))
        for _ in host.load():
            pass
        host.check_invariants()
        return host

    # --- requests

    def commit(
        self, offset: int, *, partition: int = 0, group_id: str = "g", producer: int | None = None, epoch: int = 0
    ) -> ErrorCode:
        """A commit, in the transaction of `producer` if there is one."""
        value = CommittedOffset(Offset(offset), commit_timestamp_ms=self.world.clock.now_ms())
        decision: Decision[ErrorCode] = Decision(ErrorCode.NONE, [OffsetRecord(group_id, "t", partition, value)])
        if producer is None:
            return self._answer(lambda take: self.host.commit(decision, take, take))
        who = Producer(ProducerId(producer), ProducerEpoch(epoch))
        return self._answer(lambda take: self.host.commit_in_transaction(decision, who, take, take))

    def end(
        self, producer: int, *, committed: bool, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0
    ) -> ErrorCode:
        """The marker of a transaction."""
        end = TransactionEnd(ProducerId(producer), ProducerEpoch(epoch), committed, coordinator_epoch, version)
        return self._answer(lambda take: self.host.complete_transaction(end, take))

    def remove(self, *, partition: int = 0, group_id: str = "g") -> ErrorCode:
        decision: Decision[ErrorCode] = Decision(ErrorCode.NONE, [OffsetRecord(group_id, "t", partition, None)])
        return self._answer(lambda take: self.host.commit(decision, take, take))

    def delete(self, group_id: str = "g") -> ErrorCode:
        return self._answer(lambda take: self.host.commit(delete_group(self.host.shard, group_id), take, take))

    def forget_topic(self) -> None:
        self.host.forget_topics(["t"])
        self.remember()

    def _answer(self, request: Callable[[Callable[[ErrorCode], None]], None]) -> ErrorCode:
        answers: list[ErrorCode] = []
        request(answers.append)
        (answer,) = answers
        self.remember()
        return answer

    # --- what is there

    def offset(self, partition: int = 0, group_id: str = "g") -> int:
        """The committed offset; -1 if there is none."""
        group = self.host.shard.groups.get(group_id)
        found = None if group is None else group.offsets.of_topic("t").get(partition)
        return -1 if found is None else found.offset


def known(host: GroupHost) -> Known:
    """All that a host knows of offsets; a group that has none need not be there."""
    return {
        group_id: (
            {topic: dict(partitions) for topic, partitions in group.offsets.by_topic.items()},
            _by_key(group.offsets.pending.items()),
        )
        for group_id, group in host.shard.groups.items()
        if group.offsets
    }


def _by_key(items: Any) -> dict[tuple[str, int], list[Any]]:
    found: dict[tuple[str, int], list[Any]] = {}
    for producer_id, key, value in items:
        found.setdefault(key, []).append((producer_id, value))
    return found
