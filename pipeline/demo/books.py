"""The demo's books: which rows went in, and how often each came out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

from raftlog.client.sync import SyncClient
from raftlog.pipeline.jobs.lake import Lake


@dataclass
class Books:
    """`out`: for each job how often it has written each row."""

    rows: int = 0
    out: dict[str, Counter[int]] = field(default_factory=dict)
    hours: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """By airport and hour (ISO, UTC): what `delays` knows of it at the end."""
    too_late: int = 0

    @property
    def lost(self) -> int:
        missing = sum(self.rows - len(found) for found in self.out.values())
        return missing + max(0, self.rows - self.too_late - self.counted)

    @property
    def twice(self) -> int:
        more = sum(sum(found.values()) - len(found) for found in self.out.values())
        return more + max(0, self.counted - (self.rows - self.too_late))

    @property
    def counted(self) -> int:
        """Flights in the hours of `delays`."""
        return sum(each["flights"] for each in self.hours.values())


def in_lake(where: str, topic: str) -> Counter[int]:
    """How often each row is there, in the files that the manifests name."""
    rows: Counter[int] = Counter()
    lake = Lake(where)
    for path in lake.paths(lake.files(topic)):
        values = pq.read_table(path.removeprefix("file://"), columns=["value"], partitioning=None).column("value")
        rows.update(json.loads(value)["row"] for value in values.to_pylist())
    return rows


def in_topic(client: SyncClient, topic: str) -> Counter[int]:
    return Counter(json.loads(record.value or b"")["row"] for record in records(client, topic))


def latest(client: SyncClient, topic: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The newest value of each airport and hour."""
    found = {}
    for record in records(client, topic):
        origin, _, window = (record.key or b"").decode().partition("|")
        found[origin, window] = json.loads(record.value or b"{}")
    return found


def records(client: SyncClient, topic: str) -> Iterator[Any]:
    """All committed records of a topic."""
    partitions = [(topic, each.partition_index) for each in client.admin.topic(topic).partitions]
    ends = client.admin.offsets_at(partitions, -1)
    with client.consumer(topic, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        while any(consumer.positions.get(each, 0) < end for each, end in ends.items()):
            yield from consumer.poll(5000, timeout=1)
