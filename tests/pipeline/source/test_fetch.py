"""Ranges of one task: which of them are asked for next."""

from __future__ import annotations

from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.settings import ConsumerSettings
from raftlog.pipeline.source.fetch import FetchingRanges
from raftlog.pipeline.source.ranges import Range
from raftlog.wire.batch import encode_batch
from raftlog.wire.messages.fetch import PartitionData
from raftlog.wire.records import Record
from tests.client.core.test_fetching import cluster_of


def test_while_there_is_no_room_the_range_whose_turn_it_is_is_fetched_and_no_other() -> None:
    fetching = FetchingRanges(ConsumerSettings(fetch_max_bytes=100), [Range("t", at, 0, 9) for at in range(3)])
    known = cluster_of(1, partitions=3)

    def wanted() -> list[TopicPartition]:
        return [each for partitions in fetching.wanted(0.0, known)[0].values() for each in partitions]

    assert wanted() == [("t", 0), ("t", 1), ("t", 2)]
    records = encode_batch([Record(0, 0, None, bytes(100), ())], base_offset=0)
    sent = fetching.wanted(0.0, known)[0][1][("t", 2)]
    fetching.received(("t", 2), sent, PartitionData(partition_index=2, records=records), 0.0)
    assert wanted() == [("t", 0)]
    fetching.unassign(("t", 0))  # it has ended before its end
    assert wanted() == [("t", 1)]
    assert len(fetching.take(9, [("t", 2)])) == 1
    assert wanted() == [("t", 1), ("t", 2)]
