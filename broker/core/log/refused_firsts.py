"""Producers whose first batch in a partition was refused for now: what they sent behind it is not stored before it.

Of a producer that a partition does not know any sequence may begin, for its records may have been deleted (KIP-360).
But clients have several batches under way. If the first is refused, and what was in its way has ended by the time that
the second comes, the second would be stored; the first, sent again, would be out of order for ever. librdkafka even
takes the answer to the second for the proof that the first was stored, and reports it as delivered, without an offset.
With a producer that is known the sequence alone sees to that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raftlog.broker.core.log.validation import producer_of
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerId

REMEMBERED_MAX: Final = 1_000
"""Refused firsts; beyond that the oldest is forgotten."""

REMEMBERED_MS: Final = 300_000
"""So long a client tries to deliver a record, if it is not told otherwise: librdkafka 300 s, Java 120 s. But no longer
than producers are kept: a batch that another leader has stored meanwhile may be forgotten after that.
"""


class RefusedFirsts:
    """Which producers begin anew in which partitions, the oldest first. False when there is none."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[tuple[bytes, int, int, int], int] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(self, topic: bytes, index: int, records: memoryview | None, error: ErrorCode, now_ms: int) -> None:
        """A batch was refused. `topic`: as requests name it."""
        if records is None or not error.retriable:
            return
        producer_id, epoch, sequence = producer_of(records)
        if producer_id < 0 or sequence != 0:
            return
        key = topic, index, producer_id, epoch
        self._refused.pop(key, None)
        self._refused[key] = now_ms
        if len(self._refused) > REMEMBERED_MAX:
            del self._refused[next(iter(self._refused))]

    def comes_before(
        self,
        topic: bytes,
        index: int,
        records: memoryview | None,
        is_known: Callable[[ProducerId], bool],
        since_ms: int,
    ) -> bool:
        """Whether the first batch of this one's producer has to come before it. `is_known`: whether the partition knows
        a producer id. What was refused before `since_ms` counts no more.
        """
        if records is None:
            return False
        producer_id, epoch, sequence = producer_of(records)
        key = topic, index, producer_id, epoch
        refused_ms = self._refused.get(key)
        if refused_ms is None:
            return False
        if sequence != 0 and not is_known(producer_id) and refused_ms > since_ms:
            return True
        del self._refused[key]
        return False
