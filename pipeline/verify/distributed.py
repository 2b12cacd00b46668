"""A check on Spark: pieces of the file are read in one task each, keys are checked together with others in another."""

from __future__ import annotations

import gc
import io
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.formats.lines import MAX_LINE_BYTES
from raftlog.linearizability.checker.history import History, HistoryError, Key, Operation, TimeUnit
from raftlog.linearizability.checker.model import Model, is_by_key
from raftlog.linearizability.checker.verdict import (
    Deferred,
    DeferredPart,
    Invalid,
    PartVerdict,
    Unknown,
    Valid,
    Verdict,
)
from raftlog.pipeline.verify.chunks import ChunkReader, Joined, Section
from raftlog.pipeline.verify.columns import read_columns
from raftlog.pipeline.verify.edges import Edges
from raftlog.pipeline.verify.parcels import read_rows, sort_out, sort_out_columns, unpack
from raftlog.pipeline.verify.parts import Found, Part, check_contents

CHUNK_BYTES = 32 * 1024 * 1024
"""What one task reads. Its operations take some fifteen times as much memory."""
TASKS_PER_CORE = 3
"""Each task costs a tenth of a second, and takes pieces and parcels one after the other."""
SCHEMA = "parcel int, chunk int, content binary"
EDGES = -1
"""In place of a parcel: what a piece tells of its edges."""
Say = Callable[[str], None]


class Plan(NamedTuple):
    """What tasks are told."""

    path: str
    size: int
    chunk_bytes: int
    model: Model[Any]

    @property
    def pieces(self) -> int:
        """Pieces of the file, and parcels of operations."""
        return max(1, -(-self.size // self.chunk_bytes))

    @property
    def part_of(self) -> Callable[[Operation], Key] | None:
        return None if is_by_key(self.model) else self.model.part


class Budget(NamedTuple):
    """Seconds for all, megabytes for each task."""

    seconds: float | None = None
    megabytes: float = 4_000


def check_on_spark(
    spark: Any, path: str, model: Model[Any], budget: Budget, say: Say, *, chunk_bytes: int = CHUNK_BYTES
) -> tuple[Verdict, History]:
    """The verdict on a history in JSON Lines, which every worker has under that path, and the history of its witness.

    Raises HistoryError and OSError.
    """
    began = time.monotonic()
    plan = Plan(path, Path(path).stat().st_size, chunk_bytes, model)
    tasks = min(plan.pieces, TASKS_PER_CORE * _cores(spark)) or plan.pieces
    pieces = spark.range(0, plan.pieces, 1, tasks).mapInArrow(partial(read_pieces, plan), SCHEMA)
    kept = _on_disk(pieces)
    try:
        told = [pickle.loads(row.content) for row in kept.where(f"parcel = {EDGES}").collect()]
        joined = Joined(sorted(told, key=lambda each: each.chunk), path)
        count = sum(each.operations for each in told) + len(joined.operations)
        say(f"{joined.line:,} lines read, {count:,} operations; {time.monotonic() - began:.1f} s")
        at_the_edges = sort_out(joined.operations, plan.part_of, plan.pieces).items()
        extra = spark.createDataFrame([(number, -1, bytearray(one)) for number, one in at_the_edges], SCHEMA)
        together = kept.where(f"parcel <> {EDGES}").union(extra)
        left = None if budget.seconds is None else max(0.1, budget.seconds - (time.monotonic() - began))
        task = Checking(model, joined.time_unit, joined.first_lines, budget._replace(seconds=left))
        by_parcel = together.repartitionById(tasks, together.parcel % tasks).sortWithinPartitions("parcel")
        found = _collected(by_parcel.mapInArrow(task, "content binary"))
        say(f"{sum(len(each.parts) for each in found):,} parts checked; {time.monotonic() - began:.1f} s")
        verdict, worst = merge(found, model, joined, count)
        if worst is not None:
            ranks = Ranking(joined.first_lines, worst.operations)
            ranks.tell(_collected(together.mapInArrow(ranks, "content binary")))
    finally:
        kept.unpersist()
    history = worst or History.of((), time_unit=joined.time_unit, source=path)
    history.annotations = joined.annotations
    return replace(verdict, seconds=time.monotonic() - began), history


def _cores(spark: Any) -> int:
    """Tasks that run at once; 0 where nobody says so, as through Spark Connect."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except AttributeError:  # Spark Connect has no context
        return 0


def _on_disk(frame: Any) -> Any:
    from pyspark import StorageLevel

    return frame.persist(StorageLevel.DISK_ONLY)


def _collected(frame: Any) -> list[Any]:
    return [pickle.loads(row.content) for row in frame.collect()]


def read_pieces(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: pieces of the file as parcels of operations, and what is at their edges."""
    for batch in batches:
        for chunk in batch.column(0).to_pylist():
            with _without_collector():
                edges, parcels = _read_piece(plan, chunk)
            numbers, contents = [EDGES, *parcels], [pickle.dumps(edges), *parcels.values()]
            for number, content in zip(numbers, contents, strict=True):
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int32()), pa.array([chunk], pa.int32()), pa.array([content], pa.binary())],
                    names=["parcel", "chunk", "content"],
                )


