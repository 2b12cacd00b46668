"""What a task does, without Spark: ranges are read to their end, rows are written once."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from raftlog.client import KafkaError, SyncClient
from raftlog.client.connection import Connection
from raftlog.client.core.addresses import Address
from raftlog.client.fetcher import Fetcher
from raftlog.client.producer import Outgoing
from raftlog.pipeline.given import BadOption
from raftlog.pipeline.sink.marker import RowsMoved, SinkInUse
from raftlog.pipeline.sink.options import parse_sink
from raftlog.pipeline.sink.tasks import Result, TaskId, write_rows
from raftlog.pipeline.source import fetch
from raftlog.pipeline.source.fetch import SPARE_BYTES, FetchingRanges, RangeReader, read_ranges
from raftlog.pipeline.source.options import COLUMNS, parse_source
from raftlog.pipeline.source.ranges import DataLoss, Range
from raftlog.pipeline.source.rows import arrow_schema, record_batches
from raftlog.testing import Kafka
from tests.conftest import Broker
from tests.pipeline.conftest import Topic, fill


def read(broker: Broker, *wanted: Range, **options: str) -> list[bytes]:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": wanted[0].topic, **options}
    parsed = parse_source(given, streaming=False)
    schema = arrow_schema(COLUMNS[:-1])
    return [
        value
        for slices in read_ranges(parsed, wanted)
        for batch in record_batches(slices, schema)
        for value in batch.column("value").to_pylist()
    ]


def write(broker: Broker, topic: str, batch: int, values: list[bytes], query: str = "q", **more: str) -> Result:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, **more}
    options = parse_sink(given, [("value", "binary")], streaming=True)
    rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    return write_rows(options, TaskId(f"sink-{topic}", query, batch, 0, "run", 0), iter([rows]))


def test_a_range_is_read_from_its_start_to_before_its_end(broker: Broker, topic: Topic) -> None:
    name = topic([b"%d" % at for at in range(20)])
    assert read(broker, Range(name, 0, 3, 9)) == [b"%d" % at for at in range(3, 9)]
    assert read(broker, Range(name, 0, 0, 20), **{"kafka.max.partition.fetch.bytes": "1"})[-1] == b"19"


def test_ranges_of_one_task_are_fetched_and_given_together(
    broker: Broker, topic: Topic, client: SyncClient
) -> None:
    name = topic([b"%d" % at for at in range(30)], partitions=3)
    wanted = [Range(name, 0, 2, 9), Range(name, 1, 0, 10), Range(name, 2, 4, 5)]
    asked: list[int] = []
    fetch_one = Fetcher._fetch

    async def counted(self: Fetcher, *given: Any) -> None:
        asked.append(len(given[1]))
        await fetch_one(self, *given)

    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name}
    with patch.object(Fetcher, "_fetch", counted):
        (slices,) = read_ranges(parse_source(given, streaming=False), wanted)
    found = [record.value for part in slices for record in part.records()]
    assert found == [b"%d" % (3 * at + each.partition) for each in wanted for at in range(each.start, each.end)]
    assert asked == [3]


def test_ranges_are_fetched_ahead_as_far_as_there_is_room(broker: Broker, topic: Topic, client: SyncClient) -> None:
    name = topic(partitions=4)
    for at in range(40):  # each is a batch of its own
        fill(client, name, [Outgoing(bytes(4_000), partition=at % 4)])
    held: list[int] = []
    received = FetchingRanges.received

    def watched(self: FetchingRanges, *given: Any) -> Any:
        found = received(self, *given)
        held.append(sum(state.buffered for state in self.partitions.values()))
        return found

    with patch.object(FetchingRanges, "received", watched):
        small = {"kafka.max.partition.fetch.bytes": "10000"}
        assert len(read(broker, *(Range(name, at, 0, 10) for at in range(4)), **small)) == 40
    assert 10_000 < max(held) < 10_000 + 2 * 10_000, "what there is room for, and one answer more"


def test_of_a_task_with_a_range_that_is_gone_the_others_are_read(broker: Broker, topic: Topic) -> None:
    name = topic([b"%d" % at for at in range(4)], partitions=2)
    wanted = [Range(name, 0, 1, 8), Range(name, 1, 0, 2)]
    with pytest.raises(DataLoss, match=rf"{name}\[0\] ends at offset 2"):
        read(broker, *wanted, **{"kafka.default.api.timeout.ms": "300"})
    short = {"kafka.default.api.timeout.ms": "300", "failOnDataLoss": "false"}
    assert read(broker, *wanted, **short) == [b"2", b"1", b"3"]


@pytest.mark.parametrize(("size", "offsets", "fetches_max"), [(1_000, 30, 1), (50_000, 30, 3)])
def test_of_a_long_log_little_more_is_fetched_than_a_small_range_has(
    broker: Broker, topic: Topic, client: SyncClient, size: int, offsets: int, fetches_max: int
) -> None:
    name = topic()
    for _ in range(3):
        fill(client, name, [bytes(size)] * (3_000_000 // size))
    asked: list[int] = []
    received = FetchingRanges.received

    def counted(self: FetchingRanges, *given: Any) -> Any:
        asked.append(len(given[2].records or b""))
        return received(self, *given)

    with patch.object(FetchingRanges, "received", counted):
        assert len(read(broker, Range(name, 0, 10, 10 + offsets))) == offsets
    assert len(asked) <= fetches_max
    assert sum(asked) < 2 * size * offsets + 2 * SPARE_BYTES


def test_a_range_that_ends_with_what_nobody_sees_ends_without_waiting(
    broker: Broker, topic: Topic, client: SyncClient
) -> None:
    name = topic([b"first"])
    with client.producer(transactional_id=name) as producer, pytest.raises(ZeroDivisionError):
        with producer.transaction() as tx:
            tx.send(name, b"aborted")
            producer.flush()
            raise ZeroDivisionError
    (end,) = client.admin.offsets_at([(name, 0)], -1).values()
    assert end == 3  # with the marker
    assert read(broker, Range(name, 0, 0, end)) == [b"first"]
    assert read(broker, Range(name, 0, 1, end)) == []


def test_what_retention_took_is_told_or_left_out(broker: Broker, topic: Topic, client: SyncClient) -> None:
    name = topic([b"%d" % at for at in range(10)])
    client.admin.delete_records({(name, 0): 6})
    with pytest.raises(DataLoss, match="offset 2 was to be read, and the first one that is left is 6"):
        read(broker, Range(name, 0, 2, 8))
    assert read(broker, Range(name, 0, 2, 8), failOnDataLoss="false") == [b"6", b"7"]
    assert read(broker, Range(name, 0, 2, 5), failOnDataLoss="false") == []


def test_a_log_that_ends_before_its_range_is_told_or_left_out(broker: Broker, topic: Topic) -> None:
    name = topic([b"0", b"1"])
    with pytest.raises(DataLoss):
        read(broker, Range(name, 0, 5, 8))
    assert read(broker, Range(name, 0, 5, 8), failOnDataLoss="false") == []


def test_a_batch_that_comes_again_is_written_once(broker: Broker, topic: Topic, client: SyncClient) -> None:
    name = topic()
    assert write(broker, name, 0, [b"a", b"b"]) == Result(2, False)
    assert write(broker, name, 0, [b"b", b"a"]) == Result(2, True)
    assert write(broker, name, 1, [b"c"]) == Result(1, False)
    assert write(broker, name, 0, [b"late"]) == Result(1, True), "an attempt of long ago"
    with pytest.raises(RowsMoved):
        write(broker, name, 1, [b"d"])
    with pytest.raises(SinkInUse):
        write(broker, name, 2, [b"e"], query="other")
    (end,) = client.admin.offsets_at([(name, 0)], -1).values()
    assert read(broker, Range(name, 0, 0, end)) == [b"a", b"b", b"c"]


def test_columns_may_be_named_in_capital_letters(broker: Broker, topic: Topic, client: SyncClient) -> None:
    name = topic()
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    columns = [("Key", "string"), ("VALUE", "binary"), ("Topic", "string"), ("Offset", "bigint"), ("offset", "bigint")]
    options = parse_sink(given, columns, streaming=True)
    arrays = [["k"], pa.array([b"x"], pa.binary()), [name], [7], [8]]
    rows = pa.RecordBatch.from_arrays(list(map(pa.array, arrays)), [each for each, _ in columns])
    task = TaskId(f"sink-{name}", "q", 0, 0, "run", 0)
    assert write_rows(options, task, iter([rows])) == Result(1, False)
    assert read(broker, Range(name, 0, 0, 1)) == [b"x"]
    other = pa.RecordBatch.from_arrays([pa.array(["K"]), *rows.columns[1:]], rows.schema.names)
    with pytest.raises(RowsMoved):  # keys are part of what a task remembers of its rows
        write_rows(options, task, iter([other]))
    with pytest.raises(BadOption, match="two columns value"):
        parse_sink({**given, "topic": name}, [("value", "binary"), ("Value", "binary")], streaming=True)


def test_a_task_that_fails_leaves_nothing_to_see(broker: Broker, topic: Topic, client: SyncClient) -> None:
    name = topic()
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": name}
    options = parse_sink(given, [("value", "binary")], streaming=True)

    def rows():  # type: ignore[no-untyped-def]
        yield pa.RecordBatch.from_pydict({"value": pa.array([b"x"], pa.binary())})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_rows(options, TaskId(f"sink-{name}", "q", 0, 0, "run", 0), rows())
    assert write(broker, name, 0, [b"y"]) == Result(1, False)
    (end,) = client.admin.offsets_at([(name, 0)], -1).values()
    assert read(broker, Range(name, 0, 0, end)) == [b"y"]


def test_a_topic_that_was_deleted_is_told_or_left_out(broker: Broker, topic: Topic, client: SyncClient) -> None:
    name = topic([b"gone"])
    client.admin.delete_topic(name)
    short = {"kafka.default.api.timeout.ms": "300"}
    with pytest.raises(DataLoss, match=rf"{name}\[0\] is not there any more"):
        read(broker, Range(name, 0, 0, 1), **short)
    assert read(broker, Range(name, 0, 0, 1), failOnDataLoss="false", **short) == []


def test_a_stream_goes_on_with_a_topic_that_was_made_anew_if_told_to(
    broker: Broker, topic: Topic, client: SyncClient
) -> None:
    spark = pytest.importorskip("pyspark.sql.streaming.datasource")
    from raftlog.pipeline.source.stream import StreamReader

    name = topic([b"old"] * 5)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name, "startingOffsets": "earliest"}
    strict = StreamReader(parse_source(given, streaming=True))
    reader = StreamReader(parse_source({**given, "failOnDataLoss": "false"}, streaming=True))
    before = reader.latestOffset(reader.initialOffset(), spark.ReadAllAvailable())
    client.admin.delete_topic(name)
    client.admin.create_topic(name, partitions=1)
    with pytest.raises(DataLoss, match="ends at offset 0, and was read to 5 before"):
        strict.latestOffset(before, spark.ReadAllAvailable())
    start = reader.latestOffset(before, spark.ReadAllAvailable())
    assert start == {name: {"0": 0}} and list(reader.partitions(before, start)) == []
    fill(client, name, [b"new"] * 3)
    end = reader.latestOffset(start, spark.ReadAllAvailable())
    (task,) = reader.partitions(start, end)
    assert task.wanted == [Range(name, 0, 0, 3)]  # type: ignore[attr-defined]


def test_empty_partitions_leave_no_marker(broker: Broker, topic: Topic, client: SyncClient) -> None:
    name = topic()
    assert write(broker, name, 0, []) == Result(0, False)
    assert client.admin.committed_offsets(TaskId(f"sink-{name}", "q", 0, 0, "run", 0).group) == {}


def test_a_process_that_has_read_of_a_topic_reads_the_one_that_comes_to_have_its_name(
    broker: Broker, topic: Topic, client: SyncClient
) -> None:
    name = topic([b"old"])
    assert read(broker, Range(name, 0, 0, 1)) == [b"old"]
    client.admin.delete_topic(name)
    client.admin.create_topic(name, partitions=1)
    with client.producer() as producer:
        producer.send(name, b"new")
    assert read(broker, Range(name, 0, 0, 1)) == [b"new"]


def test_what_is_available_now_ends_nowhere_before_its_beginning(
    broker: Broker, topic: Topic, client: SyncClient
) -> None:
    spark = pytest.importorskip("pyspark.sql.streaming.datasource")
    from raftlog.pipeline.source.stream import StreamReader

    name = topic([b"before"])
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name, "startingOffsets": "latest"}
    reader = StreamReader(parse_source(given, streaming=True))
    reader.prepareForTriggerAvailableNow()
    with client.producer() as producer:
        producer.send(name, b"meanwhile")
    end = reader.latestOffset(reader.initialOffset(), spark.ReadAllAvailable())
    assert end == {f"(from) {name}": {"0": 2}, name: {"0": 2}}
    assert reader.latestOffset(end, spark.ReadAllAvailable()) == end, "no second batch"


@pytest.mark.parametrize("fails", [True, False])
def test_of_a_log_that_is_cut_while_it_is_read_no_offset_is_read_twice(
    broker: Broker, topic: Topic, client: SyncClient, fails: bool
) -> None:
    name = topic([b"a batch"] * 5)
    fill(client, name, [b"another"] * 4)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name, "failOnDataLoss": str(fails)}
    options = parse_source({**given, "kafka.max.partition.fetch.bytes": "1"}, streaming=False)
    readers: list[RangeReader] = []

    class Watched(RangeReader):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            readers.append(self)

    with patch.object(fetch, "RangeReader", Watched):
        parts = read_ranges(options, [Range(name, 0, 3, 9)])
        (first,) = next(parts)
        # As if the broker had told that another leader's log parts from this one.
        (state,) = readers[0]._fetching.partitions.values()
        state.move(4)
        if fails:
            with pytest.raises(DataLoss, match=rf"was cut to offset 4, and was read to {first.end} before"):
                next(parts)
        else:
            slices = [first, *(part for found in parts for part in found)]
            offsets = [record.offset for part in slices for record in part.records()]
            assert offsets == list(range(3, 9))


@pytest.mark.long
def test_a_log_whose_end_nobody_can_tell_is_not_taken_for_one_that_ends() -> None:
    """What it ended with when it was read last says nothing: its leader may not have known what is committed."""
    with Kafka(brokers=1) as kafka:
        with SyncClient(kafka.bootstrap_servers) as client:
            client.admin.create_topic("t", partitions=1)
            with client.producer() as producer:
                producer.send("t", b"0")
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": "t", "failOnDataLoss": "false"}
        options = parse_source({**given, "kafka.default.api.timeout.ms": "1500"}, streaming=False)
        parts = read_ranges(options, [Range("t", 0, 0, 8)])
        assert [part.end for part in next(parts)] == [1]
        kafka.running.kill()
        with pytest.raises(KafkaError):
            next(parts)


def test_a_group_whose_coordinator_does_not_answer_holds_a_query_up_once(broker: Broker, topic: Topic) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource")
    from raftlog.pipeline.source import stream

    name = topic()
    asked: list[object] = []

    async def unanswered(*arguments: object) -> None:
        asked.append(arguments)
        await asyncio.Event().wait()

    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name, "kafka.group.id": name}
    reader = stream.StreamReader(parse_source({**given, "commitOffsets": "true"}, streaming=True))
    with patch.object(stream, "commit_offsets", unanswered), patch.object(stream, "PROGRESS_SECONDS", 0.01):
        for offset in (1, 2, 3):
            reader.commit({name: {"0": offset}})
    assert len(asked) == 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Address]:
    """Where connections have been opened to."""
    found: list[Address] = []
    open_one = Connection.open

    async def noted(address: Address, *rest: Any, **more: Any) -> Connection:
        found.append(address)
        return await open_one(address, *rest, **more)

    monkeypatch.setattr(Connection, "open", noted)
    return found


def test_a_task_writes_through_the_connections_of_the_one_before_it(
    broker: Broker, topic: Topic, opened: list[Address]
) -> None:
    name = topic()
    write(broker, name, 0, [b"first"])
    opened.clear()
    write(broker, name, 1, [b"second"])
    assert not opened
    assert read(broker, Range(name, 0, 0, 3)) == [b"first", b"second"]


def test_connections_through_which_tasks_have_written_for_long_are_opened_anew(
    broker: Broker, topic: Topic, opened: list[Address]
) -> None:
    name = topic()
    write(broker, name, 0, [b"first"])
    opened.clear()
    write(broker, name, 1, [b"second"], **{"kafka.metadata.max.age.ms": "0"})
    assert opened


def test_who_writes_does_not_wait_behind_what_the_last_task_was_not_answered(
    kafka: Kafka, opened: list[Address]
) -> None:
    with SyncClient(kafka.bootstrap_servers) as client:
        client.admin.create_topic("unanswered", partitions=1)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "unanswered"}
    given |= {"kafka.default.api.timeout.ms": "1000", "deliveryGuarantee": "at-least-once"}
    options = parse_sink(given, [("value", "binary")], streaming=True)
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"row"], pa.binary())})
    task = TaskId("sink", "q", 0, 0, "run", 0)
    with kafka.faults.delay("Produce", seconds=60), pytest.raises(KafkaError):
        write_rows(options, task, iter([rows]))
    opened.clear()
    assert write_rows(options, task, iter([rows])) == Result(1, False)
    assert opened
