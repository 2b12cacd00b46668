"""The transaction index of a segment: aborted transactions, for readers of committed records only (KIP-98).

An entry (34 bytes): version int16 = 0, producer id, first offset, last offset (the marker's), last stable offset,
all int64. It is kept in the segment that holds the marker.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from raftlog.broker.core.log.producers import CompletedTransaction
from raftlog.wire.ids import ProducerId

ENTRY: Final = Struct(">hqqqq")
VERSION: Final = 0
_LAST_OFFSET: Final = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    """`last_offset` is the abort marker's; `last_stable_offset` where it went when the marker was replicated."""

    producer_id: ProducerId
    first_offset: int
    last_offset: int
    last_stable_offset: int

    @classmethod
    def of(cls, completed: CompletedTransaction) -> AbortedTransaction:
        """Of one that an abort marker has ended."""
        return cls(completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset)


def encode_entry(transaction: AbortedTransaction) -> bytes:
    return ENTRY.pack(VERSION, *transaction)


def decode_entries(data: bytes) -> list[AbortedTransaction]:
    """The whole entries of an index file; one that is cut short, or of an unknown version, ends the list."""
    found = []
    for version, *fields in ENTRY.iter_unpack(memoryview(data)[: len(data) // ENTRY.size * ENTRY.size]):
        if version != VERSION:
            break
        found.append(AbortedTransaction(*fields))
    return found


def trusted(entries: Sequence[AbortedTransaction], end_offset: int) -> list[AbortedTransaction]:
    """The first ones, with markers below `end_offset`. After a crash zeros may follow that were never written."""
    kept: list[AbortedTransaction] = []
    for entry in entries:
        in_order = entry.first_offset < entry.last_offset and (not kept or kept[-1].last_offset < entry.last_offset)
        if not in_order or entry.last_offset >= end_offset:
            break
        kept.append(entry)
    return kept


def contradiction(entries: Iterable[AbortedTransaction], base_offset: int, end_offset: int) -> str | None:
    """What shows that not all entries of a segment, whose offsets these are, are as they were written."""
    before, stable = base_offset - 1, -1
    for entry in entries:
        if not before < entry.last_offset < end_offset or not 0 <= entry.first_offset < entry.last_offset:
            return f"{entry} is out of order"
        if entry.first_offset < stable or not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            return f"{entry} and a last stable offset of {stable} before it cannot both be"
        before, stable = entry.last_offset, max(stable, entry.last_stable_offset)
    return None


def collect(
    entries: Sequence[AbortedTransaction],
    start_offset: int,
    end_offset: int,
    found: list[AbortedTransaction],
    check: Callable[[AbortedTransaction], None],
) -> bool:
    """Add to `found` those that overlap [start_offset, end_offset); True if later segments can have no more. What that
    rests on is given to `check` before.

    Once an entry's last stable offset reaches the end, every transaction that ends behind it began behind it.
    """
    # In order of their markers: all before this one end below.
    first = bisect_left(entries, start_offset, key=_LAST_OFFSET)
    for entry in islice(entries, max(first - 1, 0), None):
        check(entry)
        if entry.first_offset < end_offset and entry.last_offset >= start_offset:
            found.append(entry)
        if entry.last_stable_offset >= end_offset:
            return True
    return False
