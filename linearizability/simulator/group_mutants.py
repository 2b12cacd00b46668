"""Faults put back on purpose into groups: who may commit, and what becomes of a transaction's offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.committed_offsets import CommittedOffsets
from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.linearizability.simulator.mutants import Mutant, patch
from raftlog.wire.errors import ErrorCode


def generation_not_checked() -> AbstractContextManager[None]:
    """A classic group takes commits of whoever was a member once."""

    def check(self: ClassicGroup, committer: Any) -> ErrorCode:
        return ErrorCode.NONE

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


def offsets_of_aborted_transactions() -> AbstractContextManager[None]:
    """The offsets of an aborted transaction count as if it had been committed."""

    def end(self: CommittedOffsets, producer_id: Any, *, committed: bool) -> Any:
        return real(self, producer_id, committed=True)

    real = CommittedOffsets.end_transaction
    return patch(CommittedOffsets, "end_transaction", end)


_ALL: Sequence[tuple[str, str, Callable[[], AbstractContextManager[None]]]] = (
    ("generation-not-checked", "members", generation_not_checked),
    ("member-epoch-not-checked", "consumers", member_epoch_not_checked),
    ("aborted-offsets-count", "pipeline", offsets_of_aborted_transactions),
)
GROUP_MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(name, ("cluster",), str(put.__doc__), put, workload) for name, workload, put in _ALL
)
