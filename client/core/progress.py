"""How far a consumer's work is done: what may be committed, whatever order batches are finished in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple
from weakref import ref

from raftlog.client.core.fetched import Slice
from raftlog.client.core.metadata import TopicPartition
from raftlog.wire.errors import InvariantViolation

CROWD = 64
"""When so many parts of a partition are handed out and not done, those that never will be are looked for."""


class Position(NamedTuple):
    """The next offset to read, and the leader epoch of the record before it (KIP-320), -1 if unknown.

    `metadata` is what whoever commits it wants to keep with it.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class _Ticket:
    """Whoever has it may say that something is done."""

    __slots__ = ("__weakref__", "handed")

    def __init__(self, handed: _Handed) -> None:
        self.handed = handed


class _Handed:
    __slots__ = ("is_done", "position", "ticket")

    def __init__(self, position: Position) -> None:
        self.position = position
        self.is_done = False
        self.ticket: ref[_Ticket] | None = None

    @property
    def is_lost(self) -> bool:
        """Nobody can say any more that it is done."""
        return not self.is_done and (self.ticket is None or self.ticket() is None)


class Progress:
    """A partition's offset moves when all that was handed out before it is done."""

    def __init__(self) -> None:
        self._outstanding: dict[TopicPartition, deque[_Handed]] = {}
        self._done: dict[TopicPartition, Position] = {}
        self._committed: dict[TopicPartition, Position] = {}
        self._taken: set[TopicPartition] = set()
        self.moves = 0
        """How often a partition was taken away, or its position changed."""
        self._moved: dict[TopicPartition, int] = {}
        self.is_told = False
        """Whether somebody calls `done`: others commit offsets that they choose, or with a transaction."""

    def begin_poll(self) -> None:
        """Whoever is handed out records is told, too, what was taken away before."""
        self._taken.clear()

    def take(self, partition: TopicPartition) -> None:
        """It was taken away."""
        self.forget(partition)
        self._taken.add(partition)

    def was_taken(self, partition: TopicPartition) -> bool:
        """Whether it was taken away since the last poll, also if it has come back."""
        return partition in self._taken

    def hand_out(self, slices: Iterable[Slice]) -> list[tuple[TopicPartition, object]]:
        """Tickets for `done`."""
        tickets: list[tuple[TopicPartition, object]] = []
        for each in slices:
            tickets += self.hand_out_one((each.topic, each.partition), Position(each.end, each.leader_epoch))
        return tickets

    def hand_out_one(self, partition: TopicPartition, position: Position) -> list[tuple[TopicPartition, object]]:
        """The same for one record or part, after which reading goes on at `position`."""
        return [(partition, self._ticket(partition, position))]

    def _ticket(self, partition: TopicPartition, position: Position) -> _Ticket:
        waiting = self._outstanding.get(partition)
        if waiting is None:
            waiting = self._outstanding[partition] = deque()
        elif waiting and not len(waiting) % CROWD:
            waiting = self._outstanding[partition] = _thinned(waiting)
        handed = _Handed(position)
        ticket = _Ticket(handed)
        handed.ticket = ref(ticket)
        waiting.append(handed)
        return ticket

    def done(self, tickets: Iterable[tuple[TopicPartition, object]]) -> bool:
        """False if some of it belongs to a partition that was taken away meanwhile, or was sought away from."""
        self.is_told = all_counted = True
        for partition, ticket in tickets:
            assert isinstance(ticket, _Ticket)
            waiting, handed = self._outstanding.get(partition), ticket.handed
            if waiting is None or handed not in waiting:
                all_counted = all_counted and handed.is_done
                continue
            handed.is_done = True
            while waiting and waiting[0].is_done:
                self._done[partition] = waiting.popleft().position
        return all_counted

    def withdraw(self, tickets: Iterable[tuple[TopicPartition, object]]) -> set[TopicPartition]:
        """These, the newest, were not handed out after all: their parts are, each by itself.

        Returns their partitions, without those that were taken away meanwhile or sought away from.
        """
        found = set()
        for partition, ticket in tickets:
            assert isinstance(ticket, _Ticket)
            waiting = self._outstanding.get(partition)
            if waiting is not None and ticket.handed in waiting:
                waiting.remove(ticket.handed)
                found.add(partition)
        return found

    def end_before(self, partition: TopicPartition, ticket: object, position: Position | None) -> bool:
        """What a ticket was given for ends at `position` (None: is nothing), and what was handed out behind it does not
        count. False if it is not out any more: it is done, taken away, or was sought away from.
        """
        assert isinstance(ticket, _Ticket)
        waiting = self._outstanding.get(partition)
        if waiting is None or ticket.handed not in waiting:
            return False
        while (handed := waiting.pop()) is not ticket.handed:
            handed.is_done = False
        if position is not None:
            handed.position = position
            waiting.append(handed)
        self.moves += 1
        self._moved[partition] = self.moves
        return True

    def is_busy(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether anything of these is handed out and not done."""
        return any(self._outstanding.get(partition) for partition in partitions)

    def to_commit(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Position]:
        wanted = self._done if partitions is None else [each for each in partitions if each in self._done]
        return {each: self._done[each] for each in wanted if self._committed.get(each) != self._done[each]}

    def committed(self, positions: dict[TopicPartition, Position]) -> None:
        """Of what was taken away meanwhile nothing is known."""
        self._committed.update((each, position) for each, position in positions.items() if each in self._done)

    def forget(self, partition: TopicPartition) -> None:
        """The position was changed: what is out does not count any more."""
        self._outstanding.pop(partition, None)
        self._done.pop(partition, None)
        self._committed.pop(partition, None)
        self.moves += 1
        self._moved[partition] = self.moves

    def not_moved(self, slices: Iterable[Slice], moves: int) -> list[Slice]:
        """Those whose partition has been left as it was since there were so many `moves`."""
        return [each for each in slices if self._moved.get((each.topic, each.partition), 0) <= moves]

    def check_invariants(self) -> None:
        for partition, waiting in self._outstanding.items():
            if waiting and waiting[0].is_done:
                raise InvariantViolation(f"{partition} does not move though its oldest batch is done")
            offsets = [handed.position.offset for handed in waiting]
            if offsets != sorted(offsets):
                raise InvariantViolation(f"{partition} was handed out backwards")


def _thinned(waiting: Iterable[_Handed]) -> deque[_Handed]:
    """Without what matters no more: behind what is never done, no offset moves."""
    kept = deque[_Handed]()
    is_blocked = False
    for each in waiting:
        is_lost = each.is_lost
        if not (is_blocked and (is_lost or each.is_done)):
            kept.append(each)
        is_blocked = is_blocked or is_lost
    return kept