def _read_piece(plan: Plan, chunk: int) -> tuple[Edges, dict[int, bytes]]:
    start = chunk * plan.chunk_bytes
    try:
        with Path(plan.path).open("rb") as stream:
            section = Section(stream, start, min(plan.size, start + plan.chunk_bytes))
            # A line may be as long as it likes, and the library refuses it without reading all of it.
            data = section.read() if section.size <= plan.chunk_bytes + MAX_LINE_BYTES else b""
            found = read_columns(data, chunk) if data and plan.part_of is None else None
            if found is not None:
                return found[0], sort_out_columns(found[1], plan.pieces)
            reader = ChunkReader(io.BytesIO(data) if data else section, chunk)
            operations = reader.read()
    except OSError as error:
        return Edges(chunk, is_blank=False, error=(f"a worker cannot read the file: {error.strerror}", 0)), {}
    return reader.edges, sort_out(operations, plan.part_of, plan.pieces)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Nothing that is read is garbage, but the collector would look at all of it again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, bytes]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _contents(rows: Iterable[tuple[int, int, bytes]], first_lines: Sequence[int]) -> list[tuple[bytes, int]]:
    """The contents of parcels in the order of their pieces, each with the line that its lines are counted from."""
    rows = sorted(rows, key=itemgetter(1))
    # What was put together from several pieces has its lines counted from the first one already.
    return [(content, first_lines[chunk] if chunk >= 0 else 0) for _, chunk, content in rows]


class Checking(NamedTuple):
    """In a task: the keys of one parcel after the other, which come in their order."""

    model: Model[Any]
    time_unit: TimeUnit
    first_lines: Sequence[int]
    budget: Budget

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, rows in groupby(_rows(batches), key=itemgetter(0)):
            with _without_collector():
                contents = _contents(rows, self.first_lines)
                found = check_contents(contents, self.model, self.time_unit, *self.budget)
            yield _content(found)


class Ranking:
    """In a task: how many operations were called before each of those that are to be numbered."""

    def __init__(self, first_lines: Sequence[int], operations: Sequence[Operation]) -> None:
        self._first_lines = first_lines
        self._operations = operations
        self._wanted = _moments(operations)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            contents = _contents(_rows([batch]), self._first_lines)
            found = np.concatenate([_moments_in(*each) for each in contents], axis=1)
            both = np.concatenate([found, self._wanted], axis=1)
            order = np.lexsort(both[::-1])
            is_wanted = order >= found.shape[1]
            counts = np.empty(self._wanted.shape[1], np.int64)
            counts[order[is_wanted] - found.shape[1]] = np.cumsum(~is_wanted)[is_wanted]
            yield _content(counts)

    def tell(self, counts: Sequence[Any]) -> None:
        """Number the operations. Each of them has counted itself."""
        for operation, count in zip(self._operations, sum(counts).tolist(), strict=True):
            operation.index = count - 1


def _moments(operations: Sequence[Operation]) -> Any:
    """By which operations are ordered: calls, returns, lines."""
    never = 2**63 - 1
    rows = [(each.call, never if each.returned is None else each.returned, each.line) for each in operations]
    return np.array(rows, np.int64).reshape(-1, 3).T


def _moments_in(content: bytes, first_line: int) -> Any:
    rows = read_rows(content, first_line)
    if rows is None:
        return _moments(unpack(content, first_line))
    return np.stack([rows[name].to_numpy() for name in ("call", "returned", "line")])


def _content(value: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(value)], pa.binary())], names=["content"])


def merge(
    found: Sequence[Found], model: Model[Any], joined: Joined, count: int
) -> tuple[Valid | Invalid | Unknown, History | None]:
    """One verdict on all parts, and the operations of the bad one that is explained. Raises HistoryError."""
    wrong = min((each.error for each in found if each.error is not None), default=None)
    if wrong is not None:
        raise HistoryError(wrong[1], wrong[0], joined.name)
    parts = sorted((part for each in found for part in each.parts), key=attrgetter("place"))
    bad = [each for each in found if each.worst is not None]
    if bad:
        first = min(bad, key=lambda each: (each.prefix_end, each.worst and each.worst.place))
        history, verdict = _explained(first.worst, model, joined)
        told = tuple(verdict.parts[0] if part is first.worst else _told(part, model, joined) for part in parts)
        return Invalid(verdict.model, told, count, witness=verdict.witness), history
    told = tuple(_told(part, model, joined) for part in parts)
    for each in found:
        if each.limit is not None:
            return Unknown(model, told, count, limit=each.limit, reason=each.reason), None
    return Valid(model, told, count), None


def _explained(part: Part | None, model: Model[Any], joined: Joined) -> tuple[History, Invalid]:
    """The part checked again by itself: it is as bad as it was."""
    assert part is not None and part.content is not None
    history = History.of(unpack(part.content), time_unit=joined.time_unit, source=joined.name)
    verdict = check(history, model)
    assert isinstance(verdict, Invalid)
    return history, verdict


def _told(part: Part, model: Model[Any], joined: Joined) -> PartVerdict:
    witness: Any = None
    if part.content is not None:
        witness = Deferred(lambda: _explained(part, model, joined)[1].witness)
    elsewhere = Elsewhere(part.operations)
    counted = (elsewhere, part.algorithm, part.configurations)
    return DeferredPart(part.key, part.status, *counted, (), witness, part.limit)


class Elsewhere(Sequence[Operation]):
    """The operations of a part, which lie where they were checked: here only their number is known."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        raise LookupError("these operations were checked by another process, and are not here")
