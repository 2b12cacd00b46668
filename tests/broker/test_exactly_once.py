"""Idempotence and transactions over failover, by the bugs that Jepsen and others found in brokers like ours.

Producers and readers talk to brokers over loopback; the transaction coordinator is the test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raftlog.wire.batch import iterate_batches
from raftlog.wire.control import decode_control_batch
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from raftlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.api.transactions_world import PRODUCER, FakeCoordinator, data, end, fetch, outcome, produce
from tests.broker.brokers import TOPIC, Client, Cluster, run
from tests.waiting import until

NONE = ErrorCode.NONE
LATEST, EARLIEST = -1, -2
VERSION = 12


def idempotent(sequence: int) -> bytes:
    return data(sequence, transactional=False)


async def send(broker: Any, batch: bytes, transactional_id: str | None = None) -> tuple[ErrorCode, int]:
    async with Client(broker) as client:
        (told,) = outcome(await client.ask(produce((0, batch), transactional_id=transactional_id), VERSION))
        return told


async def list_offset(client: Client, timestamp: int = LATEST, *, committed: bool = True, epoch: int = -1) -> Any:
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=timestamp)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
    answer = await client.ask(ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=[topic]), 9)
    return answer.topics[0].partitions[0]


async def fail_over(cluster: Cluster, to: int = 2) -> None:
    """Kill the leader once every replica has everything; another one leads."""
    await until(cluster.is_replicated)
    leader = cluster.state().leader
    cluster.kill(leader)
    if cluster.state().leader != to:
        cluster.set_state(leader=to)
    await until(lambda: cluster[to].partition().error is NONE)


def test_each_of_the_last_five_batches_is_known_to_the_next_leader(tmp_path: Path) -> None:
    """Redpanda #3039, #3077: a retry was refused or appended twice after the leader had changed."""

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            for sequence in range(7):
                assert await send(cluster[1], idempotent(sequence)) == (NONE, sequence)
            await fail_over(cluster)
            for sequence in range(2, 7):
                assert await send(cluster[2], idempotent(sequence)) == (NONE, sequence)
            # Older ones are neither appended again nor told as done.
            assert await send(cluster[2], idempotent(1)) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
            assert await send(cluster[2], idempotent(7)) == (NONE, 7)
            assert cluster[2].end() == 8

    run(story)


def test_a_retry_is_known_to_a_leader_that_was_killed_and_came_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, broker={}) as cluster:
            cluster.create_topic((1, 2, 3))
            for sequence in range(6):
                await send(cluster[1], idempotent(sequence))
            await fail_over(cluster)
            cluster.start(1)
            await until(lambda: 1 in cluster.state().isr, "the old leader has caught up")
            cluster.set_state(leader=1)
            for sequence in range(1, 6):
                assert await send(cluster[1], idempotent(sequence)) == (NONE, sequence)
            assert cluster[1].end() == 6

    run(story)


def test_a_producer_that_was_forgotten_may_go_on_with_any_sequence(tmp_path: Path) -> None:
    """Redpanda #22687, KIP-360: nobody can know what would come next, and the client must not be stuck."""

    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic((1,))
            assert await send(cluster[1], idempotent(0)) == (NONE, 0)
            producers = cluster[1].partition().log.opened.producers
            now_ms = cluster[1].services.clock.now_ms()
            assert producers.expire(now_ms, 1) == [PRODUCER]
            assert await send(cluster[1], idempotent(41)) == (NONE, 1)
            assert await send(cluster[1], idempotent(41)) == (NONE, 1)
            assert await send(cluster[1], idempotent(43)) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)

    run(story)


def test_no_producer_with_an_open_transaction_is_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic((1,))
            FakeCoordinator(cluster, cluster[1])
            await send(cluster[1], data(0), "t")
            producers = cluster[1].partition().log.opened.producers
            assert producers.expire(1 << 60, 1) == []
            async with Client(cluster[1]) as client:
                assert await end(client, 0) == [NONE]
            assert producers.expire(1 << 60, 1) == [PRODUCER]

    run(story)


