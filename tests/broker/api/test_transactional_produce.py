"""Transactions at a partition's leader: the first batch is verified, markers end them (KIP-98, KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from raftlog.wire.errors import ErrorCode
from tests.broker.api.transactions_world import (
    PRODUCER,
    TRANSACTIONAL_ID,
    FakeCoordinator,
    data,
    end,
    fetch,
    outcome,
    produce,
)
from tests.broker.brokers import TOPIC, Client, Cluster, run
from tests.waiting import until

NONE = ErrorCode.NONE
OLD, ABORTABLE, ADDS = 9, 11, 12
"""Versions of Produce: before TRANSACTION_ABORTABLE, with it, and with partitions added by the broker."""


Outcomes = list[tuple[ErrorCode, int]]


class World:
    def __init__(self, cluster: Cluster, coordinator: FakeCoordinator, client: Client) -> None:
        self.cluster = cluster
        self.coordinator = coordinator
        self.client = client

    async def send(self, *batches: tuple[int, bytes], version: int = ADDS, **fields: Any) -> Outcomes:
        return outcome(await self.client.ask(produce(*batches, **fields), version))


@asynccontextmanager
async def leader(directory: Path, partitions: int = 1, size: int = 1) -> AsyncIterator[World]:
    async with Cluster(directory, size) as cluster:
        cluster.create_topic(*[tuple(range(1, size + 1))] * partitions)
        coordinator = FakeCoordinator(cluster, cluster[1])
        async with Client(cluster[1]) as client:
            yield World(cluster, coordinator, client)


Story = Callable[[World], Coroutine[Any, Any, None]]


def play(directory: Path, story: Story, partitions: int = 1, size: int = 1) -> None:
    async def told() -> None:
        async with leader(directory, partitions, size) as world:
            await story(world)

    run(told)


@pytest.mark.parametrize("version", [OLD, ABORTABLE, ADDS])
def test_the_first_batch_of_a_transaction_is_verified_and_no_other(tmp_path: Path, version: int) -> None:
    async def story(w: World) -> None:
        for number in range(3):
            assert await w.send((0, data(number)), version=version) == [(NONE, number)]
        (asked,) = w.coordinator.asked
        (transaction,) = asked.request.transactions
        assert (transaction.transactional_id, transaction.producer_id) == (TRANSACTIONAL_ID, PRODUCER)
        # From v12 on the broker adds the partition; before, the client has.
        assert transaction.verify_only == (version < ADDS)
        assert await end(w.client, 0) == [NONE]
        assert await w.send((0, data(3)), version=version) == [(NONE, 4)]
        assert w.coordinator.partitions() == [(TOPIC, 0), (TOPIC, 0)]

    play(tmp_path, story)


def test_partitions_of_one_request_are_asked_for_together_and_open_ones_not_again(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        assert await w.send((0, data(0))) == [(NONE, 0)]
        w.coordinator.asked.clear()
        assert await w.send((0, data(1)), (1, data(0)), (2, data(0))) == [(NONE, 1), (NONE, 0), (NONE, 0)]
        assert w.coordinator.partitions() == [(TOPIC, 1), (TOPIC, 2)] and len(w.coordinator.asked) == 1

    play(tmp_path, story, partitions=3)


@pytest.mark.parametrize(
    ("error", "version", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, ADDS, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, OLD, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, ADDS, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ADDS, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ADDS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ADDS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ADDS, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_the_coordinator_refuses_is_told_in_words_that_the_client_knows(
    tmp_path: Path, error: ErrorCode, version: int, told: ErrorCode
) -> None:
    async def story(w: World) -> None:
        w.coordinator.errors = [error]
        assert await w.send((0, data(0)), version=version) == [(told, -1)]
        w.coordinator.errors = [NONE]
        assert await w.send((0, data(0)), version=version) == [(NONE, 0)]

    play(tmp_path, story)


def test_an_answer_with_an_error_for_all_is_one_for_each_partition(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.coordinator.holds = True
        request = produce((0, data(0)), (1, data(0)))
        await w.client.send(request, ADDS)
        await until(lambda: w.coordinator.asked)
        w.coordinator.asked[0].answer(whole=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        told = outcome(await w.client.receive(request, ADDS))
        assert told == [(ErrorCode.INVALID_TXN_STATE, -1)] * 2

    play(tmp_path, story, partitions=2)


def test_without_a_coordinator_the_producer_tries_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic((1,))
            async with Client(cluster[1]) as client:
                assert outcome(await client.ask(produce((0, data(0))), ADDS)) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]

    run(story)


def test_a_transaction_that_is_being_ended_is_waited_for(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.coordinator.errors = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3 + [NONE]
        assert await w.send((0, data(0))) == [(NONE, 0)]
        assert len(w.coordinator.asked) == 4

    play(tmp_path, story)


def test_pipelined_batches_do_not_pass_the_one_that_is_being_verified(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.coordinator.holds = True
        requests = [produce((0, data(number))) for number in range(5)]
        for request in requests:
            await w.client.send(request, ADDS)
        await until(lambda: w.coordinator.asked)
        async with Client(w.cluster[1]) as other:
            # Others are served meanwhile.
            plain = produce((0, data(0, producer_id=8, transactional=False)), transactional_id=None)
            assert outcome(await other.ask(plain, ADDS)) == [(NONE, 0)]
        assert len(w.coordinator.asked) == 1
        w.coordinator.asked[0].answer()
        for number, request in enumerate(requests):
            assert outcome(await w.client.receive(request, ADDS)) == [(NONE, 1 + number)]
        assert len(w.coordinator.asked) == 1

    play(tmp_path, story)


def test_a_marker_that_comes_while_a_batch_is_verified_wins(tmp_path: Path) -> None:
    """The coordinator's yes was about a transaction that has ended meanwhile: nothing may be left hanging."""

    async def story(w: World) -> None:
        w.coordinator.holds = True
        request = produce((0, data(0)))
        await w.client.send(request, ABORTABLE)
        await until(lambda: w.coordinator.asked)
        async with Client(w.cluster[1]) as other:
            assert await end(other, 0, commit=False) == [NONE]
        # It is asked once more, for the word may have been about the transaction after the marker's. It was not.
        w.coordinator.holds = False
        w.coordinator.errors = [ErrorCode.INVALID_TXN_STATE]
        w.coordinator.asked[0].answer()
        assert outcome(await w.client.receive(request, ABORTABLE)) == [(ErrorCode.INVALID_TXN_STATE, -1)]
        log = w.cluster[1].partition().log
        assert log.last_stable_offset == log.log_end_offset == 1

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("version", "told"), [(ADDS, ErrorCode.CONCURRENT_TRANSACTIONS), (ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS)]
)
def test_a_marker_that_comes_before_a_late_yes_makes_the_producer_try_again(
    tmp_path: Path, version: int, told: ErrorCode
) -> None:
    """The marker of the transaction before took the guard with it, and there is no time to ask once more: the batch
    must not be refused for good. Kafka's producer gives up at INVALID_TXN_STATE.
    """

    async def story(w: World) -> None:
        settings = {"transaction.partition.verification.enable": True, "add.partitions.to.txn.retry.backoff.ms": 20}
        w.cluster[1].services.verifier.reconfigure(settings | {"add.partitions.to.txn.retry.backoff.max.ms": 0})
        w.coordinator.holds = True
        request = produce((0, data(0, epoch=1)))
        await w.client.send(request, version)
        await until(lambda: w.coordinator.asked)
        async with Client(w.cluster[1]) as other:
            assert await end(other, 0, commit=True) == [NONE]
        w.coordinator.holds = False
        w.coordinator.asked[0].answer()
        assert outcome(await w.client.receive(request, version)) == [(told, -1)]
        assert await w.send((0, data(0, epoch=1)), version=version) == [(NONE, 1)]

    play(tmp_path, story)


