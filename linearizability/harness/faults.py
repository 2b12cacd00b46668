"""The faults by their names: what each does, what it needs of a system, and for what it asks of topics and brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from raftlog.linearizability.harness.plan import Plan
from raftlog.linearizability.harness.scenarios import (
    bit_flip,
    blackout,
    coordinator_hunt,
    helix,
    hunt,
    isr_of_one,
    lone_leader,
    lost_answers,
    part_kill,
    pause_kill,
    paused_client,
    raftlog_of,
    reassign,
    rolling_restart,
    voters,
    wiped_disk,
    zombie_writer,
)
from raftlog.linearizability.harness.systems.system import REPLICAS
from raftlog.testing.faults.brokers import DiskFaults
from raftlog.testing.faults.fault import Fault as Put
from raftlog.testing.faults.link_faults import SHAPES

SLOW_LINK_SECONDS = (0.05, 0.3)
SLOW_SYNC_SECONDS = (0.1, 0.5)
CLOCK_SECONDS = (-60.0, 300.0)
END_TXN_DELAY_SECONDS = 4.0
"""More than clients wait for an answer, so that the end of one transaction may meet the next one."""
LOST_PIECES = (0.1, 0.4)
NARROW_BYTES_PER_SECOND = (20_000, 200_000)
REFUSAL_PROBABILITY = 0.1
REFUSALS = (
    ("Produce", "NOT_LEADER_OR_FOLLOWER"),
    ("Produce", "REQUEST_TIMED_OUT"),
    ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
    ("JoinGroup", "COORDINATOR_NOT_AVAILABLE"),
    ("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("TxnOffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS"),
    ("EndTxn", "COORDINATOR_NOT_AVAILABLE"),
    ("CreateTopics", "REQUEST_TIMED_OUT"),
)
"""Errors after which clients try again. What is answered with REQUEST_TIMED_OUT is carried out all the same."""
COMMIT_DELAY_SECONDS = 2.5
"""Less than clients wait for an answer: a commit that is sent again may be overtaken, in Kafka too."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`put` puts it in; what it did is healed when its time is over. `needs`: abilities of the system and
    of the workload. `few_replicas`: all but one of a partition's replicas may stand still, and the brokers have a
    majority still. `unclean`: topics allow elections of replicas that are not in sync, and one
    in-sync replica is enough.
    """

    name: str
    summary: str
    put: Callable[[Plan], None]
    needs: frozenset[str] = frozenset({"processes"})
    settings: dict[str, str] = field(default_factory=dict)
    few_replicas: bool = False
    unclean: bool = False
    in_everything: bool = True
    only_our_client: bool = False
    """Only our own client is safe from it: others do not speak version 2 of transactions (KAFKA-17754), or commit again
    before they are answered, and are overtaken by themselves.
    """
    loses_records: bool = False
    """A replica has not all that it had acknowledged: two of these at once may lose records, in Kafka too."""
    longer: float = 1.0
    """How many times as long as other faults it takes."""


def _kill(plan: Plan) -> None:
    broker, role = plan.target()
    plan.put(plan.system.kill(broker), role)


def _pause(plan: Plan) -> None:
    broker, role = plan.target()
    plan.put(plan.system.pause(broker), role)


def _restart(plan: Plan) -> None:
    broker, role = plan.target()
    plan.put(plan.system.stop_broker(broker), role)


def _with(plan: Plan, make: Callable[[], Put], target: str, role: str = "") -> None:
    plan.put(raftlog_of(plan).effect(make, target), role)


def _partition(plan: Plan) -> None:
    """A shape by chance; a broker with a role from the others, or from the clients too."""
    faults, seed = raftlog_of(plan).faults, plan.random.getrandbits(31)
    brokers = len(plan.system.broker_ids)
    # Bridges and chains cut nothing, or what other shapes cut, among few brokers.
    shapes = [name for name in SHAPES if brokers >= 5 or name not in ("bridge", "chain", "majorities-ring")]
    choices = [*shapes, "isolate", "isolate", "clients", "one-way-role"] if brokers > 1 else ["clients"]
    choice = plan.random.choice(choices)
    if choice in shapes:
        _with(plan, lambda: faults.partition(choice, seed=seed), f"brokers, shape {choice}")
        return
    broker, role = plan.target()
    others = [each for each in plan.system.broker_ids if each != broker]
    if choice == "isolate":
        _with(plan, lambda: faults.isolate(broker), f"broker {broker} from the others", role)
    elif choice == "clients":
        _with(plan, lambda: faults.link("clients", broker).cut(), f"broker {broker} from clients", role)
    else:
        other = plan.random.choice(others)
        _with(plan, lambda: faults.link(broker, other).cut(both=False), f"broker {broker} to broker {other}", role)


def _link_ends(plan: Plan, broker: int) -> list[int | str]:
    """What a broker has links with."""
    return [*(each for each in plan.system.broker_ids if each != broker), "clients"]


def _slow_links(plan: Plan) -> None:
    faults = raftlog_of(plan).faults
    broker, role = plan.target()
    seconds = plan.random.uniform(*SLOW_LINK_SECONDS)
    ends = _link_ends(plan, broker)
    for end in ends:
        if plan.random.random() < 0.6 or end == ends[0]:
            words = f"broker {broker} and {end if end == 'clients' else f'broker {end}'}"
            _with(plan, lambda end=end: faults.link(end, broker).slow(seconds, jitter=seconds / 2), words, role)  # type: ignore[misc]


def _poor_links(plan: Plan) -> None:
    """All links of a broker lose pieces, are narrow, or break once."""
    faults, random = raftlog_of(plan).faults, plan.random
    broker, role = plan.target()
    choice = random.choice(("lose pieces", "are narrow", "break"))
    lost, narrow = random.uniform(*LOST_PIECES), random.uniform(*NARROW_BYTES_PER_SECOND)
    for end in _link_ends(plan, broker):
        link = faults.link(end, broker)
        makes: dict[str, Callable[[], Put]] = {
            "lose pieces": partial(link.drop, lost),
            "are narrow": partial(link.bandwidth, narrow),
            "break": link.reset,
        }
        make = makes[choice]
        _with(plan, make, f"links of broker {broker} with {end}: they {choice}", role)


def _at_disk(plan: Plan, make: Callable[[DiskFaults], Put]) -> None:
    broker, role = plan.target()
    _with(plan, lambda: make(raftlog_of(plan).faults.broker(broker).disk), f"broker {broker}", role)


def _disk_full(plan: Plan) -> None:
    _at_disk(plan, DiskFaults.full)


def _failing_sync(plan: Plan) -> None:
    _at_disk(plan, DiskFaults.fail_sync)


def _slow_disk(plan: Plan) -> None:
    _at_disk(plan, lambda disk: disk.slow(plan.random.uniform(*SLOW_SYNC_SECONDS)))


def _clock(plan: Plan) -> None:
    broker, role = plan.target()
    clock = raftlog_of(plan).faults.broker(broker).clock
    if plan.random.random() < 0.5:
        seconds = plan.random.uniform(*CLOCK_SECONDS)
        _with(plan, lambda: clock.jump(seconds), f"broker {broker}, {seconds:+.0f} s", role)
    else:
        rate = plan.random.choice((0.5, 0.9, 1.1, 3.0))
        _with(plan, lambda: clock.skew(rate), f"broker {broker}, {rate:g} times as fast", role)


def _power_cut(plan: Plan) -> None:
    broker, role = plan.target()
    plan.put(raftlog_of(plan).power_cut(broker), role)


def _torn_write(plan: Plan) -> None:
    _at_disk(plan, DiskFaults.tear)


def _refusals(plan: Plan) -> None:
    faults = raftlog_of(plan).faults
    for api, code in REFUSALS:
        seed = plan.random.getrandbits(31)
        make = lambda api=api, code=code, seed=seed: (  # noqa: E731
            faults.error(api, code).with_probability(REFUSAL_PROBABILITY, seed)
        )
        _with(plan, make, f"{api} is answered with {code}, one of ten")


def _unheard_client(plan: Plan) -> None:
    client = plan.random.choice(plan.clients.all).work.number
    _with(plan, lambda: raftlog_of(plan).faults.client(f"verify-{client}-*").blackhole(), f"client {client}")


def _delayed_end_txn(plan: Plan) -> None:
    faults, seed = raftlog_of(plan).faults, plan.random.getrandbits(31)
    make = lambda: faults.delay("EndTxn", END_TXN_DELAY_SECONDS).with_probability(0.3, seed)  # noqa: E731
    _with(plan, make, "ends of transactions, three of ten")


def _delayed_commit(plan: Plan) -> None:
    faults, seed = raftlog_of(plan).faults, plan.random.getrandbits(31)
    make = lambda: faults.delay("OffsetCommit", COMMIT_DELAY_SECONDS).with_probability(0.5, seed)  # noqa: E731
    _with(plan, make, "commits of groups, every other one")


def _nothing(plan: Plan) -> None:
    """Nothing happens."""


LINKS = frozenset({"links"})
PARTITIONS = frozenset({"processes", "partitions", REPLICAS})
LOSSES = frozenset({"disks", REPLICAS})
QUICK_TO_LEAVE = {"replica.lag.time.max.ms": "2000", "broker.session.timeout.ms": "3000"}
_ALL: tuple[Fault, ...] = (
    Fault("none", "nothing happens", _nothing, frozenset(), in_everything=False),
    Fault("kill", "a broker is killed with -9 and started again", _kill),
    Fault("pause", "a broker is stopped and goes on (SIGSTOP, SIGCONT)", _pause),
    Fault("restart", "a broker is stopped in order and started again", _restart),
    Fault("partition", "brokers, or brokers and clients, are cut off from each other, also one way", _partition, LINKS),
    Fault("slow-links", "what goes to and from a broker comes late", _slow_links, LINKS),
    Fault("poor-links", "a broker's links lose pieces, are narrow, or break", _poor_links, LINKS),
    Fault("disk-full", "a broker's disk takes nothing more", _disk_full, frozenset({"disks"})),
    Fault("slow-disk", "a broker's disk takes long to sync", _slow_disk, frozenset({"disks"})),
    Fault("failing-sync", "a broker's disk fails all syncs: it ends", _failing_sync, frozenset({"disks"})),
    Fault("clock", "a broker's wall clock jumps, or goes at another rate", _clock, frozenset({"clocks"})),
    Fault("power-cut", "a broker loses what it has not synced", _power_cut, LOSSES, loses_records=True),
    Fault(
        "torn-write",
        "the same in the middle of writes, of which a part is kept",
        _torn_write,
        LOSSES,
        loses_records=True,
    ),
    Fault("rolling-restart", "one broker after the other is stopped in order and started again", rolling_restart),
    Fault("reassign", "partitions move to other brokers", reassign, frozenset({"partitions"})),
    Fault("voters", "a broker loses its vote on the metadata, and gets it back", voters, frozenset({"voters"})),
    Fault(
        "isr-of-one",
        "the in-sync replicas shrink to the leader, it dies, and another replica is elected; loses records",
        isr_of_one,
        PARTITIONS,
        settings=QUICK_TO_LEAVE,
        few_replicas=True,
        unclean=True,
        in_everything=False,
        longer=4.0,
    ),
    Fault(
        "lone-leader",
        "the same where one in-sync replica is not enough: nothing may be lost",
        lone_leader,
        PARTITIONS,
        settings=QUICK_TO_LEAVE,
        few_replicas=True,
        in_everything=False,
        longer=4.0,
    ),
    Fault(
        "hunt",
        "links are slow, leadership is handed on, and who has it dies",
        hunt,
        PARTITIONS | LINKS,
        in_everything=False,
    ),
    Fault(
        "coordinator-hunt",
        "links are slow, and a coordinator of transactions or groups dies",
        coordinator_hunt,
        frozenset({"links", "coordinators"}),
        in_everything=False,
    ),
    Fault(
        "blackout",
        "all machines lose power at once; records are synced before they are acknowledged",
        blackout,
        frozenset({"disks"}),
        settings={"log.flush.interval.messages": "1"},
        in_everything=False,
    ),
    Fault(
        "wiped-disk",
        "a broker loses its disk, and is a majority with one that missed what was written",
        wiped_disk,
        PARTITIONS | frozenset({"disks"}),
        in_everything=False,
        longer=2.0,
    ),
    Fault(
        "lost-answers",
        "requests are carried out, and not answered",
        lost_answers,
        frozenset({"requests"}),
        in_everything=False,
    ),
    Fault(
        "refusals",
        "brokers answer with errors after which clients try again",
        _refusals,
        frozenset({"requests"}),
        in_everything=False,
    ),
    Fault(
        "unheard-client",
        "nothing that a client asks for is carried out, and nobody tells it",
        _unheard_client,
        frozenset({"requests"}),
        in_everything=False,
    ),
    Fault(
        "pause-client",
        "a client stands still for longer than its session",
        paused_client,
        frozenset(),
        settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"},
        in_everything=False,
        longer=2.0,
    ),
    Fault(
        "pause-kill",
        "a follower misses writes, a newer replica dies, and the two are the majority",
        pause_kill,
        PARTITIONS,
        in_everything=False,
        longer=2.0,
    ),
    Fault(
        "part-kill",
        "the same with a follower that is cut off instead of paused",
        part_kill,
        PARTITIONS | LINKS,
        in_everything=False,
        longer=2.0,
    ),
    Fault(
        "delayed-end-txn",
        "ends of transactions arrive late, after the client has gone on",
        _delayed_end_txn,
        frozenset({"requests", "transactions"}),
        only_our_client=True,
    ),
    Fault(
        "delayed-commit",
        "commits of groups arrive late, after the group has gone on",
        _delayed_commit,
        frozenset({"requests", "commits"}),
        in_everything=False,
        only_our_client=True,
    ),
    Fault(
        "zombie-writer",
        "a client stands still, another one takes over its transactional id, and the first goes on",
        zombie_writer,
        frozenset({"transactions"}),
    ),
    Fault(
        "bit-flip",
        "a follower is killed, and a bit of its log is another one when it starts",
        bit_flip,
        PARTITIONS,
        loses_records=True,
    ),
    Fault(
        "helix",
        "a bit flips in every replica of a partition, in each elsewhere; the batches are restored from others",
        helix,
        PARTITIONS | {"same segments"},
        settings={"log.flush.interval.ms": "500", "log.flush.offset.checkpoint.interval.ms": "500"},
        loses_records=True,
        in_everything=False,
        longer=4.0,
    ),
)
FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ALL}
EVERYTHING = "everything"
NAMES = (*FAULTS, EVERYTHING)


def faults_named(name: str, abilities: frozenset[str]) -> list[Fault]:
    """The faults that a name stands for: one, several with commas between them, or what may happen where everything
    may. Raises KeyError for a name that is none.
    """
    if name == EVERYTHING:
        possible = [fault for fault in _ALL if fault.in_everything and fault.needs <= abilities]
        return [fault for fault in possible if "only our client" in abilities or not fault.only_our_client]
    return [FAULTS[each] for each in name.split(",")]
