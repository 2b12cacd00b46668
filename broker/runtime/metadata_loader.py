"""Follows the metadata log: makes the newest image of committed entries, and tells its listeners what has changed."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterable

from raftlog.broker.runtime.pending_changes import PendingChanges
from raftlog.metadata.codec import decode_records
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.snapshot import decode_snapshot, encode_snapshot, snapshot_records
from raftlog.raft.seam import MetadataLog

log = logging.getLogger("raftlog.controller")

Listener = Callable[[MetadataDelta, MetadataImage], None]

REPLAYED_PARTITIONS_MAX = 50_000
"""A start that replays more partition states than this after the snapshot (some 0.2 s) makes a new one for the next
start. The log itself goes by bytes, and a crash of a broker that leads ten thousand partitions leaves a record of
ten bytes.
"""

CATCH_UP_SECONDS_MAX = 5.0
"""For how long an answer from the leader waits for its change to arrive here, so that who asked sees what it did."""


class MetadataLoader:
    """The one place in a broker where committed metadata change.

    Invariants: `image` only ever moves forward; listeners see every change once and in order.
    """

    def __init__(self, metadata_log: MetadataLog, pending: PendingChanges) -> None:
        self._log = metadata_log
        self._pending = pending
        self.image = MetadataImage()
        # Whether the next start would have to replay very much.
        self.wants_snapshot = False
        self._listeners: list[Listener] = []
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
        change = self._pending.committed(index, entry)
        if change is not None:
            self._publish(change.delta, change.image)
            return
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
