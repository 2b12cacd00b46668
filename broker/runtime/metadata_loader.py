"""Follows the metadata log: makes the newest image of committed entries, and tells its listeners what has changed."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from raftlog.metadata.codec import decode_records, encode_records
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import Record
from raftlog.metadata.snapshot import decode_snapshot, encode_snapshot, snapshot_records
from raftlog.raft.seam import MetadataLog
from raftlog.wire.errors import InvariantViolation

log = logging.getLogger("raftlog.controller")

Listener = Callable[[MetadataDelta, MetadataImage], None]

REPLAYED_PARTITIONS_MAX = 50_000
"""A start that replays more partition states than this after the snapshot (some 0.2 s) makes a new one for the next
start. The log itself goes by bytes, and a crash of a broker that leads ten thousand partitions leaves a record of
ten bytes.
"""

CATCH_UP_SECONDS_MAX = 5.0
"""For how long an answer from the leader waits for its change to arrive here, so that who asked sees what it did."""


class _Pending(NamedTuple):
    """A change that is proposed and not yet committed."""

    entry_index: int
    entry: bytes
    delta: MetadataDelta
    image: MetadataImage


class MetadataLoader:
    """The one place in a broker where committed metadata change.

    Invariants: `image` only ever moves forward; listeners see every change once and in order.
    """

    def __init__(self, metadata_log: MetadataLog) -> None:
        self._log = metadata_log
        self.image = MetadataImage()
        # Whether the next start would have to replay very much.
        self.wants_snapshot = False
        self._listeners: list[Listener] = []
        self._pending: deque[_Pending] = deque()
        self._pending_term = -1
        self._starting: MetadataDelta | None = None
        self._started = False
        self._restored_partitions = 0
        self._catching_up: list[tuple[int, asyncio.Future[None]]] = []

    async def start(self) -> None:
        """Read the metadata log; the listeners are told all of it at once. Raises JournalDamaged."""
        self._starting = MetadataDelta(MetadataImage())
        # Replay makes objects by the ten thousand and no cycles: looking for some would take as long again.
        collecting = gc.isenabled()
        gc.disable()
        try:
            await self._log.start(self._restore, self._replay, self._snapshot)
        finally:
            if collecting:
                gc.enable()
        delta, self._starting = self._starting, None
        self.wants_snapshot = delta.partitions_replayed - self._restored_partitions > REPLAYED_PARTITIONS_MAX
        self._started = True
        self._publish(delta, delta.apply(self._log.committed_index))

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with every change from now on, and at once with all there is when the log has been read."""
        self._listeners.append(listener)
        if self._started:
            delta = MetadataDelta(MetadataImage())
            for record in snapshot_records(self.image):
                delta.replay(record)
            delta.apply(self.image.version)
            listener(delta, self.image)

    async def caught_up_to(self, index: int) -> None:
        """Wait until this node has replayed a log entry, or for CATCH_UP_SECONDS_MAX."""
        if self.image.version >= index:
            return
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._catching_up.append((index, arrived))
        await asyncio.wait([arrived], timeout=CATCH_UP_SECONDS_MAX)
        if not arrived.done():
            arrived.cancel()

    # -- what the leader has proposed ---------------------------------------------------------------

    @property
    def has_proposals(self) -> bool:
        """Whether something is proposed and not yet committed."""
        return bool(self._pending)

    def newest(self) -> MetadataImage:
        """The image with what is proposed and not yet committed: the leader decides on it."""
        last = self._pending[-1] if self._pending else None
        if last is not None and (last.entry_index != self._log.last_index or self._pending_term != self._log.term):
            # What was proposed is not going to be committed: the disk failed, or another node leads now.
            self._pending.clear()
            last = None
        return last.image if last is not None else self.image

    def expect(self, records: Sequence[Record]) -> bytes:
        """The entry that is proposed next, of these records: it is part of `newest` from now on."""
        delta = MetadataDelta(self.newest())
        for record in records:
            delta.replay(record)
        if delta.anomalies:
            raise InvariantViolation(f"a decision contradicts the metadata: {'; '.join(delta.anomalies)}")
        index = self._log.last_index + 1
        entry = encode_records(records)
        self._pending_term = self._log.term
        self._pending.append(_Pending(index, entry, delta, delta.apply(index)))
        return entry

    def forget_proposals(self) -> None:
        """This node does not lead any more: its proposals fail, and what follows is decided by another node."""
        self._pending.clear()

    # -- what the log calls -------------------------------------------------------------------------

    def _restore(self, index: int, chunks: Iterable[bytes]) -> None:
        if self._starting is None:
            self._restore_running(decode_snapshot(chunks, index))
            return
        for chunk in chunks:
            for record in decode_records(chunk):
                self._starting.replay(record)
        self._restored_partitions = self._starting.partitions_replayed

    def _restore_running(self, newer: MetadataImage) -> None:
        """This node was too far behind for entries, and is given the state as a whole: listeners see it as one change
        from what they know.
        """
        from raftlog.metadata.difference import records_between

        self._pending.clear()
        delta = MetadataDelta(self.image)
        for record in records_between(self.image, newer):
            delta.replay(record)
        log.info("metadata taken over from a snapshot up to entry %d", newer.version)
        self._publish(delta, delta.apply(newer.version))

    def _replay(self, index: int, entry: bytes) -> None:
        if self._starting is not None:
            for record in decode_records(entry):
                self._starting.replay(record)
            return
        if self._pending:
            first = self._pending[0]
            # The bytes are compared: after a change of leaders another entry may stand in this place.
            if first.entry_index == index and first.entry == entry:
                self._pending.popleft()
                self._publish(first.delta, first.image)
                return
            self._pending.clear()
        delta = MetadataDelta(self.image)
        for record in decode_records(entry):
            delta.replay(record)
        self._publish(delta, delta.apply(index))

    def _snapshot(self) -> tuple[int, Iterable[bytes]]:
        return self.image.version, encode_snapshot(self.image)

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for anomaly in delta.anomalies:
            log.error("metadata log entry %d: %s (passed over)", image.version, anomaly)
        self.image = image
        for listener in self._listeners:
            listener(delta, image)
        if self._catching_up:
            waiting, self._catching_up = self._catching_up, []
            for index, arrived in waiting:
                if image.version < index:
                    self._catching_up.append((index, arrived))
                elif not arrived.done():
                    arrived.set_result(None)
