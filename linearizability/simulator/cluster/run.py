"""A whole cluster under a seed: brokers as they are shipped, clients that keep a history, faults, and invariants."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random

from raftlog.broker.broker import Broker
from raftlog.linearizability.checker.history import INFO, OK, Operation
from raftlog.linearizability.checker.log.check import check_log
from raftlog.linearizability.simulator.cluster.client import Connections, History, Producer, Reader
from raftlog.linearizability.simulator.cluster.faults import (
    DATA_KINDS,
    DETAILED_KINDS,
    DETAILS,
    FAILING_TOO,
    FAILING_TOO_CHANCE,
    ClusterInjector,
)
from raftlog.linearizability.simulator.cluster.invariants import ClusterInvariants
from raftlog.linearizability.simulator.cluster.kafka_port import Unanswered
from raftlog.linearizability.simulator.cluster.simulated_broker import (
    DATA,
    KAFKA_PORT,
    METADATA,
    adapted,
    broker_program,
    described,
    host_of,
    settings_of,
)
from raftlog.linearizability.simulator.cluster.workloads.bursts import Bursts
from raftlog.linearizability.simulator.cluster.workloads.clients import Clients
from raftlog.linearizability.simulator.cluster.workloads.compaction import Compaction
from raftlog.linearizability.simulator.cluster.workloads.consumers import SETTINGS as CONSUMER_SETTINGS
from raftlog.linearizability.simulator.cluster.workloads.consumers import Consumers
from raftlog.linearizability.simulator.cluster.workloads.copies import Copies
from raftlog.linearizability.simulator.cluster.workloads.deletions import Deletions
from raftlog.linearizability.simulator.cluster.workloads.doubles import Doubles
from raftlog.linearizability.simulator.cluster.workloads.ends import Ends
from raftlog.linearizability.simulator.cluster.workloads.expiries import SETTINGS as EXPIRY_SETTINGS
from raftlog.linearizability.simulator.cluster.workloads.expiries import Expiries
from raftlog.linearizability.simulator.cluster.workloads.members import SETTINGS as MEMBER_SETTINGS
from raftlog.linearizability.simulator.cluster.workloads.members import Members
from raftlog.linearizability.simulator.cluster.workloads.migrations import Migrations
from raftlog.linearizability.simulator.cluster.workloads.moves import Moves
from raftlog.linearizability.simulator.cluster.workloads.offsets import Offsets
from raftlog.linearizability.simulator.cluster.workloads.pipeline import Pipeline
from raftlog.linearizability.simulator.cluster.workloads.readers import Readers
from raftlog.linearizability.simulator.cluster.workloads.single_copies import SingleCopies
from raftlog.linearizability.simulator.cluster.workloads.stragglers import Stragglers
from raftlog.linearizability.simulator.cluster.workloads.transfers import SETTINGS as TRANSACTION_SETTINGS
from raftlog.linearizability.simulator.cluster.workloads.transfers import Transfers
from raftlog.linearizability.simulator.cluster.workloads.trims import Trims
from raftlog.linearizability.simulator.cluster.workloads.versions import SETTINGS as VERSION_SETTINGS
from raftlog.linearizability.simulator.cluster.workloads.versions import Versions
from raftlog.linearizability.simulator.cluster.workloads.workloads import Workload, WorkloadContext, WorkloadMaker
from raftlog.linearizability.simulator.faults import Fault, Plan, schedule
from raftlog.linearizability.simulator.machine.world import Machine
from raftlog.linearizability.simulator.runs import BaseSimulation
from raftlog.linearizability.simulator.scenarios import cluster_scenario_of
from raftlog.linearizability.simulator.violation import Violation
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

CLIENTS = 100
"""The node that all clients run on."""
TOPIC = "t"
PRODUCERS, READERS = 3, 2
"""Clients 1 to 3, and 4 and 5."""
BOOT_SECONDS_MAX = 20.0
FAULT_SECONDS = 5.0
SETTLE_SECONDS = 40.0

KINDS = (
    "kill", "power", "tear", "freeze", "cut", "deaf", "isolate", "split", "reset", "slow-disk", "full-disk", "clock",
    "stop", "unreachable",
)  # fmt: skip
OFTEN = (Moves, Offsets)
SELDOM = (Deletions, Trims, Compaction, Members, Transfers, Pipeline, Consumers, Migrations, Expiries, Clients, Copies)
APART = (Readers, SingleCopies, Versions, Ends, Doubles, Stragglers, Bursts)
"""Chosen by themselves, so that seeds keep what they had before these came."""
WORKLOADS: dict[str, WorkloadMaker] = {workload.kind: workload for workload in (*OFTEN, *SELDOM, *APART)}
WORKLOAD_CHANCE = 0.3
"""How likely each of those that cost little is part of a run."""
SELDOM_COUNTS = (0, 1, 1, 1, 2)
"""How many of those that cost more are."""
APART_CHANCE = 0.1

HUNTED_CHANCE = 0.6
"""How often a fault that is meant for a leader meets one that a workload of the run rests on."""
STUBBORN_CHANCE = 0.1
"""How likely a client does not believe what it is told of leaders."""


class ClusterRun(BaseSimulation):
    """One run of a cluster."""

    part = "cluster"

    def __init__(self, seed: int, faults: Sequence[Fault] | None, kept_lines: int | None) -> None:
        super().__init__(seed, kept_lines)
        random = self.random
        self.size = random.choice((3, 3, 3, 4))
        self.partitions = random.choice((1, 2))
        self.settings = {
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.num.partitions": "1",
            # Where nothing is compacted, replicas are compared byte for byte.
            "log.cleaner.enable": "false",
            "broker.session.timeout.ms": random.choice(("700", "1000", "2000")),
            "broker.heartbeat.interval.ms": "200",
            "replica.lag.time.max.ms": random.choice(("500", "1000", "3000")),
            "replica.fetch.wait.max.ms": "200",
        }
        self.directories, where = _house(Random(f"{seed} house"))
        self.settings |= where
        # Where the metadata lie with the data, their disk is none that may fail.
        plan = Plan(self.size, 0.0, FAULT_SECONDS, 1, 7, (*KINDS, *(DATA_KINDS if where else ())), 0)
        own = schedule(random, plan)
        workloads = _workloads(seed)
        scenario = cluster_scenario_of(seed, self.size, {each.kind for each in workloads})
        own = [*workloads, *_detailed(seed, own if scenario is None else scenario)]
        self.faults = self.take(own if faults is None else faults, PRODUCERS + READERS)
        self.fault_seconds = FAULT_SECONDS
        self.settings |= _upkeep(seed, {fault.kind for fault in self.faults})
        self.nodes = list(range(1, self.size + 1))
        for node in self.nodes:
            self.world.add_machine(node, host_of(node))
        self.clients = self.world.add_machine(CLIENTS, "clients")
        self.invariants = ClusterInvariants(self.world, self.nodes, self.failed)
        self.invariants.compacts = self.settings["log.cleaner.enable"] == "true"
        self.injector = ClusterInjector(self.world, self.nodes, self._leader, self.invariants, self.directories)
        self.injector.clients = CLIENTS
        self.injector.clocks_agree = any(fault.kind == Expiries.kind for fault in self.faults)
        self.injector.begin = dict.fromkeys(WORKLOADS, self._begin)
        self.injector.may_cut_power = self._may_cut_power
        self.injector.stop = self._stop
        self.injector.restarts_after_full_disk = True
        self.world.on_refusal = self._refused
        self.world.on_death = self._died
        self.world.scheduler.after_turn = self.invariants.after_turn
        self.history: History | None = None
        self._choice = Random(f"{seed} leaders")
        self._hunt = Random(f"{seed} hunted")
        self._ready = False
        self._has_single_copies = any(fault.kind == SingleCopies.kind for fault in self.faults)
        self._working = True
        self._workloads: list[Workload] = []
        self._at_work: list[asyncio.Task[None]] = []

    # Brokers -----------------------------------------------------------------------------------------------------

    async def _broker(self, machine: Machine) -> None:
        config = settings_of(machine.node, min(3, self.size), self.settings)
        await broker_program(machine, config)

    def broker(self, node: int) -> Broker | None:
        """The running broker, or None."""
        machine = self.world.machines[node]
        return machine.parts.get("broker") if machine.running else None

    def _died(self, machine: Machine, power: bool) -> None:
        if machine.node != CLIENTS:
            self.invariants.died(machine.node, power)

    def _refused(self, machine: Machine, error: BaseException) -> None:
        if isinstance(error, Violation):
            self.failed(error)
        elif machine.node == CLIENTS or not isinstance(error, OSError):
            self.failed(Violation("bug", f"node {machine.node} ends: {error!r}"))
        elif self.injector.failing_directory(machine) and not machine.disk.full:
            text = f"node {machine.node} ends because of {self.injector.failing_directory(machine)} alone: {error!r}"
            self.failed(Violation("directories", text))
        else:
            self.injector.restart_after(machine, 0.5)

    def _leader(self) -> int | None:
        """Who leads a partition or, now and then, the metadata; or what a workload rests on."""
        hunted = [partition for workload in self._workloads for partition in workload.hunted]
        if hunted and self._hunt.random() < HUNTED_CHANCE:
            leads = self.invariants.leadership(*self._hunt.choice(hunted))
            if leads is not None and leads[0] in self.nodes:
                return leads[0]
        partition = self._choice.randrange(-1, self.partitions)
        for node in self.nodes:
            broker = self.broker(node)
            if broker is None:
                continue
            if partition < 0 and broker.controller.log.is_leader:
                return node
            if partition >= 0:
                leader = self.invariants.leader_of(broker, TOPIC, partition)
                if leader in self.nodes:
                    return leader
        return None

    def _may_cut_power(self, machine: Machine) -> bool:
        """Kafka acknowledges before records are on the disk: copies on several hosts must not lose power together, and
        a single one must not at all.
        """
        return self._ready and not self._has_single_copies and self.invariants.may_lose_power(machine.node)

    def _stop(self, machine: Machine) -> bool:
        """SIGTERM: handed over and brought to the disk."""
        return machine.running and machine.loop.deliver_signal(signal.SIGTERM)

    # Clients ------------------------------------------------------------------------------------------------------

    def _ways(self, name: str) -> Connections:
        bootstrap = [(host_of(node), KAFKA_PORT) for node in self.nodes]
        random = Random(f"{self.seed} {name}")
        stubborn = Random(f"{self.seed} {name} stubborn").random() < STUBBORN_CHANCE
        return Connections(self.clients.loop, name, bootstrap, random, stubborn=stubborn)

    async def _clients(self, machine: Machine) -> None:
        self.history = History(machine.loop)
        await self._create_topic()
        self._ready = True
        workers = [self._produce(number, number % 2 == 0) for number in range(PRODUCERS)]
        workers += [self._consume(number) for number in range(READERS)]
        await asyncio.gather(*workers)
        await asyncio.gather(*self._at_work)

    def _begin(self, fault: Fault) -> bool:
        """A workload of the schedule begins."""
        assert self.history is not None
        context = WorkloadContext(
            nodes=self.nodes,
            topic=TOPIC,
            partitions=self.partitions,
            history=self.history,
            invariants=self.invariants,
            ways=self._ways,
            calm=lambda: self.injector.over,
            working=lambda: self._working,
        )
        workload = WORKLOADS[fault.kind](context, len(self._workloads))
        self._workloads.append(workload)
        self._at_work.append(self.clients.loop.create_task(workload.run()))
        return True

    async def _create_topic(self) -> None:
        configs = [CreatableTopicConfig(name="min.insync.replicas", value="2")]
        topic = CreatableTopic(name=TOPIC, num_partitions=self.partitions, replication_factor=3, configs=configs)
        ways = self._ways("admin")
        while True:
            try:
                client = await ways.to((host_of(ways.random.choice(self.nodes)), KAFKA_PORT))
                answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5, 6.0)
                code = ErrorCode.of(answer.topics[0].error_code)
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
            except Unanswered:
                pass
            await asyncio.sleep(0.2)

    async def _produce(self, number: int, idempotent: bool) -> None:
        assert self.history is not None
        ways = self._ways(f"producer{number}")
        producer = Producer(ways, self.history, TOPIC, idempotent=idempotent)
        while self._working:
            if not self.is_resting(1 + number):
                await producer.append(ways.random.randrange(self.partitions), ways.random.randint(1, 3), 3.0)
            await asyncio.sleep(0.02 + 0.1 * ways.random.random())

    async def _consume(self, number: int) -> None:
        assert self.history is not None
        ways = self._ways(f"reader{number}")
        reader = Reader(ways, self.history, TOPIC)
        while self._working:
            if not self.is_resting(1 + PRODUCERS + number):
                await reader.read(ways.random.randrange(self.partitions))
            await asyncio.sleep(0.05 + 0.1 * ways.random.random())

    # The run --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """See Simulation."""
        with adapted():
            for node in self.nodes:
                self.world.machines[node].start(self._broker)
            self.clients.start(self._clients)
            self._until(lambda: self._acknowledged() >= 3, BOOT_SECONDS_MAX, "the cluster takes records")
            begin = self.began = self.world.now
            self.injector.schedule(_shifted(self.faults, begin))
            self.advance(begin + FAULT_SECONDS + 0.5)
            self._restart_those_without_room()
            self.injector.heal()
            self._settle()
            self._judge()

    def _restart_those_without_room(self) -> None:
        for node in self.nodes:
            machine = self.world.machines[node]
            if machine.disk.full and machine.running:
                machine.thaw()
                machine.kill()

    def _until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        end = self.world.now + seconds
        while not condition():
            if self.world.now >= end:
                raise Violation("liveness", f"not within {seconds} s: {what}; {self._state()}")
            self.advance(self.world.now + 0.1)

    def _state(self) -> str:
        return "; ".join(described(self.world.machines[node]) for node in self.nodes)

    def _acknowledged(self) -> int:
        operations = self.history.operations if self.history is not None else []
        return sum(operation.outcome is OK and operation.function == "append" for operation in operations)

    def _settle(self) -> None:
        """All is well: every partition has its leader and all replicas in sync, and takes records."""
        self._until(self._workloads_done, SETTLE_SECONDS, "workloads come to their end")
        before = self._acknowledged()
        self._until(lambda: self._acknowledged() >= before + 3, SETTLE_SECONDS, "records are taken again")
        self._until(self.invariants.all_in_sync, SETTLE_SECONDS, "all replicas are in sync again")
        self._working = False
        self._until(self._clients_done, 20.0, "clients end")
        self._until(self.invariants.all_equal, 20.0, "all replicas have the same records")

    def _workloads_done(self) -> bool:
        for task in self._at_work:
            if task.done() and (error := task.exception()) is not None:
                raise error
        return all(task.done() for task in self._at_work)

    def _clients_done(self) -> bool:
        return not self.clients.running

    def _judge(self) -> None:
        assert self.history is not None
        self.invariants.compare_logs()
        for workload in self._workloads:
            workload.judge()
        for partition in range(self.partitions):
            operations = [operation for operation in self.history.operations if operation.key == partition]
            _, values = self.invariants.values(TOPIC, partition)
            stamp = int(self.world.now * 1e9)
            read = Operation("end", "read", 0, (values, True), call=stamp, returned=stamp, outcome=OK)
            for told_of, value, offset in self.history.told:
                if told_of == partition and value in values and values.index(value) != offset:
                    what = f"{value} is at {values.index(value)} of partition {partition}; an error told {offset}"
                    raise Violation("offsets of errors", what)
            operations.sort(key=_returned)
            violation = check_log([*operations, read], complete=True)
            if violation is not None:
                what = f"{violation.kind} at {violation.offset} of partition {partition}: {violation.operations}"
                raise Violation("linearizability", what)

    def counts(self) -> dict[str, int]:
        """See Simulation."""
        operations = self.history.operations if self.history is not None else []
        return {
            "acknowledged": self._acknowledged(),
            "unknown": sum(op.outcome is INFO and op.function == "append" for op in operations),
            "reads": sum(op.outcome is OK and op.function == "read" for op in operations),
            "leaders": self.invariants.elections,
            "markers looked for": self.invariants.transaction_ends.checked,
            **{what: count for workload in self._workloads for what, count in workload.counts.items()},
        }

    def done(self) -> dict[str, int]:
        """See Simulation."""
        return self.injector.done


def _returned(operation: Operation) -> float:
    """What was never answered may have happened at any time."""
    return float("inf") if operation.returned is None else operation.returned


def _house(random: Random) -> tuple[tuple[str, ...], dict[str, str]]:
    """The data directories of each broker, and settings: where they are, and how often they are written to."""
    names = random.choice(((DATA,), (DATA,), (f"{DATA}1",), (f"{DATA}1", f"{DATA}2"), (f"{DATA}1", f"{DATA}2")))
    if names == (DATA,):
        return names, {}
    return names, {
        "log.dirs": ",".join(names),
        "metadata.log.dir": METADATA,
        "log.flush.interval.ms": random.choice(("100", "1000")),
        "log.flush.offset.checkpoint.interval.ms": "500",
        "log.roll.ms": random.choice(("300", "100000")),
    }


def _detailed(seed: int, faults: Sequence[Fault]) -> list[Fault]:
    random = Random(f"{seed} directories")
    known = [
        replace(fault, amount=random.randrange(DETAILS)) if fault.kind in DETAILED_KINDS else fault for fault in faults
    ]
    random = Random(f"{seed} failing too")
    return [
        replace(fault, amount=fault.amount + DETAILS * random.randint(1, len(FAILING_TOO)))
        if fault.kind == "data-error" and random.random() < FAILING_TOO_CHANCE
        else fault
        for fault in known
    ]


def _workloads(seed: int) -> list[Fault]:
    random = Random(f"{seed} works")
    often = [workload.kind for workload in OFTEN if random.random() < WORKLOAD_CHANCE]
    seldom = random.sample([workload.kind for workload in SELDOM], random.choice(SELDOM_COUNTS))
    random = Random(f"{seed} works apart")
    apart = [workload.kind for workload in APART if random.random() < APART_CHANCE]
    return [Fault(0.0, kind, 1) for kind in (*often, *seldom, *apart)]


def _upkeep(seed: int, kinds: set[str]) -> dict[str, str]:
    """How brokers remove and compact records, where a workload is about that."""
    random = Random(f"{seed} upkeep")
    settings = {
        "log.retention.check.interval.ms": random.choice(("50", "200")),
        "log.flush.start.offset.checkpoint.interval.ms": random.choice(("100", "60000")),
        "log.cleaner.backoff.ms": random.choice(("50", "300")),
        "log.segment.delete.delay.ms": "100",
        "log.cleaner.dedupe.buffer.size": "1048576",
        "replica.high.watermark.checkpoint.interval.ms": "500",
    }
    if kinds & {Members.kind, Doubles.kind, Migrations.kind, Clients.kind, Bursts.kind, Copies.kind, Readers.kind}:
        settings |= MEMBER_SETTINGS
    if kinds & {Consumers.kind, Migrations.kind, Clients.kind, Bursts.kind, Copies.kind, Readers.kind}:
        settings |= CONSUMER_SETTINGS
    if kinds & {Transfers.kind, Stragglers.kind, Pipeline.kind, Expiries.kind, Copies.kind, Versions.kind}:
        settings |= TRANSACTION_SETTINGS
    if Expiries.kind in kinds:
        settings |= EXPIRY_SETTINGS
    if Versions.kind in kinds:
        settings |= VERSION_SETTINGS
    if Compaction.kind in kinds:
        return {**settings, "log.cleaner.enable": "true"}
    return settings if kinds.intersection(workload.kind for workload in (*SELDOM, *APART)) else {}


def _shifted(faults: Sequence[Fault], seconds: float) -> Iterator[Fault]:
    for fault in faults:
        yield Fault(fault.at + seconds, fault.kind, fault.node, fault.seconds, fault.others, fault.amount)
