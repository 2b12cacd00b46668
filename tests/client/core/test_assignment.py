from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.client.core.assignment import (
    assign_ranges,
    read_assignment,
    write_assignment,
    write_subscription,
)
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.internal.consumer_protocol import decode_subscription

topics = st.sampled_from(["a", "b", "c"])


@given(
    st.dictionaries(st.sampled_from(["m1", "m2", "m3", "m4"]), st.lists(topics, unique=True), min_size=1),
    st.dictionaries(topics, st.integers(0, 7)),
)
def test_every_partition_has_one_reader_and_shares_differ_by_one_at_most(
    subscriptions: dict[str, list[str]], partitions: dict[str, int]
) -> None:
    assigned = assign_ranges(subscriptions, partitions)
    assert assigned.keys() == subscriptions.keys()
    for topic, count in partitions.items():
        readers = [member for member, wanted in subscriptions.items() if topic in wanted]
        shares = [assigned[member].get(topic, []) for member in sorted(readers)]
        assert [each for share in shares for each in share] == (list(range(count)) if readers else [])
        assert not shares or max(map(len, shares)) - min(map(len, shares)) <= 1
        assert all(topic not in assigned[member] for member in subscriptions if member not in readers)


def test_the_shares_are_those_of_kafkas_range_assignor() -> None:
    # The example of RangeAssignor's documentation: two members, two topics of three partitions.
    members = {"C0": ["t0", "t1"], "C1": ["t0", "t1"]}
    assert assign_ranges(members, {"t0": 3, "t1": 3}) == {
        "C0": {"t0": [0, 1], "t1": [0, 1]},
        "C1": {"t0": [2], "t1": [2]},
    }


@given(st.dictionaries(st.text(max_size=10), st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=4))
def test_an_assignment_is_read_back_as_it_was_written(assignment: dict[str, list[int]]) -> None:
    assert read_assignment(write_assignment(assignment)) == assignment


def test_a_subscription_is_read_back_as_it_was_written() -> None:
    assert decode_subscription(write_subscription(["a", "ü"])).topics == ["a", "ü"]


def test_no_bytes_are_no_assignment_and_wrong_ones_are_refused() -> None:
    assert read_assignment(b"") == {}
    with pytest.raises(RemoteProtocolError):
        read_assignment(b"\0\0\x7f\xff\xff\xff")
