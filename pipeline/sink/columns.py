"""The rows that Spark hands over, as Arrow batches: what they are like, and what the producer takes of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raftlog.pipeline.sink.marker import Fingerprint
from raftlog.pipeline.sink.options import ORIGIN


class NoTopic(Exception):
    """A row says nothing about where it goes."""


def in_small_letters(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with the names of its columns as `options` has them: to Spark `Value` is `value`, too."""
    return batch.rename_columns([name.lower() for name in batch.schema.names])


def fingerprint(batch: pa.RecordBatch) -> Fingerprint:
    """Of the rows' keys and values."""
    found = Fingerprint(batch.num_rows)
    for at, name in enumerate(("key", "value"), 1):
        if name not in batch.schema.names:
            continue
        size, sums = _sums(batch.column(name))
        weighted = sums * (2 * at + 1)
        found += Fingerprint(0, size if at == 1 else 0, size if at == 2 else 0, weighted)
    return found


def _sums(column: pa.Array) -> tuple[int, int]:
    """Bytes of an array of binary or text, and a sum over them that no order of the rows changes."""
    _, offsets, data = column.cast(pa.binary()).buffers()
    if data is None or not len(column):
        return 0, 0
    edges = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8)[edges[0] : edges[-1]]
    lengths = np.diff(edges)
    total = int(content.sum(dtype=np.uint64)) + (int((lengths * lengths).sum()) << 20)
    # The first bytes of a row count for themselves: rows of one length often differ in little else.
    filled = edges[:-1][lengths > 0] - edges[0]
    ends = edges[1:][lengths > 0] - edges[0] - 1
    if len(filled):
        first, last = content[filled].astype(np.uint64), content[ends].astype(np.uint64)
        total += int((first * first * np.uint64(31) + last * last * np.uint64(17)).sum()) << 8
    return len(content), total & 0xFFFF_FFFF_FFFF_FFFF


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in their order. Raises NoTopic."""
    if topic is not None:
        yield topic, batch
        return
    names = batch.column("topic")
    if names.null_count:
        raise NoTopic("a row has NULL as its topic: give each one a topic, or use the option topic for all")
    unique = names.unique().to_pylist()
    for name in unique:
        yield name, batch if len(unique) == 1 else batch.filter(pc.equal(names, name))


def to_send(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.Table:
    """What the producer takes of the rows: keys and values as bytes, and partitions."""
    names = [name for name in columns if name != "topic" and name not in ORIGIN]
    arrays = [
        batch.column(name).cast(pa.binary()) if name in ("key", "value") else batch.column(name) for name in names
    ]
    return pa.table(dict(zip(names, arrays, strict=True)))
