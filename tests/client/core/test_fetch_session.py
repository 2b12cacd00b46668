"""What a fetch session asks for, as its partitions and their topics' ids change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.client.core.fetch_session import FIRST_EPOCH, FetchSession, Wanted
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.schema import ZERO_UUID
from tests.effort import examples

A, B = b"a" * 16, b"b" * 16
HERE, THERE = ("t", 0), ("t", 1)


def wanted(offset: int, topic_id: bytes = A) -> Wanted:
    return Wanted(offset, 0, -1, 1000, topic_id)


def begun() -> FetchSession:
    session = FetchSession()
    session.request({HERE: wanted(0), THERE: wanted(0)})
    session.answered(ErrorCode.NONE, 7)
    session.check_invariants()
    return session


def test_only_what_changed_is_asked_for() -> None:
    request = begun().request({HERE: wanted(5), THERE: wanted(0)})
    assert (request.session_id, request.epoch, dict(request.partitions)) == (7, 1, {HERE: wanted(5)})
    assert request.forgotten == [] and request.uses_ids


def test_what_is_not_wanted_any_more_is_forgotten_by_the_id_that_it_had() -> None:
    request = begun().request({HERE: wanted(0)})
    assert request.forgotten == [(THERE, A)] and not request.partitions


def test_a_topic_that_was_made_anew_replaces_the_one_before() -> None:
    request = begun().request({HERE: wanted(0, B), THERE: wanted(0)})
    assert request.forgotten == [(HERE, A)] and dict(request.partitions) == {HERE: wanted(0, B)}


def test_a_session_has_names_or_ids_and_never_both() -> None:
    session = begun()
    request = session.request({HERE: wanted(0, ZERO_UUID), THERE: wanted(0)})
    assert request.epoch == FIRST_EPOCH and not request.uses_ids and len(request.partitions) == 2
    session.answered(ErrorCode.NONE, 8)
    assert session.request({HERE: wanted(0, ZERO_UUID), THERE: wanted(0)}).epoch == 1


def test_a_request_is_answered_or_lost_before_the_next_one() -> None:
    session = begun()
    session.request({HERE: wanted(5)})
    with pytest.raises(InvariantViolation, match="before the last one is answered"):
        session.request({HERE: wanted(5)})
    session.lost()
    assert session.request({HERE: wanted(5)}).epoch == FIRST_EPOCH


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from([HERE, THERE]), st.tuples(st.integers(0, 3), st.sampled_from([A, B]))),
            st.sampled_from(["kept", "lost", "forgotten", "refused", "not made"]),
        )
    )
)
def test_the_broker_fetches_exactly_what_is_wanted(
    steps: list[tuple[dict[tuple[str, int], tuple[int, bytes]], str]],
) -> None:
    session = FetchSession()
    there: dict[tuple[str, int], Wanted] = {}
    for wants, outcome in steps:
        now_wanted = {partition: wanted(*each) for partition, each in wants.items()}
        request = session.request(now_wanted)
        session.check_invariants()
        if request.epoch == FIRST_EPOCH:
            there = {}
        for partition, _ in request.forgotten:
            there.pop(partition, None)
        there |= request.partitions
        assert there == now_wanted
        match outcome:
            case "kept":
                session.answered(ErrorCode.NONE, 7)
            case "lost":
                session.lost()
            case "forgotten":
                session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
            case "refused":
                session.answered(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7)
            case "not made":
                session.answered(ErrorCode.NONE, 0)
        session.check_invariants()
