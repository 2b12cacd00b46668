"""A topic of its own for a workload: made with its configurations, appended to, read, and judged as a log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from raftlog.linearizability.checker.history import INFO, OK, Operation
from raftlog.linearizability.checker.log.check import check_log
from raftlog.linearizability.simulator.cluster.client import (
    ANSWER_SECONDS,
    METADATA_VERSION,
    Contents,
    History,
    Producer,
    Reader,
    number,
)
from raftlog.linearizability.simulator.cluster.kafka_port import Unanswered
from raftlog.linearizability.simulator.cluster.workloads.workloads import Workload, WorkloadContext, name_of
from raftlog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from raftlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

CREATE_VERSION = 7
CREATE_MS = 3000
PATIENCE_SECONDS = 3.0
END_APPENDS = 2
"""So many appends each producer has acknowledged after the faults."""


class TopicWorkload(Workload):
    """One topic, mostly of one partition: with three replicas of which two must be in sync, or with those of one
    partition that `replicas` names.
    """

    min_isr = 2

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self.topic = f"{self.kind}{number}"
        self.log = History(self.ways.loop)
        self.hunted = [(self.topic, 0)]
        self.replicas: list[int] = []

    async def create(self, configs: Mapping[str, str], partitions: int = 1, topic: str = "") -> bytes:
        """Make the topic, or another one, and answer its id; one that is there already will do."""
        while (topic_id := await self._try_to_create(topic or self.topic, configs, partitions)) is None:
            await asyncio.sleep(0.1)
        return topic_id

    async def _try_to_create(self, name: str, configs: Mapping[str, str], partitions: int) -> bytes | None:
        """One attempt; None when it is not known to be there."""
        settings = {"min.insync.replicas": str(self.min_isr), **configs}
        wanted = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=3, configs=wanted)
        if self.replicas:
            topic.num_partitions = topic.replication_factor = -1
            topic.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=self.replicas)]
        answer = await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_MS), CREATE_VERSION)
        if answer is None:
            return None
        code = name_of(answer.topics[0].error_code)
        if code == "NONE":
            return bytes(answer.topics[0].topic_id)
        return await self._topic_id_of(name) if code == "TOPIC_ALREADY_EXISTS" else None

    async def _topic_id_of(self, name: str) -> bytes | None:
        """As some broker knows it."""
        try:
            client = await self.ways.some()
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
            answer = await client.ask(request, METADATA_VERSION, ANSWER_SECONDS)
        except Unanswered:
            return None
        found = answer.topics[0]
        return bytes(found.topic_id) if not found.error_code else None

    async def produce(self, name: str, *, idempotent: bool, contents: Contents = number) -> None:
        """Append until the faults are over, and a little longer."""
        ways = self.context.ways(f"{self.topic}.{name}")
        producer = Producer(ways, self.log, self.topic, idempotent=idempotent, contents=contents)
        left = END_APPENDS
        while left:
            operation = await producer.append(0, ways.random.randint(1, 3), PATIENCE_SECONDS)
            left -= self.context.calm() and operation.outcome is OK
            await asyncio.sleep(0.02 + 0.1 * ways.random.random())

    async def consume(self, reader: Reader) -> None:
        """Read until the faults are over."""
        while not self.context.calm():
            await reader.read(0)
            await asyncio.sleep(0.05 + 0.1 * self.random.random())

    def judge_log(self, operations: list[Operation], values: tuple[int, ...], start: int) -> None:
        """Raises Violation unless it is a log, of which `values` are left from `start` on."""
        stamp = int(self.ways.loop.scheduler.now * 1e9)
        end = Operation("end", "read", start, (values, True), call=stamp, returned=stamp, outcome=OK)
        ordered = sorted(operations, key=lambda op: float("inf") if op.outcome is INFO else op.end)
        if (found := check_log([*ordered, end], complete=True)) is not None:
            self.fail("linearizability", f"{self.topic}: {found.kind} at {found.offset}: {found.operations}")
