"""Records that are deleted from the front of a log while faults happen: by DeleteRecords, by age and by size."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from raftlog.linearizability.checker.history import FAIL, INFO, Operation
from raftlog.linearizability.simulator.cluster.client import Connections, Reader
from raftlog.linearizability.simulator.cluster.kafka_port import Unanswered
from raftlog.linearizability.simulator.cluster.simulated_broker import host_of
from raftlog.linearizability.simulator.cluster.workloads.topics import TopicWorkload
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext, name_of
from raftlog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

DELETE_VERSION = 2
DELETE_MS = 1000
HIGH_WATERMARK = -1
SENT_AGAIN_NS = 300_000_000
"""An append that took so long was tried more than once."""
UNBOUND = 1 << 62
POLICIES: tuple[dict[str, str], ...] = (
    {},
    {},
    {"retention.ms": "400"},
    {"retention.bytes": "600"},
    {"retention.ms": "1500", "retention.bytes": "400"},
)
"""Without a policy, and now and then beside one, clients ask for it."""


class Trims(TopicWorkload):
    """What is left is a log, from where it begins. What an answered DeleteRecords took is gone from every replica that
    can be reached; why logs begin where they do is seen by `LogStarts`.
    """

    kind = "trims"

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self.policy = self.random.choice(POLICIES)

    async def run(self) -> None:
        """See Workload."""
        await self.create({"segment.ms": "200", "file.delete.delay.ms": "100", **self.policy})
        readers = [
            Reader(self.context.ways(f"{self.topic}.reader{n}"), self.log, self.topic, out_of_range=self._out_of_range)
            for n in range(2)
        ]
        await asyncio.gather(
            self.produce("idempotent", idempotent=True),
            self.produce("plain", idempotent=False),
            *[self.consume(reader) for reader in readers],
            *([] if self.policy and self.random.random() < 0.7 else [self._delete()]),
        )

    def _out_of_range(self, partition: int, offset: int, host: str) -> None:
        """A follower may not have the record yet, or not any more: only its leader knows (KIP-392)."""
        invariants = self.context.invariants
        starts, key = invariants.log_starts, invariants.key_of(self.topic, partition)
        if offset >= starts.highest[key] and host == host_of(invariants.newest[key].leader):
            self.fail("log start", f"{self.topic} has nothing at {offset}, and begins at {starts.highest[key]} at most")
        self.count("reads below the start")

    async def _delete(self) -> None:
        ways = self.context.ways(f"{self.topic}.deleter")
        while not self.context.calm():
            await asyncio.sleep(0.1 + 0.4 * ways.random.random())
            await self._delete_once(ways)

    async def _delete_once(self, ways: Connections) -> None:
        invariants = self.context.invariants
        end = invariants.committed_end(invariants.key_of(self.topic, 0))
        before = HIGH_WATERMARK if ways.random.random() < 0.2 else ways.random.randint(max(0, end - 20), end)
        asked = invariants.log_starts.asked
        # Whatever is committed when the request comes to the leader.
        asked[self.topic, 0] = max(asked[self.topic, 0], UNBOUND if before == HIGH_WATERMARK else before)
        partitions = [DeleteRecordsPartition(partition_index=0, offset=before)]
        topics = [DeleteRecordsTopic(name=self.topic, partitions=partitions)]
        lives = invariants.lives()
        try:
            leader = await ways.leader(self.topic, 0)
            client = await ways.to(leader)
            request = DeleteRecordsRequest(topics=topics, timeout_ms=DELETE_MS)
            answer = await client.ask(request, DELETE_VERSION, 2 * DELETE_MS / 1000)
        except Unanswered:
            ways.forget(self.topic, 0)
            return
        result = answer.topics[0].partitions[0]
        if result.error_code:
            ways.forget(self.topic, 0)
            self.count(f"deletions answered {name_of(result.error_code)}")
            return
        self.count("deletions of records")
        if result.low_watermark < before:
            self.fail("log start", f"{self.topic}: deletion below {before} is answered with {result.low_watermark}")
        self._check_gone(result.low_watermark, lives, leader[0])

    def _check_gone(self, low_watermark: int, lives: dict[int, int], leader: str) -> None:
        """Everybody in sync who has lived since the request was sent has deleted what the answer says; but a leader
        that was deposed, and has not heard of it, speaks for nobody else, and who lost power is in sync only until its
        broker is registered again.
        """
        invariants = self.context.invariants
        key = invariants.key_of(self.topic, 0)
        if leader != host_of(invariants.newest[key].leader):
            return
        for node, start in invariants.starts_of(key).items():
            alive = lives.get(node) == invariants.lives().get(node)
            has_all = node not in invariants.tainted or invariants.is_whole(node)
            if alive and has_all and node in invariants.newest[key].isr and start < low_watermark:
                text = f"{self.topic}: all is deleted below {low_watermark}, and {node} in the ISR begins at {start}"
                self.fail("log start", text)

    def judge(self) -> None:
        """See Workload."""
        start, values = self.context.invariants.values(self.topic, 0)
        self.counts["records deleted"] = start
        operations = self.log.operations
        self.judge_log([*operations, *filter(None, map(_stored_before, operations))], values, start)


def _stored_before(operation: Operation) -> Operation | None:
    """A batch that was sent again long after may have been stored by the first try, and deleted since: a leader that
    began behind it as a follower, or lost power before it kept the snapshot of its producers, knows nothing of its
    producer, and stores it once more. So it is with Kafka. Whether the client heard of the last try makes no
    difference.
    """
    lasted = 0 if operation.returned is None else operation.returned - operation.call
    if operation.outcome is FAIL or not str(operation.process).endswith("idempotent") or lasted < SENT_AGAIN_NS:
        return None
    return replace(operation, output=None, outcome=INFO)
