"""What a client process writes down of what it does."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from raftlog.linearizability.harness.journal import Journal
from raftlog.linearizability.harness.libraries.ports import (
    ConsumerPort,
    Library,
    Membership,
    Polled,
    Read,
    TopicPartition,
)
from raftlog.linearizability.harness.outcomes import CallFailed, Uncertain
from raftlog.linearizability.harness.session import Assignment, Connections
from raftlog.linearizability.harness.workloads import objects
from raftlog.linearizability.harness.workloads.grouped import KINDS, GroupSession, kind_of
from raftlog.linearizability.harness.workloads.objects import TopicSession


class Consumer:
    """Its coordinator is gone. It polls what it was given."""

    def __init__(self, polled: list[Polled]) -> None:
        self.polled = polled

    def poll(self, seconds: float) -> Polled:
        return self.polled.pop(0)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """It works."""

    def subscribe(self, topics: Sequence[str]) -> None:
        """It works."""

    def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        raise Uncertain("NOT_COORDINATOR")


class Clients:
    name = "raftlog"
    has_consumer_protocol = True

    def __init__(self, polled: list[Polled]) -> None:
        self.polled = polled

    def consumer(self, *arguments: Any) -> ConsumerPort:
        return cast(ConsumerPort, Consumer(self.polled))


def member_of_a_group(*polled: Polled) -> tuple[GroupSession, io.StringIO]:
    said = io.StringIO()
    work = Assignment(1, 6, "groups", "raftlog", "", 1, 10.0, {"grouped": 2})
    return GroupSession(work, Journal(said, 1), Connections(work, cast(Library, Clients([*polled])))), said


def lines(said: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.getvalue().splitlines()]


@pytest.mark.parametrize("clients", [4, 6, 10, 16, 18])
def test_each_group_has_two_members_or_more_and_seeds_take_turns_with_the_kinds(clients: int) -> None:
    seen: set[str] = set()
    for seed in range(4):
        works = [Assignment(number, clients, "groups", "raftlog", "", seed, 1.0, {}) for number in range(1, clients, 2)]
        counts = Counter(map(kind_of, works))
        assert min(counts.values()) >= 2
        seen |= counts.keys()
    assert seen == set(KINDS)


def test_a_question_without_an_answer_ends_no_process() -> None:
    session, said = member_of_a_group()
    session.consumer()
    before = session.journal.process
    with pytest.raises(CallFailed):
        session.look()
    assert lines(said)[-1]["e"] == "fail" and session.journal.process == before


def polled_as(generation: int, *offsets: int, partition: int = 0) -> Polled:
    records = [Read("grouped", partition, offset, "x", None) for offset in offsets]
    return Polled(records, membership=Membership("m", generation, frozenset({("grouped", 0), ("grouped", 1)})))


def test_a_member_tells_its_generation_when_it_begins_and_with_what_it_commits() -> None:
    session, said = member_of_a_group(polled_as(4, 7), polled_as(4, 8))
    session.consume()
    session.consume()
    session.commit()
    told = lines(said)
    joined = [each for each in told if each.get("function") == "join"]
    assert [each["input"]["group"] for each in joined] == [session.group], "once in a generation"
    output = next(each["output"] for each in told if each["e"] == "ok" and each["id"] == joined[0]["id"])
    assert output == {"member": "m", "generation": 4, "keys": ["grouped-0", "grouped-1"]}
    (commit,) = [each["input"] for each in told if each.get("function") == "commit"]
    assert commit == {"group": session.group, "offsets": {"grouped-0": 9}, "member": "m", "generation": 4}


def test_a_generation_is_told_only_when_the_group_has_said_what_is_owned_in_it() -> None:
    """A coordinator's failover gives the number of one that it had not stored to others, who commit rightly."""
    joining, joined = polled_as(5), polled_as(6)
    assert joining.membership is not None
    joining.membership = joining.membership._replace(is_assigned=False)
    session, said = member_of_a_group(polled_as(4), joining, joined)
    for _ in range(3):
        session.consume()
    told = [each["output"]["generation"] for each in lines(said) if "generation" in (each.get("output") or {})]
    assert told == [4, 6]


def test_what_was_read_in_another_generation_is_not_committed() -> None:
    session, said = member_of_a_group(polled_as(4, 7), polled_as(5, 3, partition=1))
    session.consume()
    session.consume()
    session.commit()
    (commit,) = [each["input"] for each in lines(said) if each.get("function") == "commit"]
    assert commit["offsets"] == {"grouped-1": 4} and commit["generation"] == 5


class Topics(TopicSession):
    """The brokers at a and b, which tell what the test says, one answer after the other."""

    def __init__(self, final_seconds: float, **told: list[set[str]]) -> None:
        self.said = io.StringIO()
        work = Assignment(1, 6, "topics", "raftlog", ",".join(told), 1, 1.0, {}, final_seconds=final_seconds)
        super().__init__(work, Journal(self.said, 1), Connections(work, cast(Library, Clients([]))))
        self.told = told
        self._tried = {"t1", "t2"}

    def _names_at(self, address: str) -> set[str]:
        told = self.told[address]
        return told.pop(0) if len(told) > 1 else told[0]


def test_topics_are_counted_when_every_broker_has_heard_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "SETTLE_SECONDS", 0.0)
    session = Topics(60.0, a=[{"t1"}], b=[{"t1", "t2"}, {"t1", "t2"}, {"t1"}])
    session.final({})
    assert [line["output"] for line in lines(session.said) if line["e"] == "ok"] == [True, False]


def test_brokers_that_never_agree_leave_the_verdict_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "SETTLE_SECONDS", 0.0)
    session = Topics(0.0, a=[{"t1"}], b=[{"t1", "t2"}])
    with pytest.raises(Uncertain, match="do not agree"):
        session.final({})


def test_the_requests_for_topics_bear_the_name_by_which_faults_know_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", made.append)
    Topics(1.0, a=[set()])._connected()
    assert made[0]["client.id"] == "verify-1-admin"
