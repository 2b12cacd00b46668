"""Which transactions compaction walks through: aborted batches go at once, a marker when nothing of its own is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from raftlog.broker.core.log.transactions import AbortedTransaction
from raftlog.wire.batch import BatchHeader
from raftlog.wire.control import ControlType
from raftlog.wire.ids import ProducerId


class CleanedTransactions:
    """The transactions that a walk through the log is in, all of them decided: they lie below the last stable offset.

    Feed it every batch in order, once. `keep_aborted` is called for each aborted transaction whose marker stays.
    """

    def __init__(self, keep_aborted: Callable[[AbortedTransaction], None] | None = None) -> None:
        self.keep_aborted = keep_aborted
        self._coming: list[tuple[int, AbortedTransaction]] = []
        # By producer id; the second is whether one of its batches was met on this walk.
        self._aborted: dict[ProducerId, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[ProducerId] = set()

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Aborted transactions that overlap what is walked next; those that are known already do no harm."""
        for transaction in transactions:
            heappush(self._coming, (transaction.first_offset, transaction))

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction, and so can go at once."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (aborted[0], True)
        return True

    def on_control(self, header: BatchHeader, kind: int | None) -> bool:
        """Whether a control batch has nothing left to say: no batch of its transaction was met on this walk.

        `kind` is the ControlType of its record, None if compaction has emptied it.
        """
        self._begin_up_to(header.last_offset)
        if kind is None:
            return True
        if kind == ControlType.COMMIT:
            met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not met
        if kind != ControlType.ABORT:
            return False
        aborted, met = self._aborted.pop(header.producer_id, (None, False))
        if aborted is None or not met:
            return True
        if self.keep_aborted is not None:
            self.keep_aborted(aborted)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, transaction = heappop(self._coming)
            self._aborted.setdefault(transaction.producer_id, (transaction, False))
