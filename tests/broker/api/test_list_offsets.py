"""ListOffsets by time where a batch has to be unpacked: the answers are the same, and come from beside the loop."""

from __future__ import annotations

from pathlib import Path

import pytest

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
