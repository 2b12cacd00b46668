"""What tests of every area share: one running broker per test process."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from raftlog.testing import BrokerProcess, Cluster
from raftlog.testing.clusters import data_directory, running
from raftlog.testing.ports import ReservedPort
from tests.java import QUICK_START

# How long an example takes says nothing on a machine that others use, too.
settings.register_profile("raftlog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("raftlog")

# As `raftlog broker` does: by default a tenth of the suite's time is the collector's, walking pytest's own objects.
gc.set_threshold(20_000, 20, 50)

# Kafka's brokers and Spark, which are started in many ways.
os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_START)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the collector need not walk it again and again."""
    gc.collect()
    gc.freeze()


ORACLE = "RAFTLOG_TEST_BOOTSTRAP_SERVERS"
"""Set to the address of an Apache Kafka, the tests that only talk to `broker` run against that instead."""


FreePort = Callable[[], int]


class Broker(NamedTuple):
    bootstrap_servers: str
    process: BrokerProcess | None
    """None when it is not ours (ORACLE)."""


OVERDUE_CHECK = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
"""How often a broker looks for transactions that take too long."""


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A broker that serves for the whole session: tests make topics of their own, and leave it running."""
    oracle = os.environ.get(ORACLE)
    if oracle:
        yield Broker(oracle, None)
        return
    with data_directory(None) as directory:
        made = Cluster(1, directory, settings={OVERDUE_CHECK: "200"})
        (process,) = made.brokers
        for which in ("", "min."):
            del process.settings[f"group.consumer.{which}heartbeat.interval.ms"]  # what is told of it is Kafka's
        with running(made):
            yield Broker(made.bootstrap_servers, process)


@pytest.fixture
def free_port() -> Iterator[FreePort]:
    """`free_port()` is one on which the test can listen, and nobody else until the test is over."""
    reserved: list[ReservedPort] = []

    def reserve() -> int:
        reserved.append(ReservedPort())
        return reserved[-1].number

    yield reserve
    for each in reserved:
        each.release()
