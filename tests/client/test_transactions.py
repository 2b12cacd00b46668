"""Transactions against raftlog and Kafka: all or nothing, offsets with records, fencing, and what aborts."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.client import Client, Producer
from raftlog.client.core.errors import KafkaError, ProducerFenced, Rejected, TimedOut, TransactionFailed, WrongState
from raftlog.client.core.transaction import PreparedTransaction, State
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from tests.client.conftest import skip_without
from tests.client.proxy import broker_behind_a_proxy
from tests.client.reading import read_all
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
async def transactional(client: Client) -> None:
    await skip_without(client, ApiKey.END_TXN)


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of transactions: a client may keep to the first against any cluster."""
    if request.param == 1:
        monkeypatch.setattr("raftlog.client.transactions.FEATURE", "no.such.feature")
    asked: int = request.param
    return asked


def version_of(producer: Producer) -> int:
    assert producer._transactions is not None
    return producer._transactions.core.version


async def values(client: Client, topic: str, count: int, **options: object) -> list[bytes | None]:
    return [record.value for record in await read_all(client, topic, count, **options)]


async def test_committed_records_are_read_and_aborted_ones_are_not(client: Client, topic: str, version: int) -> None:
    async with client.producer(transactional_id=topic) as producer:
        async with producer.transaction() as tx:
            await tx.send(topic, b"first")
            await tx.send(topic, b"second")
        assert version_of(producer) == version
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as tx:
                await tx.send(topic, b"aborted")
                await producer.flush()
                raise ZeroDivisionError
        async with producer.transaction():
            pass  # an empty one is one, too
        async with producer.transaction() as tx:
            await tx.send(topic, b"third")
    assert await values(client, topic, 3) == [b"first", b"second", b"third"]
    everything = await values(client, topic, 4, isolation_level="read_uncommitted")
    assert everything == [b"first", b"second", b"aborted", b"third"]


async def test_an_open_transaction_holds_readers_back(client: Client, topic: str, version: int) -> None:
    async with client.producer(transactional_id=topic) as producer, client.producer() as plain:
        await producer.begin()
        await producer.enqueue(topic, b"in the transaction")
        await producer.flush()
        await plain.send(topic, b"behind it")
        async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
            assert not await consumer.poll(timeout=0.3)
            await producer.commit()
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [record.value for record in await consumer.poll(timeout=20)]
    assert found == [b"in the transaction", b"behind it"]


async def test_offsets_are_committed_with_the_records_or_not_at_all(client: Client, topic: str, version: int) -> None:
    await skip_without(client, ApiKey.TXN_OFFSET_COMMIT)
    copy = f"{topic}-copy"
    await client.admin.create_topic(copy, partitions=1)
    async with client.producer() as producer:
        await producer.send_batch(topic, [b"%d" % number for number in range(20)])
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with client.producer(transactional_id=topic) as producer:
        async with client.consumer(topic, group=topic, **options) as consumer:  # type: ignore[arg-type]
            batch = await consumer.poll(10, timeout=20)
            async with producer.transaction() as tx:
                for record in batch:
                    await tx.send(copy, record.value)
                await tx.send_offsets(batch.end_offsets, consumer.member)
            assert await consumer.committed() == {(topic, 0): 10}
            batch = await consumer.poll(10, timeout=20)
            with pytest.raises(RuntimeError):
                async with producer.transaction() as tx:
                    for record in batch:
                        await tx.send(copy, record.value)
                    await tx.send_offsets(batch.end_offsets, consumer.member)
                    raise RuntimeError
            assert await consumer.committed() == {(topic, 0): 10}
            stranger = consumer.member._replace(generation=consumer.member.generation + 7)
            with pytest.raises(TransactionFailed) as failed:
                async with producer.transaction() as tx:
                    await tx.send(copy, b"never")
                    await tx.send_offsets(batch.end_offsets, stranger)
            assert failed.value.abortable and not failed.value.fatal
    assert await values(client, copy, 10) == [b"%d" % number for number in range(10)]


