"""What the workloads ask of a Kafka client. Everything blocks, has a deadline, and raises `Refused` or `Uncertain`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

CALL_SECONDS = 10.0
"""After so long a call has an unknown outcome, as in Jepsen's Kafka suite."""
REQUEST_SECONDS = 3.0
TRANSACTION_SECONDS = 10.0
SESSION_SECONDS = 6.0
REBALANCE_SECONDS = 1.0
"""Short, so that a group goes on without a member that is busy, and the coordinator has to refuse what it commits."""

TopicPartition = tuple[str, int]


class Record(NamedTuple):
    """What is sent: `value` None is a tombstone."""

    topic: str
    partition: int
    value: str | None
    key: str | None = None


class Read(NamedTuple):
    """What was read; `value` None is a tombstone."""

    topic: str
    partition: int
    offset: int
    value: str | None
    key: str | None


class Membership(NamedTuple):
    """Who a consumer is in its group, and what it owns. A static member goes by its instance id.

    `is_assigned`: the group has told what it owns in this generation. Until then the generation is stored nowhere, and
    a coordinator's failover gives its number once more, to others.
    """

    member: str
    generation: int
    partitions: frozenset[TopicPartition]
    is_assigned: bool = True


@dataclass(slots=True)
class Polled:
    """Records in the order in which they came; where the end of what is visible was met; partitions won and lost; and
    as which member they were read, None where the library does not say.
    """

    records: list[Read] = field(default_factory=list)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    rebalance: list[tuple[str, list[TopicPartition]]] = field(default_factory=list)
    membership: Membership | None = None


class ProducerPort(Protocol):
    """One producer, transactional if it was made with an id."""

    def send(self, record: Record) -> int | None:
        """The offset, None where the broker did not say."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self) -> None:
        """Commit it. `Uncertain` when that is not known."""

    def abort(self) -> None:
        """Abort it: when this returns, nothing of it is ever seen."""

    def send_offsets(self, offsets: Mapping[TopicPartition, int], consumer: ConsumerPort) -> None:
        """Commit a group's offsets with the transaction."""

    def close(self) -> None:
        """Give it up, without waiting for anything."""


class ConsumerPort(Protocol):
    """One consumer."""

    def assign(self, partitions: Sequence[TopicPartition], *, beginning: bool) -> None:
        """Read these partitions, from their beginning or from where it was."""

    def subscribe(self, topics: Sequence[str]) -> None:
        """Have the group say what to read."""

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Go on from there."""

    def poll(self, seconds: float, records_max: int = 500) -> Polled:
        """What comes within so many seconds."""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for the group, as the member that polled last."""

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets."""

    def close(self) -> None:
        """Leave the group and give it up."""


@dataclass(frozen=True, slots=True)
class ProducerChoice:
    """How a producer is made."""

    acks: str = "all"
    idempotent: bool = True
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerChoice:
    """How a consumer is made."""

    group: str | None = None
    protocol: str = "classic"
    instance: str | None = None
    isolation: str = "read_committed"


@dataclass(frozen=True, slots=True)
class Library:
    """A client library: its name and version, and what makes its clients for brokers, a client id and a choice."""

    name: str
    version: str
    producer: Callable[[str, str, ProducerChoice], ProducerPort]
    """Raises `Uncertain` when no broker answers in time."""
    consumer: Callable[[str, str, ConsumerChoice], ConsumerPort]
    """Nothing is assigned yet."""
    has_ends: bool = False
    """Whether its consumer says where it met the end of what it could see."""
    has_consumer_protocol: bool = False
    """Whether it speaks the newer group protocol (KIP-848)."""


def text(value: Any) -> str | None:
    """Bytes of a record as they are shown in the history."""
    return None if value is None else bytes(value).decode("utf-8", "backslashreplace")
