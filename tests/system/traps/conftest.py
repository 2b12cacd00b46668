"""Topics of a test's own on the session's broker."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest

from tests.conftest import ORACLE, Broker
from tests.system.traps.raw import create_topic
from tests.system.traps.sensible import Names

_numbers = itertools.count()

MakeTopic = Callable[..., Names]

ours_only = pytest.mark.skipif(ORACLE in os.environ, reason="says what this broker does where Kafka does otherwise")
"""All other traps are the same for Apache Kafka, and pass against it."""


@pytest.fixture
def make_topic(broker: Broker) -> MakeTopic:
    """`make_topic(settings={...}, partitions=3)`: a fresh topic, and a group name that goes with it."""

    def make(*, partitions: int = 1, settings: dict[str, str] | None = None) -> Names:
        name = f"trap-{os.getpid()}-{next(_numbers)}"
        topic_id = create_topic(broker.bootstrap_servers, name, partitions=partitions, settings=settings)
        return Names(name, topic_id, f"{name}-group")

    return make


@pytest.fixture
def names(make_topic: MakeTopic) -> Names:
    """A topic with one partition."""
    return make_topic()
