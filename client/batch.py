"""Records that a consumer was given together, and whether its work on them is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from raftlog.client.core.errors import DamagedRecords, MissingExtra
from raftlog.client.core.fetched import ConsumerRecord, Slice
from raftlog.client.core.fetching import Fetching
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.progress import Position, Progress

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")


class Batch:
    """Some records of one or several partitions; those of one partition are in order. Empty when nothing came in time.

    Decoded when first looked at. A record batch may prove to be damaged then: what comes before it is given, the
    partition is read no further, and the next poll raises DamagedRecords. Where nothing else is left to be given, or
    the consumer has moved elsewhere, it is raised at once.
    """

    def __init__(self, slices: Sequence[Slice], fetching: Fetching, progress: Progress) -> None:
        self.slices = slices
        self.in_the_loop: Callable[[Callable[[], bool]], bool] = lambda work: work()
        """Runs something where the consumer runs, when the batch is looked at elsewhere."""
        self._fetching = fetching
        self._progress = progress
        self._tickets = progress.hand_out(slices)
        self._records: list[ConsumerRecord] | None = None

    @property
    def records(self) -> list[ConsumerRecord]:
        if self._records is None:
            found = self._decoded(lambda slices: [each.records() for each in slices])
            self._records = found[0] if len(found) == 1 else [record for records in found for record in records]
        return self._records

    @property
    def partitions(self) -> list[TopicPartition]:
        return [(each.topic, each.partition) for each in self.slices]

    @property
    def end_offsets(self) -> dict[TopicPartition, int]:
        """Where to read on in each partition: what to send with a transaction, or to keep with the results."""
        return {(each.topic, each.partition): each.end for each in self.slices}

    def done(self) -> bool:
        """What was to be done with the records is done: their offsets may be committed.

        Offsets move when all earlier batches of the partition are done, too. False if a partition was taken away
        meanwhile: whoever has it now reads some of these records again.
        """
        return self._progress.done(self._tickets)

    def arrow(self) -> pyarrow.Table:
        """The records as an Arrow table, decoded whole batches at a time; its columns are in `columns.decode.SCHEMA`.

        Raises MissingExtra where pyarrow is not installed, DamagedRecords as `records` does.
        """
        try:
            from raftlog.client.columns.decode import to_table
        except ImportError as error:
            raise MissingExtra("batch.arrow()", "arrow") from error
        return self._decoded(to_table)

    def parts(self) -> list[Slice]:
        """The same, record batch by record batch."""
        return [part for each in self.slices for part in each.parts()]

    def withdraw(self) -> set[TopicPartition]:
        """Count it as never handed out. Returns the partitions that are still read where it ends."""
        return self._progress.withdraw(self._tickets)

    def _decoded(self, decode: Callable[[Sequence[Slice]], T]) -> T:
        while True:
            try:
                return decode(self.slices)
            except DamagedRecords as error:
                if not self.in_the_loop(partial(self._end_before, error)):
                    raise

    def _end_before(self, error: DamagedRecords) -> bool:
        """Give nothing from there on. False where nobody else tells of it, or nothing is left."""
        where = (error.topic, error.partition)
        at, count = next(
            (at, count)
            for at, each in enumerate(self.slices)
            for count, piece in enumerate(each.pieces)
            if ((each.topic, each.partition), piece.header.base_offset) == (where, error.offset)
        )
        pieces, (_, ticket) = self.slices[at].pieces, self._tickets[at]
        first, healthy = pieces[count].first, pieces[:count]
        epoch = healthy[-1].header.partition_leader_epoch if healthy else -1
        if not self._progress.end_before(where, ticket, Position(first, epoch) if healthy else None):
            return False
        self._fetching.stop_at(where, first, error)
        kept = list(zip(self.slices, self._tickets, strict=True))
        kept = kept[:at] + [each for each in kept[at:] if each[1][0] != where]
        if healthy:
            kept.insert(at, (Slice(*where, healthy, first, epoch), (where, ticket)))
        if not kept:
            return False
        self.slices, self._tickets = [each for each, _ in kept], [each for _, each in kept]
        return True

    def __len__(self) -> int:
        return len(self.records)

    def __bool__(self) -> bool:
        return bool(self.slices)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self.records)
