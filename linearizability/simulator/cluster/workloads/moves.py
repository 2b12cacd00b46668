"""Partitions move to other brokers and back while faults happen, moves are called off, and preferred leaders elected.
"""

from __future__ import annotations

import asyncio

from raftlog.linearizability.simulator.cluster.workloads.workloads import Workload, WorkloadContext, name_of
from raftlog.metadata.records import PartitionState
from raftlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from raftlog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

REASSIGN_VERSION, ELECT_VERSION = 1, 2
REPLICAS = (2, 3, 3)
PATIENCE_MS = 3000
ENOUGH = {"NONE", "NO_REASSIGNMENT_IN_PROGRESS"}
LATER = {"NOT_ANSWERED", "REQUEST_TIMED_OUT", "NOT_CONTROLLER", "INVALID_REPLICA_ASSIGNMENT"}
"""A quorum without a leader, or a move that cannot be called off yet because only new replicas have the data."""


class Moves(Workload):
    """Whatever was asked for last is what is there in the end: the replicas asked for, or those from before."""

    kind = "moves"

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self.wanted: list[set[int]] = []
        self.unsure = False

    async def run(self) -> None:
        """See Workload."""
        context, random = self.context, self.random
        while not context.calm():
            partition = random.randrange(context.partitions)
            rng = random.random()
            if rng < 0.5:
                await self._move(partition, self._target())
            elif rng < 0.75:
                await self._move(partition, None)
            else:
                await self._elect(partition)
            await asyncio.sleep(0.02 + random.choice((0.1, 0.6)) * random.random())
        # What was given up may still be carried out for so long.
        await asyncio.sleep(PATIENCE_MS / 1000 if self.unsure else 0)
        self.wanted = [await self._last(partition) for partition in range(context.partitions)]

    def _target(self) -> tuple[int, ...]:
        nodes = self.context.nodes
        return tuple(self.random.sample(nodes, min(len(nodes), self.random.choice(REPLICAS))))

    async def _move(self, partition: int, replicas: tuple[int, ...] | None) -> str:
        wanted = ReassignablePartition(partition_index=partition, replicas=None if replicas is None else list(replicas))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=PATIENCE_MS, topics=[ReassignableTopic(name=self.context.topic, partitions=[wanted])]
        )
        answer = await self.ask(request, REASSIGN_VERSION)
        if answer is None or answer.error_code or not answer.responses:
            self.unsure = True
            return name_of(answer.error_code if answer is not None else None)
        code = name_of(answer.responses[0].partitions[0].error_code)
        if code == "NONE":
            self.count("cancelled moves" if replicas is None else "moves")
        return code

    async def _elect(self, partition: int) -> None:
        topics = [TopicPartitions(topic=self.context.topic, partitions=[partition])]
        answer = await self.ask(
            ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=PATIENCE_MS), ELECT_VERSION
        )
        results = answer.replica_election_results if answer is not None else []
        if results and not results[0].partition_result[0].error_code:
            self.count("preferred elections")

    async def _last(self, partition: int) -> set[int]:
        """Ask until it is known what becomes of the partition: its replicas when all has come to rest."""
        if self.random.random() < 0.5:
            target = self._target()
            while (code := await self._move(partition, target)) != "NONE":
                self._known(code)
                await asyncio.sleep(0.1)
            return set(target)
        while (code := await self._move(partition, None)) not in ENOUGH:
            self._known(code)
            await asyncio.sleep(0.1)
        # What is left when nothing is under way any more; which it is not, as the answer says.
        return set()

    def _known(self, code: str) -> None:
        if code not in LATER:
            self.fail("reassignment", f"a move is answered with {code}")

    def state(self, partition: int) -> PartitionState:
        """As the newest metadata have it."""
        newest = self.context.invariants.newest
        return next(state for key, state in newest.items() if key[:2] == (self.context.topic, partition))

    def judge(self) -> None:
        """See Workload."""
        for partition, wanted in enumerate(self.wanted):
            state = self.state(partition)
            if state.adding_replicas or state.removing_replicas:
                self.fail("reassignment", f"partition {partition} is still on its way: {state}")
            if wanted and wanted != set(state.replicas):
                self.fail("reassignment", f"partition {partition} was to go to {sorted(wanted)}: {state}")
