"""What compaction may take from a log: records that a later one with their key supersedes, those of aborted
transactions, and markers of deletion.

Every replica compacts by itself and when it sees fit, so their bytes differ, and each is compared with the records
that were committed, as they were before any of them was compacted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from raftlog.wire.batch import decode_batch, parse_header
from raftlog.wire.control import decode_control_batch
from raftlog.wire.records import Record

Content = tuple[bytes | None, bytes | None]
"""Key and value of a record; None instead of the value marks that the key is deleted."""
Key = tuple[str, int, bytes]


class CompactedLogs:
    """The committed records of compacted topics, by partition and offset."""

    def __init__(self) -> None:
        self.records: defaultdict[Key, dict[int, Content]] = defaultdict(dict)
        self.aborted: defaultdict[Key, set[int]] = defaultdict(set)
        self.missed: defaultdict[tuple[int, Key], set[int]] = defaultdict(set)
        """Markers of deletion that never came to a node: who is behind for longer than `delete.retention.ms` finds them
        gone on its leader, and keeps what they deleted, as in Kafka."""
        self._open: dict[tuple[Key, int], list[int]] = {}
        """Offsets of the transaction that each producer has open."""

    def commit(self, key: Key, data: bytes) -> None:
        """A batch is committed."""
        header = parse_header(data)
        offsets = []
        for record in decode_batch(data):
            self.records[key][record.offset] = (record.key, record.value)
            offsets.append(record.offset)
        if header.is_control:
            ended = self._open.pop((key, header.producer_id), [])
            if (marker := decode_control_batch(data)) is not None and not marker.committed:
                self.aborted[key].update(ended)
        elif header.is_transactional:
            self._open.setdefault((key, header.producer_id), []).extend(offsets)

    def grown(self, node: int, key: Key, records: Iterable[Record], start: int, end: int) -> None:
        """A replica's log goes on from `start` to `end`, and has these records there."""
        there = {record.offset for record in records}
        committed = self.records[key]
        markers = {offset for offset in range(start, end) if offset in committed and committed[offset][1] is None}
        self.missed[node, key] -= there
        self.missed[node, key] |= markers - there

    def altered(self, key: Key, records: Iterable[Record]) -> str | None:
        """What is wrong with committed records of a replica: one that is there is the one that was committed."""
        committed = self.records[key]
        for record in records:
            if committed.get(record.offset) != (record.key, record.value):
                return f"{record} is where {committed.get(record.offset)} was committed"
        return None

    def lost(self, node: int, key: Key, records: Iterable[Record], start: int, ends: tuple[int, int]) -> str | None:
        """What is missing on a replica that has the log from `start` to the first of `ends`, and should not be. Up to
        the second, where its log ends, it may have had more: a marker of deletion, which has taken what it supersedes
        and is gone by itself.
        """
        end, log_end = ends
        aborted = self.aborted[key]
        there = {record.offset: record.key for record in records if record.offset not in aborted}
        latest: dict[bytes | None, int] = {}
        for offset, name in there.items():
            latest[name] = max(offset, latest.get(name, -1))
        last: dict[bytes | None, int] = {}
        for offset, (name, _) in self.records[key].items():
            if start <= offset < end and offset not in aborted:
                last[name] = max(offset, last.get(name, -1))
        for name, offset in last.items():
            if offset in there or latest.get(name, -1) > offset:
                continue
            if (name, None) in (self.records[key].get(later) for later in range(end, log_end)):
                continue
            if self.records[key][offset][1] is not None:
                return f"the last value of {name!r}, at {offset}, is gone"
            if name in latest and offset not in self.missed[node, key]:
                return f"{name!r} was deleted at {offset}, which is gone, and its record at {latest[name]} is there"
        return None
