"""A piece of a history as columns: lines as most programs write them are parsed by Arrow, and none by Python.

What is unusual in any way (a line that is no call or completion, a value that is no whole number or text, whatever is
wrong) is left to the reader of the library, which knows what to say of it. So the lines taken here are only such as
that reader takes, and mean the same.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from raftlog.linearizability.checker.formats.jsonl import JsonLinesReader
from raftlog.linearizability.checker.history import HistoryError, Operation, Outcome, TimeUnit
from raftlog.pipeline.verify.edges import Edges

Ints = npt.NDArray[np.integer[Any]]
Flags = npt.NDArray[np.bool_]
BLOCK_BYTES = 4 * 1024 * 1024
"""What Arrow parses at once. A longer line is unusual."""
COMPLETIONS = (b"ok", b"fail", b"info")
OUTCOMES = (Outcome.OK, Outcome.FAIL, Outcome.INFO)
"""By their number in the column `outcome`."""
KINDS = (pa.int64(), pa.string())
"""What clients and values may be, all of a piece alike."""


class Lines(NamedTuple):
    """The lines of a piece: those of calls, and those of completions."""

    calls: pa.Table
    ends: pa.Table
    call_at: Ints
    """Which lines the calls are, counted from 0, and the completions."""
    end_at: Ints
    outcomes: Ints
    """Of the completions, as in OUTCOMES."""

    @property
    def total(self) -> int:
        return len(self.call_at) + len(self.end_at)


def read_columns(data: bytes, chunk: int) -> tuple[Edges, pa.RecordBatch] | None:
    """The operations that end in a piece, as `ChunkReader` reads them; None for an unusual piece.

    Columns are process, function, key, input, output, call, returned, outcome, error and line; rows come in the order
    of the completions, and lines are counted from 1.
    """
    headed = _without_header(data) if chunk == 0 else (data, None)
    lines = None if headed is None else _parsed(headed[0])
    if headed is None or lines is None:
        return None
    before = 0 if headed[1] is None else 1
    times = np.empty(lines.total, np.int64)
    times[lines.call_at], times[lines.end_at] = _ints(lines.calls, "time"), _ints(lines.ends, "time")
    if (times[1:] < times[:-1]).any():
        return None
    clients = pa.concat_arrays([lines.calls["process"].combine_chunks(), lines.ends["process"].combine_chunks()])
    numbers = clients.dictionary_encode().indices.to_numpy()
    by_line: Ints = np.empty(lines.total, np.int16 if numbers.max() < 1 << 15 else np.int32)
    by_line[lines.call_at], by_line[lines.end_at] = np.split(numbers, [len(lines.call_at)])
    called_at = _call_of_each(by_line, lines)
    if called_at is None:
        return None
    is_here = called_at >= 0
    ended_at = lines.end_at[is_here]
    calls = np.searchsorted(lines.call_at, called_at[is_here])
    rows = _rows(lines, calls, np.flatnonzero(is_here), before)
    is_open = np.ones(len(lines.call_at), bool)
    is_open[calls] = False
    edges = Edges(
        chunk,
        lines=lines.total + before,
        is_blank=False,
        operations=len(ended_at),
        time_unit=headed[1],
        first_time=int(times[0]),
        first_line=1 + before,
        last_time=int(times[-1]),
        called=_first_lines(lines, before),
        ended=_completions(lines, np.flatnonzero(~is_here), before),
        still_open={call.process: call for call in _calls(lines, np.flatnonzero(is_open), before)},
    )
    return edges, rows


def _first_lines(lines: Lines, before: int) -> dict[Any, int]:
    """Of each client's calls."""
    calls = pa.table({"process": lines.calls["process"], "at": pa.array(lines.call_at)})
    first = calls.group_by("process").aggregate([("at", "min")])
    return dict(zip(first["process"].to_pylist(), pc.add(first["at_min"], before + 1).to_pylist(), strict=True))


def _without_header(data: bytes) -> tuple[bytes, TimeUnit | None] | None:
    """What follows the first line of a history, if that is a header, and what it says."""
    first, _, rest = data.partition(b"\n")
    if b"history" not in first:
        return data, None
    reader = JsonLinesReader([first])
    try:
        if list(reader.events()):
            return data, None
    except HistoryError:
        return None
    return rest, reader.time_unit


