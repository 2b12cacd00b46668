"""Groups of both protocols against raftlog and Kafka: what is divided, committed, given up, and read again."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator

import pytest

from raftlog.client import Batch, Client, Consumer, KafkaError, Outgoing
from raftlog.client.core.errors import NoOffset, Rejected, WrongState
from raftlog.testing import Kafka, cluster
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from tests.client.conftest import skip_without
from tests.conftest import ORACLE, Broker
from tests.waiting import until

pytestmark = pytest.mark.long

# Where members are told by the broker how often to send heartbeats, often.
QUICK_HEARTBEATS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}
QUICK = {"heartbeat_interval": 0.1, "session_timeout": 10.0, "auto_offset_reset": "earliest"}
PROTOCOLS = [
    pytest.param({"assignors": ("range",)}, id="range"),
    pytest.param({"assignors": ("roundrobin",)}, id="roundrobin"),
    pytest.param({"assignors": ("sticky",)}, id="sticky"),
    pytest.param({"assignors": ("cooperative-sticky",)}, id="cooperative"),
    pytest.param({"protocol": "consumer"}, id="consumer"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    oracle = os.environ.get(ORACLE)
    if oracle:
        yield Broker(oracle, None)
        return
    with cluster(settings=QUICK_HEARTBEATS) as brokers:
        yield Broker(brokers.bootstrap_servers, brokers.brokers[0])


@pytest.fixture(params=PROTOCOLS)
async def protocol(request: pytest.FixtureRequest, client: Client) -> dict[str, object]:
    options: dict[str, object] = QUICK | request.param
    if "protocol" in options:
        await skip_without(client, ApiKey.CONSUMER_GROUP_HEARTBEAT)
    return options


async def fill(client: Client, topic: str, count: int) -> None:
    async with client.producer() as producer:
        records = [Outgoing(b"%d" % number, partition=number % 3) for number in range(count)]
        for outcome in await producer.send_batch(topic, records):
            assert not isinstance(outcome, KafkaError), outcome


def member(client: Client, topic: str, options: dict[str, object]) -> Consumer:
    return client.consumer(topic, group=topic, **options)  # type: ignore[arg-type]


async def read_all(consumer: Consumer, count: int) -> tuple[list[Batch], dict[tuple[str, int], int]]:
    """What it was given until it had `count` records, and where it is then."""
    batches: list[Batch] = []
    read: dict[tuple[str, int], int] = {}
    while sum(read.values()) < count:
        batches.append(await consumer.poll(count, timeout=20))
        read |= batches[-1].end_offsets
    return batches, read


async def test_two_members_divide_the_partitions_and_miss_nothing(
    client: Client, three_partitions: str, protocol: dict[str, object]
) -> None:
    await fill(client, three_partitions, 300)
    seen: Counter[bytes | None] = Counter()

    async def read(consumer: Consumer) -> None:
        while len(seen) < 300:
            batch = await consumer.poll(20, timeout=0.2)
            seen.update(record.value for record in batch)
            batch.done()

    async with member(client, three_partitions, protocol) as first:
        async with member(client, three_partitions, protocol) as second:
            both = [asyncio.create_task(read(each)) for each in (first, second)]
            await until(
                lambda: bool(first.assignment and second.assignment)
                and len(first.assignment | second.assignment) == 3
                and not first.assignment & second.assignment,
                "both have partitions",
            )
            await asyncio.gather(*both)
        # The second has left: the first gets all.
        await until(lambda: len(first.assignment) == 3, "the first has all")
        await first.commit()
        assert sum((await first.committed()).values()) == 300
    assert set(seen) == {b"%d" % number for number in range(300)}


async def test_a_new_member_goes_on_where_the_last_one_was_done(
    client: Client, three_partitions: str, protocol: dict[str, object]
) -> None:
    await fill(client, three_partitions, 60)
    async with member(client, three_partitions, protocol) as consumer:
        done, undone = await consumer.poll(7, timeout=20), await consumer.poll(7, timeout=20)
        assert done.done() and len(undone) == 7
    async with member(client, three_partitions, protocol) as consumer:
        rest: list[bytes | None] = []
        while len(rest) < 53:
            batch = await consumer.poll(timeout=20)
            assert batch
            rest += [record.value for record in batch]
            batch.done()
    assert len(set(rest)) == 53 and not {record.value for record in done} & set(rest)


async def test_record_by_record_the_one_at_hand_is_not_done(
    client: Client, three_partitions: str, protocol: dict[str, object]
) -> None:
    await fill(client, three_partitions, 30)
    given = []
    async with member(client, three_partitions, protocol) as consumer:
        async for record in consumer:
            given.append((record.partition, record.offset))
            if len(given) == 5:
                break
    async with member(client, three_partitions, protocol) as consumer:
        await consumer.assigned()
        again = await consumer.poll(30, timeout=20)
        while len(again) < 26:
            again = again if len(again) == 26 else await _more(consumer, again)
    found = {(record.partition, record.offset) for record in again}
    assert given[-1] in found and not set(given[:-1]) & found


async def _more(consumer: Consumer, so_far: object) -> list[object]:
    return [*so_far, *await consumer.poll(30, timeout=20)]  # type: ignore[misc]


async def test_batches_done_out_of_order_are_committed_in_order(client: Client, topic: str) -> None:
    async with client.producer() as producer:
        await producer.send_batch(topic, [b"x"] * 30)
    async with member(client, topic, QUICK) as consumer:
        first, second, third = [await consumer.poll(10, timeout=20) for _ in range(3)]
        third.done()
        second.done()
        await consumer.commit()
        assert await consumer.committed() == {}
        first.done()
        await consumer.commit()
        assert await consumer.committed() == {(topic, 0): 30}
        consumer.seek(topic, 0, 5)
        again = await consumer.poll(10, timeout=20)
        assert not first.done() or again.done()
        await consumer.commit({(topic, 0): 3})
        assert await consumer.committed((topic, 0)) == {(topic, 0): 3}
    assert (await client.admin.lag(topic))[topic, 0] in (15, 27)


async def test_what_is_given_up_is_finished_and_committed_first(
    client: Client, three_partitions: str, protocol: dict[str, object]
) -> None:
    await fill(client, three_partitions, 30)
    told: list[tuple[str, int]] = []
    async with member(client, three_partitions, protocol) as first:
        first.on_assigned = lambda partitions: told.append(("assigned", len(partitions)))
        first.on_revoked = lambda partitions: told.append(("revoked", len(partitions)))
        batch = await first.poll(30, timeout=20)
        while len({record.partition for record in batch}) < 3:
            batch.done()
            batch = await first.poll(30, timeout=20)
            if not batch:
                break
        async with member(client, three_partitions, protocol) as second:
            await asyncio.sleep(0)
            states = first._fetching.partitions
            await until(lambda: any(each.leaves for each in states.values()) or not batch, "giving up")
            assert not second.assignment & first.assignment
            batch.done()
            await until(lambda: bool(second.assignment), "the second has some")
            rest = await second.poll(30, timeout=0.5)
            assert not {record.value for record in rest} & {record.value for record in batch}
    assert ("assigned", 3) in told and any(kind == "revoked" for kind, _ in told)


async def test_a_commit_of_a_member_that_was_replaced_is_refused(client: Client, three_partitions: str) -> None:
    await fill(client, three_partitions, 30)
    options = QUICK | {"enable_auto_commit": False}
    async with member(client, three_partitions, options) as consumer:
        await consumer.assigned()
        assert consumer._runner is not None
        (await consumer.poll(30, timeout=20)).done()
        inner = consumer._runner.member
        inner.generation = inner.generation + 5  # type: ignore[misc]
        with pytest.raises(Rejected, match="generation") as refused:
            await consumer.commit()
        assert not refused.value.retriable and "moved on" in refused.value.advice
        # It joins again, and reads again.
        await until(lambda: not consumer.assignment or consumer.assignments > 1, "lost")
        await consumer.assigned()


async def test_offsets_of_what_the_group_has_taken_away_are_not_committed(
    client: Client, three_partitions: str, protocol: dict[str, object]
) -> None:
    await fill(client, three_partitions, 30)
    options = protocol | {"enable_auto_commit": False, "rebalance_timeout": 0.5}
    async with member(client, three_partitions, options) as first:
        _, read = await read_all(first, 30)
        async with member(client, three_partitions, options) as second:
            await until(lambda: bool(second.assignment), "the second has some")
            taken = min(second.assignment)
            done = 0
            while done < read[taken]:
                done = (await second.poll(30, timeout=20)).end_offsets.get(taken, done)
            await second.commit({taken: done})
            with pytest.raises(Rejected, match="taken it from this member since it was read") as refused:
                await first.commit({taken: 1})
            assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
            assert (await first.committed(taken))[taken] == done
        # It comes back, and what was read of it before still does not count.
        await until(lambda: taken in first.assignment, "it is back")
        with pytest.raises(Rejected, match="since it was read"):
            await first.commit({taken: 1})
        await first.poll(timeout=0)
        await first.commit({taken: 2})
        assert (await first.committed(taken))[taken] == 2


async def test_offsets_are_committed_as_the_member_that_read_them(
    client: Client, three_partitions: str, protocol: dict[str, object]
) -> None:
    await fill(client, three_partitions, 30)
    options = protocol | {"enable_auto_commit": False, "rebalance_timeout": 0.5}
    async with member(client, three_partitions, options) as first:
        _, read = await read_all(first, 30)
        reader = first.member
        await first.commit(dict.fromkeys(read, 1), member=reader)
        async with member(client, three_partitions, options) as second:
            await until(lambda: bool(second.assignment), "the second has some")
            taken = min(second.assignment)
            with pytest.raises(Rejected) as refused:
                await first.commit({taken: 2}, member=reader)
            assert refused.value.code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH)
            assert (await first.committed(taken))[taken] == 1
            await second.poll(timeout=20)
            await second.commit({taken: 2}, member=second.member)
            assert (await first.committed(taken))[taken] == 2


async def test_a_member_that_is_fenced_while_it_gives_up_commits_nothing_in_its_next_generation(
    client: Client, three_partitions: str, protocol: dict[str, object]
) -> None:
    await fill(client, three_partitions, 30)
    options = protocol | {"rebalance_timeout": 600.0}
    async with member(client, three_partitions, options) as first:
        batches, read = await read_all(first, 30)
        async with member(client, three_partitions, options) as second:
            states = first._fetching.partitions
            await until(lambda: any(each.leaves for each in states.values()), "the first is about to give up some")
            assert first._runner is not None
            first._runner.member.fenced(keeps_name=True)
            first._runner.wake()
            await until(lambda: bool(first.assignment and second.assignment), "both have some again")
            assert not first.assignment & second.assignment
            assert not any(batch.done() for batch in batches)
            await first.commit()
            assert await first.committed(*read) == {}


async def test_who_asks_for_more_and_never_calls_done_is_not_waited_for(
    client: Client, three_partitions: str, protocol: dict[str, object]
) -> None:
    await fill(client, three_partitions, 30)
    options = protocol | {"enable_auto_commit": False, "rebalance_timeout": 600.0}
    async with member(client, three_partitions, options) as first:
        while not await first.poll(30, timeout=20):
            pass
        async with member(client, three_partitions, options) as second:
            while not second.assignment:
                await first.poll(30, timeout=0.1)
            assert not second.assignment & first.assignment


async def test_a_static_member_keeps_its_partitions_over_a_restart(client: Client, three_partitions: str) -> None:
    await fill(client, three_partitions, 30)
    static = QUICK | {"group_instance_id": "one"}
    async with member(client, three_partitions, QUICK) as other:
        await other.assigned()
        consumer = member(client, three_partitions, static)
        await consumer.start()
        await until(lambda: bool(consumer.assignment) and len(other.assignment | consumer.assignment) == 3, "divided")
        before, generations = consumer.assignment, other.assignments
        await consumer.close()
        async with member(client, three_partitions, static) as restarted:
            await restarted.assigned()
            assert restarted.assignment == before and other.assignments == generations


async def test_topics_can_be_named_by_a_pattern(client: Client, name: str, protocol: dict[str, object]) -> None:
    for suffix in ("a", "b", "other"):
        await client.admin.create_topic(f"{name}.{suffix}", partitions=1)
    pattern = name.replace("-", "[-]") + r"[.][ab]"
    options: dict[str, object] = protocol | {"metadata_max_age": 0.5}
    async with client.consumer(pattern=pattern, group=name, **options) as consumer:  # type: ignore[arg-type]
        await until(lambda: {topic for topic, _ in consumer.assignment} == {f"{name}.a", f"{name}.b"}, "two topics")


async def test_a_pattern_without_a_group_reads_all_topics_that_match_also_new_ones(client: Client, name: str) -> None:
    await client.admin.create_topic(f"{name}.a", partitions=2)
    options: dict[str, object] = {"metadata_max_age": 0.2, "auto_offset_reset": "earliest"}
    async with client.consumer(pattern=f"{name}[.][ab]", **options) as consumer:  # type: ignore[arg-type]
        assert consumer.assignment == {(f"{name}.a", 0), (f"{name}.a", 1)}
        for suffix in ("b", "other"):
            await client.admin.create_topic(f"{name}.{suffix}", partitions=1)
        await until(lambda: {topic for topic, _ in consumer.assignment} == {f"{name}.a", f"{name}.b"}, "a new one")


async def test_without_a_group_nothing_can_be_committed(client: Client, topic: str) -> None:
    async with client.consumer(topic) as consumer:
        with pytest.raises(WrongState):
            await consumer.commit()


async def test_members_that_come_and_go_read_everything(
    client: Client, three_partitions: str, protocol: dict[str, object]
) -> None:
    """A storm of rebalances: nothing is missed, and the group comes to rest."""
    await fill(client, three_partitions, 600)
    seen: Counter[bytes | None] = Counter()

    async def live(batches: int) -> None:
        async with member(client, three_partitions, protocol) as consumer:
            for _ in range(batches):
                batch = await consumer.poll(10, timeout=0.1)
                seen.update(record.value for record in batch)
                batch.done()

    async with member(client, three_partitions, protocol) as stays:

        async def read() -> None:
            while len(seen) < 600:
                batch = await stays.poll(10, timeout=0.2)
                seen.update(record.value for record in batch)
                batch.done()

        reading = asyncio.create_task(read())
        for round in range(3):
            await asyncio.gather(*(live(3 + round) for _ in range(3)))
        await reading
        await until(lambda: len(stays.assignment) == 3, "one member is left")


@pytest.mark.long
async def test_a_coordinator_that_is_killed_is_found_again() -> None:
    with cluster(brokers=3) as brokers:
        async with Client(brokers.bootstrap_servers, timeout=60) as client:
            await client.admin.create_topic("t", partitions=3, replication_factor=3)
            await fill(client, "t", 300)
            async with member(client, "t", QUICK) as consumer:
                await consumer.assigned()
                brokers.broker(await client.admin.coordinator("t")).kill()
                found: set[bytes | None] = set()
                while len(found) < 300:
                    batch = await consumer.poll(50, timeout=20)
                    found |= {record.value for record in batch}
                    batch.done()
                await consumer.commit()
                assert sum((await consumer.committed()).values()) == 300


@pytest.mark.long
async def test_a_leader_that_is_stopped_is_left_and_all_is_stored_once() -> None:
    with cluster(brokers=3) as brokers:
        async with Client(brokers.bootstrap_servers, timeout=60) as client:
            await client.admin.create_topic("t", partitions=1, replication_factor=3)
            async with client.producer(request_timeout=30) as producer, member(client, "t", QUICK) as consumer:
                leader = brokers.broker(await client.router.leader("t", 0))
                found: list[bytes | None] = []
                for number in range(60):
                    if number == 20:
                        leader.pause()
                    await producer.enqueue("t", b"%d" % number)
                    if number % 10 == 9 and number != 19:
                        await producer.flush(60)
                leader.resume()
                while len(found) < 60:
                    found += [record.value for record in await consumer.poll(timeout=30)]
            assert found == [b"%d" % number for number in range(60)]


async def test_a_member_reads_again_from_where_its_group_stands(client: Client, topic: str) -> None:
    async with client.producer() as producer:
        await producer.send_batch(topic, [b"%d" % number for number in range(10)])
    manual = {"group": topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with client.consumer(topic, **manual) as consumer:  # type: ignore[arg-type]
        for done in (0, 4, 8):
            while consumer.positions.get((topic, 0)) != 10:
                await consumer.poll(timeout=20)
            await consumer.seek_to_committed()
            assert await consumer.position(topic, 0) == done
            (await consumer.poll(4, timeout=20)).done()
            await consumer.commit()
    with pytest.raises(WrongState, match="in no group"):
        async with client.consumer(topic) as alone:
            await alone.seek_to_committed()
    none = {"group": f"{topic}-none", "auto_offset_reset": "none"}
    async with client.consumer(topic, **none) as nowhere:  # type: ignore[arg-type]
        await nowhere.assigned()
        with pytest.raises(NoOffset):
            await nowhere.seek_to_committed()


async def test_a_seek_that_a_rebalance_overtakes_moves_nothing() -> None:
    with Kafka() as kafka:
        topic = kafka.topic(seed=["a", "b"])
        async with Client(kafka.bootstrap_servers) as client, member(client, topic, QUICK) as consumer:
            while consumer.positions.get((topic, 0)) != 2:
                await consumer.poll(timeout=20)
            late = kafka.faults.delay("OffsetFetch", 1.0).once()
            seeking = asyncio.create_task(consumer.seek_to_committed())
            await until(lambda: late.fired > 0, "the seek is under way")
            assert consumer._runner is not None
            consumer._runner.member.fenced(keeps_name=True)
            consumer._runner.wake()
            await until(lambda: not consumer.assignment, "all is lost")
            await seeking
            found = []
            while len(found) < 2:
                found += [record.value for record in await consumer.poll(timeout=20)]
            assert found == [b"a", b"b"]


async def test_a_group_that_committed_a_number_below_zero_lags_by_everything(broker: Broker, name: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(name, partitions=2)
        await fill(client, name, 2)
        await client.admin.commit_offsets(name, {(name, 0): -(2**63), (name, 1): -(2**63)})
        (listed,) = [each for each in await client.admin.list_groups(with_lag=True) if each.group_id == name]
        ends = await client.admin.offsets_at([(name, 0), (name, 1)], -1)
        assert listed.lag == sum(ends.values()) == 2
