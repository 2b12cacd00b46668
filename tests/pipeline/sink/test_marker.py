"""The sink's options, its marker, and the fingerprint of rows."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from raftlog.pipeline.given import BadOption
from raftlog.pipeline.sink.columns import NoTopic, by_topic, fingerprint, to_send
from raftlog.pipeline.sink.marker import (
    METADATA_BYTES_MAX,
    Fingerprint,
    Marker,
    RowsMoved,
    SinkInUse,
    check_same,
    is_written,
    read_marker,
)
from raftlog.pipeline.sink.options import SinkOptions, parse_sink

HEADERS = "array<struct<key:string,value:binary>>"
BASE = {"kafka.bootstrap.servers": "h:1", "topic": "t"}


def parse(
    options: dict[str, str], *columns: tuple[str, str], streaming: bool = True, overwrite: bool = False
) -> SinkOptions:
    given = columns or (("key", "string"), ("value", "binary"))
    return parse_sink({**BASE, **options}, given, streaming=streaming, overwrite=overwrite)


def test_a_sink_writes_exactly_once_unless_told_otherwise() -> None:
    options = parse({})
    assert options.exactly_once and options.columns == ("key", "value") and options.sink_id is None
    assert not options.two_phase and parse({"commitProtocol": "two-phase"}).two_phase
    assert not parse({"deliveryGuarantee": "at-least-once"}).exactly_once


def test_settings_of_kafkas_producer_are_passed_on() -> None:
    options = parse({"kafka.compression.type": "zstd", "kafka.linger.ms": "50"})
    assert options.producer["compression"] == "zstd" and options.producer["linger"] == 0.05
    assert parse({"kafka.transaction.timeout.ms": "60000"}).producer["transaction_timeout"] == 60


def test_columns_that_are_no_part_of_a_record_are_left_out() -> None:
    columns = [("value", "string"), ("Headers", HEADERS), ("offset", "bigint"), ("topic", "string"), ("n", "double")]
    assert parse({}, *columns).columns == ("value", "headers")
    assert parse({"includeHeaders": "false"}, *columns).columns == ("value",)
    by_row = parse_sink({"kafka.bootstrap.servers": "h:1"}, columns, streaming=True)
    assert by_row.columns == ("value", "topic", "headers") and by_row.topic is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"deliveryGuarantee": "at-most-once"}, "it can be exactly-once or at-least-once"),
        ({"kafka.acks": "1"}, "or use at-least-once"),
        ({"kafka.transactional.id": "x"}, "use sinkId"),
        ({"sinkId": "a b"}, "letters, digits, dots"),
        ({"commitProtocol": "three-phase"}, "it can be task or two-phase"),
        ({"commitProtocol": "two-phase", "deliveryGuarantee": "at-least-once"}, "goes with deliveryGuarantee=exactly"),
        ({"batchId": "3"}, "a stream numbers its batches by itself"),
        ({"kafka.bootstrap.server": "h:2"}, "did you mean kafka.bootstrap.servers?"),
        ({"subscribe": "t"}, "there is no option 'subscribe' here"),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(options: dict[str, str], says: str) -> None:
    with pytest.raises(BadOption) as caught:
        parse(options)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([("key", "string")], "there is no column value among key"),
        ([("value", "int")], "the column value is of type int: it has to be binary or string; cast it"),
        ([("value", "string"), ("partition", "bigint")], "it has to be int"),
        ([("value", "string"), ("headers", "map<string,binary>")], f"it has to be {HEADERS}"),
    ],
)
def test_columns_of_other_types_are_refused(columns: list[tuple[str, str]], says: str) -> None:
    with pytest.raises(BadOption) as caught:
        parse({}, *columns)
    assert says in str(caught.value)


def test_rows_have_to_go_somewhere() -> None:
    with pytest.raises(BadOption, match="in a column topic"):
        parse_sink({"kafka.bootstrap.servers": "h:1"}, [("value", "string")], streaming=True)


def test_a_batch_is_named_by_sink_and_number_together() -> None:
    with pytest.raises(BadOption, match="belong together"):
        parse({"sinkId": "s"}, streaming=False)
    with pytest.raises(BadOption, match=r"mode\('append'\)"):
        parse({}, streaming=False, overwrite=True)
    assert parse({"sinkId": "s", "batchId": "0"}, streaming=False).batch == 0


MARKER = Marker("q", 7, Fingerprint(3, 4, 5, (1 << 64) - 1))


def test_a_marker_is_read_as_it_was_written_and_is_small() -> None:
    assert read_marker([(MARKER.offset, MARKER.metadata())]) == MARKER
    assert len(Marker("q" * 150, 1 << 60, Fingerprint(*[1 << 60] * 4)).metadata()) < METADATA_BYTES_MAX
    assert read_marker([]) is None


def test_the_latest_marker_counts() -> None:
    older = MARKER._replace(batch=6)
    assert read_marker([(each.offset, each.metadata()) for each in (older, MARKER, older)]) == MARKER


@pytest.mark.parametrize("metadata", ["", "x", "{}", '{"v": 2, "query": "q", "rows": [1, 2, 3, 4]}', "[]"])
def test_what_is_no_marker_is_not_taken_for_one(metadata: str) -> None:
    with pytest.raises(SinkInUse, match="give the sink another sinkId"):
        read_marker([(8, metadata)])


def test_a_batch_is_written_when_its_marker_or_a_later_one_is_there() -> None:
    assert not is_written(None, "s", "q", 0)
    assert [is_written(MARKER, "s", "q", batch) for batch in (6, 7, 8)] == [True, True, False]


def test_a_sink_is_not_shared_by_queries() -> None:
    with pytest.raises(SinkInUse, match="'s' belongs to query q, which has written up to batch 7; this is query r"):
        is_written(MARKER, "s", "r", 0)


def test_rows_that_moved_are_noticed() -> None:
    check_same(MARKER, 7, MARKER.rows)
    check_same(MARKER, 6, Fingerprint())
    with pytest.raises(RowsMoved, match="with 3 rows in this task, and now there are 9"):
        check_same(MARKER, 7, Fingerprint(9))


def batch(values: list[bytes | None], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    arrays = {"key": pa.array(keys or [None] * len(values), pa.binary()), "value": pa.array(values, pa.binary())}
    return pa.RecordBatch.from_pydict(arrays)


def whole(*parts: pa.RecordBatch) -> Fingerprint:
    found = Fingerprint()
    for part in parts:
        found += fingerprint(part)
    return found


def test_the_fingerprint_does_not_look_at_the_order_of_rows_or_how_they_come() -> None:
    values: list[bytes | None] = [b"%d" % at for at in range(50)] + [None, b""]
    shuffled = random.Random(1).sample(values, len(values))
    assert whole(batch(values)) == whole(batch(shuffled)) == whole(batch(values[:10]), batch(values[10:]))
    assert fingerprint(batch(values).slice(3, 7)) == fingerprint(batch(values[3:10]))


def test_the_fingerprint_sees_other_rows() -> None:
    rows = [b"%04d" % at for at in range(40)]
    seen = {whole(batch(rows[at : at + 10])) for at in range(30)}
    assert len(seen) == 30
    assert whole(batch([b"a"], [b"b"])) != whole(batch([b"b"], [b"a"]))
    assert whole(batch([b""])) != whole(batch([]))


def test_rows_go_to_the_topic_that_they_name() -> None:
    rows = pa.RecordBatch.from_pydict({"topic": ["a", "b", "a"], "value": [b"1", b"2", b"3"]})
    found = {topic: part.column("value").to_pylist() for topic, part in by_topic(rows, None)}
    assert found == {"a": [b"1", b"3"], "b": [b"2"]}
    with pytest.raises(NoTopic):
        list(by_topic(pa.RecordBatch.from_pydict({"topic": pa.array([None], pa.string())}), None))


def test_text_is_written_as_utf8_and_what_is_no_part_of_a_record_is_left_out() -> None:
    columns = {"key": ["é", None], "value": ["x", "y"], "offset": [5, 6], "partition": pa.array([1, None], pa.int32())}
    table = to_send(pa.RecordBatch.from_pydict(columns), ("key", "value", "partition"))
    assert table.to_pydict() == {"key": ["é".encode(), None], "value": [b"x", b"y"], "partition": [1, None]}
