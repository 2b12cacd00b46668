"""A broker to attack: one for each module, so that what it takes and logs is this module's doing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftlog.testing import Cluster, cluster
from tests.system.fuzz.watch import Watch, watched
from tests.system.traps.raw import RawConnection, create_topic
from tests.system.traps.sensible import Names


@pytest.fixture(scope="module", autouse=True)
def every_line() -> Iterator[None]:
    """A line for every connection that is closed, of which warnings are only the first few of a minute."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAFTLOG_LOG_LEVEL", "DEBUG")
        yield


@pytest.fixture(scope="module")
def brokers(every_line: None) -> Iterator[Cluster]:
    with cluster() as started:
        yield started


@pytest.fixture
def watch(brokers: Cluster) -> Iterator[Watch]:
    """The broker with a bystander that is served during the test, or the test fails."""
    with watched(brokers.brokers[0]) as watching:
        yield watching


@pytest.fixture
def connection(brokers: Cluster) -> Iterator[RawConnection]:
    with RawConnection(brokers.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def names(brokers: Cluster, request: pytest.FixtureRequest) -> Names:
    """A topic of the test's own."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:200]
    return Names(name, create_topic(brokers.bootstrap_servers, name), f"{name}-group")
