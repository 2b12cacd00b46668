"""What the transactions in a log came to, as its batches and markers alone say, and what markers may not do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from raftlog.wire.batch import BatchHeader, decode_batch
from raftlog.wire.control import ControlType, control_type


class Decided(NamedTuple):
    """A log from its beginning on. `visible`: what a reader of committed records gets, in its order, with offsets.

    `open`: the producers whose transactions have no end. `markers`: (producer id, epoch, whether it commits) of each
    marker. `wrong`: what breaks the order of epochs; a producer gets another one when all is ended that it had open.
    """

    visible: list[tuple[int, int]]
    open: set[int]
    markers: list[tuple[int, int, bool]]
    wrong: list[str]


def decided(batches: Iterable[tuple[BatchHeader, bytes]]) -> Decided:
    """Follow every producer through a log."""
    visible: dict[int, int] = {}
    pending: defaultdict[int, dict[int, int]] = defaultdict(dict)
    epochs: dict[int, int] = {}
    begun: dict[int, int] = {}
    markers: list[tuple[int, int, bool]] = []
    wrong: list[str] = []
    for header, data in batches:
        producer, epoch = int(header.producer_id), int(header.producer_epoch)
        if producer >= 0 and epoch < epochs.get(producer, -1):
            wrong.append(f"epoch {epoch} of producer {producer} at {header.base_offset}, after {epochs[producer]}")
        if producer >= 0:
            epochs[producer] = epoch
        records = decode_batch(data)
        if header.is_control:
            kind = control_type(records[0].key) if records else -1
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                markers.append((producer, epoch, kind == ControlType.COMMIT))
                ended = pending.pop(producer, {})
                visible.update(ended if kind == ControlType.COMMIT else {})
            continue
        found = {record.offset: int(record.value) for record in records if record.value is not None}
        if header.is_transactional:
            if pending[producer] and begun[producer] != epoch:
                where = f"{header.base_offset}, with {begun[producer]} open"
                wrong.append(f"epoch {epoch} of producer {producer} at {where}")
            begun[producer] = epoch
            pending[producer].update(found)
        else:
            visible.update(found)
    open_now = {producer for producer, values in pending.items() if values}
    return Decided([(offset, value) for offset, value in sorted(visible.items())], open_now, markers, wrong)
