"""What open transactions have written to a coordinator's log, and which of it will count."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial
from itertools import takewhile
from operator import ne
from typing import Generic, TypeVar

from raftlog.wire.errors import InvariantViolation
from raftlog.wire.ids import ProducerId

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class PendingWrites(Generic[K, V]):
    """Writes in transactions that have not ended, by key and producer.

    Of all writes of one key the last one in the log counts, in a transaction or not. A write that another one has
    overtaken is pending until its transaction ends, and does not count then; its value is None.

    Invariant: both tables hold the same pairs of key and producer, and no empty ones.
    """

    __slots__ = ("_by_key", "_by_producer")

    def __init__(self) -> None:
        # The producers of a key stand in the order of their writes.
        self._by_key: dict[K, dict[ProducerId, V | None]] = {}
        self._by_producer: dict[ProducerId, dict[K, None]] = {}

    def write(self, producer_id: ProducerId, key: K, value: V | None) -> None:
        """A write in the transaction of `producer_id`; without a value one that was overtaken already."""
        writes = self._by_key.setdefault(key, {})
        writes.pop(producer_id, None)
        writes[producer_id] = value
        self._by_producer.setdefault(producer_id, {})[key] = None

    def overtake(self, key: K) -> None:
        """The key was written outside of transactions: what is pending for it will not count."""
        writes = self._by_key.get(key)
        if writes is not None:
            self._by_key[key] = dict.fromkeys(writes)

    def remove(self, key: K) -> None:
        """The key was removed, and all that is pending for it."""
        for producer_id in self._by_key.pop(key, ()):
            keys = self._by_producer[producer_id]
            del keys[key]
            if not keys:
                del self._by_producer[producer_id]

    def end(self, producer_id: ProducerId, *, committed: bool) -> list[tuple[K, V]]:
        """The transaction has ended: what counts of it now; nothing when it was aborted."""
        counted = []
        for key in self._by_producer.pop(producer_id, ()):
            writes = self._by_key[key]
            value = writes[producer_id]
            if committed and value is not None:
                counted.append((key, value))
                writes.update(dict.fromkeys(takewhile(partial(ne, producer_id), writes)))
            del writes[producer_id]
            if not writes:
                del self._by_key[key]
        return counted

    def __contains__(self, key: object) -> bool:
        """Whether something is pending for the key."""
        return key in self._by_key

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def __eq__(self, other: object) -> bool:
        """Whether the same is pending, and in the same order for each key."""
        if not isinstance(other, PendingWrites):
            return NotImplemented
        return {key: [*writes.items()] for key, writes in self._by_key.items()} == {
            key: [*writes.items()] for key, writes in other._by_key.items()
        }

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[K]:
        """The keys for which something is pending."""
        return iter(self._by_key)

    def producers(self) -> Iterator[ProducerId]:
        """The producers of which something is pending."""
        return iter(self._by_producer)

    def items(self) -> Iterator[tuple[ProducerId, K, V | None]]:
        """All that is pending, for each key in the order of the writes: with this `write` builds the same again."""
        for key, writes in self._by_key.items():
            for producer_id, value in writes.items():
                yield producer_id, key, value

    def check_invariants(self) -> None:
        """Raises InvariantViolation if the tables contradict each other."""
        pairs = {(key, producer_id) for key, writes in self._by_key.items() for producer_id in writes}
        if pairs != {(key, producer_id) for producer_id, keys in self._by_producer.items() for key in keys}:
            raise InvariantViolation("what is pending differs by key and by producer")
        if not all(self._by_key.values()) or not all(self._by_producer.values()):
            raise InvariantViolation("a key or a producer is kept for which nothing is pending")
