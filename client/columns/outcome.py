"""What became of the rows of a table that was sent."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from raftlog.client.core.producer_batch import ProducerBatch
from raftlog.client.delivery import until_done

if TYPE_CHECKING:
    import pyarrow as pa

    from raftlog.client.columns.scan import Ints


class TableDelivery:
    """`await` it to learn where the rows are, as a table with columns partition and offset, or to get the first
    KafkaError. When it raises, other rows may be stored.

    The offset is -1 if the brokers stored a row and could not say where any more, or acks=0.
    """

    def __init__(self) -> None:
        self._count = 0
        self._parts: list[tuple[Ints, list[ProducerBatch]]] = []

    @property
    def batches(self) -> list[ProducerBatch]:
        return [batch for _, batches in self._parts for batch in batches]

    @property
    def done(self) -> bool:
        return all(batch.is_done for batch in self.batches)

    def add(self, rows: Ints, batches: list[ProducerBatch]) -> None:
        """These rows, counted from the start of the table, are in these batches, in this order."""
        self._parts.append((rows, batches))
        self._count += len(rows)

    def __await__(self) -> Generator[Any, None, pa.Table]:
        for batch in self.batches:
            if not batch.is_done:
                yield from until_done(batch)
        return self.placed()

    def placed(self) -> pa.Table:
        """Once it is `done`. Raises KafkaError."""
        # Here and not above: the class has a name in `raftlog.client`, also where there are no arrays.
        import numpy as np
        import pyarrow as pa

        partitions = np.empty(self._count, np.int32)
        offsets = np.empty(self._count, np.int64)
        for rows, batches in self._parts:
            partitions[rows] = batches[0].partition[1]
            offsets[rows] = np.concatenate([_offsets(leaf) for batch in batches for leaf in _leaves(batch)])
        columns = {"partition": pa.array(partitions), "offset": pa.array(offsets)}
        schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in columns.items()])
        return pa.table(columns, schema)


def _leaves(batch: ProducerBatch) -> Iterator[ProducerBatch]:
    """A batch, or the parts that it was split into."""
    if not batch.halves:
        yield batch
    for half in batch.halves:
        yield from _leaves(half)


def _offsets(batch: ProducerBatch) -> Ints:
    import numpy as np

    if batch.failure is not None:
        raise batch.failure
    if batch.base_offset < 0:
        return np.full(batch.count, -1, np.int64)
    return np.arange(batch.base_offset, batch.base_offset + batch.count)
