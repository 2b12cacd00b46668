"""What a client process is given to do, the clients that it does it with, and what every workload has in common."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from raftlog.linearizability.harness.journal import Journal
from raftlog.linearizability.harness.libraries.ports import (
    ConsumerChoice,
    ConsumerPort,
    Library,
    ProducerChoice,
    ProducerPort,
)


@dataclass(slots=True)
class Assignment:
    """What one client process is given. `topics`: names to numbers of partitions. `final_seconds`: for reading back."""

    number: int
    clients: int
    workload: str
    library: str
    bootstrap: str
    seed: int
    rate: float
    topics: dict[str, int]
    options: dict[str, str] = field(default_factory=dict)
    final_seconds: float = 20.0
    suffix: str = ""
    """Of all names in a system that other runs use too."""
    stand_in_for: int | None = None
    """Set where this client takes over the transactional id of another one, which may still live."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class Connections:
    """The producer and the consumer of a client process, made when they are needed and again when they are lost."""

    def __init__(self, work: Assignment, found: Library) -> None:
        self._work = work
        self.library = found
        self._made = 0
        self._producer: ProducerPort | None = None
        self._consumer: ConsumerPort | None = None

    def producer(self, choice: ProducerChoice) -> ProducerPort:
        """The producer. Raises Uncertain or Refused where none can be made."""
        if self._producer is None:
            self._producer = self.library.producer(self._work.bootstrap, self._name("p"), choice)
        return self._producer

    def consumer(self, choice: ConsumerChoice) -> ConsumerPort:
        """The consumer."""
        if self._consumer is None:
            self._consumer = self.library.consumer(self._work.bootstrap, self._name("c"), choice)
        return self._consumer

    @property
    def has_consumer(self) -> bool:
        """Whether there is one now."""
        return self._consumer is not None

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"verify-{self._work.number}-{kind}{self._made}"

    def drop_producer(self) -> None:
        """The next one is a new one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def drop_consumer(self) -> None:
        """The next one is a new one."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def drop(self) -> None:
        """Both."""
        self.drop_producer()
        self.drop_consumer()


class Session:
    """What a workload does in one client process: `step` while there is load, `final` at the end."""

    def __init__(self, work: Assignment, journal: Journal, connections: Connections) -> None:
        self.work = work
        self.journal = journal
        self.connections = connections
        self.random = Random(f"{work.seed} {work.number} {work.stand_in_for}")
        self._values = 0

    def value(self, more: str = "") -> str:
        """One that nobody else sends."""
        self._values += 1
        return f"{self.work.number}.{self._values}{more}"

    def named(self, name: str) -> str:
        """A topic, group or transactional id as this run calls it."""
        return name + self.work.suffix

    def partitions(self, topic: str) -> list[tuple[str, int]]:
        """All of a topic."""
        return [(topic, index) for index in range(self.work.topics[topic])]

    def all_partitions(self) -> list[tuple[str, int]]:
        """All that there are."""
        return [each for topic in self.work.topics for each in self.partitions(topic)]

    def option(self, name: str, default: str) -> str:
        """What `--option` says."""
        return self.work.options.get(name, default)

    def step(self) -> None:
        """One operation, or what belongs together. Raises CallFailed, recorded."""
        raise NotImplementedError

    def final(self, goals: dict[str, int]) -> None:
        """Read back. `goals`: the highest offset of each key that anybody was told or has read."""
        raise NotImplementedError
