"""The same tests against raftlog and against Apache Kafka, and names that no other test uses."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import pytest

from benchmarks.brokers import start_kafka
from raftlog.client import Client
from raftlog.testing.ports import ReservedPort
from raftlog.wire.apis import ApiKey
from tests import java
from tests.client.proxy import Proxy, broker_behind_a_proxy
from tests.conftest import OVERDUE_CHECK, Broker
from tests.paths import KAFKA

_numbers = itertools.count()


class Servers(NamedTuple):
    """`brand` is raftlog or kafka."""

    brand: str
    bootstrap: str


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One Kafka for the session. Its transactions are of version 2, as it is formatted without being asked."""
    directory = tmp_path_factory.mktemp("kafka")
    # Its controller listens on the next one.
    port, next_port = reserve_two()
    try:
        settings = ("group.initial.rebalance.delay.ms=0", f"{OVERDUE_CHECK}=200")
        options = [word for setting in settings for word in ("--set", setting)]
        yield start_kafka("--dir", str(directory), "--nodes", "1", "--port", str(port.number), *options)
    finally:
        subprocess.run([str(KAFKA), "stop", "--dir", str(directory)], capture_output=True, timeout=60, check=False)
        port.release()
        next_port.release()


def reserve_two() -> tuple[ReservedPort, ReservedPort]:
    """A free port, and the one behind it, which is free too."""
    for _ in range(100):
        first = ReservedPort()
        try:
            return first, ReservedPort(port=first.number + 1)
        except (OSError, OverflowError):
            first.release()
    raise OSError("no two free ports behind each other")


# All of them are a campaign, make client-kafka; test_kafka.py is the little of it that make test runs.
on_kafka = pytest.param("kafka", marks=[pytest.mark.slow, *java.marks])


@pytest.fixture(params=["raftlog", on_kafka])
def servers(request: pytest.FixtureRequest) -> Servers:
    if request.param == "kafka":
        return Servers("kafka", request.getfixturevalue("kafka"))
    broker: Broker = request.getfixturevalue("broker")
    return Servers("raftlog", broker.bootstrap_servers)


@pytest.fixture
async def client(servers: Servers) -> AsyncIterator[Client]:
    async with Client(servers.bootstrap) as made:
        yield made


async def skip_without(client: Client, api: ApiKey) -> None:
    """Skip the test where brokers do not serve an API."""
    if not (await client.router.connection()).serves(api):
        pytest.skip(f"these brokers do not serve {api.name}")


@pytest.fixture
def name() -> str:
    """A name for topics and groups."""
    return f"client-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
async def topic(client: Client, name: str) -> str:
    """A topic with one partition."""
    await client.admin.create_topic(name, partitions=1)
    return name


@pytest.fixture
async def three_partitions(client: Client, name: str) -> str:
    """A topic with three partitions."""
    await client.admin.create_topic(name, partitions=3)
    return name


@pytest.fixture
def broker_proxy() -> Iterator[Proxy]:
    """A raftlog broker of its own whose replies can be held back and lost."""
    with broker_behind_a_proxy() as proxy:
        yield proxy
