"""The offsets of one group: committed ones, and those of transactions that have not ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from raftlog.broker.core.coordinator.pending_writes import PendingWrites
from raftlog.broker.core.group.records import CommittedOffset
from raftlog.wire.errors import InvariantViolation
from raftlog.wire.ids import ProducerId

_NONE: Mapping[int, CommittedOffset] = {}


class CommittedOffsets:
    """What a group keeps whatever its protocol is; it goes along when the group changes over to another.

    Durable: only `GroupCoordinatorShard` changes it, by what is in the log.

    Invariant: no topic stands in `by_topic` without a partition.
    """

    __slots__ = ("by_topic", "pending")

    def __init__(self) -> None:
        self.by_topic: dict[str, dict[int, CommittedOffset]] = {}
        self.pending: PendingWrites[tuple[str, int], CommittedOffset] = PendingWrites()

    def commit(self, topic: str, partition: int, value: CommittedOffset) -> None:
        """An offset was committed outside of transactions."""
        if self.pending:
            self.pending.overtake((topic, partition))
        self._put(topic, partition, value)

    def commit_many(self, topic: str, offsets: Mapping[int, CommittedOffset]) -> None:
        """The same for many partitions of a topic, at least one."""
        if self.pending:
            for partition in offsets:
                self.pending.overtake((topic, partition))
        self.by_topic.setdefault(topic, {}).update(offsets)

    def _put(self, topic: str, partition: int, value: CommittedOffset) -> None:
        partitions = self.by_topic.get(topic)
        if partitions is None:
            partitions = self.by_topic[topic] = {}
        partitions[partition] = value

    def remove(self, topic: str, partition: int) -> None:
        """The offset of a partition was removed, and all that is pending for it."""
        self.pending.remove((topic, partition))
        partitions = self.by_topic.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self.by_topic[topic]

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """What is pending of the producer counts from now on, or is gone."""
        for (topic, partition), value in self.pending.end(producer_id, committed=committed):
            self._put(topic, partition, value)

    def of_topic(self, topic: str) -> Mapping[int, CommittedOffset]:
        """What is committed in a topic, by partition."""
        return self.by_topic.get(topic, _NONE)

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether the end of a transaction may change the offset of this partition."""
        return (topic, partition) in self.pending

    def partitions(self) -> Iterator[tuple[str, int]]:
        """(topic, partition) of all that is committed or pending, each once."""
        for topic, partitions in self.by_topic.items():
            for partition in partitions:
                yield topic, partition
        for topic, partition in self.pending:
            if partition not in self.of_topic(topic):
                yield topic, partition

    def partitions_of(self, topic: str) -> list[int]:
        """The partitions of a topic for which something is committed or pending, each once."""
        pending = (partition for name, partition in self.pending if name == topic)
        return list(dict.fromkeys([*self.of_topic(topic), *pending]))

    def committed(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        """(topic, partition, value) of all that is committed."""
        for topic, partitions in self.by_topic.items():
            for partition, value in partitions.items():
                yield topic, partition, value

    def values(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        """(topic, partition, value) of all that is committed or pending and may count yet."""
        yield from self.committed()
        for _, (topic, partition), pending in self.pending.items():
            if pending is not None:
                yield topic, partition, pending

    def __bool__(self) -> bool:
        """Whether anything is committed or pending."""
        return bool(self.by_topic) or bool(self.pending)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CommittedOffsets):
            return NotImplemented
        return self.by_topic == other.by_topic and self.pending == other.pending

    __hash__ = None  # type: ignore[assignment]

    def check_invariants(self) -> None:
        """Raises InvariantViolation if it contradicts itself."""
        if not all(self.by_topic.values()):
            raise InvariantViolation("a topic without offsets")
        self.pending.check_invariants()
