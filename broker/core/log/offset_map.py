"""The newest offset of each key in the dirty part of a log, in bounded memory.

Knows digests and offsets. Refuses to know records. A key is remembered by 16 bytes of a keyed hash: two keys with the
same digest would cost one of them its value, so the digest is long and, its key being secret, cannot be aimed at.

One array of slots with linear probing: 24 bytes a key where a dictionary takes 150.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final

DIGEST_BYTES: Final = 16
SLOT_BYTES: Final = DIGEST_BYTES + 8
LOAD_FACTOR: Final = 0.75
"""How full the array may get: beyond it probing gets slow."""

DEFAULT_MAP_BYTES: Final = 32 << 20
"""Memory of one run: a million keys. Kafka's default is 128 MB; a run that meets more keys ends early and the next
one goes on from there."""

_OFFSET: Final = Struct(">q")
_EMPTY: Final = bytes(DIGEST_BYTES)


class OffsetMap:
    """`latest_offset` is the last offset up to which all keys are in the map.

    Invariant: len(self) <= capacity < number of slots.
    """

    __slots__ = ("_count", "_hash_key", "_slots", "_table", "capacity", "latest_offset")

    def __init__(self, hash_key: bytes, keys_max: int, memory_bytes: int = DEFAULT_MAP_BYTES) -> None:
        """`keys_max`: an upper bound of the keys to come; `hash_key`: up to 64 secret bytes."""
        slots = min(int(keys_max / LOAD_FACTOR) + 2, memory_bytes // SLOT_BYTES)
        self._slots = max(slots, 4)
        self.capacity = int(self._slots * LOAD_FACTOR)
        # Zeroed by the operating system, so that pages which are never touched take no memory.
        self._table = bytearray(self._slots * SLOT_BYTES)
        self._hash_key = hash_key
        self._count = 0
        self.latest_offset = -1

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= self.capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Remember `offset` for `key`; offsets come in rising order. False, and nothing done, if there is no room."""
        digest, position = self._find(key)
        table = self._table
        if table[position : position + DIGEST_BYTES] == _EMPTY:
            if self._count >= self.capacity:
                return False
            self._count += 1
            table[position : position + DIGEST_BYTES] = digest
        _OFFSET.pack_into(table, position + DIGEST_BYTES, offset)
        return True

    def get(self, key: bytes) -> int:
        """The newest offset of `key`; -1 if it is not there."""
        _, position = self._find(key)
        if self._table[position : position + DIGEST_BYTES] == _EMPTY:
            return -1
        found: int = _OFFSET.unpack_from(self._table, position + DIGEST_BYTES)[0]
        return found

    def _find(self, key: bytes) -> tuple[bytes, int]:
        """The digest of `key` and the position of its slot, or of the empty slot where it belongs."""
        digest = blake2b(key, digest_size=DIGEST_BYTES, key=self._hash_key).digest()
        if digest == _EMPTY:
            # Stands for an empty slot.
            digest = b"\x01" * DIGEST_BYTES
        table = self._table
        end = self._slots * SLOT_BYTES
        position = int.from_bytes(digest[:8], "big") % self._slots * SLOT_BYTES
        while True:
            found = table[position : position + DIGEST_BYTES]
            if found in (digest, _EMPTY):
                return digest, position
            position += SLOT_BYTES
            if position == end:
                position = 0
