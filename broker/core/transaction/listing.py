"""ListTransactions and DescribeTransactions: what is known of transactional ids, for administrators.

KIP-664; KIP-994 for the filter on duration. Ids that have to match an expression are left to who asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.transaction.state import STATES_BY_NAME, TransactionMetadata, TransactionState
from raftlog.wire.ids import ProducerId

NO_DURATION = -1


class TransactionFilter(NamedTuple):
    """Which transactions are wanted; what is empty, or NO_DURATION, keeps nothing back.

    `has_states` tells a filter of unknown states, which nothing passes, from none at all.
    """

    producer_ids: frozenset[ProducerId]
    has_states: bool
    states: frozenset[TransactionState]
    duration_ms: int


def states_by_name(names: Iterable[str]) -> tuple[frozenset[TransactionState], list[str]]:
    """The states with these names, and the names that no state has."""
    known = dict.fromkeys(names)
    return (
        frozenset(STATES_BY_NAME[name] for name in known if name in STATES_BY_NAME),
        [name for name in known if name not in STATES_BY_NAME],
    )


def list_transactions(
    transactions: Iterable[tuple[str, TransactionMetadata]], wanted: TransactionFilter, now: Now
) -> Iterator[tuple[str, TransactionMetadata]]:
    """Those that pass the filter. An id without a transaction has been so since 1970, as in Kafka."""
    for name, known in transactions:
        if wanted.producer_ids and known.producer_id not in wanted.producer_ids:
            continue
        if wanted.has_states and known.state not in wanted.states:
            continue
        if wanted.duration_ms >= 0 and now.wall_ms - known.start_ms <= wanted.duration_ms:
            continue
        yield name, known
