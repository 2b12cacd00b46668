"""Whom a sinkId belongs to: one query, which all of its tasks see recorded before a row of theirs is committed.

The record is a decision that names no transactions, for no micro-batch (-1): it lies where decisions lie, is written
once, and later decisions name the same query. Who finds none takes over the transactional id `SINKID:owner`, which
fences everybody else that is about to write one, looks again, and writes it. So one of two queries is recorded, and the
other one sees it. Nobody takes a record away: a query that is started again finds its own.
"""

from __future__ import annotations

import asyncio
import random

from raftlog.client.admin import Admin
from raftlog.client.core.errors import ProducerFenced
from raftlog.client.core.progress import Position
from raftlog.client.offsets import committed_offsets
from raftlog.client.router import Router
from raftlog.pipeline.session import Session
from raftlog.pipeline.sink.decision import Decision, group_of, owner_id, read_decision
from raftlog.pipeline.sink.marker import Marker, check_query, marker_groups, read_marker
from raftlog.pipeline.sink.options import SinkOptions

CLAIMS_MAX = 20
"""How often a task tries to write the record, while others that want to do it fence it."""
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 2.0
"""At most so long before the second try, twice as long before each further one."""


class Owner:
    """What a task, or the driver, of one query wants to know before it commits."""

    def __init__(self, running: Session, options: SinkOptions, sink_id: str, query: str, batch: int) -> None:
        self._running = running
        self._options = options
        self._sink_id = sink_id
        self._query = query
        self._batch = batch
        self._is_recorded = options.sink_id is None  # which nobody has chosen is the query's own

    async def look(self) -> Decision | None:
        """The last decision, or the record. Raises KafkaError, SinkInUse."""
        found = await find_decision(self._running.router, self._sink_id)
        if found is not None:
            self._check(found)
            self._is_recorded = True
        return found

    async def claim(self, topic: str) -> None:
        """Return when this query is recorded. `topic`: one that is there, and written to. Raises KafkaError, SinkInUse.

        Only the first time is there something to do.
        """
        pause = PAUSE_SECONDS
        for left in reversed(range(CLAIMS_MAX)):
            if self._is_recorded or await self.look() is not None:
                return
            try:
                await self._write(topic)
            except ProducerFenced:
                if not left:
                    raise
                # Tasks that begin at the same time fence each other; one of them is the first to come back.
                await asyncio.sleep(random.uniform(0, pause))
                pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _write(self, topic: str) -> None:
        running, sink_id = self._running, self._sink_id
        async with await running.producer(self._options.producer, owner_id(sink_id)) as producer:
            await producer.begin()
            if await self.look() is not None:
                return
            # The record is written once and may have expired; markers are written again and again.
            for marker in await find_markers(running.client.admin, running.router, sink_id):
                self._check(marker)
            record = Decision(self._query, -1, "", ())
            position = Position(record.offset, metadata=record.metadata())
            await producer.send_positions({(topic, 0): position}, group_of(sink_id))
            await producer.commit()
        # Kafka answers before the record can be seen. To ask for this one offset waits until it can be: whoever looks
        # after the first row was committed finds it, and fences nobody.
        await committed_offsets(running.router, group_of(sink_id), [(topic, 0)], require_stable=True)
        self._is_recorded = True

    def _check(self, found: Decision | Marker) -> None:
        check_query(found.query, found.batch, self._sink_id, self._query, self._batch)


async def find_decision(router: Router, sink_id: str) -> Decision | None:
    """The last one of the sink's drivers, or the record of its owner. Raises KafkaError, SinkInUse."""
    committed = await committed_offsets(router, group_of(sink_id), require_stable=True)
    return read_decision((each.offset, each.metadata) for each in committed.values())


async def find_markers(admin: Admin, router: Router, sink_id: str) -> list[Marker]:
    """Those of all tasks. Raises KafkaError, SinkInUse."""
    found = []
    for group in marker_groups(sink_id, [each.group_id for each in await admin.list_groups()]):
        committed = await committed_offsets(router, group, require_stable=True)
        marker = read_marker((each.offset, each.metadata) for each in committed.values())
        if marker is not None:
            found.append(marker)
    return found
