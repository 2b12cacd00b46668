"""Kafka for tests: brokers as processes of their own, faults that prove their effect, fixtures for pytest.

    with raftlog.testing.Kafka(brokers=3) as kafka: kafka.bootstrap_servers

Names are imported when they are first used: pytest imports this package in everybody's test runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftlog.testing.async_kafka import AsyncKafka
    from raftlog.testing.clusters import Cluster, cluster
    from raftlog.testing.container import KafkaContainer
    from raftlog.testing.kafka import Kafka
    from raftlog.testing.process import BrokerDied, BrokerProcess

__all__ = ["AsyncKafka", "BrokerDied", "BrokerProcess", "Cluster", "Kafka", "KafkaContainer", "cluster"]

_HOMES = {
    "AsyncKafka": "async_kafka",
    "BrokerDied": "process",
    "BrokerProcess": "process",
    "Cluster": "clusters",
    "Kafka": "kafka",
    "KafkaContainer": "container",
    "cluster": "clusters",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
