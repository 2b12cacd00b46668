"""Many records of one form that a coordinator writes together, packed without being made one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class PackedRecords(NamedTuple):
    """So many records. `size` is about what their keys and values take; `pack(n)` gives their bytes, as they stand in a
    batch in which the first of them is the n-th.
    """

    records: int
    size: int
    pack: Callable[[int], bytes]
