"""Faults put back on purpose into groups: who may commit, and what becomes of a transaction's offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from raftlog.broker.core.group import offsets
from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.committed_offsets import CommittedOffsets
from raftlog.broker.core.group.consumer import fencing, migration
from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.linearizability.simulator.mutants.mutants import Mutant, patch
from raftlog.wire.errors import ErrorCode


def generation_not_checked() -> AbstractContextManager[None]:
    """A classic group takes commits of whoever was a member once."""

    def check(self: ClassicGroup, committer: Any) -> ErrorCode:
        return ErrorCode.NONE

    return patch(ClassicGroup, "check_commit", check)


def replaced_static_member_commits() -> AbstractContextManager[None]:
    """A classic group takes commits of a member that another has replaced under its instance id."""

    def check(self: ClassicGroup, committer: Any) -> ErrorCode:
        error = real(self, committer)
        is_now = committer.generation == self.generation
        return ErrorCode.NONE if error is ErrorCode.FENCED_INSTANCE_ID and is_now else error

    real = ClassicGroup.check_commit
    return patch(ClassicGroup, "check_commit", check)


def outsiders_commit() -> AbstractContextManager[None]:
    """A classic group that has members takes commits of whoever names no member and no generation."""

    def check(self: ClassicGroup, committer: Any) -> ErrorCode:
        return ErrorCode.NONE if committer.generation < 0 else real(self, committer)

    real = ClassicGroup.check_commit
    return patch(ClassicGroup, "check_commit", check)


@contextmanager
def member_epoch_not_checked() -> Iterator[None]:
    """A group of the consumer protocol takes commits of whoever was a member once, for any partition."""

    def check(self: ConsumerGroup, committer: Any) -> ErrorCode:
        return ErrorCode.NONE

    def of_partitions(self: ConsumerGroup, committer: Any) -> None:
        return None

    with patch(ConsumerGroup, "check_commit", check), patch(ConsumerGroup, "partition_check", of_partitions):
        yield


def given_before_it_is_free() -> AbstractContextManager[None]:
    """A group of the consumer protocol gives a partition to a member while another still has it."""

    def is_free(self: ConsumerGroup, topic_id: bytes, partition: int) -> bool:
        return True

    return patch(ConsumerGroup, "is_free", is_free)


def upgrade_forgets_who_has_what() -> AbstractContextManager[None]:
    """When a classic group becomes a consumer group, its members' partitions are taken for free."""

    def held(classic: ClassicGroup, said_by: Any, image: Any) -> Any:
        return {member_id: {} for member_id in classic.members}

    return patch(migration, "_held", held)


def upgrade_forgets_offsets() -> AbstractContextManager[None]:
    """When a classic group becomes a consumer group, what it has committed is gone."""

    def made(self: ConsumerGroup, group_id: str, memory: Any, offsets: Any = None) -> None:
        real(self, group_id, memory)

    real = ConsumerGroup.__init__
    return patch(ConsumerGroup, "__init__", made)


def never_downgraded() -> AbstractContextManager[None]:
    """A consumer group stays one when all its members speak the classic protocol."""

    def is_left(*_: Any) -> bool:
        return False

    return patch(fencing, "is_left_to_classic_members", is_left)


def offsets_of_aborted_transactions() -> AbstractContextManager[None]:
    """The offsets of an aborted transaction count as if it had been committed."""

    def end(self: CommittedOffsets, producer_id: Any, *, committed: bool) -> Any:
        return real(self, producer_id, committed=True)

    real = CommittedOffsets.end_transaction
    return patch(CommittedOffsets, "end_transaction", end)


def unstable_offsets_are_told() -> AbstractContextManager[None]:
    """Offsets that an open transaction may change are told, though stable ones are asked for (KIP-447)."""

    def none(group: Any, *, require_stable: bool) -> tuple[()]:
        return ()

    return patch(offsets, "_unstable", none)


_ALL: Sequence[tuple[str, str, Callable[[], AbstractContextManager[None]]]] = (
    ("generation-not-checked", "members", generation_not_checked),
    ("replaced-static-commits", "doubles", replaced_static_member_commits),
    ("outsiders-commit", "doubles", outsiders_commit),
    ("member-epoch-not-checked", "consumers", member_epoch_not_checked),
    ("given-before-free", "consumers", given_before_it_is_free),
    ("upgrade-forgets-holders", "migrations", upgrade_forgets_who_has_what),
    ("upgrade-forgets-offsets", "migrations", upgrade_forgets_offsets),
    ("never-downgraded", "migrations", never_downgraded),
    ("aborted-offsets-count", "pipeline", offsets_of_aborted_transactions),
    ("unstable-offsets-told", "copies", unstable_offsets_are_told),
)
GROUP_MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(name, ("cluster",), str(put.__doc__), put, workload) for name, workload, put in _ALL
)
