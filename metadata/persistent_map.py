"""An immutable mapping whose successor shares almost everything with it.

A few entries among very many are replaced cheaply: keys are spread over a fixed number of small dicts, and only
the dicts that change are copied. Iteration order depends on the keys and the order of their arrival alone, never on the
process' hash seed, so that whatever is sent from it is the same on every run.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import Any, Generic, TypeVar, overload
from zlib import crc32

from raftlog.wire.errors import InvariantViolation

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

BUCKETS = 512
"""With 10,000 entries a bucket holds about 20: one change copies 4 KiB of bucket pointers and one dict of
20 entries.
"""

_MASK = BUCKETS - 1


def bucket_of_string(key: str) -> int:
    """The bucket of a text key; the same in every process."""
    return crc32(key.encode()) & _MASK


def bucket_of_bytes(key: bytes) -> int:
    """The bucket of a bytes key; the same in every process."""
    return crc32(key) & _MASK


class PersistentMap(Mapping[K, V], Generic[K, V]):
    """An immutable mapping with cheap successors.

    Invariants: every key lies in the bucket that `bucket_of` names; `len()` is the sum over the buckets.
    """

    __slots__ = ("_bucket_of", "_buckets", "_size")

    def __init__(self, bucket_of: Callable[[K], int], entries: Iterable[tuple[K, V]] = ()) -> None:
        self._bucket_of = bucket_of
        empty: dict[K, V] = {}
        buckets = [empty] * BUCKETS
        size = 0
        for key, value in entries:
            slot = bucket_of(key)
            if buckets[slot] is empty:
                buckets[slot] = {}
            size += key not in buckets[slot]
            buckets[slot][key] = value
        self._buckets = tuple(buckets)
        self._size = size

    def with_changes(self, put: Mapping[K, V], removed: Iterable[K] = ()) -> PersistentMap[K, V]:
        """A map with `removed` gone and then `put` added or replaced. Absent keys in `removed` are passed
        over.
        """
        buckets = list(self._buckets)
        fresh: set[int] = set()
        size = self._size
        for key in removed:
            bucket = self._own(buckets, fresh, key)
            if key in bucket:
                del bucket[key]
                size -= 1
        for key, value in put.items():
            bucket = self._own(buckets, fresh, key)
            size += key not in bucket
            bucket[key] = value
        successor: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
        successor._bucket_of = self._bucket_of
        successor._buckets = tuple(buckets)
        successor._size = size
        return successor

    def _own(self, buckets: list[dict[K, V]], fresh: set[int], key: K) -> dict[K, V]:
        slot = self._bucket_of(key)
        if slot not in fresh:
            buckets[slot] = dict(buckets[slot])
            fresh.add(slot)
        return buckets[slot]

    def __getitem__(self, key: K) -> V:
        return self._buckets[self._bucket_of(key)][key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...
    def get(self, key: K, /, default: V | D | None = None) -> V | D | None:
        return self._buckets[self._bucket_of(key)].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._buckets[self._bucket_of(key)]  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[K]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._size

    def values(self) -> ValuesView[V]:
        """The values, in the order of the keys."""
        return _Values(self)

    def items(self) -> ItemsView[K, V]:
        """Keys and values, in the order of the keys."""
        return _Items(self)

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self.items())!r})"

    def check_invariants(self) -> None:
        """Raises InvariantViolation if a key lies in a wrong bucket or the size is wrong."""
        for slot, bucket in enumerate(self._buckets):
            if any(self._bucket_of(key) != slot for key in bucket):
                raise InvariantViolation(f"bucket {slot} holds a foreign key")
        if self._size != sum(map(len, self._buckets)):
            raise InvariantViolation(f"{sum(map(len, self._buckets))} keys, counted as {self._size}")


class _Values(ValuesView[V]):
    """Values without a look-up for each."""

    _mapping: PersistentMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        for bucket in self._mapping._buckets:
            yield from bucket.values()


class _Items(ItemsView[K, V]):
    """Items without a look-up for each."""

    _mapping: PersistentMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        for bucket in self._mapping._buckets:
            yield from bucket.items()
