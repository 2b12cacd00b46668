"""Building a shard from the log.

Knows that of all records with one key only the last counts, so that a log of millions of commits is read at the cost of
finding keys and values, and only what is left is decoded. Refuses to know files and time slices: the shell feeds it
bytes, a bit at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from raftlog.broker.core.group.records import CoordinatorRecord, UnreadableRecord, decode_record
from raftlog.wire.batch import HEADER_SIZE, iterate_batches, unpack_payload
from raftlog.wire.records import decode_records

MAX_BATCH_BYTES = 64 * 1024 * 1024
"""What one batch may unfold to: our own writes are bounded by max.message.bytes, and are not compressed."""


class GroupLogReader:
    """Reads the batches of a partition in order, then tells what is left of them."""

    __slots__ = ("_latest", "next_offset", "records_read", "unknown_kinds")

    def __init__(self, start_offset: int) -> None:
        self._latest: dict[bytes, bytes] = {}
        self.next_offset = start_offset
        self.records_read = 0
        # Records of protocols that we do not speak, which were left alone.
        self.unknown_kinds = 0

    def feed(self, batches: bytes) -> None:
        """Take whole batches from `next_offset` on, which moves behind them; the last may be cut short.

        Raises UnreadableRecord for what cannot be taken in, and CorruptRecord, which is a ValueError too.
        """
        latest = self._latest
        view = memoryview(batches)
        for position, header in iterate_batches(batches):
            self.next_offset = header.next_offset
            if header.is_control:
                continue
            if header.is_transactional:
                raise UnreadableRecord(f"offsets committed in a transaction, at offset {header.base_offset}")
            if header.size == HEADER_SIZE:
                continue
            payload = unpack_payload(view[position : position + header.size], header, MAX_BATCH_BYTES)
            records = decode_records(
                payload,
                count=header.records_count,
                base_offset=header.base_offset,
                base_timestamp=header.base_timestamp,
            )
            self.records_read += len(records)
            for record in records:
                key, value = record.key, record.value
                if key is None:
                    raise UnreadableRecord(f"a record without a key, at offset {record.offset}")
                if value is None:
                    latest.pop(key, None)
                else:
                    latest[key] = value

    def __len__(self) -> int:
        """How many keys are left."""
        return len(self._latest)

    def survivors(self) -> Iterator[CoordinatorRecord]:
        """The last record of each key, to be replayed. Raises UnreadableRecord."""
        while self._latest:
            key, value = self._latest.popitem()
            record = decode_record(key, value)
            if record is None:
                self.unknown_kinds += 1
            else:
                yield record
