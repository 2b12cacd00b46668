"""ListOffsets by time where a batch has to be unpacked: the answers are the same, and come from beside the loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from raftlog.broker.api.list_offsets import SEARCHES_PER_TURN
from raftlog.broker.core.log.results import FoundOffset
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.timestamp_search import UnpackedBatches
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.compression import Compression
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.brokers import TOPIC, TOPIC_ID, Client, Cluster, run

TIME_MS = 1_700_000_000_000
MAX_TIMESTAMP = -3


@pytest.mark.parametrize("compression", [Compression.ZSTD, Compression.NONE])
def test_a_time_within_a_batch_is_found_whether_it_has_to_be_unpacked_or_not(
    tmp_path: Path, compression: Compression
) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic((1,))
            async with Client(cluster[1]) as client:
                for start in (0, 100):
                    times = range(TIME_MS + start, TIME_MS + start + 10)
                    records = [Record(number, time, None, b"v" * 1000) for number, time in enumerate(times)]
                    data = PartitionProduceData(index=0, records=encode_batch(records, compression=compression))
                    topic = TopicProduceData(topic_id=TOPIC_ID, partition_data=[data])
                    await client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 13)
                found = {}
                for time in (TIME_MS + 3, TIME_MS + 50, TIME_MS + 105, TIME_MS + 110, MAX_TIMESTAMP):
                    partition = ListOffsetsPartition(partition_index=0, timestamp=time)
                    asked = ListOffsetsRequest(
                        replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[partition])]
                    )
                    (answer,) = (await client.ask(asked, 8)).topics[0].partitions
                    assert answer.error_code == ErrorCode.NONE
                    found[time - TIME_MS if time > 0 else time] = answer.offset, answer.timestamp - TIME_MS
                assert found == {3: (3, 3), 50: (10, 100), 105: (15, 105), 110: (-1, -1 - TIME_MS), -3: (19, 109)}

    run(story)


def test_of_many_partitions_that_are_searched_by_time_some_are_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of them held all clients up for a tenth of a second, or for minutes where no index knows the time."""
    searched: Counter[int] = Counter()
    turn = 0
    search = PartitionLog.offset_for_timestamp

    def counting(log: PartitionLog, timestamp: int, known: UnpackedBatches | None = None) -> FoundOffset | None:
        searched[turn] += 1
        return search(log, timestamp, known)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic(*[(1,)] * 40)
            async with Client(cluster[1]) as client:
                records = encode_batch([Record(0, TIME_MS, None, b"v")])
                data = [PartitionProduceData(index=index, records=records) for index in range(40)]
                topic = TopicProduceData(topic_id=TOPIC_ID, partition_data=data)
                await client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 13)
                partitions = [ListOffsetsPartition(partition_index=index, timestamp=TIME_MS) for index in range(40)]
                asked = ListOffsetsRequest(
                    replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)]
                )
                counted = asyncio.create_task(count_turns())
                answers = (await client.ask(asked, 8)).topics[0].partitions
                counted.cancel()
                told = [(each.partition_index, each.error_code, each.offset) for each in answers]
                assert told == [(index, ErrorCode.NONE, 0) for index in range(40)]

    monkeypatch.setattr(PartitionLog, "offset_for_timestamp", counting)
    run(story)
    assert searched.total() == 40 and max(searched.values()) <= SEARCHES_PER_TURN