@pytest.mark.parametrize("batch", [data(0, epoch=1), data(9), data(0, producer_id=8)], ids=["fenced", "gap", "unknown"])
def test_a_refused_batch_is_told_with_offset_minus_one_and_never_zero(tmp_path: Path, batch: bytes) -> None:
    """Bufstream 0.1: the answer to a failure held offset 0, which looked like success."""

    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic((1,))
            coordinator = FakeCoordinator(cluster, cluster[1])
            await send(cluster[1], data(0, epoch=2), "t")
            coordinator.errors = [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
            error, offset = await send(cluster[1], batch, "t")
            assert error is not NONE and offset == -1

    run(story)


def test_the_last_stable_offset_is_where_committed_readers_stop_and_not_the_last_they_get(tmp_path: Path) -> None:
    """Redpanda #3036: the bound was taken as inclusive, and the first record of an open transaction was read."""

    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic((1,))
            FakeCoordinator(cluster, cluster[1])
            await send(cluster[1], idempotent(0))
            await send(cluster[1], data(0, producer_id=8), "t")
            async with Client(cluster[1]) as client:
                found = await fetch(client)
                assert found.last_stable_offset == 1
                assert [header.last_offset for _, header in iterate_batches(found.records)] == [0]
                assert not (await fetch(client, 1)).records
                assert (await list_offset(client)).offset == 1
                assert (await list_offset(client, committed=False)).offset == 2

    run(story)


def test_an_open_transaction_stays_open_over_failover_until_its_marker(tmp_path: Path) -> None:
    """Redpanda 21.11: what a transaction had written was lost, or torn, when leaders changed."""

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            FakeCoordinator(cluster, cluster[1])
            assert await send(cluster[1], data(0, "a", "b"), "t") == (NONE, 0)
            assert await send(cluster[1], data(2, "c"), "t") == (NONE, 2)
            await fail_over(cluster)
            async with Client(cluster[2]) as client:
                assert (await fetch(client)).last_stable_offset == 0
                # The transaction is open there, too: nobody is asked, and its retry is known.
                assert await send(cluster[2], data(2, "c"), "t") == (NONE, 2)
                assert await send(cluster[2], data(3, "d"), "t") == (NONE, 3)
                assert await end(client, 0, commit=False) == [NONE]
                found = await fetch(client)
                assert found.last_stable_offset == 5
                assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions] == [(PRODUCER, 0)]
            await until(cluster.is_replicated)
            # Followers have written the index from the log, and answer the same.
            async with Client(cluster[3]) as client:
                found = await fetch(client)
                assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions] == [(PRODUCER, 0)]

    run(story)


def test_what_was_once_told_as_stable_is_never_taken_back(tmp_path: Path) -> None:
    """Redpanda #10671, #10885: marks went back, or ran ahead, right after an election."""

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            FakeCoordinator(cluster, cluster[1])
            told = []
            for turn in range(3):
                await send(cluster[1], data(turn, epoch=0), "t")
                async with Client(cluster[1]) as client:
                    assert await end(client, 0) == [NONE]
                    told.append((await list_offset(client)).offset)
            await fail_over(cluster)
            async with Client(cluster[2]) as client:
                answer = await list_offset(client)
                while answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE:
                    answer = await list_offset(client)
                assert answer.error_code == NONE and answer.offset >= max(told) == 6
                found = await fetch(client)
                assert found.last_stable_offset <= found.high_watermark

    run(story)


