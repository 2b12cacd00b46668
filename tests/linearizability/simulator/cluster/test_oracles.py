"""What logs may lose, and what transactions come to, as the simulator judges it from the bytes alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.linearizability.simulator.cluster.compacted_logs import CompactedLogs
from raftlog.linearizability.simulator.cluster.log_starts import LogStarts
from raftlog.linearizability.simulator.cluster.replica_contents import Batch
from raftlog.linearizability.simulator.cluster.transaction_logs import decided
from raftlog.wire.batch import encode_batch, parse_header
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.records import Record

KEY = ("t", 0, bytes(16))
BATCHES = [Batch(0, 10, 0, 1000, 100), Batch(10, 20, 0, 2000, 100), Batch(20, 30, 0, 3000, 100)]


def log_that_starts_at(start: int, **config: Any) -> Any:
    opened = SimpleNamespace(segments=[SimpleNamespace(size=100)])
    return SimpleNamespace(log_start_offset=start, high_watermark=25, config=LogConfig(**config), opened=opened)


@pytest.mark.parametrize(
    ("start", "asked", "now_ms", "config", "is_allowed"),
    [
        (15, 0, 2500, {}, False),
        (15, 15, 2500, {}, True),
        (16, 15, 2500, {}, False),
        (28, 28, 2500, {}, False),
        (20, 0, 2501, {"retention_ms": 500}, True),
        (20, 0, 2500, {"retention_ms": 500}, False),
        (20, 0, 2500, {"retention_bytes": 100}, True),
        (20, 0, 2500, {"retention_bytes": 101}, False),
        (20, 0, 2500, {"retention_bytes": 100, "cleanup_policy": ("compact",)}, False),
    ],
)
def test_a_log_starts_later_only_by_a_rule(
    start: int, asked: int, now_ms: int, config: dict[str, Any], is_allowed: bool
) -> None:
    starts = LogStarts()
    starts.asked["t", 0] = asked
    log = log_that_starts_at(start, **config)
    assert (starts.moved(KEY, log, BATCHES, now_ms, is_found=False) is None) is is_allowed


def test_where_one_replica_starts_by_a_rule_others_may() -> None:
    starts = LogStarts()
    starts.asked["t", 0] = 12
    assert starts.moved(KEY, log_that_starts_at(12), BATCHES, 0, is_found=False) is None
    starts.asked.clear()
    assert starts.moved(KEY, log_that_starts_at(12), BATCHES, 0, is_found=False) is None
    assert starts.moved(KEY, log_that_starts_at(13), BATCHES, 0, is_found=False) is not None


def test_what_retention_took_by_size_is_not_judged_by_what_a_crash_has_left_behind_it() -> None:
    log = log_that_starts_at(20, retention_bytes=101)
    assert LogStarts().moved(KEY, log, BATCHES, 2500, is_found=False) is not None
    assert LogStarts().moved(KEY, log, BATCHES, 2500, is_found=True) is None
    assert LogStarts().moved(KEY, log_that_starts_at(20), BATCHES, 2500, is_found=True) is not None


def compacted(*records: tuple[bytes, bytes | None]) -> tuple[CompactedLogs, list[Record]]:
    logs = CompactedLogs()
    kept = [Record(offset, 0, key, value) for offset, (key, value) in enumerate(records)]
    logs.commit(KEY, encode_batch(kept))
    return logs, kept


def test_compaction_may_take_what_is_superseded_and_nothing_else() -> None:
    logs, (a1, b1, a2) = compacted((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    assert logs.lost(1, KEY, [b1, a2], 0, (3, 3)) is None
    assert logs.lost(1, KEY, [a1, a2], 0, (3, 3)) == "the last value of b'b', at 1, is gone"
    assert logs.lost(1, KEY, [a1, b1], 0, (3, 3)) == "the last value of b'a', at 2, is gone"
    assert logs.lost(1, KEY, [a2], 2, (3, 3)) is None
    assert logs.altered(KEY, [a1, b1._replace(value=b"2")]) is not None


def test_a_mark_of_deletion_goes_with_all_that_it_deleted() -> None:
    logs, (a1, _) = compacted((b"a", b"1"), (b"a", None))
    assert logs.lost(1, KEY, [], 0, (2, 2)) is None
    assert logs.lost(1, KEY, [a1], 0, (2, 2)) is not None


def test_a_mark_of_deletion_that_is_not_known_to_be_committed_after_a_restart_may_be_gone_too() -> None:
    logs, _ = compacted((b"a", b"1"), (b"a", None))
    assert logs.lost(1, KEY, [], 0, (1, 2)) is None
    assert logs.lost(1, KEY, [], 0, (1, 1)) == "the last value of b'a', at 0, is gone"


def test_a_replica_keeps_what_was_deleted_by_a_marker_that_was_gone_when_it_came_there() -> None:
    logs, (a1, a2, b1) = compacted((b"a", b"1"), (b"a", None), (b"b", b"1"))
    logs.grown(1, KEY, [a1], 0, 1)
    logs.grown(1, KEY, [b1], 1, 3)
    assert logs.lost(1, KEY, [a1, b1], 0, (3, 3)) is None
    assert logs.lost(2, KEY, [a1, b1], 0, (3, 3)) is not None
    logs.grown(1, KEY, [a2, b1], 1, 3)
    assert logs.lost(1, KEY, [a1, b1], 0, (3, 3)) is not None


def data(offset: int, value: int, producer_id: int, epoch: int) -> bytes:
    record = Record(offset, 0, None, b"%d" % value)
    return encode_batch(
        [record],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )


def marker(offset: int, producer_id: int, epoch: int, *, committed: bool) -> bytes:
    ended = TransactionMarker(committed, 0)
    return encode_transaction_marker(
        ended, producer_id=producer_id, producer_epoch=epoch, timestamp=0, base_offset=offset
    )


@pytest.mark.parametrize("committed", [False, True])
def test_compaction_may_take_what_an_aborted_transaction_wrote_which_supersedes_nothing(committed: bool) -> None:
    logs, (a1,) = compacted((b"a", b"1"))
    a2, b1 = Record(1, 0, b"a", b"2"), Record(2, 0, b"b", b"1")
    logs.commit(
        KEY,
        encode_batch([a2, b1], base_offset=1, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
    )
    logs.commit(KEY, marker(3, 1, 0, committed=committed))
    end = Record(3, 0, logs.records[KEY][3][0], None)
    without_b = "the last value of b'b', at 2, is gone" if committed else None
    assert logs.lost(1, KEY, [a1, a2, end], 0, (4, 4)) == without_b
    without_a = None if committed else "the last value of b'a', at 0, is gone"
    assert logs.lost(1, KEY, [a2, b1, end], 0, (4, 4)) == without_a


def test_what_is_committed_is_read_from_markers() -> None:
    batches = [
        data(0, 10, 1, 0),
        data(1, 20, 2, 0),
        marker(2, 1, 1, committed=False),
        data(3, 11, 1, 1),
        marker(4, 2, 1, committed=True),
        data(5, 30, 3, 0),
        marker(6, 1, 2, committed=True),
    ]
    found = decided((parse_header(batch), batch) for batch in batches)
    assert found.visible == [(1, 20), (3, 11)]
    assert (found.open, found.wrong) == ({3}, [])
    assert found.markers == [(1, 1, False), (2, 1, True), (1, 2, True)]


def test_a_batch_that_came_after_the_end_of_its_transaction_is_told_when_its_producer_goes_on() -> None:
    batches = [data(0, 10, 1, 0), marker(1, 1, 0, committed=True), data(2, 11, 1, 0), data(3, 12, 1, 1)]
    found = decided((parse_header(batch), batch) for batch in batches)
    assert found.wrong == ["epoch 1 of producer 1 at 3, with 0 open"]


def test_an_epoch_that_falls_is_told() -> None:
    batches = [data(0, 10, 1, 1), marker(1, 1, 2, committed=True), data(2, 11, 1, 1)]
    found = decided((parse_header(batch), batch) for batch in batches)
    assert found.wrong == ["epoch 1 of producer 1 at 2, after 2"]
