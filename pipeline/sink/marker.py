"""The marker of a sink: what one of its tasks has committed last, in the same transaction as the rows themselves.

It lies in the committed offsets of a group of its own: the offset is the number of the next micro-batch, the metadata
says whose it is and what the rows were like. A task that finds its micro-batch there has nothing left to write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

METADATA_BYTES_MAX = 4096
"""Kafka's offset.metadata.max.bytes; a marker has some 150."""
VERSION = 1


def marker_group(sink_id: str, partition: int) -> str:
    """Where the marker of a task lies."""
    return f"{_prefix(sink_id)}{partition}"


def marker_groups(sink_id: str, groups: Iterable[str]) -> list[str]:
    """Those of all groups in which markers of this sink lie."""
    prefix = _prefix(sink_id)
    return [each for each in groups if each.startswith(prefix) and each[len(prefix) :].isdigit()]


def _prefix(sink_id: str) -> str:
    return f"raftlog-sink-{sink_id}-"


class Fingerprint(NamedTuple):
    """Of a task's rows, whatever their order: how many, bytes of keys and of values, and sums over those bytes."""

    rows: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    sums: int = 0
    """Modulo 2^64."""

    def __add__(self, other: object) -> Fingerprint:
        assert isinstance(other, Fingerprint)
        rows, keys, values, sums = (mine + theirs for mine, theirs in zip(self, other, strict=True))
        return Fingerprint(rows, keys, values, sums & 0xFFFF_FFFF_FFFF_FFFF)


class Marker(NamedTuple):
    """`query` wrote micro-batch `batch` through this task."""

    query: str
    batch: int
    rows: Fingerprint

    @property
    def offset(self) -> int:
        return self.batch + 1

    def metadata(self) -> str:
        return json.dumps({"v": VERSION, "query": self.query, "rows": self.rows}, separators=(",", ":"))


class SinkInUse(Exception):
    """Another query writes under the same sinkId, or did."""


class RowsMoved(Exception):
    """A micro-batch that is written again has other rows in a task than the first time."""


def read_marker(found: Iterable[tuple[int, str]]) -> Marker | None:
    """The latest of a group's committed (offset, metadata). Raises SinkInUse for what is no marker."""
    latest: Marker | None = None
    for offset, metadata in found:
        try:
            content = json.loads(metadata)
            marker = Marker(str(content["query"]), offset - 1, Fingerprint(*map(int, content["rows"])))
            is_known = content["v"] == VERSION
        except (ValueError, KeyError, TypeError):
            is_known = False
        if not is_known:
            raise SinkInUse(f"the group of this sink has committed offset {offset} with metadata {metadata!r}, which "
                            "is no marker of a sink: give the sink another sinkId")
        if latest is None or marker.batch > latest.batch:
            latest = marker
    return latest


def is_written(found: Marker | None, sink_id: str, query: str, batch: int) -> bool:
    """Whether this micro-batch was committed before. Raises SinkInUse."""
    if found is None:
        return False
    check_query(found.query, found.batch, sink_id, query, batch)
    return found.batch >= batch


def check_query(owner: str, written: int, sink_id: str, query: str, batch: int) -> None:
    """A sinkId belongs to one query, which has written up to a batch (-1: none yet). Raises SinkInUse."""
    if owner != query:
        begun = f"has written up to batch {written}" if written >= 0 else "was the first to write under it"
        raise SinkInUse(
            f"sinkId {sink_id!r} belongs to query {owner}, which {begun}; this is query {query} with batch {batch}. "
            "A query that begins anew needs another sinkId"
        )


def check_same(found: Marker, batch: int, rows: Fingerprint) -> None:
    """The rows of a micro-batch that comes again must be those that were committed. Raises RowsMoved."""
    if found.batch == batch and found.rows != rows:
        raise RowsMoved(
            f"batch {batch} was written before with {found.rows.rows} rows in this task, and now there are {rows.rows} "
            "other ones: rows were divided among the tasks in another way, so that nothing can tell which of them are "
            "written already. Before the sink, rows have to come to the same tasks each time: no repartition(n) "
            "without columns, no random or current time in what rows are divided by, the same number of shuffle "
            "partitions and the same code after a restart. Where that cannot be, begin a query with "
            "commitProtocol=two-phase, which takes rows as they come; this one goes on with at-least-once"
        )
