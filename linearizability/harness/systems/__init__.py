"""What is verified: raftlog, Apache Kafka, or whatever listens at an address."""

from __future__ import annotations

from raftlog.linearizability.harness.settings import RunSettings
from raftlog.linearizability.harness.systems.system import REPLICAS, REPLICAS_MIN, System


def abilities_of(name: str, brokers: int) -> frozenset[str]:
    """What faults may ask of a system with so many brokers."""
    found: frozenset[str] = frozenset()
    if name == "raftlog":
        from raftlog.linearizability.harness.systems.raftlog import RaftlogSystem

        found = RaftlogSystem.abilities
    elif name == "kafka":
        from raftlog.linearizability.harness.systems.kafka import KafkaSystem

        found = KafkaSystem.abilities
    return found if brokers >= REPLICAS_MIN else found - {REPLICAS}


def system(settings: RunSettings) -> System:
    """The system that a run is about, not started yet."""
    if settings.system == "raftlog":
        from raftlog.linearizability.harness.systems.raftlog import RaftlogSystem

        return RaftlogSystem(settings.brokers, settings.settings, settings.mutant)
    if settings.system == "kafka":
        from raftlog.linearizability.harness.systems.kafka import KafkaSystem

        return KafkaSystem(settings.brokers, settings.settings)
    from raftlog.linearizability.harness.systems.address import AddressSystem

    return AddressSystem(settings.system)
