"""Runs of batches that are appended together: those that a leader sent to its follower, and a coordinator's."""

from __future__ import annotations

from raftlog.broker.core.log.results import AppendOrigin
from raftlog.broker.core.log.validation import BatchRules, Refusal, check_batch
from raftlog.wire.batch import LENGTH_END, BatchHeader, CorruptRecord, check_crc, iterate_batches, stamp_batch
from raftlog.wire.checksum import Buffer
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import LeaderEpoch


class OutOfOrder(Exception):
    """Offsets that do not go on where the log ends."""


def batches_from_leader(
    view: memoryview, log_end_offset: int, leader_epoch: LeaderEpoch | None
) -> list[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch, up to the first whose epoch is above `leader_epoch` (KAFKA-18723).

    A batch that is cut short at the end is left out. Raises CorruptRecord, OutOfOrder.
    """
    found = []
    expected = log_end_offset
    for at, header in iterate_batches(view):
        if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
            break
        if not check_crc(view, at, header.size):
            raise CorruptRecord(f"the batch at offset {header.base_offset} does not match its checksum")
        if header.base_offset < expected:
            raise OutOfOrder(f"offset {header.base_offset} comes after {expected - 1}")
        expected = header.next_offset
        found.append((at, header))
    return found


def batch_around(view: memoryview, offset: int) -> int:
    """The base offset of the first batch when `offset` is in its middle; else -1."""
    first = next(iterate_batches(view), None)
    if first is None or not first[1].base_offset < offset < first[1].next_offset:
        return -1
    return first[1].base_offset


def holds_several(records: Buffer) -> bool:
    """Whether there is more than one batch."""
    return len(records) > LENGTH_END and int.from_bytes(records[8:LENGTH_END], "big") + LENGTH_END < len(records)


def stamped_run(
    records: Buffer, rules: BatchRules, base_offset: int, leader_epoch: LeaderEpoch, now_ms: int
) -> tuple[memoryview, list[tuple[int, BatchHeader]]] | Refusal:
    """A copy of a coordinator's batches with offsets from `base_offset` on, and (position, header) of each; all of them
    or none. They are not markers; those come one by one.
    """
    view = memoryview(bytearray(records))
    found = []
    for at, raw in iterate_batches(view):
        checked = check_batch(view[at : at + raw.size], rules, now_ms, AppendOrigin.COORDINATOR)
        if isinstance(checked, Refusal):
            return checked
        header, batch, _ = checked
        if header.producer_id >= 0 or len(batch) != raw.size:
            return Refusal(ErrorCode.INVALID_RECORD, "batches of a producer, or converted, come one by one")
        stamp_batch(view[at:], header, base_offset, leader_epoch)
        found.append((at, header._replace(base_offset=base_offset, partition_leader_epoch=leader_epoch)))
        base_offset += header.last_offset_delta + 1
    return view, found
