"""Clients of one group commit offsets and fetch them while faults happen, as consumers that are assigned by hand do."""

from __future__ import annotations

import asyncio

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import FAIL, INFO, OK, Operation
from raftlog.linearizability.checker.models.offsets import ConsumerOffsets
from raftlog.linearizability.checker.verdict import Invalid
from raftlog.linearizability.simulator.cluster.client import Connections
from raftlog.linearizability.simulator.cluster.kafka_port import KafkaClient
from raftlog.linearizability.simulator.cluster.workloads.workloads import Workload, WorkloadContext, name_of
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

FIND_VERSION, COMMIT_VERSION, FETCH_VERSION = 4, 8, 8
CLIENTS = 2
# Nothing was written, and nothing will be.
REFUSED = ("COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_TOPIC_OR_PARTITION")


class Offsets(Workload):
    """What is fetched in the end is the last commit that was acknowledged, or one whose outcome is not known.

    A coordinator that is cut off may answer fetches with what was there before, for a while, as in Kafka: what is
    fetched before the faults are over has only to be something that somebody has tried to commit.
    """

    kind = "offsets"

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self.group = f"group{number}"
        self._coordinator: tuple[str, int] | None = None
        self._operations: list[Operation] = []
        self._calm_since = 0

    async def run(self) -> None:
        """See Workload."""
        ways = [self.context.ways(f"{self.group}.{number}") for number in range(CLIENTS)]
        await asyncio.gather(*[self._work(each) for each in ways])
        self._calm_since = self.context.history.now()
        while (await self._fetch(self.ways)).outcome is not OK:
            await asyncio.sleep(0.1)

    async def _work(self, ways: Connections) -> None:
        while not self.context.calm():
            if ways.random.random() < 0.7:
                await self._commit(ways)
            else:
                await self._fetch(ways)
            await asyncio.sleep(0.05 + 0.2 * ways.random.random())

    async def _at(self, ways: Connections) -> KafkaClient | None:
        """A connection to the coordinator, as somebody says."""
        if self._coordinator is None:
            answer = await self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]), FIND_VERSION)
            found = answer.coordinators[0] if answer is not None else None
            if found is None or found.error_code:
                return None
            self._coordinator = (found.host, found.port)
        return await self.connected(ways, self._coordinator)

    def _begin(self, ways: Connections, function: str, given: object) -> Operation:
        operation = self.context.history.begin(ways.name, function, self.group, given)
        self._operations.append(operation)
        return operation

    async def _commit(self, ways: Connections) -> None:
        (offset,) = self.context.history.values(1)
        operation = self._begin(ways, "commit", {"offset": offset})
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.group, topics=[OffsetCommitRequestTopic(name=self.context.topic, partitions=[partition])]
        )
        client = await self._at(ways)
        answer = await self.ask(request, COMMIT_VERSION, client) if client is not None else None
        code = name_of(answer.topics[0].partitions[0].error_code if answer is not None else None)
        if code == "NONE":
            self.count("committed offsets")
            self.context.history.end(operation, OK, True)
            return
        self._coordinator = None
        self.context.history.end(operation, FAIL if client is None or code in REFUSED else INFO, None, code)

    async def _fetch(self, ways: Connections) -> Operation:
        operation = self._begin(ways, "fetch", None)
        topics = [OffsetFetchRequestTopics(name=self.context.topic, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=topics)])
        client = await self._at(ways)
        answer = await self.ask(request, FETCH_VERSION, client) if client is not None else None
        group = answer.groups[0] if answer is not None else None
        if group is None or group.error_code or group.topics[0].partitions[0].error_code:
            self._coordinator = None
            self.context.history.end(operation, INFO, None, name_of(group.error_code if group is not None else None))
            return operation
        offset = group.topics[0].partitions[0].committed_offset
        self.count("fetched offsets")
        self.context.history.end(operation, OK, None if offset < 0 else offset)
        return operation

    def judge(self) -> None:
        """See Workload."""
        tried = {op.input["offset"] for op in self._operations if op.function == "commit" and op.outcome is not FAIL}
        fetches = [op for op in self._operations if op.function == "fetch" and op.outcome is OK]
        for operation in fetches:
            if operation.output is not None and operation.output not in tried:
                self.fail("offsets", f"{operation} is what nobody committed")
        judged = [op for op in self._operations if op.function == "commit" or op.call >= self._calm_since]
        verdict = check(judged, ConsumerOffsets())
        if isinstance(verdict, Invalid):
            self.fail("offsets", f"{self.group}: {verdict.witness.words}")