async def test_a_newer_producer_fences_the_older_one_for_good(client: Client, topic: str, version: int) -> None:
    async with client.producer(transactional_id=topic) as old, client.producer(transactional_id=topic) as new:
        await old.begin()
        await old.enqueue(topic, b"of the old one")
        await old.flush()
        async with new.transaction() as tx:
            await tx.send(topic, b"of the new one")
        with pytest.raises(ProducerFenced) as fenced:
            await old.commit()
        assert fenced.value.fatal and not fenced.value.retriable and "close this one" in fenced.value.advice
        assert not fenced.value.in_doubt
        with pytest.raises(ProducerFenced):
            await old.begin()
        with pytest.raises(ProducerFenced):
            await old.enqueue(topic, b"more")
    assert await values(client, topic, 1) == [b"of the new one"]


@pytest.mark.parametrize("awaits", [True, False], ids=["awaits the record", "only sends"])
async def test_a_block_whose_records_another_producer_has_fenced_says_so_at_once(
    client: Client, topic: str, version: int, awaits: bool
) -> None:
    """A leader only says that the epoch is old, which may be mended; the coordinator knows who has the id."""
    async with client.producer(transactional_id=topic) as old, client.producer(transactional_id=topic) as new:
        with pytest.raises(ProducerFenced) as fenced:
            async with old.transaction() as tx:
                await tx.send(topic, b"before")
                await old.flush()
                async with new.transaction() as other:
                    await other.send(topic, b"of the new one")
                delivery = await tx.send(topic, b"after")
                await old.flush()
                if awaits:
                    await delivery
                await tx.send(topic, b"refused already")
        assert fenced.value.fatal and "close this one" in fenced.value.advice
        first = fenced.value.__cause__
        assert isinstance(first, Rejected if awaits else TransactionFailed) and first.abortable and not first.fatal
        assert first.code == ErrorCode.INVALID_PRODUCER_EPOCH and "abort the transaction" in first.advice
        with pytest.raises(ProducerFenced):
            await old.begin()
    assert await values(client, topic, 1) == [b"of the new one"]


async def test_a_fenced_producer_learns_it_from_its_abort(client: Client, topic: str, version: int) -> None:
    async with client.producer(transactional_id=topic) as old, client.producer(transactional_id=topic) as new:
        await old.begin()
        await old.enqueue(topic, b"before")
        await old.flush()
        async with new.transaction() as other:
            await other.send(topic, b"of the new one")
        with pytest.raises(Rejected) as refused:
            await old.send(topic, b"after")
        assert refused.value.abortable and not refused.value.fatal
        with pytest.raises(TransactionFailed):
            await old.commit()
        with pytest.raises(ProducerFenced):
            await old.abort()


async def test_a_producer_that_is_fenced_when_it_asks_again_is_told_that_it_may_have_committed(version: int) -> None:
    with broker_behind_a_proxy(ApiKey.END_TXN) as proxy:
        async with Client(str(proxy.address), timeout=30) as client:
            await client.admin.create_topic("t")
            async with (
                client.producer(transactional_id="id", request_timeout=0.2) as old,
                client.producer(transactional_id="id") as new,
            ):
                await old.begin()
                await old.enqueue("t", b"committed")
                await old.flush()
                proxy.lose_replies(1_000, closes=False)
                committing = asyncio.create_task(old.commit())
                assert await values(client, "t", 1) == [b"committed"]
                await new.begin()
                proxy.lose_replies(0, closes=False)
                with pytest.raises(ProducerFenced, match="may have succeeded") as fenced:
                    await committing
                assert fenced.value.in_doubt and fenced.value.fatal
                await new.abort()


