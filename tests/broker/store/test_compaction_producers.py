"""Compaction and the producers of a log, of whom there may be very many."""

from __future__ import annotations

import pytest

from raftlog.broker.core.log.producer_snapshot import decode_snapshot, encode_snapshot
from raftlog.broker.core.log.producers import ProducerStates
from tests.broker.store.compaction_world import CompactedLog


@pytest.mark.parametrize("restarted", [False, True])
def test_a_run_looks_at_those_producers_alone_whose_batches_it_meets(
    monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """A hundred thousand, looked at for each group of segments, held up everything else for seconds."""
    world = CompactedLog()
    for turn in range(20):
        world.append(("key", str(turn)), producer_id=turn % 3)
    if restarted:
        producers = world.log.opened.producers
        world.log.opened.producers = decode_snapshot(encode_snapshot(producers), producers.end_offset)
    monkeypatch.delattr(ProducerStates, "__iter__")
    end = world.log.opened.segments.active.base_offset
    assert world.compact()
    left = [header for header, _ in world.batches() if header.base_offset < end]
    assert [header.base_offset for header in left if header.records_count] == [end - 1]
    monkeypatch.undo()
    assert {each.producer_id: each.last_sequence for each in world.log.opened.producers} == {0: 6, 1: 6, 2: 5}
