"""A metadata controller without a broker: decide, replay, look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from raftlog.metadata.commands import (
    AlterConfigs,
    AlterResource,
    Command,
    ConfigChange,
    ConfigOperation,
    CreateTopics,
    NewTopic,
    RegisterBroker,
    TopicResult,
)
from raftlog.metadata.configs import ConfigResolver
from raftlog.metadata.controller import Environment, decide
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import Endpoint
from raftlog.wire.errors import ErrorCode

R = TypeVar("R")


class World:
    """An image and the rules that change it. Ids are counted, so that everything repeats."""

    def __init__(self, brokers: Mapping[int, str | None] | int = 1, **static: str) -> None:
        self.image = MetadataImage()
        self.records = 0
        self._ids = 0
        values = {name.replace("_", "."): value for name, value in static.items()}
        self.resolver = ConfigResolver(1, values)
        self.environment = Environment(self._new_id, self.resolver, num_partitions=2, default_replication_factor=1)
        racks = brokers if isinstance(brokers, Mapping) else dict.fromkeys(range(1, brokers + 1))
        for broker_id, rack in racks.items():
            self.register(broker_id, rack)

    def _new_id(self) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(4, "big") * 4

    def execute(self, command: Command[R]) -> R:
        """Decide and replay; the image must stay consistent and a decision must fit it."""
        decision = decide(self.image, command, self.environment)
        if decision.records:
            delta = MetadataDelta(self.image)
            for record in decision.records:
                delta.replay(record)
            assert not delta.anomalies
            self.image = delta.apply(self.image.version + 1)
            self.image.check_invariants()
            self.image.check_decisions()
            self.records += len(decision.records)
        return decision.response

    def register(self, broker_id: int, rack: str | None = None, *, fenced: bool = False) -> int:
        endpoint = Endpoint("PLAINTEXT", f"broker-{broker_id}", 9092)
        incarnation = self._new_id()
        answer = self.execute(RegisterBroker(broker_id, incarnation, (endpoint,), rack, fenced=fenced))
        assert answer.error is ErrorCode.NONE
        return answer.broker_epoch

    def create(self, topic: NewTopic | str, *, validate_only: bool = False) -> TopicResult:
        wanted = topic if isinstance(topic, NewTopic) else NewTopic(topic, 1, 1)
        return self.execute(CreateTopics((wanted,), validate_only=validate_only)).results[0]

    def alter(
        self, kind: int, name: str, *changes: tuple[str, int, str | None], replace: bool = False
    ) -> tuple[ErrorCode, str | None]:
        resource = AlterResource(kind, name, tuple(ConfigChange(*change) for change in changes), replace)
        ((_, _, error, message),) = self.execute(AlterConfigs((resource,))).results
        return error, message


SET, DELETE, APPEND, SUBTRACT = ConfigOperation