def _parsed(data: bytes) -> Lines | None:
    if not data.endswith(b"\n"):
        data += b"\n"
    bounds = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    count = len(bounds)
    offsets = np.concatenate(([0], bounds)).astype(np.int32)
    lines = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    space = b" " if data[7:9] == b": " else b""
    begins = [b'{"type":' + space + b'"' + kind + b'"' for kind in (b"invoke", *COMPLETIONS)]
    kinds = [pc.starts_with(lines, begin).to_numpy(zero_copy_only=False) for begin in begins]
    if sum(map(np.count_nonzero, kinds)) != count or not kinds[0].any() or kinds[0].all():
        return None
    is_call = kinds[0]
    # A value that is no number makes its kind of table fail at once, in its first block.
    for client, value in product(KINDS, KINDS):
        asked = {"function": pa.string(), "key": pa.string(), "input": value}
        calls = _table(lines.filter(pa.array(is_call)), asked, client)
        if calls is None:
            continue
        for answer in KINDS:
            ends = _table(lines.filter(pa.array(~is_call)), {"output": answer, "error": pa.string()}, client)
            if ends is not None and calls["function"].null_count == 0:
                outcomes = np.select([kind[~is_call] for kind in kinds[1:]], [0, 1, 2]).astype(np.int8)
                return Lines(calls, ends, np.flatnonzero(is_call), np.flatnonzero(~is_call), outcomes)
    return None


def _table(lines: pa.BinaryArray, fields: dict[str, pa.DataType], client: pa.DataType) -> pa.Table | None:
    """Lines of one kind, each of which begins an object; None if a field is missing or of another type."""
    schema = pa.schema({"type": pa.string(), "process": client, "time": pa.int64(), **fields})
    try:
        found = pj.read_json(
            pa.BufferReader(lines.buffers()[2]),  # all of it: they were filtered
            read_options=pj.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
        found.validate(full=True)  # whether text is UTF-8
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    is_whole = found.num_rows == len(lines) and not any(found[name].null_count for name in ("process", "time"))
    return found if is_whole else None


def _call_of_each(by_line: Ints, lines: Lines) -> Ints | None:
    """For each completion the line of its call, -1 for one in an earlier piece; None if a client breaks the turns."""
    is_call = np.zeros(lines.total, bool)
    is_call[lines.call_at] = True
    order = np.argsort(by_line, kind="stable")
    kinds, same = is_call[order], by_line[order][1:] == by_line[order][:-1]
    if (same & (kinds[1:] == kinds[:-1])).any():
        return None
    calls = np.full(lines.total, -1, np.int64)
    pairs = np.flatnonzero(same & kinds[:-1])
    calls[order[pairs + 1]] = order[pairs]
    return calls[lines.end_at]


def _rows(lines: Lines, calls: Ints, ends: Ints, before: int) -> pa.RecordBatch:
    chosen = lines.calls.take(pa.array(calls))
    answers = lines.ends.take(pa.array(ends))
    columns: dict[str, Any] = {name: chosen[name] for name in ("process", "function", "key", "input")}
    columns |= {"output": answers["output"], "error": answers["error"]}
    columns |= {"call": chosen["time"], "returned": answers["time"]}
    columns |= {"outcome": pa.array(lines.outcomes[ends]), "line": pa.array(lines.call_at[calls] + before + 1)}
    return as_batch(pa.table(columns))


def as_batch(table: pa.Table) -> pa.RecordBatch:
    table = table.combine_chunks()
    arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, names=table.column_names)


def _completions(lines: Lines, ends: Ints, before: int) -> list[tuple[dict[str, Any], int]]:
    """Of calls in earlier pieces: as they are on their lines, but that what is not there is null."""
    told = lines.ends.take(pa.array(ends)).to_pylist()
    for fields in told:
        if fields["error"] is None:
            del fields["error"]
    return list(zip(told, (lines.end_at[ends] + before + 1).tolist(), strict=True))


def _calls(lines: Lines, calls: Ints, before: int) -> list[Operation]:
    told = lines.calls.take(pa.array(calls)).to_pylist()
    places = (lines.call_at[calls] + before + 1).tolist()
    return [
        Operation(one["process"], one["function"], one["input"], None, one["key"], one["time"], line=line)
        for one, line in zip(told, places, strict=True)
    ]


def _ints(table: pa.Table, name: str) -> Ints:
    found: Ints = table[name].to_numpy()
    return found


def operations_of(rows: pa.RecordBatch) -> list[Operation]:
    """The operations that these rows stand for."""
    columns = {name: _values(column) for name, column in zip(rows.schema.names, rows.columns, strict=True)}
    names = ("process", "function", "input", "output", "key", "call", "returned", "outcome", "error", "line")
    return [
        Operation(process, name, given, output, key, call, returned, OUTCOMES[outcome], error, -1, line)
        for process, name, given, output, key, call, returned, outcome, error, line in zip(
            *(columns[name] for name in names), strict=True
        )
    ]


def _values(column: pa.Array) -> list[Any]:
    is_plain = pa.types.is_integer(column.type) and not column.null_count
    found: list[Any] = column.to_numpy().tolist() if is_plain else column.to_pylist()
    return found
