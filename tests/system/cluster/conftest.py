"""One cluster of three for each file of tests; a test leaves it as it found it, whatever happens."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from raftlog.testing import cluster
from tests.system.cluster.world import World

_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    with cluster(3) as running:
        yield World(running)


@pytest.fixture
def world(shared: World) -> Iterator[World]:
    """The file's cluster, with all brokers up before and after."""
    yield shared
    shared.restore()


@pytest.fixture
def name() -> str:
    """A name for a topic or a group, used by nobody else."""
    return f"cluster-{next(_numbers)}"
