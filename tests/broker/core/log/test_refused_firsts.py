"""First batches of producers that were refused: what is remembered of them, and for how long."""

from __future__ import annotations

import pytest

from raftlog.broker.core.log.refused_firsts import REMEMBERED_MAX, REMEMBERED_MS, RefusedFirsts
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.errors import ErrorCode

NOW_MS = 1_000_000


def batch(producer_id: int, sequence: int, epoch: int = 0) -> memoryview:
    records = [Record(0, 0, None, b"v")]
    return memoryview(encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def refused_for(*producers: int, error: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> RefusedFirsts:
    firsts = RefusedFirsts()
    for producer_id in producers:
        firsts.note(b"t", 0, batch(producer_id, 0), error, NOW_MS)
    return firsts


def is_early(
    firsts: RefusedFirsts, records: memoryview, *, index: int = 0, known: bool = False, now_ms: int = NOW_MS
) -> bool:
    return firsts.comes_before(b"t", index, records, lambda _: known, now_ms - REMEMBERED_MS)


def test_a_later_batch_has_to_wait_for_the_first_of_its_producer_epoch_and_partition() -> None:
    firsts = refused_for(7)
    assert is_early(firsts, batch(7, 1)) and is_early(firsts, batch(7, 2))
    assert not is_early(firsts, batch(8, 1))
    assert not is_early(firsts, batch(7, 1, epoch=1))
    assert not is_early(firsts, batch(7, 1), index=1)
    assert not is_early(firsts, batch(7, 0)), "the first itself"
    assert not firsts


@pytest.mark.parametrize("end", [{"known": True}, {"now_ms": NOW_MS + REMEMBERED_MS}], ids=["known", "later"])
def test_a_refusal_counts_no_more_when_the_producer_is_known_or_its_client_has_given_up(end: dict[str, int]) -> None:
    firsts = refused_for(7)
    assert not is_early(firsts, batch(7, 1), **end)  # type: ignore[arg-type]
    assert not firsts


def test_only_firsts_that_come_again_are_remembered_and_no_more_than_the_limit() -> None:
    assert not refused_for(7, error=ErrorCode.MESSAGE_TOO_LARGE)
    firsts = RefusedFirsts()
    for records in (None, memoryview(b""), batch(-1, 0), batch(7, 1)):
        firsts.note(b"t", 0, records, ErrorCode.NOT_ENOUGH_REPLICAS, NOW_MS)
    assert not firsts
    firsts = refused_for(*range(REMEMBERED_MAX + 1))
    assert not is_early(firsts, batch(0, 1)), "the oldest is forgotten"
    assert is_early(firsts, batch(1, 1)) and is_early(firsts, batch(REMEMBERED_MAX, 1))
