"""Which batches readers must not see: control batches, and those of aborted transactions (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable

from raftlog.wire.batch import BatchHeader, decode_batch
from raftlog.wire.control import ControlType, control_type
from raftlog.wire.messages.fetch import AbortedTransaction
from raftlog.wire.schema import Bytes


class AbortedFilter:
    """For one fetch reply's records of one partition.

    The broker lists (producer, first offset) of each aborted transaction; it is over at its abort marker.
    """

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._ahead = sorted((each.first_offset, each.producer_id) for each in transactions)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, batch: Bytes) -> bool:
        """Whether readers must not see this batch. Batches come in the order of their offsets."""
        while self._ahead and self._ahead[0][0] <= header.last_offset:
            self._open.add(self._ahead.pop(0)[1])
        if header.is_control:
            records = decode_batch(batch) if header.producer_id in self._open else []
            if records and control_type(records[0].key) == ControlType.ABORT:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open
