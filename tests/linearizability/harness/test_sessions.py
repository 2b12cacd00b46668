"""What a client process writes down of what it does."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from raftlog.linearizability.harness.journal import Journal
from raftlog.linearizability.harness.libraries.ports import ConsumerPort, Library, TopicPartition
from raftlog.linearizability.harness.outcomes import CallFailed, Uncertain
from raftlog.linearizability.harness.session import Assignment, Connections
from raftlog.linearizability.harness.workloads.grouped import GroupSession


class Consumer:
    """Its coordinator is gone."""

    def subscribe(self, topics: Sequence[str]) -> None:
        """It works."""

    def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        raise Uncertain("NOT_COORDINATOR")


class Clients:
    name = "raftlog"
    has_consumer_protocol = True

    def consumer(self, *arguments: Any) -> ConsumerPort:
        return cast(ConsumerPort, Consumer())


def test_a_question_without_an_answer_ends_no_process() -> None:
    said = io.StringIO()
    work = Assignment(1, 6, "groups", "raftlog", "", 1, 10.0, {"grouped": 2})
    journal = Journal(said, 1)
    session = GroupSession(work, journal, Connections(work, cast(Library, Clients())))
    session.consumer()
    before = journal.process
    with pytest.raises(CallFailed):
        session.look()
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    assert lines[-1]["e"] == "fail" and journal.process == before
