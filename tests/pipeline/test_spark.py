"""The source and the sink in Spark. All in one file: its tests share one session, which takes long to start."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raftlog.client import SyncClient
from raftlog.client.producer import Outgoing
from tests.conftest import Broker
from tests.paths import ROOT, SPARK_JARS
from tests.pipeline.conftest import Topic, fill, finish, needs_spark

try:
    from pyspark.sql import functions

    from tests.pipeline.faulty import Blind, BlindTasksFail, TasksFail
except ImportError:
    pass  # without PySpark the tests are skipped

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


def test_partitions_with_few_records_are_read_by_one_task_unless_more_are_asked_for(read: Any, topic: Topic) -> None:
    name = topic(numbered(0, 40), partitions=4)
    together, apart = read(name), read(name, minPartitions="2")
    assert (together.rdd.getNumPartitions(), apart.rdd.getNumPartitions()) == (1, 4)
    where = ["partition", "offset"]
    assert together.select(where).collect() == apart.select(where).orderBy(where).collect(), "in their order"


def test_a_read_by_time_begins_and_ends_where_the_time_says(read: Any, topic: Topic) -> None:
    name = topic([Outgoing(b"%d" % at, timestamp=1000 * at) for at in range(1, 6)])
    assert values(read(name, startingTimestamp="2000", endingTimestamp="4000")) == [b"2", b"3"]
    with pytest.raises(Exception, match="no record is as late as the timestamp"):
        read(name, startingTimestamp="9000").count()
    assert values(read(name, startingTimestamp="9000", startingOffsetsByTimestampStrategy="latest")) == []


@pytest.fixture
def push_down(spark: Any) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_a_filter_of_one_query_is_not_left_in_the_next(read: Any, topic: Topic, push_down: None) -> None:
    found = read(topic(numbered(0, 40), partitions=2))
    assert found.where("partition = 1 AND offset < 5").count() == 5
    assert found.count() == 40
    assert found.where("offset < 2").union(found.where("offset >= 15")).count() == 2 * 2 + 2 * 5


def rows_and_reads(frame: Any) -> tuple[list[Any], int]:
    """The rows of a query that has no shuffle, and how many the source has read for them."""
    rows = frame.collect()
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    return sorted(rows), scan.metrics().apply("numOutputRows").value()


def test_pushed_filters_give_the_same_rows_and_less_is_read(read: Any, topic: Topic, push_down: None) -> None:
    # Three partitions of 20 records, a second apart in time, but for one in each that is late and one that is early.
    seconds = [*range(8), 30, *range(9, 15), 2, *range(16, 20)]
    name = topic([Outgoing(b"%d" % at, timestamp=1000 * seconds[at // 3]) for at in range(60)], partitions=3)
    chosen = ("partition", "offset", "timestamp", "value")
    everything = read(name).select(*chosen).cache()
    for where, reads in {
        "partition = 1": 20,
        "partition NOT IN (0, 2) AND offset >= 15": 5,
        "offset BETWEEN 5 AND 7": 9,
        "5 > offset AND offset <=> 3L": 3,
        "offset IN (4, NULL, 8) AND partition != 0": 10,
        "offset < 2.5": 9,
        "offset = 3 OR offset = 17": 60,
        "timestamp >= '1970-01-01 00:00:10'": 36,
        "timestamp > '1970-01-01 00:00:18.9995' AND timestamp < '1970-01-01 00:00:20'": 36,
        "timestamp >= '1970-01-01 00:00:29' AND offset > 8": 33,
        "timestamp > '1970-01-01 00:00:40'": 0,
        "partition = 7": 0,
        "offset IS NULL": 0,
        "NOT (offset <=> NULL) AND value = '9'": 60,
        "timestamp < '1970-01-01 00:00:05'": 60,
    }.items():
        pushed = read(name, pushFilters="true", minPartitions="5").where(where).select(*chosen)
        rows, found = rows_and_reads(pushed)
        assert (where, rows) == (where, sorted(everything.where(where).collect()))
        assert (where, found) == (where, reads)


def test_spark_leaves_a_pushed_filter_in_a_query_that_pushes_none(read: Any, topic: Topic, push_down: None) -> None:
    """A fault of Spark: when this fails, pushFilters can be had without being asked for."""
    name = topic(numbered(0, 40))
    found = read(name, pushFilters="true")
    assert found.where("offset < 5").count() == 5 and found.where("offset >= 35").count() == 5
    assert found.count() == 5
    assert found.where("offset < 5").join(found, "offset", "right").count() == 5
    # Who loads it anew for each use has all rows.
    assert read(name, pushFilters="true").count() == 40
    one, other = read(name, pushFilters="true"), read(name, pushFilters="true")
    assert one.where("offset < 5").join(other, "offset", "right").count() == 40


def test_filters_cannot_be_pushed_where_spark_does_not(read: Any, topic: Topic) -> None:
    name = topic([b"one"])
    with pytest.raises(Exception, match=r"PushFiltersReader.*filterPushdown\.enabled' is false\. Set it"):
        read(name, pushFilters="true").count()
    assert values(read(name, pushFilters="false").where("offset = 0")) == [b"one"]


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


def test_a_schema_of_ones_own_is_refused(spark: Any, broker: Broker, topic: Topic) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic(numbered(0, 3))}
    reader = spark.read.format("raftlog").schema("value string").options(**given)
    with pytest.raises(Exception, match=r"leave out \.schema"):
        reader.load().count()


@pytest.fixture
def stream(spark: Any, broker: Broker, tmp_path: Path) -> Any:
    """`stream(topic, **options)` runs a query over what is available now, and returns it with the values it saw."""

    def run(topic: str, checkpoint: str = "checkpoint", **options: str) -> tuple[Any, list[bytes]]:
        seen: list[bytes] = []
        loaded = spark.readStream.format("raftlog").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        frame = loaded.option("subscribe", topic).options(**options).load().select("value")
        writer = frame.writeStream.foreachBatch(lambda batch, _: seen.extend(values(batch)))
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True)
        return finish(writer.start), sorted(seen)

    return run


def test_a_stream_goes_on_where_its_checkpoint_says(stream: Any, topic: Topic, client: SyncClient) -> None:
    name = topic(numbered(0, 10), partitions=2)
    query, seen = stream(name, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    assert seen == numbered(0, 10) and [batch.numInputRows for batch in batches] == [4, 4, 2]
    ends = [json.loads(progress.sources[0].latestOffset) for progress in batches]
    assert ends[0] == {name: {"0": 5, "1": 5}}, "what is left to read is told"
    fill(client, name, numbered(10, 20), 2)
    assert stream(name, startingOffsets="earliest")[1] == numbered(10, 20)
    assert stream(name, startingOffsets="earliest")[1] == []


def test_a_stream_reads_partitions_that_are_new_from_their_beginning(
    stream: Any, topic: Topic, client: SyncClient
) -> None:
    name = topic(numbered(0, 3))
    assert stream(name, startingOffsets="earliest")[1] == numbered(0, 3)
    client.admin.create_partitions(name, 2)
    fill(client, name, [Outgoing(b"new", partition=1)])
    assert stream(name, startingOffsets="earliest")[1] == [b"new"]


def test_a_stream_that_began_at_the_end_goes_on_from_there_when_it_is_started_again(
    stream: Any, topic: Topic, client: SyncClient
) -> None:
    name = topic(numbered(0, 3))
    assert stream(name)[1] == []
    fill(client, name, numbered(3, 8))
    assert stream(name)[1] == numbered(3, 8)


def test_the_first_batch_that_comes_again_begins_where_it_did(
    stream: Any, topic: Topic, client: SyncClient, tmp_path: Path, name: str
) -> None:
    made, committed = topic(numbered(0, 8)), {"startingOffsets": "committed", "kafka.group.id": name}
    client.admin.commit_offsets(name, {(made, 0): 3})
    assert stream(made, **committed)[1] == numbered(3, 8)
    client.admin.commit_offsets(name, {(made, 0): 6})
    forget_the_last_commit(tmp_path / "checkpoint")
    assert stream(made, **committed)[1] == numbered(3, 8)


def test_a_stream_is_seen_as_a_group_and_can_begin_where_one_stands(
    stream: Any, topic: Topic, client: SyncClient, name: str
) -> None:
    made = topic(numbered(0, 8))
    client.admin.commit_offsets(name, {(made, 0): 3})
    seen = stream(made, startingOffsets="committed", commitOffsets="true", **{"kafka.group.id": name})[1]
    assert seen == numbered(3, 8)
    assert client.admin.committed_offsets(name)[made, 0] == 8, "the last batch counts, too"


def test_a_stream_whose_records_are_gone_fails_unless_told_otherwise(
    stream: Any, topic: Topic, client: SyncClient
) -> None:
    name = topic(numbered(0, 4))
    assert stream(name, startingOffsets="earliest")[1] == numbered(0, 4)
    fill(client, name, numbered(4, 9))
    client.admin.delete_records({(name, 0): 7})
    with pytest.raises(Exception, match="failOnDataLoss"):
        stream(name, startingOffsets="earliest")
    assert stream(name, startingOffsets="earliest", failOnDataLoss="false")[1] == numbered(7, 9)


def test_what_a_source_in_python_cannot_do_is_refused(spark: Any, broker: Broker, topic: Topic, tmp_path: Path) -> None:
    name = topic()
    loaded = spark.readStream.format("raftlog").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    frame = loaded.option("subscribe", name).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match=r"does not support|not supported"):
        writer.trigger(continuous="1 second").start().awaitTermination()


@pytest.fixture
def copy(spark: Any, broker: Broker, tmp_path: Path) -> Any:
    """`copy(source, target, **options)` runs a query over what is available now, from topic to topic."""
    for faulty in (TasksFail, BlindTasksFail, Blind):
        spark.dataSource.register(faulty)

    def run(
        source: str, target: str, sink: str = "raftlog", *, value: str = "value", moves: bool = False, **options: str
    ) -> None:
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        loaded = spark.readStream.format("raftlog").options(**servers, subscribe=source, startingOffsets="earliest")
        # A task for each partition, however few rows they have.
        rows = loaded.option("minPartitions", "2").load().selectExpr("key", f"{value} AS value")
        writer = (rows.repartition(3, functions.rand()) if moves else rows).writeStream.format(sink)
        writer = writer.options(**servers, topic=target, checkpointLocation=str(tmp_path / "checkpoint"), **options)
        finish(writer.trigger(availableNow=True).start)

    return run


def forget_the_last_commit(checkpoint: Path) -> None:
    """What a driver leaves that was killed after its tasks had committed and before Spark wrote that down."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)