async def test_a_transaction_that_took_too_long_is_told_apart_from_one_that_another_producer_fenced(
    client: Client, topic: str, version: int
) -> None:
    """Jepsen on Bufstream: a time-out was told as a newer producer, which there was not."""
    async with client.producer(transactional_id=topic, transaction_timeout=0.2) as producer:
        await producer.begin()
        await producer.enqueue(topic, b"too late")
        await producer.flush()
        async with client.producer() as plain:
            await plain.send(topic, b"held back until the transaction is aborted")
        assert len(await values(client, topic, 1)) == 1
        with pytest.raises(ProducerFenced, match=r"it lasted .* s, and transaction_timeout is 0\.2 s"):
            await producer.commit()


async def test_input_of_a_transaction_that_was_aborted_is_read_again(client: Client, topic: str, version: int) -> None:
    """KAFKA-17582: positions do not go back with an abort, so that input was passed over until a rebalance."""
    await skip_without(client, ApiKey.TXN_OFFSET_COMMIT)
    async with client.producer() as producer:
        await producer.send_batch(topic, [b"%d" % number for number in range(4)])
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with (
        client.producer(transactional_id=topic) as producer,
        client.consumer(topic, group=topic, **options) as consumer,  # type: ignore[arg-type]
    ):
        batch = await consumer.poll(4, timeout=20)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as tx:
                await tx.send_offsets(batch.end_offsets, consumer.member)
                raise ZeroDivisionError
        await consumer.seek_to_committed()
        again: list[bytes | None] = []
        while len(again) < 4:
            again += [record.value for record in await consumer.poll(timeout=20)]
    assert again == [b"0", b"1", b"2", b"3"]


async def test_a_record_that_fails_aborts_the_transaction_and_the_next_one_works(
    client: Client, name: str, version: int
) -> None:
    await client.admin.create_topic(name, partitions=1, configs={"max.message.bytes": "1000"})
    async with client.producer(transactional_id=name) as producer:
        async with producer.transaction() as tx:
            await tx.send(name, b"before")
        with pytest.raises(TransactionFailed) as failed:
            async with producer.transaction() as tx:
                await tx.send(name, b"small")
                await tx.send(name, b"x" * 2000)
        assert failed.value.abortable and isinstance(failed.value.__cause__, Rejected)
        async with producer.transaction() as tx:
            await tx.send(name, b"after")
    assert await values(client, name, 2) == [b"before", b"after"]


async def test_sending_outside_a_transaction_is_refused(client: Client, topic: str) -> None:
    async with client.producer(transactional_id=topic) as producer:
        with pytest.raises(WrongState, match="transaction"):
            await producer.send(topic, b"outside")
        await producer.begin()
        with pytest.raises(WrongState):
            await producer.begin()
        await producer.abort()
        with pytest.raises(WrongState):
            await producer.commit()
    async with client.producer() as producer:
        with pytest.raises(WrongState):
            producer.transaction()


async def test_leaving_the_producer_aborts_what_is_open(client: Client, topic: str, version: int) -> None:
    async with client.producer(transactional_id=topic) as producer:
        await producer.begin()
        await producer.enqueue(topic, b"never committed")
        await producer.flush()
    async with client.producer() as producer:
        await producer.send(topic, b"not held back")
    assert await values(client, topic, 1) == [b"not held back"]


async def test_a_cancelled_block_is_aborted(client: Client, topic: str, version: int) -> None:
    async with client.producer(transactional_id=topic) as producer:
        inside = asyncio.Event()

        async def work() -> None:
            async with producer.transaction() as tx:
                await tx.send(topic, b"cancelled")
                await producer.flush()
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert producer._transactions is not None
        assert producer._transactions.core.state is State.READY
        async with producer.transaction() as tx:
            await tx.send(topic, b"kept")
    assert await values(client, topic, 1) == [b"kept"]


async def test_many_transactions_over_many_partitions(client: Client, three_partitions: str, version: int) -> None:
    async with client.producer(transactional_id=three_partitions) as producer:
        for round in range(15):
            try:
                async with producer.transaction() as tx:
                    for number in range(10):
                        await tx.send(three_partitions, b"%d" % round, partition=number % 3)
                    if round % 3 == 2:
                        raise KafkaError("abort")
            except KafkaError:
                continue
    found = await values(client, three_partitions, 100)
    assert sorted(set(found)) == sorted(b"%d" % round for round in range(15) if round % 3 != 2)


