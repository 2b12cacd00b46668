"""Refusals that end a producer, by a coordinator that may have been replaced without knowing.

What such a coordinator knows is old, never wrong: an epoch that is lower than the one it knows is fenced for sure, but
a higher one was given out by its successor, as may be an id that it does not know. So these refusals are told only
when a record was committed after them, which who does not lead the partition any more cannot have: what is known is
written once more.
"""

from __future__ import annotations

from typing import TypeVar

from raftlog.broker.core.transaction.decision import Decision
from raftlog.broker.core.transaction.records import TransactionRecord
from raftlog.broker.core.transaction.state import ProducerIdentity, TransactionMetadata

R = TypeVar("R")


def refused_producer(
    response: R, transactional_id: str, known: TransactionMetadata | None, producer: ProducerIdentity
) -> Decision[R]:
    """Refuse a producer for the id and epoch that it names."""
    if known is not None and _is_past(known, producer):
        return Decision(response, [])
    return refused_state(response, transactional_id, known)


def refused_state(response: R, transactional_id: str, known: TransactionMetadata | None) -> Decision[R]:
    """Refuse a producer for the state that its transaction is in."""
    return Decision(response, [TransactionRecord(transactional_id, known)])


def _is_past(known: TransactionMetadata, producer: ProducerIdentity) -> bool:
    if producer.producer_id == known.producer_id:
        return producer.epoch < known.producer_epoch
    return producer.producer_id == known.previous_producer_id