def test_a_stream_writes_each_row_once(copy: Any, read: Any, topic: Topic, client: SyncClient) -> None:
    source, target = topic(numbered(0, 20), partitions=2), topic(partitions=3)
    copy(source, target)
    fill(client, source, numbered(20, 30), 2)
    copy(source, target)
    assert values(read(target)) == numbered(0, 30)


def test_a_task_that_dies_after_its_commit_writes_nothing_twice(copy: Any, read: Any, topic: Topic) -> None:
    source, target = topic(numbered(0, 20), partitions=2), topic(partitions=2)
    copy(source, target, "raftlog-tasks-fail")
    assert values(read(target)) == numbered(0, 20)


def test_without_a_look_at_the_marker_rows_are_there_twice(copy: Any, read: Any, topic: Topic) -> None:
    source, target = topic(numbered(0, 20), partitions=2), topic(partitions=2)
    copy(source, target, "raftlog-blind-tasks-fail")
    assert values(read(target)) == sorted(numbered(0, 20) * 2), "the control: the tests above could fail"


@pytest.mark.parametrize(("sink", "times"), [("raftlog", 1), ("raftlog-blind", 2)])
def test_a_driver_that_dies_before_the_checkpoint_writes_nothing_twice(
    copy: Any, read: Any, topic: Topic, tmp_path: Path, sink: str, times: int
) -> None:
    source, target = topic(numbered(0, 20), partitions=2), topic(partitions=2)
    copy(source, target, sink)
    forget_the_last_commit(tmp_path / "checkpoint")
    copy(source, target, sink)
    assert values(read(target)) == sorted(numbered(0, 20) * times)


