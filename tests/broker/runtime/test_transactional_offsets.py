"""Offsets in transactions on a log: markers and commits in the order of the log, and what every prefix of it means."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.broker.core.group.records import CommittedOffset, CoordinatorRecord, OffsetRecord
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import Offset
from tests.broker.runtime.transactional_groups import TransactionalGroups, known
from tests.effort import examples


def test_offsets_of_a_transaction_count_when_it_commits() -> None:
    groups = TransactionalGroups()
    groups.commit(5)
    assert groups.commit(7, producer=1) is ErrorCode.NONE
    assert groups.offset() == 5
    assert groups.end(1, committed=True) is ErrorCode.NONE
    assert groups.offset() == 7


def test_of_records_that_fill_several_batches_none_is_written_if_one_cannot_be() -> None:
    groups = TransactionalGroups()
    groups.commit(5)
    end = groups.world.log.log_end_offset
    too_large = CommittedOffset(Offset(6), metadata="x" * (2 << 20))
    records: list[CoordinatorRecord] = [
        OffsetRecord("g", "t", 0, None),
        OffsetRecord("g", "t", 1, too_large),
        OffsetRecord("g", "t", 2, CommittedOffset(Offset(7))),
    ]
    assert groups.host.append(records) is ErrorCode.MESSAGE_TOO_LARGE
    assert (groups.offset(), groups.world.log.log_end_offset) == (5, end)


def test_offsets_of_an_aborted_transaction_vanish() -> None:
    groups = TransactionalGroups()
    groups.commit(5)
    groups.commit(7, producer=1)
    groups.end(1, committed=False)
    groups.end(1, committed=True)
    assert groups.offset() == 5 == known(groups.loaded())["g"][0]["t"][0].offset


def test_a_plain_commit_behind_the_one_of_a_transaction_wins_whenever_that_commits() -> None:
    groups = TransactionalGroups()
    groups.commit(7, producer=1)
    groups.commit(5)
    groups.end(1, committed=True)
    assert groups.offset() == 5


def test_of_two_transactions_the_later_commit_in_the_log_wins_and_not_the_later_marker() -> None:
    groups = TransactionalGroups()
    groups.commit(7, producer=1)
    groups.commit(8, producer=2)
    groups.end(2, committed=True)
    groups.end(1, committed=True)
    assert groups.offset() == 8


def test_a_marker_ends_the_transaction_in_every_group_of_the_partition() -> None:
    groups = TransactionalGroups()
    for group_id in ("a", "b"):
        groups.commit(3, producer=1, group_id=group_id)
    groups.end(1, committed=True)
    assert [groups.offset(group_id=group_id) for group_id in ("a", "b")] == [3, 3]


def test_a_zombie_producers_commit_is_fenced_by_the_log_and_leaves_nothing() -> None:
    groups = TransactionalGroups()
    groups.commit(3, producer=1, epoch=1)
    end = groups.world.log.log_end_offset
    assert groups.commit(4, producer=1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert groups.end(1, committed=True, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert groups.world.log.log_end_offset == end
    groups.end(1, committed=True, epoch=1)
    assert groups.offset() == 3


def test_a_marker_of_version_two_must_be_of_a_higher_epoch_and_may_come_again() -> None:
    groups = TransactionalGroups()
    groups.commit(3, producer=1, epoch=4)
    assert groups.end(1, committed=True, epoch=4, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert groups.offset() == -1
    assert groups.end(1, committed=True, epoch=5, version=2) is ErrorCode.NONE
    groups.commit(9)
    assert groups.end(1, committed=True, epoch=5, version=2) is ErrorCode.NONE
    assert groups.offset() == 9


def test_a_marker_of_an_old_coordinator_is_refused_and_changes_nothing() -> None:
    groups = TransactionalGroups()
    groups.commit(3, producer=1)
    groups.end(1, committed=True, coordinator_epoch=2)
    groups.commit(4, producer=1)
    refused = groups.end(1, committed=False, coordinator_epoch=1)
    assert refused is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    groups.end(1, committed=True, coordinator_epoch=2)
    assert groups.offset() == 4


def test_deleting_a_group_or_a_topic_takes_what_is_pending_with_it() -> None:
    for removal in ("delete", "forget_topic", "remove"):
        groups = TransactionalGroups()
        groups.commit(3, producer=1)
        groups.commit(4, producer=2, partition=1)
        groups.remove(partition=1)
        getattr(groups, removal)()
        groups.end(1, committed=True)
        groups.end(2, committed=True)
        assert known(groups.host) == {} == known(groups.loaded()), removal


Step = tuple[str, int, int, str]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["plain", "plain", "write", "write", "write", "commit", "commit", "abort", "remove", "delete", "topic"]
        ),
        st.integers(1, 3),
        st.integers(0, 1),
        st.sampled_from(["g", "h"]),
    ),
    min_size=1,
    max_size=30,
)


def take(groups: TransactionalGroups, steps: list[Step], first: int = 0) -> None:
    for number, (kind, producer, partition, group_id) in enumerate(steps, first):
        match kind:
            case "plain":
                groups.commit(number, partition=partition, group_id=group_id)
            case "write":
                groups.commit(number, partition=partition, group_id=group_id, producer=producer)
            case "commit" | "abort":
                groups.end(producer, committed=kind == "commit")
            case "remove":
                groups.remove(partition=partition, group_id=group_id)
            case "delete":
                groups.delete(group_id)
            case _:
                groups.forget_topic()


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_every_prefix_of_the_log_is_loaded_as_it_was(steps: list[Step]) -> None:
    groups = TransactionalGroups()
    take(groups, steps)
    for end_offset, expected in groups.history.items():
        assert known(groups.loaded(end_offset)) == expected


@settings(max_examples=examples(40), deadline=None)
@given(STEPS, STEPS)
def test_a_loaded_host_goes_on_as_the_one_before_would_have(before: list[Step], after: list[Step]) -> None:
    stayed, moved = TransactionalGroups(), TransactionalGroups()
    take(stayed, before + after)
    take(moved, before)
    moved.host = moved.loaded()
    take(moved, after, len(before))
    assert known(moved.host) == known(stayed.host)


@settings(max_examples=examples(40), deadline=None)
@given(STEPS, STEPS)
def test_a_compacted_log_is_loaded_as_it_was(before: list[Step], after: list[Step]) -> None:
    groups = TransactionalGroups()
    take(groups, before)
    groups.world.compact()
    take(groups, after, len(before))
    groups.world.compact()
    assert known(groups.loaded()) == known(groups.host)


def test_compaction_takes_markers_of_which_nothing_is_left_and_loading_does_without() -> None:
    groups = TransactionalGroups()
    for number in range(30):
        groups.commit(number, producer=number % 3)
        groups.end(number % 3, committed=number % 4 != 3)
    before = len(groups.world.batches())
    # Markers stay for delete.retention.ms behind the first run that finds nothing of their transaction.
    for _ in range(3):
        groups.world.compact()
        groups.world.clock.ms += 10 * groups.world.log.config.delete_retention_ms
        for number in range(8):
            groups.commit(number, partition=1)
    groups.commit(100, producer=7)
    assert len(groups.world.batches()) < before / 2
    assert known(groups.loaded()) == known(groups.host)
