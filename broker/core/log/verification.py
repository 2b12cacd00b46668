"""Which transactions are being verified in a partition before their first batch is taken (KIP-890).

A batch that would begin a transaction needs the word of the transaction coordinator that the partition belongs to it.
Between the question and the append a marker may end the transaction, and another one begin: a guard that is made with
the question, and is gone after any batch of the transaction or any marker, tells whether the word still holds.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from raftlog.wire.ids import ProducerEpoch, ProducerId


class VerificationGuard:
    """The right to begin one transaction. Each is equal to itself alone."""

    __slots__ = ()


NOT_REQUIRED: Final = VerificationGuard()
"""Verification is switched off, or whoever appends knows that the transaction is open."""


class VerificationEntry:
    """One producer that is being verified.

    No sequence above `lowest_sequence` may come first: when an earlier batch failed in being verified and comes again,
    a later one must not have taken its place, or the producer would hear OUT_OF_ORDER_SEQUENCE_NUMBER for ever.
    """

    __slots__ = ("began_ms", "bumps_epoch", "epoch", "guard", "lowest_sequence")

    def __init__(self, epoch: ProducerEpoch, sequence: int, began_ms: int, *, bumps_epoch: bool) -> None:
        """`bumps_epoch`: the producer has another epoch in each transaction, so that its first sequence is 0."""
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.bumps_epoch = bumps_epoch
        self.began_ms = began_ms

    def again(self, epoch: ProducerEpoch, sequence: int) -> None:
        """The producer, or its next instance, asks once more."""
        if epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence


VERIFICATIONS_MAX: Final = 10_000
"""For one partition: a client may name as many producers as it likes. Beyond that the oldest have to ask again."""

Verifications: TypeAlias = dict[ProducerId, VerificationEntry]
