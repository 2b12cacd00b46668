"""Which commands have been replayed, so that one which is in the log twice changes the state once.

A command's id is (proposer, number); a proposer is one start of one node and counts its commands up. Remembered are
the last `PROPOSERS_MAX` proposers, and of each the last `WINDOW` numbers; what is older counts as seen. The memory
is part of the replicated state: every node must decide alike, so it goes into snapshots and depends on the log alone.
"""

from __future__ import annotations

from typing import cast

import msgpack

WINDOW = 1024
PROPOSERS_MAX = 64
_MASK = (1 << WINDOW) - 1


class ReplayedCommands:
    """The memory. Invariant: proposers are in the order of their last command."""

    __slots__ = ("_proposers",)

    def __init__(self) -> None:
        self._proposers: dict[int, tuple[int, int]] = {}  # proposer -> (highest number, bit n: highest - n was seen)

    def is_new(self, proposer: int, number: int) -> bool:
        """Note a command; whether it is to be replayed."""
        highest, bits = self._proposers.pop(proposer, (number - 1, 0))
        if number > highest:
            bits = (bits << min(number - highest, WINDOW) | 1) & _MASK
            highest, new = number, True
        else:
            bit = 1 << (highest - number)
            new = highest - number < WINDOW and not bits & bit
            bits |= bit if new else 0
        self._proposers[proposer] = (highest, bits)
        if len(self._proposers) > PROPOSERS_MAX:
            del self._proposers[next(iter(self._proposers))]
        return new

    def encode(self) -> bytes:
        """The memory as bytes, for a snapshot."""
        rows = [
            (proposer, highest, bits.to_bytes(WINDOW // 8, "big"))
            for proposer, (highest, bits) in self._proposers.items()
        ]
        return cast(bytes, msgpack.packb(rows))

    @classmethod
    def decode(cls, data: bytes) -> ReplayedCommands:
        """What `encode` made; nothing was seen when there are no bytes."""
        seen = cls()
        if data:
            for proposer, highest, bits in msgpack.unpackb(data):
                seen._proposers[proposer] = (highest, int.from_bytes(bits, "big"))
        return seen
