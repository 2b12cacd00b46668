"""Which offset of one topic is which of another: runs of records that were copied one behind the other.

The sink writes them to a topic of their own, in the transaction of the rows themselves, and readers of a copy find
their place with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from raftlog.client.columns.scan import Ints

RUNS_MAX = 1_000
"""In one record: some 20 KB."""


class Run(NamedTuple):
    """`size` records from offset `first` on, copied to offsets from `copied_to` on."""

    first: int
    copied_to: int
    size: int


class Copied(NamedTuple):
    """From where to where."""

    topic: str
    partition: int
    to_topic: str
    to_partition: int


def runs(offsets: Ints, copied_to: Ints) -> list[Run]:
    """The records of one partition, in the order of their offsets, as runs."""
    breaks = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(copied_to) != 1)) + 1
    starts = np.concatenate(([0], breaks))
    counts = np.diff(np.append(starts, len(offsets)))
    return [
        Run(*each) for each in zip(offsets[starts].tolist(), copied_to[starts].tolist(), counts.tolist(), strict=True)
    ]


class Mapping:
    """What a task has copied so far."""

    def __init__(self) -> None:
        self._found: dict[Copied, list[Run]] = {}

    def add(self, rows: pa.RecordBatch, to_topic: str, placed: pa.Table) -> None:
        """`rows` with the columns of their origin, and where they are now (columns partition and offset)."""
        partitions = np.asarray(rows.column("source_partition"))
        targets = placed.column("partition").to_numpy()
        offsets, copied_to = np.asarray(rows.column("source_offset")), placed.column("offset").to_numpy()
        names = rows.column("source_topic").dictionary_encode()
        codes = np.asarray(names.indices)
        for code, partition, target in np.unique(np.stack([codes, partitions, targets], axis=1), axis=0).tolist():
            chosen = (codes == code) & (partitions == partition) & (targets == target)
            where = Copied(names.dictionary[code].as_py(), partition, to_topic, target)
            self._found.setdefault(where, []).extend(runs(offsets[chosen], copied_to[chosen]))

    def records(self) -> pa.Table | None:
        """What is written to the topic of the mapping; None for nothing."""
        keys, values = [], []
        for where, found in self._found.items():
            joined = list(join(found))
            for first in range(0, len(joined), RUNS_MAX):
                keys.append(f"{where.topic}[{where.partition}]")
                value = {**where._asdict(), "runs": joined[first : first + RUNS_MAX]}
                values.append(json.dumps(value, separators=(",", ":")))
        return pa.table({"key": keys, "value": values}) if keys else None


def join(found: Iterable[Run]) -> Iterator[Run]:
    """Runs in the order of their offsets, those that go on where another ends made one."""
    last: Run | None = None
    for run in sorted(found):
        if last is not None and run == (last.first + last.size, last.copied_to + last.size, run.size):
            last = last._replace(size=last.size + run.size)
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def translate(known: Sequence[Run], offset: int) -> int | None:
    """Where a reader that has read up to before `offset` goes on in the copy; None if nothing was copied yet.

    `known` are the runs of one partition, in the order of their offsets.
    """
    for run in known:
        if offset < run.first:
            return run.copied_to
        if offset < run.first + run.size:
            return run.copied_to + offset - run.first
    return known[-1].copied_to + known[-1].size if known else None
