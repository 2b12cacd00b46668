"""A run of batches as a leader sends them to its follower: offsets and epochs are given, and must go on."""

from __future__ import annotations

from raftlog.wire.batch import BatchHeader, CorruptRecord, check_crc, iterate_batches


class OutOfOrder(Exception):
    """Offsets that do not go on where the log ends."""


def batches_from_leader(
    view: memoryview, log_end_offset: int, leader_epoch: int | None
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
