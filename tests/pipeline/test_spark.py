"""The source and the sink in Spark. All in one file: its tests share one session, which takes long to start."""

from __future__ import annotations

import re
from typing import Any

import pytest

from raftlog.client import SyncClient
from raftlog.client.producer import Outgoing
from tests.conftest import Broker
from tests.paths import ROOT, SPARK_JARS
from tests.pipeline.conftest import Topic, fill, needs_spark

pytestmark = needs_spark


@pytest.fixture
def read(spark: Any, broker: Broker) -> Any:
    """`read(topic, **options)` is a batch DataFrame."""

    def load(topic: str | None, **options: str) -> Any:
        reader = spark.read.format("raftlog").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        if topic is not None:
            reader = reader.option("subscribe", topic)
        return reader.options(**options).load()

    return load


def values(frame: Any) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%04d" % at for at in range(start, end)]


def test_a_batch_read_has_every_record_with_the_columns_of_the_kafka_source(
    read: Any, topic: Topic, client: SyncClient
) -> None:
    name = topic(partitions=2)
    fill(client, name, [Outgoing(b"v", b"k", [("h", b"1"), ("n", None)], 1, 1_500), Outgoing(None, None, (), 0, 2_500)])
    found = read(name, includeHeaders="true").orderBy("partition")
    assert found.dtypes == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"), ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip
    first, second = found.selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    assert (first.key, first.value, first.offset, first.ms, first.headers) == (None, None, 0, 2500, [])
    assert (bytes(second.key), bytes(second.value), second.topic, second.ms) == (b"k", b"v", name, 1500)
    assert [(each.key, each.value) for each in second.headers] == [("h", b"1"), ("n", None)]


def test_a_read_is_divided_by_min_partitions_and_bounded_by_offsets(read: Any, topic: Topic) -> None:
    name = topic(numbered(0, 100), partitions=2)
    start, end = f'{{"{name}": {{"0": 10, "1": -2}}}}', f'{{"{name}": {{"0": 40, "1": -1}}}}'
    found = read(name, startingOffsets=start, endingOffsets=end, minPartitions="8", columns="value,offset")
    assert found.columns == ["value", "offset"] and found.rdd.getNumPartitions() == 8
    assert values(found) == sorted(numbered(20, 80)[::2] + numbered(0, 100)[1::2])


def test_a_read_by_time_begins_and_ends_where_the_time_says(read: Any, topic: Topic) -> None:
    name = topic([Outgoing(b"%d" % at, timestamp=1000 * at) for at in range(1, 6)])
    assert values(read(name, startingTimestamp="2000", endingTimestamp="4000")) == [b"2", b"3"]
    with pytest.raises(Exception, match="no record is as late as the timestamp"):
        read(name, startingTimestamp="9000").count()
    assert values(read(name, startingTimestamp="9000", startingOffsetsByTimestampStrategy="latest")) == []


def test_filters_on_partition_and_offset_read_less(spark: Any, read: Any, topic: Topic) -> None:
    name = topic(numbered(0, 40), partitions=2)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = read(name).where("partition = 1 AND offset >= 5 AND offset < 8 AND timestamp > '2020-01-01'")
        plan = found._jdf.queryExecution().executedPlan().toString()
        assert "partition" not in plan.split("Filter")[1].split("\n")[0], plan
        assert values(found) == numbered(0, 40)[1::2][5:8]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_gaps_of_transactions_are_no_data_loss(read: Any, topic: Topic, client: SyncClient) -> None:
    name = topic([b"first"])
    with client.producer(transactional_id=name) as producer:
        with producer.transaction() as tx:
            tx.send(name, b"committed")
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:
            tx.send(name, b"aborted")
            producer.flush()
            raise ZeroDivisionError
    assert values(read(name)) == [b"committed", b"first"]
    assert values(read(name, **{"kafka.isolation.level": "read_uncommitted"})) == [b"aborted", b"committed", b"first"]


def test_records_that_retention_took_are_data_loss_unless_told_otherwise(
    read: Any, topic: Topic, client: SyncClient
) -> None:
    name = topic(numbered(0, 20))
    client.admin.delete_records({(name, 0): 5})
    start = f'{{"{name}": {{"0": 2}}}}'
    with pytest.raises(Exception, match=r"begins at offset 5, and 2 was asked for.*failOnDataLoss"):
        read(name, startingOffsets=start).count()
    assert values(read(name, startingOffsets=start, failOnDataLoss="false")) == numbered(5, 20)
    assert values(read(name)) == numbered(5, 20)


def test_topics_are_read_by_pattern_and_single_partitions_by_assign(read: Any, topic: Topic, name: str) -> None:
    one, two = topic([b"one"]), topic([b"two", b"three"], partitions=2)
    assert values(read(None, subscribePattern=f"{name}-.*")) == [b"one", b"three", b"two"]
    assert values(read(None, assign=f'{{"{two}": [1]}}')) == [b"three"]
    assert values(read(f"{one},{two}")) == [b"one", b"three", b"two"]


def test_a_topic_that_is_not_there_is_named(read: Any, name: str) -> None:
    with pytest.raises(Exception, match=f"there is no topic '{name}': create it"):
        read(name).count()


@pytest.mark.skipif(not SPARK_JARS.exists(), reason="needs Spark's Kafka connector in ../shared/peers")
def test_sparks_own_connector_reads_and_writes_the_same_topics(
    spark: Any, broker: Broker, read: Any, topic: Topic
) -> None:
    name, copy = topic(numbered(0, 50), partitions=2), topic(partitions=2)
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    stock = spark.read.format("kafka").options(**servers, subscribe=name).load()
    assert stock.dtypes == read(name).dtypes
    assert stock.exceptAll(read(name)).isEmpty() and read(name).exceptAll(stock).isEmpty()
    stock.select("key", "value").write.format("kafka").options(**servers, topic=copy).save()
    assert values(read(copy)) == numbered(0, 50)


def test_the_examples_of_the_document_run(spark: Any, broker: Broker, client: SyncClient) -> None:
    client.admin.create_topic("orders", partitions=1)
    fill(client, "orders", numbered(0, 200))
    names: dict[str, Any] = {"print": lambda *_: None}
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "PIPELINE.md").read_text(), re.DOTALL)
    assert len(examples) >= 3
    for example in examples:
        exec(example.replace("localhost:9092", broker.bootstrap_servers), names)
