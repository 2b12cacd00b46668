"""What an error of a broker means in a history: it did not happen, or nobody knows."""

from __future__ import annotations

import io
import json

import pytest

from raftlog.linearizability.harness.journal import Journal
from raftlog.linearizability.harness.outcomes import by_code


def recorded(code: str) -> tuple[str, bool]:
    """The outcome of a call that ends with this error, and whether its process goes on."""
    said = io.StringIO()
    journal = Journal(said, 1)
    before = journal.process
    journal.invoke("send", {"a": 1}).failed(by_code(code, "said so"))
    return json.loads(said.getvalue().splitlines()[-1])["e"], journal.process == before


@pytest.mark.parametrize("code", ["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"])
def test_kafka_13574_what_a_deposed_leader_refuses_may_have_been_written(code: str) -> None:
    """It may be in the log already, and be replicated yet: a history that calls it failed reports reads of it."""
    assert recorded(code) == ("info", False)


@pytest.mark.parametrize("code", ["NOT_ENOUGH_REPLICAS", "INVALID_PRODUCER_EPOCH", "MESSAGE_TOO_LARGE"])
def test_what_is_refused_before_anything_is_written_did_not_happen(code: str) -> None:
    assert recorded(code) == ("fail", True)
