"""A transaction is visible in all its partitions or in none: whose end is committed has its markers committed.

Followed in what is committed (`ClusterInvariants.committed`). A marker is looked for as soon as all of a partition's
log is known up to the highest high watermark that a replica of it had when the end was committed: a leader that died
in the middle of a turn, or has a bad disk, may have told of a marker that nobody else could look at yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from raftlog.broker.core.coordinator.shared import TRANSACTION_TOPIC
from raftlog.broker.core.transaction.records import decode_record
from raftlog.broker.core.transaction.state import HAS_ENDED, IS_ENDING, TransactionMetadata, TransactionState
from raftlog.linearizability.simulator.cluster.state import Key
from raftlog.metadata.records import PartitionState
from raftlog.wire.batch import BatchHeader, decode_batch
from raftlog.wire.control import ControlType, control_type

_COMMITS = TransactionState.PREPARE_COMMIT

Producer = tuple[Key, int]
"""A partition and a producer id."""


class _Marker(NamedTuple):
    offset: int
    epoch: int
    commits: bool


class _Ended(NamedTuple):
    """A transaction whose end is committed: its marker in the partition is below `limit`."""

    transactional_id: str
    key: Key
    limit: int
    decided: TransactionMetadata


class TransactionEnds:
    """`newest` are the partitions that there are; where a topic was made again under its name nothing is said."""

    def __init__(self, newest: Mapping[Key, PartitionState], deleted: set[Key]) -> None:
        self.checked = 0
        """How many markers were looked for."""
        self._newest = newest
        self._deleted = deleted
        self._ends: dict[Key, int] = {}
        self._high: dict[Key, int] = {}
        self._decided: dict[str, TransactionMetadata] = {}
        self._markers: dict[Producer, list[_Marker]] = {}
        self._used: dict[Producer, int] = {}
        self._gaps: set[Key] = set()
        self._waiting: list[_Ended] = []

    def reached(self, key: Key, high_watermark: int) -> None:
        """A replica has this high watermark."""
        self._high[key] = max(high_watermark, self._high.get(key, 0))

    def highest(self, key: Key) -> int:
        """The highest high watermark that a replica had."""
        return self._high.get(key, 0)

    def commit(self, key: Key, header: BatchHeader, data: bytes) -> None:
        """The next batch of a partition that is known to be committed."""
        if header.base_offset != self._ends.get(key, header.base_offset):
            self._gaps.add(key)
        self._ends[key] = header.next_offset
        if key[0] == TRANSACTION_TOPIC:
            for record in decode_batch(data):
                self._take(record.key, record.value)
        elif header.is_control:
            kind = control_type(decode_batch(data)[0].key)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                marker = _Marker(header.base_offset, header.producer_epoch, kind == ControlType.COMMIT)
                self._markers.setdefault((key, header.producer_id), []).append(marker)

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        record = decode_record(key or b"", value)
        if record is None:
            return
        name, now = record
        if now is not None and now.state in IS_ENDING:
            self._decided[name] = now
        elif now is None or now.state in HAS_ENDED:
            decided = self._decided.pop(name, None)
            if decided is not None:
                self._waiting += self._wanted(name, decided)

    def _wanted(self, name: str, decided: TransactionMetadata) -> Iterator[_Ended]:
        known = {key[:2]: key for key in self._newest}
        remade = {key[0] for key in self._deleted}
        for partition in sorted(decided.partitions):
            key = known.get(partition)
            if key is not None and key[0] not in remade:
                yield _Ended(name, key, self._high.get(key, 0), decided)

    def check(self, fail: Callable[[str, str], None]) -> None:
        """After a turn, when all replicas of a broker were looked at."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for ended in waiting:
            key = ended.key
            if key in self._deleted or key in self._gaps:
                continue
            if self._ends.get(key, 0) < ended.limit:
                self._waiting.append(ended)
                continue
            self.checked += 1
            if not self._is_marked(ended):
                text = f"{ended.transactional_id} has ended after {ended.decided}, and {key} has no marker below"
                known = self._markers.get((key, ended.decided.producer_id), [])
                fail("transaction markers", f"{text} {ended.limit}: {known}")

    def _is_marked(self, ended: _Ended) -> bool:
        """Before transaction.version 2 all transactions of an instance have one epoch: each needs another marker."""
        decided = ended.decided
        producer = (ended.key, int(decided.producer_id))
        used, wanted = self._used.get(producer, -1), (decided.producer_epoch, decided.state is _COMMITS)
        for offset, *found in self._markers.get(producer, ()):
            if used < offset < ended.limit and tuple(found) == wanted:
                self._used[producer] = offset
                return True
        return False
