"""Faults put back on purpose into the shipped client: what a producer does about batches of which it heard nothing,
what a consumer commits and reads, and as whom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from raftlog.client.consumer import Consumer
from raftlog.client.core.fetching import Fetching
from raftlog.client.core.partition_queue import PartitionQueue
from raftlog.client.core.producer_batch import ProducerBatch
from raftlog.client.core.progress import Progress
from raftlog.client.core.settings import ConsumerSettings
from raftlog.client.offsets import GroupMember
from raftlog.linearizability.simulator.mutants.mutants import Mutant, patch


def numbers_used_again() -> AbstractContextManager[None]:
    """A producer that gave a batch up gives its numbers to the next one: if it was stored all the same, the next one is
    taken for it.
    """

    def give_up(self: PartitionQueue, batch: ProducerBatch, *arguments: Any) -> bool:
        if real(self, batch, *arguments):
            self.has_gap, self.next_sequence = False, batch.base_sequence
        return False

    real = PartitionQueue.give_up
    return patch(PartitionQueue, "give_up", give_up)


def numbered_anew() -> AbstractContextManager[None]:
    """A batch that was not answered is sent again under other numbers."""

    def unanswered(self: PartitionQueue, batch: ProducerBatch) -> None:
        real(self, batch)
        batch.unnumber()

    real = PartitionQueue.unanswered
    return patch(PartitionQueue, "unanswered", unanswered)


def undone_is_committed() -> AbstractContextManager[None]:
    """What a consumer has handed out counts as done."""

    def hand_out(self: Progress, slices: Any) -> Any:
        tickets = real(self, slices)
        self.done(tickets)
        return tickets

    real = Progress.hand_out
    return patch(Progress, "hand_out", hand_out)


def offsets_of_whoever_it_is_now() -> AbstractContextManager[None]:
    """Offsets go into a transaction as of the generation that the member is in by now, not of that which read them."""

    def member(self: Consumer) -> GroupMember:
        if self.settings.group is None or self._runner is None:
            return real(self)
        return GroupMember(self.settings.group, *self._runner.member_now(), self.settings.group_instance_id)

    real: Callable[[Consumer], GroupMember] = Consumer.__dict__["member"].fget
    return patch(Consumer, "member", property(member))


def reads_aborted() -> AbstractContextManager[None]:
    """Readers of committed records ask for all."""
    return patch(ConsumerSettings, "is_read_committed", property(lambda _: False))


def taken_is_committed() -> AbstractContextManager[None]:
    """A consumer commits what it read of partitions that the group has given to another meanwhile."""

    def check_owned(self: Consumer, chosen: Any) -> None:
        return None

    return patch(Consumer, "_check_owned", check_owned)


def cancelled_is_lost() -> AbstractContextManager[None]:
    """What a poll that is cancelled had taken is given to nobody."""

    def give_back(self: Fetching, slices: Any) -> None:
        return None

    return patch(Fetching, "give_back", give_back)


_ALL: Sequence[tuple[str, str, Callable[[], AbstractContextManager[None]]]] = (
    ("client-uses-numbers-again", "clients", numbers_used_again),
    ("client-numbers-anew", "clients", numbered_anew),
    ("client-commits-undone", "clients", undone_is_committed),
    ("client-commits-taken", "readers", taken_is_committed),
    ("client-loses-cancelled", "readers", cancelled_is_lost),
    ("client-offsets-as-of-now", "copies", offsets_of_whoever_it_is_now),
    ("client-reads-aborted", "copies", reads_aborted),
)
CLIENT_MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(name, ("cluster",), str(put.__doc__), put, workload) for name, workload, put in _ALL
)
