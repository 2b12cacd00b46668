"""The transaction coordinator around its shards: when answers leave, when markers do, what failures do to both."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from raftlog.broker.api.list_transactions import TOGETHER
from raftlog.broker.core.coordinator.shared import coordinator_partition
from raftlog.broker.core.transaction import markers
from raftlog.broker.core.transaction.records import TransactionRecord
from raftlog.broker.runtime import transaction_host
from raftlog.broker.runtime.broker_requests import RequestFailure
from raftlog.wire.errors import ErrorCode
from tests.broker.runtime.coordinator_world import running
from tests.broker.runtime.transaction_world import NODE, OTHER, PARTITIONS, PLACES, Machine, settle, topic
from tests.waiting import until

E = ErrorCode
OK = [E.NONE] * 3


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_host, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(markers, "RETRY_MS_MIN", 5)


@pytest.fixture
async def machine() -> Any:
    async with running(Machine()) as made:
        yield made


@pytest.mark.parametrize("committed", [True, False])
async def test_a_transaction_ends_in_all_its_partitions_and_the_next_one_has_another_epoch(
    machine: Machine, committed: bool
) -> None:
    producer = await machine.begin()
    assert await machine.add(producer) == OK
    assert await machine.state() == "Ongoing"
    ended = await machine.end(producer, committed=committed)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (E.NONE, producer[0], 1)
    await settle()
    assert sorted(machine.sender.written) == sorted(
        (broker, place, producer[0], 1, committed) for broker, place in zip((NODE, NODE, OTHER), PLACES, strict=True)
    )
    assert await machine.state() == ("CompleteCommit" if committed else "CompleteAbort")
    assert await machine.add((ended.producer_id, ended.producer_epoch)) == OK
    assert await machine.add(producer) == [E.PRODUCER_FENCED] * 3


async def test_partitions_of_one_broker_go_into_one_request(machine: Machine) -> None:
    producers = {name: await machine.begin(name) for name in ("a", "b", "c")}
    for name, producer in producers.items():
        await machine.add(producer, transactional_id=name)
    await asyncio.gather(*(machine.end(p, committed=True, transactional_id=n) for n, p in producers.items()))
    await settle()
    assert sorted(broker for broker, _ in machine.sender.requests) == [NODE, OTHER]
    assert all(len(request.markers) == 3 for _, request in machine.sender.requests)


async def ending_uncommitted(machine: Machine) -> tuple[Any, Any, Any]:
    """A producer whose EndTxn is written and not yet committed: producer, the answer to come, the partition."""
    producer = await machine.begin()
    await machine.add(producer)
    partition = machine.partition()
    partition.holds = True
    ending = asyncio.ensure_future(machine.end(producer, committed=True))
    await settle()
    return producer, ending, partition


async def test_a_decision_is_answered_and_markers_are_sent_only_when_it_is_committed(machine: Machine) -> None:
    _, ending, partition = await ending_uncommitted(machine)
    assert not ending.done() and not machine.sender.requests
    partition.commit()
    assert (await ending).error_code == E.NONE
    await settle()
    assert len(machine.sender.written) == 3
    # The end of the transaction is written but not committed: nobody is told of it.
    describing = asyncio.ensure_future(machine.state())
    await settle()
    assert not describing.done()
    partition.commit()
    assert await describing == "CompleteCommit"


async def test_while_markers_are_missing_nothing_else_begins(machine: Machine) -> None:
    producer = await machine.begin()
    await machine.add(producer)
    machine.sender.holds = True
    ended = await machine.end(producer, committed=True)
    await settle()
    after = (ended.producer_id, ended.producer_epoch)
    assert await machine.add(after) == [E.CONCURRENT_TRANSACTIONS] * 3, "after some patience"
    assert (await machine.init()).error_code == E.CONCURRENT_TRANSACTIONS
    assert (await machine.end(producer, committed=True)).error_code == E.CONCURRENT_TRANSACTIONS
    described = await machine.describe()
    assert described.transaction_state == "PrepareCommit"
    assert {(t.topic, p) for t in described.topics for p in t.partitions} == set(PLACES)
    machine.sender.release()
    await settle()
    assert await machine.state() == "CompleteCommit"
    assert await machine.add(after) == OK


async def test_a_coordinator_that_may_have_been_replaced_does_not_say_what_is_part_of_a_transaction(
    machine: Machine,
) -> None:
    """Its successor may have ended the transaction, and a late batch of the same epoch would begin one without end."""
    producer = await machine.begin()
    await machine.add(producer)
    assert await machine.verify(producer, PLACES[0]) is E.NONE
    machine.partition().leads_for_certain = False
    assert await machine.verify(producer, PLACES[0]) is E.NOT_COORDINATOR
    machine.partition().leads_for_certain = True
    assert await machine.verify(producer, PLACES[0]) is E.NONE


async def test_who_begins_the_next_transaction_waits_for_the_markers_of_the_one_before(machine: Machine) -> None:
    producer = await machine.begin()
    await machine.add(producer)
    machine.sender.holds = True
    ended = await machine.end(producer, committed=True)
    await settle()
    adding = asyncio.ensure_future(machine.add((ended.producer_id, ended.producer_epoch)))
    late = asyncio.ensure_future(machine.add(producer))
    await settle()
    assert not adding.done() and not late.done()
    machine.sender.release()
    assert await adding == OK
    assert await late == [E.PRODUCER_FENCED] * 3
    assert await machine.state() == "Ongoing"


async def test_who_waits_for_markers_is_told_when_the_coordinator_moves(machine: Machine) -> None:
    producer = await machine.begin()
    await machine.add(producer)
    machine.sender.holds = True
    ended = await machine.end(producer, committed=True)
    await settle()
    adding = asyncio.ensure_future(machine.add((ended.producer_id, ended.producer_epoch)))
    await settle()
    machine.change(leaders=[OTHER] * 4)
    assert await adding == [E.NOT_COORDINATOR] * 3


async def test_who_waits_in_vain_for_markers_leaves_nothing_behind(machine: Machine) -> None:
    producer = await machine.begin()
    await machine.add(producer)
    machine.sender.holds = True
    ended = await machine.end(producer, committed=True)
    for _ in range(2):
        assert await machine.add((ended.producer_id, ended.producer_epoch)) == [E.CONCURRENT_TRANSACTIONS] * 3
    (host,) = machine.coordinator.hosts.values()
    assert not any(host._until_ended.values()) and not host._waits


async def test_a_leader_that_cannot_write_is_asked_until_it_can(machine: Machine) -> None:
    producer = await machine.begin()
    await machine.add(producer)
    machine.sender.error = lambda broker, place: E.NOT_LEADER_OR_FOLLOWER if broker == OTHER else E.NONE
    await machine.end(producer, committed=True)
    await until(lambda: len(machine.sender.requests) > 4)
    described = await machine.describe()
    assert [(t.topic, list(t.partitions)) for t in described.topics] == [("right", [1])], "the others have it"
    # This broker leads all of them now.
    machine.change(topic("left", [NODE]), topic("right", [NODE, NODE]))
    await settle()
    assert await machine.state() == "CompleteCommit"
    assert machine.sender.written[-1][:2] == (NODE, ("right", 1))


async def test_a_broker_that_does_not_answer_is_asked_again(machine: Machine) -> None:
    producer = await machine.begin()
    await machine.add(producer)
    machine.sender.failure = RequestFailure.DISCONNECTED
    await machine.end(producer, committed=False)
    await until(lambda: len(machine.sender.requests) > 4)
    machine.sender.failure = None
    await until(lambda: len(machine.sender.written) == 3)
    assert await machine.state() == "CompleteAbort"


async def test_deleted_topics_drop_out_of_the_transaction(machine: Machine) -> None:
    producer = await machine.begin()
    await machine.add(producer)
    machine.sender.failure = RequestFailure.UNREACHABLE
    await machine.end(producer, committed=True)
    await settle()
    machine.change(topic("left", [NODE]))
    machine.sender.failure = None
    await until(lambda: len(machine.sender.written) == 1)
    assert await machine.state() == "CompleteCommit"


async def test_a_fenced_coordinator_sends_no_more_markers(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    producer = await machine.begin()
    await machine.add(producer)
    machine.sender.error = lambda broker, place: E.TRANSACTION_COORDINATOR_FENCED
    await machine.end(producer, committed=True)
    await settle()
    asked = len(machine.sender.requests)
    machine.change()
    await settle()
    assert len(machine.sender.requests) == asked and await machine.state() == "PrepareCommit"
    assert "transactional.id=t no more markers are sent" in caplog.text


@pytest.mark.parametrize("committed", [True, False])
async def test_a_coordinator_that_dies_while_a_transaction_ends_is_followed_by_one_that_ends_it(
    machine: Machine, committed: bool
) -> None:
    producer = await machine.begin()
    await machine.add(producer)
    machine.sender.holds = True
    ended = await machine.end(producer, committed=committed)
    await settle()
    machine.fail_over()
    machine.sender.holds = False
    assert (await machine.end(producer, committed=not committed)).error_code == E.INVALID_TXN_STATE
    await until(lambda: len(machine.sender.written) == 3)
    assert all(written[-1] is committed for written in machine.sender.written)
    assert {marker.coordinator_epoch for _, r in machine.sender.requests[2:] for marker in r.markers} == {1}
    # What the first coordinator had sent is answered, too late.
    machine.sender.release()
    await settle()
    assert (await machine.end(producer, committed=committed)).producer_epoch == ended.producer_epoch
    assert await machine.state() == ("CompleteCommit" if committed else "CompleteAbort")


async def test_a_decision_that_was_not_committed_is_gone_with_its_coordinator(machine: Machine) -> None:
    producer, ending, partition = await ending_uncommitted(machine)
    partition.holds = False
    machine.fail_over()
    assert (await ending).error_code == E.NOT_COORDINATOR
    await settle()
    assert not machine.sender.requests and await machine.state() == "Ongoing"
    assert (await machine.end(producer, committed=False)).error_code == E.NONE
    await settle()
    assert {written[-1] for written in machine.sender.written} == {False}


async def test_a_decision_that_takes_long_to_commit_is_carried_out_all_the_same(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_host, "COMMIT_TIMEOUT_MS", 20)
    producer = await machine.begin()
    await machine.add(producer)
    partition = machine.partition()
    partition.holds = True
    assert (await machine.end(producer, committed=True)).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert not machine.sender.requests
    partition.holds = False
    partition.commit()
    await until(lambda: len(machine.sender.written) == 3)
    assert (await machine.end(producer, committed=True)).producer_epoch == 1


async def test_a_log_that_takes_nothing_changes_nothing(machine: Machine) -> None:
    producer = await machine.begin()
    await machine.add(producer)
    partition = machine.partition()
    partition.refuses = E.NOT_ENOUGH_REPLICAS
    assert (await machine.end(producer, committed=True)).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert (await machine.init()).error_code == E.COORDINATOR_NOT_AVAILABLE
    partition.refuses = E.NONE
    assert await machine.state() == "Ongoing" and not machine.sender.requests
    assert (await machine.end(producer, committed=True)).producer_epoch == 1


async def test_the_end_of_a_transaction_is_written_as_soon_as_the_log_takes_it(machine: Machine) -> None:
    producer = await machine.begin()
    await machine.add(producer)
    machine.sender.holds = True
    await machine.end(producer, committed=True)
    await settle()
    partition = machine.partition()
    partition.refuses = E.NOT_ENOUGH_REPLICAS
    machine.sender.release()
    appends = partition.appends
    await until(lambda: partition.appends > appends + 2)
    assert await machine.state() == "PrepareCommit"
    partition.refuses = E.NONE
    appends = partition.appends
    await until(lambda: partition.appends > appends)
    assert await machine.state() == "CompleteCommit"
    assert len(machine.sender.written) == 3, "nobody is asked again"


async def test_who_begins_anew_aborts_what_was_under_way() -> None:
    for version in (0, 2):
        machine = Machine(transaction_version=version)
        machine.coordinator.start()
        producer = await machine.begin()
        await machine.add(producer)
        assert (await machine.init()).error_code == E.CONCURRENT_TRANSACTIONS
        await settle()
        assert {written[-1] for written in machine.sender.written} == {False}
        assert await machine.begin() == (producer[0], 2)
        assert (await machine.end(producer, committed=True)).error_code == E.PRODUCER_FENCED
        machine.coordinator.stop()


async def test_a_transaction_that_takes_too_long_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    timed_out = transaction_host.TransactionHost.timed_out

    def counted(host: transaction_host.TransactionHost) -> list[str]:
        nonlocal looks
        looks += 1
        return timed_out(host)

    monkeypatch.setattr(transaction_host.TransactionHost, "timed_out", counted)
    machine = Machine(transaction_abort_timed_out_transaction_cleanup_interval_ms="10")
    machine.coordinator.start()
    producer = await machine.begin()
    await machine.add(producer)
    machine.passed_ms = 59_000
    await until(lambda: looks > 2)
    assert await machine.state() == "Ongoing"
    machine.passed_ms = 60_001
    await until(lambda: len(machine.sender.written) == 3)
    assert {written[2:] for written in machine.sender.written} == {(producer[0], 1, False)}
    assert await machine.add(producer) == [E.PRODUCER_FENCED] * 3
    machine.coordinator.stop()


async def test_an_id_that_nobody_uses_is_forgotten_for_good() -> None:
    machine = Machine(
        transaction_remove_expired_transaction_cleanup_interval_ms="10", transactional_id_expiration_ms="1000"
    )
    machine.coordinator.start()
    used, unused = await machine.begin("used"), await machine.begin("unused")
    await machine.add(used, transactional_id="used")
    machine.passed_ms = 1000
    (host,) = (host for host in machine.coordinator.hosts.values() if "unused" in host.shard.transactions)
    await until(lambda: "unused" not in host.shard.transactions)
    assert (await machine.describe("unused")).error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    machine.fail_over()
    assert (await machine.describe("unused")).error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert await machine.state("used") == "Ongoing"
    assert await machine.begin("unused") != unused
    machine.coordinator.stop()


async def test_without_a_producer_id_to_give_the_client_comes_again(machine: Machine) -> None:
    machine.ids_error = E.UNKNOWN_SERVER_ERROR
    assert (await machine.init()).error_code == E.COORDINATOR_NOT_AVAILABLE
    machine.ids_error = E.NONE
    assert (await machine.init()).error_code == E.NONE


async def test_two_producers_that_begin_together_with_a_new_id_do_not_share_an_epoch(machine: Machine) -> None:
    answers = await asyncio.gather(*(machine.init() for _ in range(3)))
    assert {answer.error_code for answer in answers} == {E.NONE}
    assert len({answer.producer_id for answer in answers}) == 1
    assert sorted(answer.producer_epoch for answer in answers) == [0, 1, 2]


@pytest.mark.parametrize(("version", "fenced"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)])
async def test_older_clients_hear_of_fencing_in_their_own_words(
    machine: Machine, version: int, fenced: ErrorCode
) -> None:
    producer = await machine.begin()
    zombie = (producer[0], 5)
    assert await machine.add(zombie, version=version) == [fenced] * 3
    assert (await machine.end(zombie, committed=True, version=version)).error_code == fenced
    assert (await machine.init(producer=zombie, version=3)).error_code == E.INVALID_PRODUCER_EPOCH
    assert (await machine.init(producer=zombie, version=4)).error_code == E.PRODUCER_FENCED


async def test_all_or_no_partition_is_added(machine: Machine) -> None:
    producer = await machine.begin()
    assert await machine.add(producer, ("left", 0), ("gone", 0)) == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await machine.add(producer, ("left", 0), ("right", 9), ("__consumer_offsets", 0)) == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.TOPIC_AUTHORIZATION_FAILED,
    ]
    assert await machine.state() == "Empty"


async def test_a_list_has_what_passes_the_filters(machine: Machine) -> None:
    for name in ("pay-1", "pay-2", "audit"):
        producer = await machine.begin(name)
        if name != "pay-2":
            await machine.add(producer, transactional_id=name)

    async def names(**filters: Any) -> list[str]:
        answer = await machine.list(**filters)
        assert answer.error_code == E.NONE
        return sorted(state.transactional_id for state in answer.transaction_states)

    assert await names() == ["audit", "pay-1", "pay-2"]
    assert await names(state_filters=["Ongoing"]) == ["audit", "pay-1"]
    assert await names(state_filters=["Nonsense"]) == []
    assert (await machine.list(state_filters=["Nonsense", "Empty"])).unknown_state_filters == ["Nonsense"]
    assert await names(producer_id_filters=[producer[0]]) == ["audit"]
    assert await names(transactional_id_pattern="pay-.*") == ["pay-1", "pay-2"]
    assert await names(transactional_id_pattern="pay", state_filters=["Ongoing"]) == []
    assert await names(transactional_id_pattern="") == ["audit", "pay-1", "pay-2"]
    assert (await machine.list(transactional_id_pattern="(")).error_code == E.INVALID_REGULAR_EXPRESSION
    machine.passed_ms = 5000
    assert await names(duration_filter=4000, state_filters=["Ongoing"]) == ["audit", "pay-1"]
    assert await names(duration_filter=60_000, state_filters=["Ongoing"]) == []


async def test_a_list_of_very_many_ids_is_made_in_small_steps(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.begin()
    host = machine.coordinator.hosts[coordinator_partition("t", PARTITIONS)]
    for number in range(20_000):
        host.shard.load(TransactionRecord(f"t-{number}", host.shard.transactions["t"]))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    # Time passes with each look at the clock, so that every step is long enough to give way.
    monkeypatch.setattr(machine, "monotonic", itertools.count(1).__next__)
    counting = asyncio.create_task(count_turns())
    listed = await machine.list()
    counting.cancel()
    assert {state.transactional_id for state in listed.transaction_states} == host.shard.transactions.keys()
    assert turns > 2 * 20_000 // TOGETHER


async def test_what_is_coordinated_elsewhere_or_not_known_is_said_so(machine: Machine) -> None:
    assert (await machine.describe("nobody")).error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert (await machine.describe("")).error_code == E.INVALID_REQUEST
    assert (await machine.init("")).error_code == E.INVALID_REQUEST
    machine.change(leaders=[OTHER] * 4)
    assert (await machine.describe()).error_code == E.NOT_COORDINATOR
    assert (await machine.init()).error_code == E.NOT_COORDINATOR
    assert (await machine.end((1, 0), committed=True)).error_code == E.NOT_COORDINATOR
    assert await machine.add((1, 0)) == [E.NOT_COORDINATOR] * 3
