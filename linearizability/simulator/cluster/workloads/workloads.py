"""Workloads beside producing and reading. Each is begun by an entry of the schedule, or is not.

A workload runs among the clients, does what it does at random moments until the faults are over, brings it to an end,
and is judged by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from raftlog.linearizability.simulator.cluster.client import Address, Connections, History
from raftlog.linearizability.simulator.cluster.invariants import ClusterInvariants
from raftlog.linearizability.simulator.cluster.kafka_port import KafkaClient, Unanswered
from raftlog.linearizability.simulator.violation import Violation
from raftlog.wire.errors import ErrorCode
from raftlog.wire.schema import Message

PATIENCE_SECONDS = 5.0
"""How long an answer about metadata may take."""


@dataclass(slots=True)
class WorkloadContext:
    """What a workload finds: the cluster's brokers, ways to them, and what all observers know.

    `calm()`: the faults are over. `working()`: clients go on.
    """

    nodes: list[int]
    topic: str
    partitions: int
    history: History
    invariants: ClusterInvariants
    ways: Callable[[str], Connections]
    calm: Callable[[], bool]
    working: Callable[[], bool]


class Workload:
    """One of them. `kind` is its name in schedules."""

    kind = ""

    def __init__(self, context: WorkloadContext, number: int) -> None:
        self.context = context
        self.ways = context.ways(f"{self.kind}{number}")
        self.random: Random = self.ways.random
        self.counts: dict[str, int] = {}
        self.hunted: list[tuple[str, int]] = []
        """Topics and partitions whose leaders faults are to meet too."""

    async def run(self) -> None:
        """All of it; ends soon after the faults are over."""
        raise NotImplementedError

    def judge(self) -> None:
        """Raises Violation, when all has come to rest."""

    def count(self, what: str) -> None:
        """For the report of the run."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def fail(self, invariant: str, text: str) -> None:
        """Raises Violation."""
        raise Violation(invariant, text)

    async def connected(self, ways: Connections, address: Address) -> KafkaClient | None:
        """A connection; None when there is no way."""
        try:
            return await ways.to(address)
        except Unanswered:
            return None

    async def ask(self, request: Message, version: int, client: KafkaClient | None = None) -> Any:
        """The answer of that broker, or of any; None when there was none."""
        try:
            to = client or await self.ways.some()
            return await to.ask(request, version, PATIENCE_SECONDS)
        except Unanswered:
            return None


def name_of(code: int | None) -> str:
    """An error's name; NOT_ANSWERED without one."""
    return "NOT_ANSWERED" if code is None else ErrorCode.of(code).name


WorkloadMaker = Callable[[WorkloadContext, int], Workload]
