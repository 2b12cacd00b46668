"""Names that no other test uses, and waiting with a deadline."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from raftlog.testing import Cluster, cluster
from tests.conftest import Broker
from tests.system.traps.raw import create_topic

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A name for topics and groups."""
    return f"clients-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(broker: Broker, name: str) -> str:
    """A topic with one partition."""
    create_topic(broker.bootstrap_servers, name)
    return name


@pytest.fixture
def three_partitions(broker: Broker, name: str) -> str:
    """A topic with three partitions."""
    create_topic(broker.bootstrap_servers, name, partitions=3)
    return name


@pytest.fixture
def own_broker() -> Iterator[Cluster]:
    """A broker that the test may stop and kill."""
    with cluster() as brokers:
        yield brokers
