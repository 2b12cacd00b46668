"""Exactly once under kill -9 of workers, drivers and brokers at each step of a task: make spark-kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from benchmarks.brokers import Kafka
from raftlog.client import SyncClient
from raftlog.client.producer import Outgoing
from raftlog.testing import Cluster, cluster
from raftlog.testing.pids import lives
from raftlog.testing.waiting import wait_until
from tests import java
from tests.client.conftest import kafka  # noqa: F401
from tests.paths import ROOT
from tests.pipeline.conftest import needs_spark
from tests.pipeline.standalone import standalone

pytestmark = [pytest.mark.slow, *needs_spark]
ROWS = 2_000
RUN_SECONDS = 900
TASK_POINTS = ("begun", "stored", "committed")
"""In a task. Where the driver decides, the third is that it has prepared its transaction."""
POINTS = {
    "task": (*TASK_POINTS, "driver-commit"),
    "two-phase": (*TASK_POINTS, "before-decision", "decided", "one-complete", "all-complete", "driver-commit"),
}
STEPS = {
    "task": ("called", "begun", "sent", "stored", "marked", "committed"),
    "two-phase": ("called", "begun", "sent", "stored", "committed"),
}
"""Of a task, from before its transaction to its report."""
PROTOCOLS = pytest.mark.parametrize("protocol", POINTS)

Restarting: TypeAlias = Callable[[Path], AbstractContextManager[tuple[str, Callable[[], None]]]]
"""Brokers in a folder: where they are reached, and what kills them all and starts them again."""


def run_driver(
    folder: Path,
    bootstrap: str,
    protocol: str,
    strikes: Mapping[str, str],
    sink: str = "raftlog-struck",
    master: str = "local[2,4]",
) -> int:
    """The driver's exit status; it and all that it started are gone when this returns."""
    for point, who in strikes.items():
        (folder / point).write_text(who)
    command = [sys.executable, "-m", "tests.pipeline.struck_driver", str(folder), bootstrap]
    command += [*topics(protocol), sink, protocol, master]
    with (folder / "driver.log").open("ab") as log:
        driver = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "RAFTLOG_STRIKES": str(folder)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            return driver.wait(RUN_SECONDS)
        finally:
            try:
                os.killpg(driver.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def topics(protocol: str) -> tuple[str, str]:
    """From where to where."""
    return f"source-{protocol}", f"target-{protocol}"


def fill(client: SyncClient, topic: str) -> list[bytes]:
    rows = [b"%06d" % at for at in range(ROWS)]
    with client.producer() as producer:
        outcomes = producer.send_batch(topic, [Outgoing(row, partition=at % 2) for at, row in enumerate(rows)])
    assert not [each for each in outcomes if isinstance(each, Exception)]
    return rows


def committed(client: SyncClient, topic: str) -> list[bytes | None]:
    """All that a reader of committed records sees. No transaction is left open."""
    partitions = [(topic, 0), (topic, 1)]
    end = client.admin.offsets_at(partitions, -1)
    assert end == client.admin.offsets_at(partitions, -1, read_committed=False)
    found: list[bytes | None] = []
    with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        while any(consumer.positions.get(each, 0) < offset for each, offset in end.items()):
            found += [record.value for record in consumer.poll(5000, timeout=1)]
    return sorted(found)  # type: ignore[type-var]


def write_lost_markers(client: SyncClient, topic: str) -> None:
    """Apache Kafka may lose the markers of what its coordinator has committed (NON_OBVIOUS.md): they are written here.
    Of a transaction that was not committed none is, and it stays open.
    """
    for each in client.admin.hanging_transactions([topic], now_ms=round(time.time() * 1000), longer_than_ms=0):
        if client.admin.decision(each):
            warnings.warn(f"Apache Kafka has lost a marker: {each}", stacklevel=2)
            client.admin.end_in_partition(each, committed=True)


def kill_everything(folder: Path, bootstrap: str, protocol: str) -> None:
    with SyncClient(bootstrap, timeout=60) as client:
        for name in topics(protocol):
            client.admin.create_topic(name, partitions=2)
        rows = fill(client, topics(protocol)[0])
        for point in POINTS[protocol]:
            assert run_driver(folder, bootstrap, protocol, {point: "driver"}) != 0
            assert (folder / f"{point}.taken").exists(), "the driver was not killed"
            (folder / f"{point}.taken").unlink()
        strikes = dict.fromkeys(TASK_POINTS, "task")
        status = run_driver(folder, bootstrap, protocol, strikes)
        assert status == 0, (folder / "driver.log").read_text()[-3000:]
        assert all((folder / f"{point}.taken").exists() for point in strikes), "not every worker was killed"
        assert committed(client, topics(protocol)[1]) == rows


@PROTOCOLS
def test_each_row_is_there_once_whoever_is_killed_when(tmp_path: Path, protocol: str) -> None:
    with cluster(3) as brokers:
        kill_everything(tmp_path, brokers.bootstrap_servers, protocol)


@PROTOCOLS
def test_without_a_look_at_the_marker_a_driver_that_is_killed_leaves_rows_twice(tmp_path: Path, protocol: str) -> None:
    """The control: the tests beside this one could fail."""
    with cluster(3) as brokers, SyncClient(brokers.bootstrap_servers, timeout=60) as client:
        for name in topics(protocol):
            client.admin.create_topic(name, partitions=2)
        rows = fill(client, topics(protocol)[0])
        where = tmp_path, brokers.bootstrap_servers, protocol
        assert run_driver(*where, {"driver-commit": "driver"}, "raftlog-blind-struck") != 0
        assert (tmp_path / "driver-commit.taken").exists(), "the driver was not killed"
        assert run_driver(*where, {}, "raftlog-blind-struck") == 0
        found = committed(client, topics(protocol)[1])
        assert len(found) > len(rows) and sorted(set(found)) == rows  # type: ignore[type-var]


@pytest.mark.parametrize("protocol", [pytest.param(protocol, marks=java.marks) for protocol in POINTS])
def test_the_same_on_apache_kafka(tmp_path: Path, kafka: str, protocol: str) -> None:  # noqa: F811
    kill_everything(tmp_path, kafka, protocol)


@contextmanager
def brokers_struck(folder: Path, points: Sequence[str], restart: Callable[[], None]) -> Iterator[None]:
    """When a task or the driver comes to a point, all brokers are killed and started again before it goes on."""
    over = threading.Event()

    def watch() -> None:
        left = set(points)
        while left and not over.wait(0.05):
            for point in sorted(left):
                if (folder / f"{point}.taken").exists():
                    restart()
                    (folder / f"{point}.back").touch()
                    left.remove(point)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run_until_done(folder: Path, bootstrap: str, protocol: str, strikes: Mapping[str, str], **more: str) -> None:
    """A query that was stopped by the death of a broker, or of an executor that had its shuffled rows, is started
    again.
    """
    status = run_driver(folder, bootstrap, protocol, strikes, **more)
    for _ in range(4 + len(strikes)):
        if status == 0:
            break
        status = run_driver(folder, bootstrap, protocol, {}, **more)
    assert status == 0, (folder / "driver.log").read_text()[-3000:]


@contextmanager
def kafka_that_restarts(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    with Kafka({}, folder) as running:

        def restart() -> None:
            os.kill(running.pid, signal.SIGKILL)
            wait_until(lambda: not lives(running.pid), 30, lambda: "Kafka is gone")
            running.start()

        yield running.bootstrap, restart


@contextmanager
def raftlog_that_restarts(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    with cluster(3, directory=folder) as brokers:

        def restart() -> None:
            brokers.kill()
            brokers.start()

        yield brokers.bootstrap_servers, restart


@PROTOCOLS
@pytest.mark.parametrize("whose", [raftlog_that_restarts, pytest.param(kafka_that_restarts, marks=java.marks)])
def test_each_row_is_there_once_when_all_brokers_are_killed_at_each_step(
    tmp_path: Path, whose: Restarting, protocol: str
) -> None:
    (tmp_path / "brokers").mkdir()
    points = sorted({*STEPS[protocol], *POINTS[protocol]})
    with whose(tmp_path / "brokers") as (bootstrap, restart), SyncClient(bootstrap, timeout=60) as client:
        for name in topics(protocol):
            client.admin.create_topic(name, partitions=2)
        rows = fill(client, topics(protocol)[0])
        with brokers_struck(tmp_path, points, restart):
            run_until_done(tmp_path, bootstrap, protocol, dict.fromkeys(points, "brokers"))
        assert [point for point in points if not (tmp_path / f"{point}.back").exists()] == []
        if whose is kafka_that_restarts:
            write_lost_markers(client, topics(protocol)[1])
        assert committed(client, topics(protocol)[1]) == rows


@contextmanager
def brokers_dying(brokers: Cluster) -> Iterator[list[int]]:
    """Each broker in turn is killed, and started again a little later, until the block ends. Yields who was killed."""
    over = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        while not over.wait(2.5):
            broker = brokers.broker(1 + len(killed) % len(brokers.brokers))
            broker.kill()
            killed.append(broker.node_id)
            over.wait(1)
            broker.start()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@PROTOCOLS
def test_each_row_is_there_once_while_brokers_and_coordinators_are_killed(tmp_path: Path, protocol: str) -> None:
    with cluster(3) as brokers, SyncClient(brokers.bootstrap_servers, timeout=60) as client:
        for name in topics(protocol):
            client.admin.create_topic(name, partitions=2)
        rows = fill(client, topics(protocol)[0])
        with brokers_dying(brokers) as killed:
            run_until_done(tmp_path, brokers.bootstrap_servers, protocol, {})
        assert len(killed) >= 3
        assert committed(client, topics(protocol)[1]) == rows


def kill_executors(folder: Path, bootstrap: str, protocol: str, strikes: Mapping[str, str], **more: str) -> list[bytes]:
    """A query over two executors, killed where `strikes` says; what was to be copied."""
    env = {"PYTHONPATH": str(ROOT), "RAFTLOG_STRIKES": str(folder)}
    with SyncClient(bootstrap, timeout=60) as client, standalone(folder, Path(sys.executable), **env) as master:
        for name in topics(protocol):
            client.admin.create_topic(name, partitions=2)
        rows = fill(client, topics(protocol)[0])
        run_until_done(folder, bootstrap, protocol, strikes, master=master, **more)
    assert [point for point in strikes if not (folder / f"{point}.taken").exists()] == [], "not every one was killed"
    return rows


@PROTOCOLS
@pytest.mark.parametrize(
    ("whose", "who"),
    [
        (raftlog_that_restarts, "executor"),
        (raftlog_that_restarts, "executor-only"),
        pytest.param(kafka_that_restarts, "executor", marks=java.marks),
    ],
)
def test_each_row_is_there_once_when_an_executor_is_killed_at_each_step(
    tmp_path: Path, whose: Restarting, who: str, protocol: str
) -> None:
    """With its Python worker, or without, which may go on for a while."""
    (tmp_path / "brokers").mkdir()
    with whose(tmp_path / "brokers") as (bootstrap, _), SyncClient(bootstrap, timeout=60) as client:
        rows = kill_executors(tmp_path, bootstrap, protocol, dict.fromkeys(STEPS[protocol], who))
        assert committed(client, topics(protocol)[1]) == rows


@PROTOCOLS
def test_without_a_look_at_the_marker_an_executor_that_is_killed_leaves_rows_twice(
    tmp_path: Path, protocol: str
) -> None:
    """The control. Where the driver decides, it is that it commits what all attempts have prepared."""
    with cluster(3) as brokers, SyncClient(brokers.bootstrap_servers, timeout=60) as client:
        strikes, sink = {"committed": "executor"}, "raftlog-blind-struck"
        rows = kill_executors(tmp_path, brokers.bootstrap_servers, protocol, strikes, sink=sink)
        found = committed(client, topics(protocol)[1])
        assert len(found) > len(rows) and sorted(set(found)) == rows  # type: ignore[type-var]
