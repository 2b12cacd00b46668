"""Producers without brokers: whoever waits is told, whatever ends in the meantime."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.client import Client, KafkaError, Placed, Producer
from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import Closed, Rejected, TimedOut, TransactionFailed, WrongState
from raftlog.client.core.metadata import NO_LEADER, Node, Partition, Topic
from raftlog.client.core.producer_batch import ProducerBatch, ProducerIdentity
from raftlog.client.delivery import Delivery
from raftlog.wire.errors import ErrorCode
from tests.waiting import DEADLINE_SECONDS

BIG = b"x" * 200


def lonely(*, leader: int = NO_LEADER, **options: Any) -> Producer:
    """It knows a topic of three partitions, and reaches nobody."""
    client = Client("127.0.0.1:1", timeout=DEADLINE_SECONDS)
    producer = client.producer(**{"linger": 0.0, **options})
    partitions = {index: Partition(leader, 1) for index in range(3)}
    producer._router.known.topics["t"] = Topic(b"topic with an id", partitions)
    return producer


def in_a_transaction(**options: Any) -> Producer:
    producer = lonely(transactional_id="id", **options)
    assert producer._transactions is not None
    producer._transactions.core.initialized(ProducerIdentity(7, 0), 2)
    producer._transactions.core.begin()
    return producer


async def test_records_of_a_transaction_that_are_too_late_together_fail_together() -> None:
    mistakes: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: mistakes.append(context.get("exception")))
    producer = in_a_transaction(delivery_timeout=0.1)
    deliveries = [await producer.enqueue("t", b"late", partition=index) for index in range(3)]
    async with asyncio.timeout(DEADLINE_SECONDS):
        first, *others = await asyncio.gather(*(settled(each) for each in deliveries))
    assert isinstance(first, TimedOut) and all(isinstance(each, TransactionFailed) for each in others)
    assert not [each for each in mistakes if isinstance(each, ValueError)]
    producer.check_invariants()
    await producer.close(timeout=0)


async def test_who_waits_for_room_is_told_that_the_producer_was_closed() -> None:
    producer = lonely(buffer_memory=len(BIG))
    first = await producer.enqueue("t", BIG, partition=0)
    second = asyncio.create_task(producer.enqueue("t", BIG, partition=0))
    await asyncio.sleep(0)
    assert producer._waiting_for_room
    await producer.close(timeout=0)
    assert isinstance(await settled(first), Closed)
    with pytest.raises(Closed):
        await second


async def test_who_waits_for_room_gets_into_no_transaction_that_ends_meanwhile() -> None:
    producer = in_a_transaction(buffer_memory=len(BIG))
    await producer.enqueue("t", BIG, partition=0)
    second = asyncio.create_task(producer.enqueue("t", BIG, partition=0))
    await asyncio.sleep(0)
    assert producer._waiting_for_room
    aborting = asyncio.create_task(producer.abort())
    with pytest.raises(WrongState):
        await second
    aborting.cancel()
    await producer.close(timeout=0)


async def test_room_that_came_free_for_who_was_cancelled_goes_to_the_next() -> None:
    producer = lonely(buffer_memory=len(BIG))
    await producer.enqueue("t", BIG, partition=0)
    cancelled, following = (asyncio.create_task(producer.enqueue("t", BIG, partition=0)) for _ in range(2))
    await asyncio.sleep(0)
    assert len(producer._waiting_for_room) == 2
    queue = producer._accumulator.queues["t", 0]
    queue.give_up(queue.waiting[0], TimedOut("too late"))
    producer._sender.on_progress()
    cancelled.cancel()
    assert not (await following).done
    await producer.close(timeout=0)


async def test_an_answer_to_what_has_failed_meanwhile_fails_nothing_else() -> None:
    hangs_up = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        connected.set()
        await hangs_up.wait()
        writer.close()

    connected = asyncio.Event()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    producer = lonely(leader=1, enable_idempotence=False, retry_backoff=DEADLINE_SECONDS)
    producer._router.known.nodes[1] = Node(1, Address(*server.sockets[0].getsockname()))
    first = await producer.enqueue("t", b"first", partition=0)
    await connected.wait()
    under_way = [*producer._sender._tasks]
    producer._sender.fail_all(KafkaError("the cluster refuses this client"))
    second = await producer.enqueue("t", b"second", partition=1)
    hangs_up.set()
    await asyncio.wait(under_way)
    assert "refuses" in str(await settled(first))
    await producer.close(timeout=0)
    assert isinstance(await settled(second), Closed)
    server.close()


async def settled(delivery: Any) -> object:
    try:
        return await delivery
    except KafkaError as error:
        return error


def test_records_of_a_batch_that_was_split_have_outcomes_of_their_own() -> None:
    batch = ProducerBatch(("t", 0), 0.0)
    deliveries = [Delivery(batch, batch.append(None, b"%d" % number, (), 5), 5) for number in range(4)]
    stamped, refused = batch.split()
    stamped.complete(40, log_append_time=9)
    refused.fail(Rejected(ErrorCode.INVALID_RECORD, "t[0]"), {1: "it has no key"})
    assert [each.outcome() for each in deliveries[:2]] == [Placed("t", 0, 40, 9), Placed("t", 0, 41, 9)]
    innocent, guilty = (str(each.outcome()) for each in deliveries[2:])
    assert "another record" in innocent and "it has no key" in guilty
