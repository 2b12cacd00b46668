"""What is decided about a request: the answer, and the records that have to be written before it is given."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from raftlog.broker.core.transaction.records import TransactionRecord

R = TypeVar("R", covariant=True)


class Decision(NamedTuple, Generic[R]):
    """`records` go into the log, if any; `response` is given once they and all before them are committed."""

    response: R
    records: list[TransactionRecord]


class Undecided(Enum):
    """Why nothing could be decided yet."""

    NEEDS_PRODUCER_ID = auto()
    """A producer id that nobody has had is needed: decide again with one."""
