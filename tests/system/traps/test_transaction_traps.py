"""Every request of transactions in every state that lasts, from everybody: answered as Kafka answers.

`transaction_answers.txt` is what Apache Kafka 4.3.1 said; run against it (RAFTLOG_TEST_BOOTSTRAP_SERVERS) the test
holds the file to that. DIFFERENCES is where raftlog says something else.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raftlog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from raftlog.wire.messages.describe_transactions import DescribeTransactionsRequest
from raftlog.wire.messages.end_txn import EndTxnRequest
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.conftest import ORACLE, Broker
from tests.system.clients.groups import fresh_name, make_topic
from tests.system.traps.raw import RawConnection
from tests.waiting import wait_until

ANSWERS = (Path(__file__).parent / "transaction_answers.txt").read_text().splitlines()
_FENCED = {
    f"{name} with the epoch before, version 5": "PRODUCER_FENCED; {state}, epoch +0, 0 partitions"
    for name in ("commit", "abort")
}
_NOT_ABORTED = {
    f"init with the epoch {when}{version}": f"{error}; Ongoing, epoch +0, 1 partitions"
    for when in ("before", "after")
    for version, error in (("", "PRODUCER_FENCED"), (", version 3", "INVALID_PRODUCER_EPOCH"))
}
DIFFERENCES = {
    ("CompleteCommit", 4): _FENCED,
    ("CompleteAbort", 4): _FENCED,
    ("Ongoing", 4): _NOT_ABORTED,
    ("Ongoing", 5): _NOT_ABORTED,
}
"""What raftlog answers, by state and version. Kafka tells who was fenced by an older client that it has ended its
transaction, under the identity of the other, and aborts a transaction at the word of somebody who does not have it.
"""
GROUP, TRANSACTION = 0, 1
UNKNOWN_ID = 77
"""So much more is the id of no producer."""

_numbers = itertools.count()


class Identity(NamedTuple):
    name: str
    producer_id: int
    epoch: int


Answer = Callable[[Any, Identity], Any]


class Coordinator:
    """The requests, each with the identity it is made with: the one that counts now, or another one."""

    def __init__(self, connection: RawConnection, topic: str) -> None:
        self.connection = connection
        self.topic = topic

    def init(
        self, who: Identity, version: int = 5, *, named: bool = False, timeout_ms: int = 60_000, half: bool = False
    ) -> Any:
        request = InitProducerIdRequest(
            transactional_id=who.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=who.producer_id if named or half else -1,
            producer_epoch=who.epoch if named else -1,
        )
        return self.connection.ask(request, version)

    def add(self, who: Identity, version: int, *partitions: int, topic: str = "", verify: bool = False) -> list[int]:
        topics = [AddPartitionsToTxnTopic(name=topic or self.topic, partitions=list(partitions))]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=who.name,
                v3_and_below_producer_id=who.producer_id,
                v3_and_below_producer_epoch=who.epoch,
                v3_and_below_topics=topics,
            )
            found = self.connection.ask(request, version).results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=who.name,
                producer_id=who.producer_id,
                producer_epoch=who.epoch,
                verify_only=verify,
                topics=topics,
            )
            (result,) = self.connection.ask(
                AddPartitionsToTxnRequest(transactions=[transaction]), version
            ).results_by_transaction
            found = result.topic_results
        by_index = {p.partition_index: p.partition_error_code for t in found for p in t.results_by_partition}
        return [by_index[index] for index in sorted(by_index)]

    def add_offsets(self, who: Identity, version: int) -> list[int]:
        request = AddOffsetsToTxnRequest(
            transactional_id=who.name, producer_id=who.producer_id, producer_epoch=who.epoch, group_id="g"
        )
        return [self.connection.ask(request, version).error_code]

    def end(self, who: Identity, version: int, committed: bool) -> Any:
        request = EndTxnRequest(
            transactional_id=who.name, producer_id=who.producer_id, producer_epoch=who.epoch, committed=committed
        )
        return self.connection.ask(request, version)

    def describe(self, name: str) -> Any:
        (found,) = self.connection.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
        return found

    def lasting(self, name: str) -> Any:
        """The state once all markers are written."""
        wait_until(lambda: not self.describe(name).transaction_state.startswith("Prepare"))
        return self.describe(name)

    def in_state(self, state: str, version: int) -> Identity:
        """A new id in a state, by EndTxn of some version, and who has it."""
        who = Identity(fresh_name("id"), -1, -1)
        for _ in range(2):
            wait_until(lambda: self.init(who).error_code == ErrorCode.NONE)
        found = self.describe(who.name)
        who = Identity(who.name, found.producer_id, found.producer_epoch)
        if state == "Empty":
            return who
        assert self.add(who, 5 if version == 5 else 3, 0) == [0]
        if state == "Ongoing":
            return who
        assert self.end(who, version, state == "CompleteCommit").error_code == 0
        return who._replace(epoch=self.lasting(who.name).producer_epoch)


def requests() -> Iterator[tuple[str, Callable[[Coordinator, Identity], Any]]]:
    """What can be asked, by whom."""
    yield "init", lambda c, who: c.init(who)
    yield "init, half named", lambda c, who: c.init(who, half=True)
    yield "init, no time-out", lambda c, who: c.init(who, timeout_ms=0)
    yield "init, long time-out", lambda c, who: c.init(who, timeout_ms=900_001)
    yield "add what is there", lambda c, who: c.add(who, 3, 0)
    yield "add what is not there", lambda c, who: c.add(who, 3, 0, 7)
    yield "add offsets by hand", lambda c, who: c.add(who, 3, 0, topic="__consumer_offsets")
    yield "add, by a broker", lambda c, who: c.add(who, 5, 1)
    yield "verify", lambda c, who: c.add(who, 5, 0, 1, verify=True)
    yield "verify, version 4", lambda c, who: c.add(who, 4, 0, 1, verify=True)
    yield "verify what is not there", lambda c, who: c.add(who, 5, 0, 7, verify=True)
    yield "add offsets", lambda c, who: c.add_offsets(who, 4)
    yield "commit", lambda c, who: c.end(who, 5, True)
    yield "abort", lambda c, who: c.end(who, 5, False)
    yield "commit, version 4", lambda c, who: c.end(who, 4, True)
    yield "abort, version 4", lambda c, who: c.end(who, 4, False)
    others: list[tuple[str, Callable[[Identity], Identity]]] = [
        ("the epoch before", lambda who: who._replace(epoch=who.epoch - 1)),
        ("the epoch after", lambda who: who._replace(epoch=who.epoch + 1)),
        ("another id", lambda who: who._replace(producer_id=who.producer_id + UNKNOWN_ID)),
    ]
    for name, other in [("this epoch", lambda who: who), *others]:
        yield f"init with {name}", lambda c, who, other=other: c.init(other(who), named=True)
    for name, other in others:
        yield f"init with {name}, version 3", lambda c, who, other=other: c.init(other(who), 3, named=True)
        yield f"add with {name}", lambda c, who, other=other: c.add(other(who), 3, 0)
        yield f"add with {name}, version 1", lambda c, who, other=other: c.add(other(who), 1, 0)
        yield f"verify with {name}", lambda c, who, other=other: c.add(other(who), 5, 0, verify=True)
        yield f"add offsets with {name}", lambda c, who, other=other: c.add_offsets(other(who), 4)
        yield f"add offsets with {name}, version 1", lambda c, who, other=other: c.add_offsets(other(who), 1)
        for version, committed in itertools.product((5, 4, 1), (True, False)):
            what = f"{'commit' if committed else 'abort'} with {name}, version {version}"
            yield what, lambda c, who, o=other, v=version, k=committed: c.end(o(who), v, k)


def said(answer: Any, who: Identity) -> str:
    if isinstance(answer, list):
        return ", ".join(ErrorCode.of(code).name for code in answer)
    text = ErrorCode.of(answer.error_code).name
    if answer.producer_epoch < 0:
        return text
    same = "the same id" if answer.producer_id == who.producer_id else "another id"
    return f"{text}, {same}, epoch {answer.producer_epoch - who.epoch:+}"


def became(found: Any, who: Identity) -> str:
    partitions = sum(len(topic.partitions) for topic in found.topics)
    began = "" if found.transaction_start_time_ms >= 0 else ", never began"
    return f"{found.transaction_state}, epoch {found.producer_epoch - who.epoch:+}, {partitions} partitions{began}"


@pytest.fixture(scope="module")
def coordinator(broker: Broker) -> Iterator[Coordinator]:
    with RawConnection(broker.bootstrap_servers) as connection:
        for kind in (GROUP, TRANSACTION):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
            wait_until(lambda asked=request: connection.ask(asked, 4).coordinators[0].error_code == 0)  # type: ignore[misc]
        yield Coordinator(connection, make_topic(broker.bootstrap_servers, 2))


def answers_of(title: str) -> list[str]:
    start = ANSWERS.index(f"# {title}") + 1
    return list(itertools.takewhile(lambda line: not line.startswith("#"), ANSWERS[start:]))


@pytest.mark.parametrize("version", [5, 4])
@pytest.mark.parametrize("state", ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"])
def test_each_request_in_each_state(coordinator: Coordinator, state: str, version: int) -> None:
    lines = []
    for name, ask in requests():
        who = coordinator.in_state(state, version)
        answer = said(ask(coordinator, who), who)
        lines.append(f"{name}: {answer}; {became(coordinator.lasting(who.name), who)}")
    wanted = answers_of(f"{state}, by version {version}")
    if ORACLE not in os.environ:
        ours = DIFFERENCES.get((state, version), {})
        names = [line.partition(": ")[0] for line in wanted]
        assert ours.keys() <= {*names}
        wanted = [
            f"{name}: {ours[name].format(state=state)}" if name in ours else line
            for name, line in zip(names, wanted, strict=True)
        ]
    assert lines == wanted


@pytest.mark.parametrize("title", ["an id that nobody has", "an empty id"])
def test_each_request_for_no_id(coordinator: Coordinator, title: str) -> None:
    lines = []
    for name, ask in requests():
        who = Identity("" if title == "an empty id" else fresh_name("nobody"), 1 << 40, 3)
        lines.append(f"{name}: {said(ask(coordinator, who), who)}")
    assert lines == answers_of(title)
