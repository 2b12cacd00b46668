"""One Spark session for all tests of a process, and topics to read from."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import pytest

from raftlog.client import SyncClient
from raftlog.client.producer import Outgoing
from raftlog.pipeline import spark_python
from tests.conftest import Broker
from tests.paths import SPARK_JARS

_numbers = itertools.count()

_skipped = pytest.mark.skipif(
    find_spec("pyspark") is None or shutil.which("java") is None, reason="needs Java 17 and raftlog[spark]"
)
needs_spark = [pytest.mark.java, pytest.mark.long, _skipped]
"""Marks of tests in the session `spark`."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # The tests are short: what the second compiler would gain comes too late.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    # Its rename is a weaker guard between two drivers on one checkpoint, and twice as quick.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def start_spark(master: str = "local[2,4]", **more: str) -> Any:
    """A session, by itself with two cores, where a task is tried four times."""
    from pyspark.sql import SparkSession

    from raftlog.pipeline import RaftlogDataSource

    os.environ["PYSPARK_PYTHON"] = spark_python.command()
    builder = SparkSession.builder.master(master)
    for name, value in {**SETTINGS, **more}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.dataSource.register(RaftlogDataSource)
    return session


def finish(start: Callable[[], Any]) -> Any:
    """Start a query and wait for its end.

    Spark gives the process that plans a stream ten seconds to begin, which a busy machine may not have: then nothing
    was read yet, and the query is started again.
    """
    for _ in range(6):
        query = start()
        try:
            query.awaitTermination()
        except Exception as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            return query
    raise AssertionError("this machine is too busy for Spark to begin a stream")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for all tests of this process, with Spark's own Kafka connector if it is there."""
    settings = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    jars = sorted(str(path) for path in SPARK_JARS.glob("*.jar"))
    if jars:
        settings["spark.jars"] = ",".join(jars)
    session = start_spark(**settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def client(broker: Broker) -> Iterator[SyncClient]:
    with SyncClient(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"spark-{os.getpid()}-{next(_numbers)}"


Topic = Callable[..., str]


@pytest.fixture
def topic(client: SyncClient, name: str) -> Topic:
    """`topic(values, partitions=1)` makes one with these values, one after the other in turn of the partitions."""
    count = itertools.count()

    def make(values: Sequence[Outgoing | bytes] = (), *, partitions: int = 1, **configs: str) -> str:
        made = f"{name}-{next(count)}"
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        # Some tests have records of 1970, and are not done when retention looks.
        client.admin.create_topic(made, partitions=partitions, configs={"retention.ms": "-1"} | dotted)
        fill(client, made, values, partitions)
        return made

    return make


def fill(client: SyncClient, topic: str, values: Sequence[Outgoing | bytes], partitions: int = 1) -> None:
    records = [each if isinstance(each, Outgoing) else Outgoing(each) for each in values]
    placed = [
        each if each.partition is not None else each._replace(partition=at % partitions)
        for at, each in enumerate(records)
    ]
    with client.producer() as producer:
        outcomes = producer.send_batch(topic, placed)
    assert not [each for each in outcomes if isinstance(each, Exception)]