def test_rows_that_are_others_when_a_batch_comes_again_are_refused(
    copy: Any, read: Any, topic: Topic, tmp_path: Path
) -> None:
    source, target = topic(numbered(0, 20)), topic()
    copy(source, target)
    forget_the_last_commit(tmp_path / "checkpoint")
    with pytest.raises(Exception, match="rows were divided among the tasks in another way"):
        copy(source, target, value="concat(value, value)")
    assert values(read(target)) == numbered(0, 20)


def test_rows_that_move_between_tasks_are_written_once_when_the_driver_decides(
    copy: Any, read: Any, topic: Topic, tmp_path: Path
) -> None:
    source, target = topic(numbered(0, 40), partitions=2), topic(partitions=2)
    copy(source, target, "raftlog-tasks-fail", moves=True, commitProtocol="two-phase")
    forget_the_last_commit(tmp_path / "checkpoint")
    copy(source, target, moves=True, commitProtocol="two-phase")
    assert values(read(target)) == numbered(0, 40)


def test_a_sink_that_another_query_had_is_refused_in_all_tasks(
    copy: Any, read: Any, topic: Topic, tmp_path: Path, name: str
) -> None:
    target = topic()
    copy(topic(numbered(0, 5)), target, sinkId=name)
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    with pytest.raises(Exception, match=f"sinkId '{name}' belongs to query"):
        copy(topic(numbered(5, 35), partitions=3), target, sinkId=name)
    assert values(read(target)) == numbered(0, 5)


