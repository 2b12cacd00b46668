"""The producer's id and epoch while it is idempotent without transactions (KIP-98, KIP-360)."""

from __future__ import annotations

from raftlog.client.core.producer_batch import ProducerIdentity

EPOCH_MAX = 0x7FFF - 1
"""The greatest epoch a producer may have."""


class ProducerIds:
    """`identity` is None until a broker has given one, and again when its epochs are used up."""

    def __init__(self) -> None:
        self.identity: ProducerIdentity | None = None

    def given(self, producer_id: int, epoch: int) -> None:
        self.identity = ProducerIdentity(producer_id, epoch)

    def next_epoch(self) -> None:
        """What is numbered from now on begins at 0 in every partition; what is under way keeps its numbers."""
        if self.identity is not None:
            producer_id, epoch = self.identity
            self.identity = ProducerIdentity(producer_id, epoch + 1) if epoch < EPOCH_MAX else None
