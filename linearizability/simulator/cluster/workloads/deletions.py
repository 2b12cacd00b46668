"""A topic that is deleted and made again under its name, over and over, while faults happen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from raftlog.linearizability.checker.history import OK, Operation
from raftlog.linearizability.checker.log.check import check_log
from raftlog.linearizability.simulator.cluster.client import Connections, Producer, Reader
from raftlog.linearizability.simulator.cluster.workloads.topics import END_APPENDS, PATIENCE_SECONDS, TopicWorkload
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext, name_of
from raftlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

DELETE_VERSION = 6
DELETE_MS = 3000
# Where nothing is cut any more, a deletion that its client gave up is carried out within this, or never.
GIVEN_UP_SECONDS = DELETE_MS / 1000 + 1.0


class Deletions(TopicWorkload):
    """Each topic of that name is a log of its own. What was appended by id is nowhere else; what was acknowledged by
    name before a topic was asked for is not in it. In the end no broker has the log of a topic that is gone.
    """

    kind = "deletions"

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self.current = b""
        self.asked: dict[bytes, int] = {}
        self.by_id: dict[bytes, list[Operation]] = {}
        self.by_name: list[Operation] = []
        self._owners: dict[int, bytes] = {}
        self._deleting = True
        self._producing = True
        self._unanswered = -1
        self._gave_up = False

    async def run(self) -> None:
        """See Workload."""
        await asyncio.gather(self._rule(), self._produce(), self._read())

    async def _produce(self) -> None:
        await asyncio.gather(self._produce_by_id(), self._produce_by_name())
        self._producing = False

    async def _rule(self) -> None:
        random = self.random
        while True:
            await self._make()
            self.count("topics")
            if self.context.calm():
                break
            await asyncio.sleep(0.2 + 1.2 * random.random())
            await self._delete()
            if random.random() < 0.3:
                await asyncio.sleep(0.5 * random.random())
        self._deleting = False
        # A deletion by name that its client gave up may still be carried out, on a topic that was made since.
        until = self.log.now() + int(GIVEN_UP_SECONDS * 1e9) if self._gave_up else 0
        while self._producing or self.log.now() < until:
            await asyncio.sleep(0.3)
            await self._make()

    async def _make(self) -> None:
        """Have a topic of that name. Whatever was asked for and not answered may be what is found."""
        begin = self.log.now()
        self.current = await self.create({})
        self.asked.setdefault(self.current, begin if self._unanswered < 0 else self._unanswered)

    async def _try_to_create(self, name: str, configs: Mapping[str, str], partitions: int) -> bytes | None:
        begin = self.log.now()
        found = await super()._try_to_create(name, configs, partitions)
        if found is None and self._unanswered < 0:
            self._unanswered = begin
        return found

    async def _delete(self) -> None:
        topic_id, self.current = self.current, b""
        by_id = self.random.random() < 0.5
        wanted = DeleteTopicState(topic_id=topic_id) if by_id else DeleteTopicState(name=self.topic)
        while True:
            answer = await self.ask(DeleteTopicsRequest(topics=[wanted], timeout_ms=DELETE_MS), DELETE_VERSION)
            code = name_of(answer.responses[0].error_code if answer is not None else None)
            if code in ("NONE", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"):
                self.count("deleted topics")
                return
            self._gave_up |= answer is None and not by_id
            await asyncio.sleep(0.05)

    async def _produce_by_id(self) -> None:
        ways = self.context.ways(f"{self.topic}.producer")
        producer, left = None, END_APPENDS
        while left:
            topic_id = self.current
            if topic_id:
                if producer is None or producer.topic_id != topic_id:
                    idempotent = ways.random.random() < 0.5
                    producer = Producer(ways, self.log, self.topic, idempotent=idempotent, topic_id=topic_id)
                operation = await self._append(producer, ways)
                self.by_id.setdefault(topic_id, []).append(operation)
                self._owners.update(dict.fromkeys(operation.input, topic_id))
                left -= not self._deleting and operation.outcome is OK and topic_id == self.current
            await asyncio.sleep(0.02 + 0.1 * ways.random.random())

    async def _append(self, producer: Producer, ways: Connections) -> Operation:
        return await producer.append(0, ways.random.randint(1, 3), PATIENCE_SECONDS / 3)

    async def _produce_by_name(self) -> None:
        ways = self.context.ways(f"{self.topic}.byname")
        producer, left = Producer(ways, self.log, self.topic, idempotent=False), END_APPENDS
        while left:
            operation = await self._append(producer, ways)
            self.by_name.append(operation)
            left -= not self._deleting and operation.outcome is OK
            await asyncio.sleep(0.05 + 0.2 * ways.random.random())

    async def _read(self) -> None:
        ways = self.context.ways(f"{self.topic}.reader")
        reader = None
        while not self.context.calm():
            topic_id = self.current
            if topic_id:
                if reader is None or reader.topic_id != topic_id:
                    reader = Reader(ways, self.log, self.topic, topic_id=topic_id)
                before = len(self.log.operations)
                await reader.read(0)
                mine = [operation for operation in self.log.operations[before:] if operation.process == ways.name]
                self.by_id.setdefault(topic_id, []).extend(mine)
            await asyncio.sleep(0.05 + 0.1 * ways.random.random())

    def judge(self) -> None:
        """See Workload."""
        invariants = self.context.invariants
        final = invariants.key_of(self.topic, 0)[2]
        start, values = invariants.values(self.topic, 0)
        acknowledged = {value: op for op in self.by_name if op.outcome is OK for value in op.input}
        for value in values:
            if self._owners.get(value, final) != final:
                self.fail("deleted topics", f"{self.topic} has {value}, which went to an earlier topic's id")
            operation = acknowledged.get(value)
            if operation is not None and operation.end < self.asked.get(final, 0):
                self.fail("deleted topics", f"{self.topic} has {value}, which an earlier topic took: {operation}")
        for topic_id, operations in self.by_id.items():
            if topic_id == final:
                self.judge_log([*operations, *self.by_name_of(values)], values, start)
            else:
                self._judge_deleted(operations)
        self._judge_directories()

    def by_name_of(self, values: tuple[int, ...]) -> list[Operation]:
        """Appends by name that may have gone to the topic with these values."""
        left = set(values)
        return [operation for operation in self.by_name if left.intersection(operation.input)]

    def _judge_deleted(self, operations: list[Operation]) -> None:
        """Of a log that is gone only some appends are known."""
        if (found := check_log(sorted(operations, key=lambda op: op.end), complete=False)) is not None:
            self.fail("linearizability", f"{self.topic}: {found.kind} at {found.offset}: {found.operations}")
        for operation in operations:
            if operation.function == "read" and operation.outcome is OK:
                self._judge_read(operation, operations)

    def _judge_read(self, read: Operation, operations: list[Operation]) -> None:
        topic_id = next(topic_id for topic_id, known in self.by_id.items() if known is operations)
        for value in read.output[0]:
            if self._owners.get(value, topic_id) != topic_id:
                self.fail("deleted topics", f"{read} reads {value}, which went to another topic's id")

    def _judge_directories(self) -> None:
        for node, topic, index in self.context.invariants.strays():
            self.fail("deleted topics", f"{node} has the log of {topic}-{index}, which is not there")
