"""A compacted topic while faults happen: few keys, many values, and marks of deletion."""

from __future__ import annotations

import asyncio

from raftlog.linearizability.checker.history import OK
from raftlog.linearizability.simulator.cluster.workloads.topics import TopicWorkload

KEYS = 5
RARE_EVERY = 40
"""One value in so many has a key of its own, which nothing ever supersedes."""
TOMBSTONE_EVERY = 9


def contents_of(value: int) -> tuple[bytes | None, bytes | None]:
    """The record of a value."""
    if value % RARE_EVERY == 0:
        return b"rare%d" % value, b"%d" % value
    return b"key%d" % (value % KEYS), None if value % TOMBSTONE_EVERY == 0 else b"%d" % value


class Compaction(TopicWorkload):
    """The last value of each key survives on every replica, and what is there is what was appended; see
    `CompactedLogs`.
    """

    kind = "compaction"

    async def run(self) -> None:
        """See Workload."""
        random = self.random
        await self.create(
            {
                "cleanup.policy": "compact",
                "segment.ms": random.choice(("150", "400")),
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": random.choice(("0", "500", "100000")),
                "file.delete.delay.ms": random.choice(("50", "1000")),
                "min.compaction.lag.ms": random.choice(("0", "0", "300")),
            }
        )
        await asyncio.gather(
            self.produce("idempotent", idempotent=True, contents=contents_of),
            self.produce("plain", idempotent=False, contents=contents_of),
        )

    def judge(self) -> None:
        """What was acknowledged is what was committed there."""
        invariants = self.context.invariants
        records = invariants.compacted.records[invariants.key_of(self.topic, 0)]
        for operation in self.log.operations:
            if operation.outcome is not OK:
                continue
            for offset, value in enumerate(operation.input, operation.output):
                if records.get(offset) != contents_of(value):
                    self.fail("compaction", f"{operation}: at {offset} {records.get(offset)} was committed")
        self.counts["records compacted away"] = len(records) - invariants.records_left(self.topic, 0)
