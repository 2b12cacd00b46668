"""Which offsets a read or a micro-batch covers, and how they are divided into tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from raftlog.pipeline.source.offsets import Offsets, Partition

SHARED_RECORDS_MAX = 200
"""Of several partitions one task reads so many offsets at most."""


class Range(NamedTuple):
    """Offsets from `start` to before `end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> Partition:
        return self.topic, self.partition

    @property
    def size(self) -> int:
        return self.end - self.start


def between(start: Offsets, end: Offsets) -> list[Range]:
    """What lies between two sets of offsets. A partition that is new in `end` is read from offset 0."""
    ranges = [Range(*partition, start.get(partition, 0), until) for partition, until in sorted(end.items())]
    return [each for each in ranges if each.size > 0]


def split(ranges: Iterable[Range], *, least: int | None, records_max: int | None) -> list[list[Range]]:
    """Ranges as tasks: of at most `records_max` offsets each, and at least `least` tasks if there are so many offsets.

    Larger ranges get more tasks, small ones of several partitions share one, unless `least` is given. A pure function:
    a batch that is read again is divided in the same way.
    """
    divided = _divided(ranges, least=least, records_max=records_max)
    if least is not None:
        return [[each] for each in divided]
    return _shared(divided, SHARED_RECORDS_MAX if records_max is None else min(SHARED_RECORDS_MAX, records_max))


def _shared(ranges: Iterable[Range], most: int) -> list[list[Range]]:
    tasks: list[list[Range]] = []
    size = 0
    for each in ranges:
        size += each.size
        if tasks and size <= most and all(other.topic_partition != each.topic_partition for other in tasks[-1]):
            tasks[-1].append(each)
        else:
            tasks.append([each])
            size = each.size
    return tasks


def _divided(ranges: Iterable[Range], *, least: int | None, records_max: int | None) -> list[Range]:
    wanted = [each for each in ranges if each.size > 0]
    if records_max is not None:
        wanted = [part for each in wanted for part in _divide(each, -(-each.size // records_max))]
    if least is None or len(wanted) >= least:
        return wanted
    total = sum(each.size for each in wanted)
    counts = [min(each.size, max(1, least * each.size // total)) for each in wanted]
    # What was rounded off goes to those with the most offsets for each task.
    while wanted and sum(counts) < min(least, total):
        at = max(range(len(wanted)), key=lambda index: wanted[index].size / counts[index])
        counts[at] += 1
    return [part for each, count in zip(wanted, counts, strict=True) for part in _divide(each, count)]


def _divide(whole: Range, count: int) -> list[Range]:
    edges = [whole.start + whole.size * at // count for at in range(count + 1)]
    return [whole._replace(start=edges[at], end=edges[at + 1]) for at in range(count)]


def limited(start: Offsets, end: Offsets, most: int) -> dict[Partition, int]:
    """An end with about `most` offsets from `start`: each partition gets its share, and none of them nothing."""
    sizes = {each: max(0, until - start.get(each, 0)) for each, until in end.items()}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    found = {}
    for partition, until in end.items():
        share = most * sizes[partition] // total
        if sizes[partition]:
            share = max(share, 1)
        found[partition] = min(until, start.get(partition, 0) + share) if sizes[partition] else until
    return found


def available(start: Offsets, end: Offsets) -> int:
    """How many offsets there are to read."""
    return sum(max(0, until - start.get(each, 0)) for each, until in end.items())


def gone_back(start: Offsets, end: Offsets) -> list[str]:
    """In words, what has been lost where `end` lies before `start`."""
    lost: list[str] = []
    for (topic, index), begin in start.items():
        until = end.get((topic, index))
        if until is None:
            lost.append(f"{topic}[{index}] is not there any more")
        elif until < begin:
            lost.append(f"{topic}[{index}] ends at offset {until}, and was read to {begin} before")
    return lost


class DataLoss(Exception):
    """Records that were to be read are gone."""

    def __init__(self, what: Iterable[str] | str) -> None:
        text = what if isinstance(what, str) else "; ".join(what)
        super().__init__(
            f"{text}. Some data may have been lost: it was deleted by retention before it was read, or its topic was "
            "made anew. To go on with what is there, set the option failOnDataLoss to false"
        )


def too_small(start: Offsets, first: Mapping[Partition, int]) -> list[str]:
    """In words, where `start` lies before the first offset that is left."""
    return [
        f"{topic}[{index}] begins at offset {first[topic, index]}, and {begin} was asked for"
        for (topic, index), begin in sorted(start.items())
        if (topic, index) in first and begin < first[topic, index]
    ]
