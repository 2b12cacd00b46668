"""Where a consumer stands when it reads record by record."""

from __future__ import annotations

import pytest

from raftlog.client.consumer import Consumer
from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import DamagedRecords
from raftlog.client.core.fetch_session import Wanted
from raftlog.client.core.settings import ConsumerSettings
from raftlog.client.router import Router
from raftlog.wire.batch import assemble_batch, encode_batch, parse_header
from raftlog.wire.messages.fetch import PartitionData
from raftlog.wire.records import Record

HERE = ("t", 0)


async def test_records_before_a_batch_that_cannot_be_decoded_are_given_out_before_it_is_told() -> None:
    good = encode_batch([Record(offset, 0, None, b"%d" % offset, ()) for offset in range(3)])
    header = parse_header(good)._replace(base_offset=3)
    consumer = Consumer(Router([Address("nowhere", 1)]), ConsumerSettings(), ["t"])
    consumer._started = True
    consumer._fetching.assign(HERE, 0)
    part = PartitionData(partition_index=0, records=good + assemble_batch(header, b"no records"))
    consumer._fetching.received(HERE, Wanted(0, 0, -1, 1000), part, 0.0)
    assert [(await anext(consumer)).offset for _ in range(3)] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(DamagedRecords, match="the batch at offset 3 is damaged"):
            await anext(consumer)
    assert consumer.positions == {HERE: 3}
    await consumer.close()
