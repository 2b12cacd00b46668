"""A topic with two replicas of which one in sync is enough, as it is by default: what one has alone is acknowledged."""

from __future__ import annotations

import asyncio

from raftlog.linearizability.simulator.cluster.client import Reader
from raftlog.linearizability.simulator.cluster.workloads.topics import TopicWorkload
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext


class SingleCopies(TopicWorkload):
    """It is a log, with all that was acknowledged, as long as no host that has a replica loses power or its disk."""

    kind = "single-copies"
    min_isr = 1

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        # Of four brokers the last one is no voter: both can be away, and there is a quorum that knows.
        self.replicas = [context.nodes[0], context.nodes[-1]]
        self.random.shuffle(self.replicas)
        context.invariants.min_isr[self.topic] = self.min_isr

    async def run(self) -> None:
        """See Workload."""
        await self.create({})
        await asyncio.gather(
            self.produce("idempotent", idempotent=True),
            self.produce("plain", idempotent=False),
            self.consume(Reader(self.context.ways(f"{self.topic}.reader"), self.log, self.topic)),
        )

    def judge(self) -> None:
        """See Workload."""
        start, values = self.context.invariants.values(self.topic, 0)
        self.judge_log(self.log.operations, values, start)
