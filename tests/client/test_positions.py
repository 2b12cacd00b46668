"""Where a consumer stands when what it reads is damaged."""

from __future__ import annotations

from collections.abc import Callable
from threading import current_thread
from typing import Any

import pytest

from raftlog.client.batch import Batch
from raftlog.client.consumer import Consumer
from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import DamagedRecords
from raftlog.client.core.fetch_session import Wanted
from raftlog.client.core.settings import ConsumerSettings
from raftlog.client.loop_thread import LoopThread
from raftlog.client.router import Router
from raftlog.client.sync import SyncConsumer
from raftlog.wire.batch import assemble_batch, encode_batch, parse_header
from raftlog.wire.messages.fetch import PartitionData
from raftlog.wire.records import Record

HERE = ("t", 0)


def reading(*, partitions: int = 1) -> Consumer:
    """Of partition 0 three records are there, one that cannot be decoded, and one behind it; of others the three."""
    good = encode_batch([Record(offset, 0, None, b"%d" % offset, ()) for offset in range(3)])
    damaged = assemble_batch(parse_header(good)._replace(base_offset=3), b"no records")
    behind = encode_batch([Record(6, 0, None, b"6", ())], base_offset=6)
    consumer = Consumer(Router([Address("nowhere", 1)]), ConsumerSettings(group="g"), [])
    consumer._started = True
    for index in range(partitions):
        consumer._fetching.assign(("t", index), 0)
        part = PartitionData(partition_index=index, records=good if index else good + damaged + behind)
        consumer._fetching.received(("t", index), Wanted(0, 0, -1, 1000), part, 0.0)
    return consumer


async def test_records_before_a_batch_that_cannot_be_decoded_are_given_out_before_it_is_told() -> None:
    consumer = reading()
    assert [(await anext(consumer)).offset for _ in range(3)] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(DamagedRecords, match="the batch at offset 3 is damaged"):
            await anext(consumer)
    assert consumer.positions == {HERE: 3}
    await consumer.close()


def offsets(batch: Batch) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in batch]


def rows(batch: Batch) -> list[tuple[int, int]]:
    table = batch.arrow()
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


@pytest.mark.parametrize("look", [offsets, rows])
async def test_a_batch_gives_what_is_healthy_and_the_next_poll_tells_what_is_damaged(
    look: Callable[[Batch], list[tuple[int, int]]],
) -> None:
    consumer = reading(partitions=2)
    batch = await consumer.poll()
    assert sorted(look(batch)) == [(index, offset) for index in (0, 1) for offset in range(3)]
    assert batch.end_offsets == {HERE: 3, ("t", 1): 3} == consumer.positions
    for _ in range(2):
        with pytest.raises(DamagedRecords, match="the batch at offset 3 is damaged") as told:
            await consumer.poll()
    assert batch.done()
    assert {each: position.offset for each, position in consumer._progress.to_commit().items()} == batch.end_offsets
    consumer.check_invariants()
    consumer.seek(told.value.topic, told.value.partition, told.value.next_offset)
    assert consumer.positions[HERE] == 6
    await consumer.close()


async def test_where_nothing_is_healthy_the_batch_itself_tells_what_is_damaged() -> None:
    consumer = reading()
    consumer._fetching.take(3)
    batch = await consumer.poll()
    for _ in range(2):
        with pytest.raises(DamagedRecords, match="the batch at offset 3 is damaged"):
            list(batch)
    assert consumer.positions == {HERE: 3} and not batch.done()
    await consumer.close()


async def test_what_was_polled_behind_a_batch_that_proves_damaged_does_not_count() -> None:
    """It would be committed with what was not read."""
    consumer = reading()
    first = await consumer.poll(6)
    second = await consumer.poll()
    assert second.done() and offsets(first) == [(0, 0), (0, 1), (0, 2)] and first.done()
    assert consumer.positions == {HERE: 3}
    assert consumer._progress.to_commit()[HERE].offset == 3
    assert not second.done()
    await consumer.close()


async def test_a_batch_of_a_partition_that_is_read_elsewhere_by_now_tells_itself_what_is_damaged() -> None:
    consumer = reading()
    batch = await consumer.poll()
    consumer.seek(*HERE, 1)
    with pytest.raises(DamagedRecords, match="the batch at offset 3 is damaged"):
        list(batch)
    assert consumer.positions == {HERE: 1}
    await consumer.close()


def test_a_batch_that_is_looked_at_in_another_thread_stops_reading_where_the_event_loop_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner, thread, threads = reading(), LoopThread(), list[str]()
    stop_at = inner._fetching.stop_at

    def watched(*arguments: Any) -> None:
        threads.append(current_thread().name)
        stop_at(*arguments)

    monkeypatch.setattr(inner._fetching, "stop_at", watched)
    consumer = SyncConsumer(inner, thread)
    assert [record.offset for record in consumer.poll()] == [0, 1, 2]
    assert threads == ["raftlog-client"]
    with pytest.raises(DamagedRecords, match="the batch at offset 3 is damaged"):
        consumer.poll()
    consumer.close()
    thread.close()
