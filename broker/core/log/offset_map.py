"""The newest offset of each key in the dirty part of a log, in bounded memory.

A key is remembered by 128 bits: two values of Python's own hash of bytes, which is a SipHash under a secret of the
process, of the key and of the key behind a salt. Two keys with the same bits would cost one of them its value, so they
are many, and nobody outside the process can aim at them.

One array of slots with linear probing: 24 bytes a key where a dictionary takes 150.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from raftlog.wire.errors import InvariantViolation

SLOT_BYTES: Final = 24
LOAD_FACTOR: Final = 0.75
"""How full the array may get: beyond it probing gets slow."""

DEFAULT_MAP_BYTES: Final = 32 << 20
"""Memory of one run: a million keys. Kafka's default is 128 MB; a run that meets more keys ends early and the next
one goes on from there."""

# Two hashes and the offset plus one; zero stands for an empty slot.
_SLOT: Final = Struct("=qqq")
_ENTRY: Final = Struct("=q")


class OffsetMap:
    """`latest_offset` is the last offset up to which all keys are in the map.

    Invariant: len(self) <= capacity < number of slots.
    """

    __slots__ = ("_count", "_salt", "_slots", "_table", "capacity", "latest_offset")

    def __init__(self, salt: bytes, keys_max: int, memory_bytes: int = DEFAULT_MAP_BYTES) -> None:
        """`keys_max`: an upper bound of the keys to come; `salt`: some random bytes."""
        slots = min(int(keys_max / LOAD_FACTOR) + 2, memory_bytes // SLOT_BYTES)
        self._slots = max(slots, 4)
        self.capacity = int(self._slots * LOAD_FACTOR)
        # Zeroed by the operating system, so that pages which are never touched take no memory.
        self._table = bytearray(self._slots * SLOT_BYTES)
        self._salt = salt
        self._count = 0
        self.latest_offset = -1

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= self.capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Remember `offset` for `key`; offsets come in rising order. False, and nothing done, if there is no room."""
        first, second = hash(key), hash(self._salt + key)
        position = self._find(first, second)
        if _ENTRY.unpack_from(self._table, position + 16)[0] == 0:
            if self._count >= self.capacity:
                return False
            self._count += 1
        _SLOT.pack_into(self._table, position, first, second, offset + 1)
        return True

    def get(self, key: bytes) -> int:
        """The newest offset of `key`; -1 if it is not there."""
        position = self._find(hash(key), hash(self._salt + key))
        entry: int = _ENTRY.unpack_from(self._table, position + 16)[0]
        return entry - 1

    def check_invariants(self) -> None:
        """Raises InvariantViolation unless as many keys as were counted are there, each where it is looked for."""
        taken = 0
        for position in range(0, len(self._table), SLOT_BYTES):
            first, second, entry = _SLOT.unpack_from(self._table, position)
            taken += entry != 0
            if entry != 0 and self._find(first, second) != position:
                raise InvariantViolation(f"the key in slot {position // SLOT_BYTES} is not found there")
        if taken != self._count or not self._count <= self.capacity < self._slots:
            raise InvariantViolation(f"{taken} keys in {self._slots} slots, {self._count} counted")

    def _find(self, first: int, second: int) -> int:
        """The position of the slot with these hashes, or of the empty slot where they belong."""
        table, unpack = self._table, _SLOT.unpack_from
        position = first % self._slots * SLOT_BYTES
        while True:
            found, also, entry = unpack(table, position)
            if entry == 0 or (found == first and also == second):
                return position
            position += SLOT_BYTES
            if position == len(table):
                position = 0