def test_a_marker_that_only_a_deposed_leader_had_is_taken_back_with_its_meaning(tmp_path: Path) -> None:
    """Redpanda #3003: state was built from what a later leader replaced."""

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            FakeCoordinator(cluster, cluster[1])
            await send(cluster[1], data(0, "a"), "t")
            await until(cluster.is_replicated)
            cluster[1].deaf = True
            cluster.set_state(leader=2, isr=(2, 3))
            old = cluster[1].partition()
            assert not _ends(old.append_marker, commit=True).error
            assert (old.log.log_end_offset, old.log.last_stable_offset) == (2, 0)
            async with Client(cluster[2]) as client:
                assert await end(client, 0, commit=False) == [NONE]
            cluster[1].deaf = False
            cluster[1].catch_up()
            await until(lambda: cluster[1].end() == 2 and cluster[1].high_watermark() == 2)
            log = cluster[1].partition().log
            (batch,) = _control_batches(log)
            marker = decode_control_batch(batch)
            assert marker is not None and not marker.committed
            assert [each.first_offset for each in log.aborted_transactions(0, 2)] == [0]

    run(story)


def _ends(append: Any, *, commit: bool) -> Any:
    from raftlog.broker.core.log.producers import TransactionEnd

    return append(TransactionEnd(PRODUCER, 0, commit, 0), 1_700_000_000_000)  # type: ignore[arg-type]


def _control_batches(log: Any) -> list[bytes]:
    found, offset = [], 0
    while offset < log.log_end_offset:  # a read ends with its segment
        stored = log.read_bytes(offset, 1 << 20, log.log_end_offset, min_one=True)
        for at, header in iterate_batches(stored):
            offset = header.next_offset
            if header.is_control:
                found.append(stored[at : at + header.size])
    return found


def test_a_deposed_leader_does_not_tell_offsets_to_who_knows_the_new_epoch(tmp_path: Path) -> None:
    """Redpanda #2954: ListOffsets was answered by a leader that had been replaced."""

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            await send(cluster[1], idempotent(0))
            await until(cluster.is_replicated)
            cluster[1].deaf = True
            cluster.set_state(leader=2)
            epoch = cluster.state().leader_epoch
            async with Client(cluster[1]) as client:
                answer = await list_offset(client, epoch=epoch)
                assert (answer.error_code, answer.offset) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
                cluster[1].deaf = False
                cluster[1].catch_up()
                answer = await list_offset(client)
                assert (answer.error_code, answer.offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    run(story)


def test_deleted_records_of_an_open_transaction_leave_it_open(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic((1,))
            FakeCoordinator(cluster, cluster[1])
            await send(cluster[1], data(0, "a", "b", "c"), "t")
            log = cluster[1].partition().log
            log.delete_records_before(2)
            assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (2, 2, 3)
            async with Client(cluster[1]) as client:
                assert (await list_offset(client, EARLIEST)).offset == 2
                assert not (await fetch(client, 2)).records
                assert await end(client, 0, commit=False) == [NONE]
                found = await fetch(client, 2)
                assert found.last_stable_offset == 4
                # Its reader has to pass over what is left of it.
                assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions] == [(PRODUCER, 0)]

    run(story)


def test_an_operator_sees_who_holds_a_partition_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster:
            cluster.create_topic((1,))
            FakeCoordinator(cluster, cluster[1])
            await send(cluster[1], idempotent(0))
            await send(cluster[1], data(0, "a", producer_id=9, epoch=4), "t")
            await send(cluster[1], data(1, "b", producer_id=9, epoch=4), "t")
            async with Client(cluster[1]) as client:
                request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])])
                answer = await client.ask(request, 0)
                (_, hanging) = answer.topics[0].partitions[0].active_producers
                assert (hanging.producer_id, hanging.producer_epoch, hanging.last_sequence) == (9, 4, 1)
                assert (hanging.current_txn_start_offset, hanging.coordinator_epoch) == (1, -1)

    run(story)


def test_a_leader_that_may_have_been_deposed_does_not_tell_a_producer_that_all_is_lost(tmp_path: Path) -> None:
    """`raftlog verify --fault pause-kill`: it stood still while others led, and had nothing of what they stored."""

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            assert (await send(cluster[1], idempotent(0)))[0] is NONE
            cluster[1].partitions.is_in_contact = lambda: False
            assert (await send(cluster[1], idempotent(9)))[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
            cluster[1].partitions.is_in_contact = lambda: True
            assert (await send(cluster[1], idempotent(9)))[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    run(story)
