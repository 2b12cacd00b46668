"""Where logs end, and where the records of a time begin, as consumers ask before they read (ListOffsets)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from raftlog.linearizability.simulator.cluster.client import Connections
from raftlog.linearizability.simulator.cluster.kafka_port import Unanswered
from raftlog.linearizability.simulator.cluster.simulated_broker import host_of
from raftlog.linearizability.simulator.cluster.state import Key
from raftlog.linearizability.simulator.cluster.workloads.deletions import Deletions
from raftlog.linearizability.simulator.cluster.workloads.workloads import Workload, WorkloadContext, name_of
from raftlog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

VERSION = 8
LATEST = -1
ANSWER_SECONDS = 1.5
CLIENTS = 2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TIME_CHANCE = 0.3


class Told(NamedTuple):
    """A leader of this epoch has said that the log ends there, as far as is committed, or as all is decided."""

    epoch: int
    offset: int
    call: int
    returned: int


class Ends(Workload):
    """Nobody is told of an end that was never committed; who is told of one is told of none before it later, by the
    same leader or one that was elected since (KIP-207). The first record of a time is the one that is there.

    A leader that was deposed and has not heard of it says what was so once, as in Kafka.
    """

    kind = "ends"

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self._told: dict[tuple[Key, int], list[Told]] = {}

    async def run(self) -> None:
        """See Workload."""
        ways = [self.context.ways(f"{self.kind}{number}") for number in range(CLIENTS)]
        await asyncio.gather(*[self._work(each) for each in ways])

    async def _work(self, ways: Connections) -> None:
        while not self.context.calm():
            # Of what has been deleted a broker may still tell, by a name that others have by now.
            keys = [key for key in self.context.invariants.newest if not key[0].startswith(Deletions.kind)]
            own = [key for key in keys if key[0] == self.context.topic]
            if own and ways.random.random() < TIME_CHANCE:
                await self._ask_time(ways, ways.random.choice(own))
            elif keys:
                await self._ask_end(ways, ways.random.choice(keys))
            await asyncio.sleep(0.02 + 0.1 * ways.random.random())

    async def _ask(
        self, ways: Connections, key: Key, wanted: ListOffsetsPartition, isolation: int
    ) -> ListOffsetsPartitionResponse | None:
        """What the leader says, unless its disk may be as bad as what it says."""
        topics = [ListOffsetsTopic(name=key[0], partitions=[wanted])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
        held = self.context.invariants.held
        before = set(held)
        try:
            address = await ways.leader(*key[:2])
            client = await ways.to(address)
            answer = await client.ask(request, VERSION, ANSWER_SECONDS)
        except Unanswered:
            ways.forget(*key[:2])
            return None
        found: ListOffsetsPartitionResponse = answer.topics[0].partitions[0]
        if found.error_code:
            self.count(f"ends answered {name_of(found.error_code)}")
            ways.forget(*key[:2])
            return None
        return None if any(address[0] == host_of(node) for node in before | held) else found

    async def _ask_end(self, ways: Connections, key: Key) -> None:
        isolation = ways.random.choice((READ_UNCOMMITTED, READ_COMMITTED))
        call = self.context.history.now()
        wanted = ListOffsetsPartition(partition_index=key[1], timestamp=LATEST)
        found = await self._ask(ways, key, wanted, isolation)
        if found is None:
            return
        self.count("ends told")
        told = Told(found.leader_epoch, found.offset, call, self.context.history.now())
        highest = self.context.invariants.transaction_ends.highest(key)
        if told.offset > highest:
            self.fail("ends", f"{key}: {told}, and nobody knew more than {highest} to be committed")
        known = self._told.setdefault((key, isolation), [])
        for first, second in self._in_order(known, told):
            if second.offset < first.offset:
                self.fail("ends", f"{key}: {second} after {first}, isolation level {isolation}")
        known.append(told)

    @staticmethod
    def _in_order(known: list[Told], told: Told) -> Iterator[tuple[Told, Told]]:
        """With each that was told before, the two as their leaders followed each other."""
        for other in known:
            if other.epoch < told.epoch or (other.epoch == told.epoch and other.returned < told.call):
                yield other, told
            elif other.epoch > told.epoch:
                yield told, other

    async def _ask_time(self, ways: Connections, key: Key) -> None:
        committed = self.context.invariants.committed.get(key)
        if not committed:
            return
        time = ways.random.choice(committed).max_timestamp + ways.random.choice((0, 0, 1))
        before = list(self._told.get((key, READ_UNCOMMITTED), ()))
        epoch = max((told.epoch for told in before), default=-1)
        wanted = ListOffsetsPartition(partition_index=key[1], current_leader_epoch=epoch, timestamp=time)
        found = await self._ask(ways, key, wanted, READ_UNCOMMITTED)
        if found is None:
            return
        self.count("times told")
        # All records of a batch have one time here.
        there = next((batch for batch in committed if batch.max_timestamp >= time), None)
        if found.offset < 0:
            end = max((told.offset for told in before), default=0)
            if there is not None and there.end_offset <= end:
                self.fail("times", f"{key}: nothing at {time} or later, and {there} is there, below {end}")
        elif there is None or (there.base_offset, there.max_timestamp) != (found.offset, found.timestamp):
            self.fail("times", f"{key}: {found} at {time} or later, and {there} is the first")