def test_a_connection_that_ends_while_its_batch_is_verified_harms_nobody(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.coordinator.holds = True
        async with Client(w.cluster[1]) as leaver:
            await leaver.send(produce((0, data(0))), ADDS)
            await until(lambda: w.coordinator.asked)
        await asyncio.sleep(0)
        w.coordinator.holds = False
        w.coordinator.asked[0].answer()
        # The batch was appended; the producer's retry is known again.
        assert await w.send((0, data(0))) == [(NONE, 0)]
        assert w.cluster[1].end() == 1

    play(tmp_path, story)


def test_a_batch_behind_one_that_failed_waits_for_it_to_come_again(tmp_path: Path) -> None:
    """Were the second appended first, the first would hear OUT_OF_ORDER_SEQUENCE_NUMBER for ever (KAFKA-15459)."""

    async def story(w: World) -> None:
        w.coordinator.errors = [ErrorCode.NOT_COORDINATOR, NONE]
        assert await w.send((0, data(0)), version=ABORTABLE) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
        assert await w.send((0, data(1)), version=ABORTABLE) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
        assert await w.send((0, data(0)), version=ABORTABLE) == [(NONE, 0)]
        assert await w.send((0, data(1)), version=ABORTABLE) == [(NONE, 1)]

    play(tmp_path, story)


def test_a_producer_with_an_epoch_for_each_transaction_begins_with_sequence_0(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        assert await w.send((0, data(5)), version=ADDS) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
        assert await w.send((0, data(0)), version=ADDS) == [(NONE, 0)]

    play(tmp_path, story)


def test_an_epoch_below_the_partitions_is_fenced_before_the_coordinator_is_asked(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        assert await w.send((0, data(0, epoch=4))) == [(NONE, 0)]
        w.coordinator.asked.clear()
        assert await w.send((0, data(0, epoch=3))) == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1)]
        assert not w.coordinator.asked

    play(tmp_path, story)


def test_one_request_is_of_one_producer(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        told = await w.send((0, data(0, producer_id=7)), (1, data(0, producer_id=8)))
        assert told == [(ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)] * 2
        assert not w.coordinator.asked

    play(tmp_path, story, partitions=2)


def test_a_transactional_batch_without_a_transactional_id_is_refused(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        told = await w.send((0, data(0)), transactional_id=None)
        assert told == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)]
        assert not w.coordinator.asked

    play(tmp_path, story)


def test_verification_can_be_switched_off_for_clients_that_add_partitions_themselves(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.cluster[1].services.verifier.is_enabled = False
        assert await w.send((0, data(0)), version=ABORTABLE) == [(NONE, 0)]
        assert not w.coordinator.asked
        assert await w.send((1, data(0)), version=ADDS) == [(NONE, 0)]
        assert w.coordinator.partitions() == [(TOPIC, 1)]

    play(tmp_path, story, partitions=2)


# ── markers ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_a_transaction_for_readers_of_what_is_committed(tmp_path: Path, commit: bool) -> None:
    async def story(w: World) -> None:
        await w.send((0, data(0, "a", "b")))
        found = await fetch(w.client)
        assert (found.last_stable_offset, found.high_watermark, bytes(found.records or b"")) == (0, 2, b"")
        assert await end(w.client, 0, commit=commit) == [NONE]
        found = await fetch(w.client)
        assert (found.last_stable_offset, found.high_watermark) == (3, 3)
        aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
        assert aborted == ([] if commit else [(PRODUCER, 0)])
        assert found.records

    play(tmp_path, story)


def test_a_marker_is_answered_when_every_replica_has_it(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        await until(w.cluster.is_replicated)
        await w.send((0, data(0)))
        assert await end(w.client, 0) == [NONE]
        assert w.cluster[1].high_watermark() == 2
        await until(lambda: all(broker.end() == 2 for broker in w.cluster.brokers.values()))

    play(tmp_path, story, size=2)


def test_markers_of_an_older_coordinator_or_an_older_epoch_are_refused(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        await w.send((0, data(0, epoch=3)))
        assert await end(w.client, 0, producer_epoch=2, coordinator_epoch=5) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await end(w.client, 0, producer_epoch=3, coordinator_epoch=5) == [NONE]
        fenced = await end(w.client, 0, producer_epoch=3, coordinator_epoch=4)
        assert fenced == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]

    play(tmp_path, story)


def test_a_late_marker_of_an_earlier_transaction_cannot_end_the_next_one(tmp_path: Path) -> None:
    """With transaction version 2 every transaction has an epoch of its own (KAFKA-17754, KIP-1228)."""

    async def story(w: World) -> None:
        await w.send((0, data(0, epoch=0)))
        assert await end(w.client, 0, producer_epoch=1, version=2) == [NONE]
        # Sent again before anything else came, it does no harm.
        assert await end(w.client, 0, producer_epoch=1, version=2) == [NONE]
        assert await w.send((0, data(0, epoch=1))) == [(NONE, 3)]
        late = await end(w.client, 0, commit=False, producer_epoch=1, version=2)
        assert late == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert (await fetch(w.client)).last_stable_offset == 3
        assert await end(w.client, 0, producer_epoch=2, version=2) == [NONE]
        assert not (await fetch(w.client)).aborted_transactions

    play(tmp_path, story)


def test_each_partition_of_a_marker_is_answered_for_itself(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        await w.send((0, data(0)), (1, data(0)))
        assert await end(w.client, 0, 1, 9) == [NONE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert [w.cluster[1].end(index) for index in (0, 1)] == [2, 2]

    play(tmp_path, story, partitions=2)


def test_a_marker_of_no_producer_is_refused(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        await w.send((0, data(0)))
        assert await end(w.client, 0, 1, producer_epoch=-1) == [ErrorCode.INVALID_REQUEST] * 2
        assert w.cluster[1].end(0) == 1

    play(tmp_path, story, partitions=2)


def test_a_marker_waits_for_enough_replicas(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        await w.send((0, data(0)))
        w.cluster[1].partition().min_isr = 2
        assert await end(w.client, 0) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert w.cluster[1].end() == 1

    play(tmp_path, story)
