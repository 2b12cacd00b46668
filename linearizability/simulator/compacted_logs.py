"""What compaction may take from a log: records that a later one with their key supersedes, and markers of deletion.

Every replica compacts by itself and when it sees fit, so their bytes differ, and each is compared with the records
that were committed, as they were before any of them was compacted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from raftlog.wire.batch import decode_batch
from raftlog.wire.records import Record

Content = tuple[bytes | None, bytes | None]
"""Key and value of a record; None instead of the value marks that the key is deleted."""
Key = tuple[str, int, bytes]


class CompactedLogs:
    """The committed records of compacted topics, by partition and offset."""

    def __init__(self) -> None:
        self.records: defaultdict[Key, dict[int, Content]] = defaultdict(dict)

    def commit(self, key: Key, data: bytes) -> None:
        """A batch is committed."""
        for record in decode_batch(data):
            self.records[key][record.offset] = (record.key, record.value)

    def altered(self, key: Key, records: Iterable[Record]) -> str | None:
        """What is wrong with committed records of a replica: one that is there is the one that was committed."""
        committed = self.records[key]
        for record in records:
            if committed.get(record.offset) != (record.key, record.value):
                return f"{record} is where {committed.get(record.offset)} was committed"
        return None

    def lost(self, key: Key, records: Iterable[Record], start: int, end: int, log_end: int) -> str | None:
        """What is missing on a replica that has the log from `start` to `end`, and should not be. Up to `log_end` it
        may have had more: a marker of deletion, which has taken what it supersedes and is gone by itself.
        """
        there = {record.offset: record.key for record in records}
        latest: dict[bytes | None, int] = {}
        for offset, name in there.items():
            latest[name] = max(offset, latest.get(name, -1))
        last: dict[bytes | None, int] = {}
        for offset, (name, _) in self.records[key].items():
            if start <= offset < end:
                last[name] = max(offset, last.get(name, -1))
        for name, offset in last.items():
            if offset in there or latest.get(name, -1) > offset:
                continue
            if (name, None) in (self.records[key].get(later) for later in range(end, log_end)):
                continue
            if self.records[key][offset][1] is not None:
                return f"the last value of {name!r}, at {offset}, is gone"
            if name in latest:
                return f"{name!r} was deleted at {offset}, which is gone, and its record at {latest[name]} is there"
        return None

    def last_values(self, key: Key) -> dict[bytes, bytes]:
        """What a reader of the whole log has in the end: each key with its last value, without deleted ones."""
        state: dict[bytes, bytes] = {}
        for _, (name, value) in sorted(self.records[key].items()):
            assert name is not None
            if value is None:
                state.pop(name, None)
            else:
                state[name] = value
        return state
