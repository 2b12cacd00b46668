"""Records that a consumer was given together, and whether its work on them is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from raftlog.client.core.errors import MissingExtra
from raftlog.client.core.fetched import ConsumerRecord, Slice
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.progress import Progress

if TYPE_CHECKING:
    import pyarrow


class Batch:
    """Some records of one or several partitions; those of one partition are in order. Empty when nothing came in time.

    Decoded when first looked at: raises DamagedRecords then for a batch that is not what it says it is.
    """

    def __init__(self, slices: Sequence[Slice], progress: Progress) -> None:
        self.slices = slices
        self._progress = progress
        self._tickets = progress.hand_out(slices)
        self._records: list[ConsumerRecord] | None = None

    @property
    def records(self) -> list[ConsumerRecord]:
        if self._records is None:
            found = [each.records() for each in self.slices]
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

        Raises MissingExtra where pyarrow is not installed, DamagedRecords with topic, partition and offset.
        """
        try:
            from raftlog.client.columns.decode import to_table
        except ImportError as error:
            raise MissingExtra("batch.arrow()", "arrow") from error
        return to_table(self.slices)

    def parts(self) -> list[Slice]:
        """The same, record batch by record batch."""
        return [part for each in self.slices for part in each.parts()]

    def withdraw(self) -> set[TopicPartition]:
        """Count it as never handed out. Returns the partitions that are still read where it ends."""
        return self._progress.withdraw(self._tickets)

    def __len__(self) -> int:
        return len(self.records)

    def __bool__(self) -> bool:
        return bool(self.slices)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self.records)
