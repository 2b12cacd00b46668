"""The keys of one parcel, checked by the library in one process; what is told of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import History, HistoryError, Key, Operation, TimeUnit
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.verdict import Invalid, Limit, Status, Unknown
from raftlog.linearizability.resources import Allowance
from raftlog.pipeline.verify.columns import as_batch, operations_of
from raftlog.pipeline.verify.parcels import pack, read_rows, unpack
from raftlog.pipeline.verify.registers import ALGORITHM, Unlike, right_keys, suits

BAD_MAX = 100
"""Bad parts whose operations a task hands back, so that they can be explained."""
Place = tuple[float, int]
"""When the first operation of a part returned, and its line: the order of parts."""


class Part(NamedTuple):
    """The verdict on one key, without its operations."""

    key: Key
    status: Status
    operations: int
    algorithm: str
    configurations: int
    limit: Limit | None
    place: Place
    content: bytes | None
    """The operations of one that is bad, packed, unless there are too many such parts."""


@dataclass
class Found:
    """What a task found. `worst`: the bad part whose shortest bad prefix ends first, and when it ends."""

    parts: list[Part] = field(default_factory=list)
    worst: Part | None = None
    prefix_end: int = 0
    limit: Limit | None = None
    reason: str = ""
    error: tuple[int, str] | None = None
    """An operation that is not one of the model's: its line, and what is wrong."""


def check_contents(
    contents: Sequence[tuple[bytes, int]],
    model: Model[Any],
    time_unit: TimeUnit,
    seconds: float | None,
    megabytes: float,
) -> Found:
    """Check all parts that lie in these contents of parcels, which have all operations of them, in their order.

    Each comes with the line that its lines are counted from. Keys that their columns show to be right are settled with
    them, all others by the library.
    """
    tables = [read_rows(content, first_line) if suits(model) else None for content, first_line in contents]
    operations = [
        unpack(content, first_line) if table is None else []
        for (content, first_line), table in zip(contents, tables, strict=True)
    ]
    right, left = _settled([table for table in tables if table is not None], operations)
    rest = iter(left)
    for at, table in enumerate(tables):
        if table is not None:
            operations[at] = operations_of(as_batch(next(rest)))
    found = check_parcel(list(chain.from_iterable(operations)), model, time_unit, seconds, megabytes)
    found.parts += right
    return found


def _settled(
    tables: Sequence[pa.Table], elsewhere: Iterable[Sequence[Operation]]
) -> tuple[list[Part], Sequence[pa.Table]]:
    """The parts that are right, and of each table the rows of other keys; also of keys with operations elsewhere."""
    if not tables:
        return [], tables
    try:
        rows = as_batch(pa.concat_tables(tables, promote_options="permissive"))
        names = rows.column("key").cast(pa.string()).dictionary_encode(null_encoding="encode")
        keys = names.indices.to_numpy().astype(np.int64)
        right = right_keys(rows, keys, len(names.dictionary))
    except (pa.ArrowTypeError, pa.ArrowInvalid, Unlike):
        return [], tables  # values of several types
    by_key = names.dictionary.to_pylist()
    strange = {operation.key for operations in elsewhere for operation in operations}
    right[[number for number, key in enumerate(by_key) if key in strange]] = False
    is_left = ~right[keys]
    ends = np.cumsum([table.num_rows for table in tables])
    parts = np.split(is_left, ends[:-1])
    left = [table.filter(pa.array(part)) for table, part in zip(tables, parts, strict=True)]
    # Rows come in the order of their returns, so the first one of a key returned first.
    first = np.full(len(by_key), len(keys))
    np.minimum.at(first, keys, np.arange(len(keys)))
    settled = np.flatnonzero(right)
    first = first[settled]
    places = zip(
        rows.column("returned").to_numpy()[first].astype(float).tolist(),
        rows.column("line").to_numpy()[first].tolist(),
        strict=True,
    )
    counts = np.bincount(keys, minlength=len(by_key))[settled].tolist()
    return [
        Part(by_key[number], Status.VALID, count, ALGORITHM, 0, None, place, None)
        for number, count, place in zip(settled.tolist(), counts, places, strict=True)
    ], left


def check_parcel(
    operations: Sequence[Operation], model: Model[Any], time_unit: TimeUnit, seconds: float | None, megabytes: float
) -> Found:
    """Check all parts of these operations, which nothing else has a share in."""
    if not operations:
        return Found()
    try:
        history = History.of(operations, time_unit=time_unit)
        verdict = check(history, model, budget=Allowance(seconds, megabytes).left())
    except HistoryError as error:
        return Found(error=(error.line or 0, error.reason))
    found = Found()
    worst = verdict.witness.key if isinstance(verdict, Invalid) else None
    told = 0
    for part in verdict.parts:
        first, content = part.operations[0], None
        if part.status is Status.INVALID and (part.key == worst or told < BAD_MAX):
            told, content = told + 1, pack(part.operations)
        place = (float("inf") if first.returned is None else float(first.returned), first.line or 0)
        counted = (len(part.operations), part.algorithm, part.configurations, part.limit)
        found.parts.append(Part(part.key, part.status, *counted, place, content))
        if isinstance(verdict, Invalid) and part.key == worst:
            found.worst, found.prefix_end = found.parts[-1], verdict.witness.prefix_end
    if isinstance(verdict, Unknown):
        found.limit, found.reason = verdict.limit, verdict.reason
    return found