async def test_offsets_of_records_that_a_rebalance_took_away_are_refused(client: Client, name: str) -> None:
    """The member may send them long after: it says when it was given the records, not who it is now."""
    await client.admin.create_topic(name, partitions=2)
    options = {"group": name, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with client.producer(transactional_id=name) as producer:
        async with producer.transaction() as tx:
            for partition in range(2):
                await tx.send(name, b"x", partition=partition)
        async with client.consumer(name, rebalance_timeout=1.0, heartbeat_interval=0.1, **options) as slow:
            batch = await slow.poll()
            before = slow.member
            async with client.consumer(name, heartbeat_interval=0.1, **options) as other:
                await other.assigned()
                with pytest.raises(TransactionFailed):
                    async with producer.transaction() as tx:
                        await tx.send_offsets(batch.end_offsets, slow.member)
            assert slow.member == before


async def prepared(client: Client, topic: str, value: bytes) -> PreparedTransaction:
    """What a producer leaves that is closed after it has prepared a transaction of one record."""
    async with client.producer(transactional_id=topic) as producer:
        await producer.begin()
        await producer.enqueue(topic, value)
        transaction = await producer.prepare()
        with pytest.raises(WrongState, match="prepared"):
            await producer.enqueue(topic, b"more")
        with pytest.raises(WrongState, match="prepared"):
            await producer.commit()
    return transaction


async def test_a_prepared_transaction_is_committed_by_another_process(
    client: Client, topic: str, version: int
) -> None:
    transaction = await prepared(client, topic, b"of the first")
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        assert not await consumer.poll(timeout=0.3), "closing the producer does not end it"
    for _ in range(2):  # once more does no harm
        await client.admin.complete_transaction(transaction)
    with pytest.raises(KafkaError):
        await client.admin.complete_transaction(transaction, committed=False)
    async with client.producer(transactional_id=topic) as producer, producer.transaction() as tx:
        await tx.send(topic, b"of the second")
    with pytest.raises(KafkaError):
        await client.admin.complete_transaction(transaction, committed=False)
    assert await values(client, topic, 2) == [b"of the first", b"of the second"]


async def test_a_prepared_transaction_that_was_aborted_is_not_committed(
    client: Client, topic: str, version: int
) -> None:
    transaction = await prepared(client, topic, b"never")
    await client.admin.complete_transaction(transaction, committed=False)
    with pytest.raises(KafkaError):
        await client.admin.complete_transaction(transaction)
    fenced = await prepared(client, topic, b"never either")
    assert await client.admin.abort_transaction(topic)
    with pytest.raises(ProducerFenced):
        await client.admin.complete_transaction(fenced)
    async with client.producer() as producer:
        await producer.send(topic, b"kept")
    assert await values(client, topic, 1) == [b"kept"]


async def test_a_transaction_is_committed_in_its_partition_alone(client: Client, topic: str) -> None:
    await prepared(client, topic, b"committed here")
    (found,) = await client.admin.open_transactions([topic])
    await client.admin.end_in_partition(found, committed=True)
    assert await values(client, topic, 1) == [b"committed here"]


async def test_a_transaction_without_records_cannot_be_prepared(client: Client, topic: str, version: int) -> None:
    async with client.producer(transactional_id=topic) as producer:
        with pytest.raises(WrongState):
            await producer.prepare()
        await producer.begin()
        with pytest.raises(WrongState, match="nothing was sent"):
            await producer.prepare()


async def test_a_transaction_that_is_about_to_end_takes_no_more_records(
    client: Client, topic: str, version: int
) -> None:
    async with client.producer(transactional_id=topic, linger=DEADLINE_SECONDS) as producer:
        await producer.begin()
        await producer.enqueue(topic, b"in time")
        committing = asyncio.create_task(producer.commit())
        await asyncio.sleep(0)
        with pytest.raises(WrongState, match="about to end"):
            await producer.enqueue(topic, b"too late")
        await committing
    assert await values(client, topic, 1) == [b"in time"]


async def test_a_commit_whose_time_was_over_before_an_answer_came_stays_in_doubt(version: int) -> None:
    with broker_behind_a_proxy(ApiKey.END_TXN) as proxy:
        async with (
            Client(str(proxy.address), timeout=1) as hasty,
            Client(str(proxy.address), timeout=30) as client,
            hasty.producer(transactional_id="id") as old,
        ):
            await client.admin.create_topic("t")
            await old.begin()
            await old.enqueue("t", b"committed")
            proxy.lose_replies(1, closes=False)
            with pytest.raises(TimedOut):
                await old.commit()
            for connection in old._router._connections.values():
                connection.close()
            async with client.producer(transactional_id="id") as new:
                await new.begin()
                with pytest.raises(ProducerFenced, match="may have succeeded") as fenced:
                    await old.commit()
                assert fenced.value.in_doubt
                await new.abort()


async def test_a_transaction_with_no_records_and_no_offsets_commits(client: Client, topic: str, version: int) -> None:
    """As of a poll that found nothing: nothing is added to it, so its coordinator does not know it."""
    async with client.producer(transactional_id=topic) as producer:
        for _ in range(2):
            async with producer.transaction() as tx:
                await tx.send_offsets({}, "group")
        async with producer.transaction() as tx:
            await tx.send(topic, b"value")
    assert await values(client, topic, 1) == [b"value"]


async def test_an_error_that_ends_a_consumer_aborts_the_transaction_and_the_next_one_begins(
    client: Client, topic: str, version: int
) -> None:
    async with client.producer(transactional_id=topic) as producer:
        with pytest.raises(Rejected, match="fenced"):
            async with producer.transaction() as tx:
                await tx.send(topic, b"aborted")
                raise Rejected(ErrorCode.FENCED_INSTANCE_ID, "group 'g'", "fenced")
        async with producer.transaction() as tx:
            await tx.send(topic, b"committed")
    assert await values(client, topic, 1) == [b"committed"]


async def test_after_an_abort_whose_next_epoch_was_not_given_the_next_transaction_takes_records(
    client: Client, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client.producer(transactional_id=topic) as producer:
        numbering = producer._transactional()
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as tx:
                await tx.send(topic, b"aborted")
                await producer.flush()
                numbering.core._needs_epoch = True
                numbering.core.version = 1  # the second brings an epoch with each end
                monkeypatch.setattr(numbering, "initialize", unanswered)
                raise ZeroDivisionError
        monkeypatch.undo()
        async with producer.transaction() as tx:
            await tx.send(topic, b"committed")
    assert await values(client, topic, 1) == [b"committed"]


async def unanswered() -> None:
    raise TimedOut("no answer")


@pytest.mark.parametrize("is_stored", [True, False])
async def test_after_an_abort_that_took_too_long_the_next_transaction_begins(version: int, is_stored: bool) -> None:
    """Nobody would end the last one otherwise, and no other could begin, ever."""
    with broker_behind_a_proxy() as proxy:
        async with Client(str(proxy.address), timeout=2) as client, client.producer(transactional_id="t") as producer:
            await client.admin.create_topic("t", partitions=1)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as tx:
                    await tx.send("t", b"aborted")
                    if is_stored:
                        await producer.flush()
                    else:
                        await producer.partitions("t")
                        proxy.hold()
                        producer._sender.flush_begins()
                        while not producer._sender._in_flight and not producer._sender._preparing:
                            await asyncio.sleep(0)
                    proxy.hold()
                    raise ZeroDivisionError
            with pytest.raises(WrongState):
                await producer.commit()
            proxy.go_on()
            async with producer.transaction() as tx:
                await tx.send("t", b"committed")
            assert await values(client, "t", 1) == [b"committed"]