def test_a_worker_that_has_read_collects_garbage_only_of_what_came_since(spark: Any, read: Any, topic: Topic) -> None:
    name = topic(numbered(0, 20), partitions=2)
    assert len(values(read(name))) == 20
    frozen = functions.udf(lambda _: gc.get_freeze_count(), "int")
    counts = [row[0] for row in spark.range(0, 2, 1, 2).select(frozen("id")).collect()]
    assert max(counts) > 10_000


def test_a_batch_write_has_keys_headers_partitions_and_topics_of_the_rows(
    spark: Any, broker: Broker, read: Any, topic: Topic
) -> None:
    one, two = topic(partitions=3), topic(partitions=3)
    rows = [("k", "v", one, 2, [("h", bytearray(b"1"))]), (None, None, two, 0, None)]
    schema = "key string, value string, topic string, partition int, headers array<struct<key: string, value: binary>>"
    frame = spark.createDataFrame(rows, schema)
    for guarantee in ("exactly-once", "at-least-once"):
        writer = frame.write.format("raftlog").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        writer.option("deliveryGuarantee", guarantee).mode("append").save()
    found = read(f"{one},{two}", includeHeaders="true").orderBy("partition").collect()
    assert [(row.topic, row.partition, row.value) for row in found] == [(two, 0, None)] * 2 + [(one, 2, b"v")] * 2
    assert found[2].key == b"k" and [(each.key, each.value) for each in found[2].headers] == [("h", b"1")]
    with pytest.raises(Exception, match=r"a log is only appended to: use mode\('append'\)"):
        frame.write.format("raftlog").options(**{"kafka.bootstrap.servers": "h:1"}).mode("overwrite").save()
    # Spark's own default, errorifexists, never reaches a source in Python.
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        frame.write.format("raftlog").options(**{"kafka.bootstrap.servers": "h:1"}).save()


def test_a_batch_write_whose_tasks_die_writes_nothing_twice(
    spark: Any, broker: Broker, copy: Any, read: Any, topic: Topic
) -> None:
    target = topic(partitions=2)
    rows = read(topic(numbered(0, 20), partitions=2), minPartitions="2")
    writer = rows.select("value").write.format("raftlog-tasks-fail")
    writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("topic", target).mode("append").save()
    assert values(read(target)) == numbered(0, 20)


def test_a_batch_write_that_fails_leaves_nothing_when_the_driver_decides(
    broker: Broker, read: Any, topic: Topic
) -> None:
    source, target = topic(numbered(0, 20), partitions=2), topic()
    rows = read(source, minPartitions="2").selectExpr("IF(value = '0019', raise_error('no'), value) AS value")
    writer = rows.write.format("raftlog").option("kafka.bootstrap.servers", broker.bootstrap_servers).mode("append")
    with pytest.raises(Exception, match="no"):
        writer.options(topic=target, commitProtocol="two-phase").save()
    assert values(read(target)) == []
    read(source).select("value").write.format("raftlog").mode("append").options(
        **{"kafka.bootstrap.servers": broker.bootstrap_servers}, topic=target, commitProtocol="two-phase"
    ).save()
    assert values(read(target)) == numbered(0, 20), "nothing is open, or it would be hidden behind that"


def test_a_batch_of_foreach_batch_is_written_once(broker: Broker, read: Any, topic: Topic, name: str) -> None:
    source, target = topic(numbered(0, 20), partitions=2), topic()
    for batch in ("0", "0", "1"):
        writer = read(source, minPartitions="2").select("value").write.format("raftlog").mode("append")
        writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("topic", target).options(
            sinkId=name, batchId=batch
        ).save()
    assert values(read(target)) == sorted(numbered(0, 20) * 2)


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


def test_the_examples_of_the_document_run(
    spark: Any, broker: Broker, read: Any, client: SyncClient, tmp_path: Path, push_down: None
) -> None:
    for made in ("orders", "invoices", "archive"):
        client.admin.create_topic(made, partitions=1)
    fill(client, "orders", numbered(0, 200))
    printed: list[Any] = []
    names: dict[str, Any] = {"print": printed.append}
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "PIPELINE.md").read_text(), re.DOTALL)
    assert len(examples) >= 5
    for example in examples:
        text = example.replace("localhost:9092", broker.bootstrap_servers).replace('"checkpoints', f'"{tmp_path}')
        exec(text, names)
    assert [row["count"] for row in spark.table("counted").collect()] == [200] and printed == [50]
    assert values(read("archive")) == numbered(0, 200) and values(read("invoices")) == sorted(numbered(0, 200) * 2)
