"""Fetched batches as the rows that Spark takes."""

from __future__ import annotations

import pyarrow as pa

from raftlog.client.core.fetched import Piece, Slice
from raftlog.pipeline.source.options import COLUMNS
from raftlog.pipeline.source.rows import arrow_schema, record_batches
from raftlog.wire.batch import Record, encode_batch, parse_header


def fetched(records: list[Record], end: int | None = None, *, partition: int = 3) -> Slice:
    data = encode_batch(records)
    header = parse_header(data)
    last = header.next_offset if end is None else end
    return Slice("t", partition, [Piece(header, data, header.base_offset, last)], last, 0)


def rows(part: Slice, columns: tuple[str, ...] = COLUMNS) -> list[dict[str, object]]:
    return pa.Table.from_batches(list(record_batches([part], arrow_schema(columns)))).to_pylist()


def test_rows_have_the_columns_of_sparks_kafka_source() -> None:
    found = rows(fetched([Record(0, 1500, b"k", b"v", (("h", b"1"), ("n", None))), Record(1, 1501, None, None, ())]))
    assert [row.pop("timestamp").isoformat() for row in found] == [  # type: ignore[attr-defined]
        "1970-01-01T00:00:01.500000+00:00", "1970-01-01T00:00:01.501000+00:00"]
    common = {"topic": "t", "partition": 3, "timestampType": 0}
    headers = [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]
    assert found == [
        {"key": b"k", "value": b"v", "offset": 0, "headers": headers, **common},
        {"key": None, "value": None, "offset": 1, "headers": [], **common},
    ]


def test_no_headers_are_an_empty_list_and_never_null() -> None:
    part = fetched([Record(at, 0, b"k", b"v", ()) for at in range(3)])
    (batch,) = record_batches([part], arrow_schema(COLUMNS))
    assert batch.column("headers").null_count == 0 and batch.column("headers").to_pylist() == [[], [], []]


def test_a_range_that_ends_within_a_batch_gives_the_records_before_its_end() -> None:
    part = fetched([Record(at, 0, b"k", b"v", ()) for at in range(5)], end=3)
    assert [row["offset"] for row in rows(part, ("offset",))] == [0, 1, 2]


def test_a_few_records_of_several_partitions_are_one_batch() -> None:
    parts = [fetched([Record(at, 0, None, b"v", ()) for at in range(3)], partition=at) for at in (7, 4)]
    parts.append(fetched([Record(0, 0, None, b"w", ())])._replace(topic="u"))
    (batch,) = record_batches(parts, arrow_schema(("topic", "partition", "offset")))
    found = [tuple(row.values()) for row in batch.to_pylist()]
    assert found == [*(("t", partition, at) for partition in (7, 4) for at in range(3)), ("u", 3, 0)]
