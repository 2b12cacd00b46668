"""More faults that are stories: those that the planted bugs asked for (`mutation_report.py`)."""

from __future__ import annotations

import shutil
from itertools import combinations

from raftlog.client.core.errors import KafkaError
from raftlog.linearizability.harness.libraries.ports import SESSION_SECONDS, TRANSACTION_SECONDS
from raftlog.linearizability.harness.plan import Plan
from raftlog.linearizability.harness.scenarios import STEP_SECONDS_MAX, raftlog_of
from raftlog.linearizability.harness.systems.system import Effect, counted, nothing

SLOW_SYNC_SECONDS = 0.4
SLOW_LINK_SECONDS = (0.05, 0.4)
LOST_ANSWERS = (
    "Produce", "EndTxn", "AddPartitionsToTxn", "TxnOffsetCommit", "OffsetCommit", "CreateTopics", "DeleteTopics"
)  # fmt: skip
LOST_PROBABILITY = 0.1


def lost_answers(plan: Plan) -> None:
    """Requests are carried out, and their connections end before the answer."""
    system = raftlog_of(plan)
    for api in LOST_ANSWERS:
        seed = plan.random.getrandbits(31)
        make = lambda api=api, seed=seed: (  # noqa: E731
            system.faults.disconnect(api, applied=True).with_probability(LOST_PROBABILITY, seed)
        )
        plan.put(system.effect(make, f"answers to {api}, one of ten"))


def blackout(plan: Plan) -> None:
    """All machines lose power at once, while their disks are slow to sync."""
    system = raftlog_of(plan)
    slow = [
        plan.put(system.effect(lambda each=each: system.faults.broker(each).disk.slow(SLOW_SYNC_SECONDS),  # type: ignore[misc]
                               f"broker {each}"))
        for each in plan.up
    ]  # fmt: skip
    plan.wait(max(1.0, plan.seconds / 2))
    dark = [plan.put(system.power_cut(each), "with all others") for each in plan.up]
    for effect in slow:
        plan.end(effect)
    system.start_all()
    for effect in dark:
        plan.end(effect)


def hunt(plan: Plan) -> None:
    """Links are slow; leadership is handed on, and the new leader dies before its followers have followed it."""
    system = raftlog_of(plan)
    topic, partition, leader, followers = plan.led_partition()
    _slow_links(plan)
    in_sync = [each for each in system.partitions(topic)[partition]["isr"] if each in followers and each in plan.up]
    if not in_sync:
        raise RuntimeError(f"no follower of {topic}-{partition} is in sync")
    heir = plan.random.choice(in_sync)
    others = [each for each in followers if each != heir]
    plan.random.shuffle(others)
    try:
        system.admin.reassign({(topic, partition): [heir, *others, leader]})
        plan.wait(max(1.0, plan.seconds / 4))
        system.admin.elect([(topic, partition)])
    except KafkaError as error:
        raise RuntimeError(f"{topic}-{partition} cannot be led by broker {heir}: {error}") from error
    if not plan.wait_for(lambda: system.leader_of(topic, partition) == heir, STEP_SECONDS_MAX):
        raise RuntimeError(f"broker {heir} does not lead {topic}-{partition}")
    killed = plan.put(system.kill(heir), f"leader of {topic}-{partition} since a moment ago")
    plan.put(Effect("hunt", f"{topic}-{partition} from broker {leader} to {heir}", nothing, counted, [heir]))
    plan.wait(max(1.0, plan.seconds / 4))
    plan.end(killed)


def _slow_links(plan: Plan) -> None:
    """What brokers send each other comes late, from some later than from others."""
    system = raftlog_of(plan)
    for one, other in combinations(system.broker_ids, 2):
        link, seconds = system.faults.link(one, other), plan.random.uniform(*SLOW_LINK_SECONDS)
        make = lambda link=link, seconds=seconds: link.slow(seconds)  # noqa: E731
        plan.put(system.effect(make, f"broker {one} and broker {other}, {seconds:.2f} s"))


def coordinator_hunt(plan: Plan) -> None:
    """Links are slow, and a coordinator dies with what it has written and nobody else has."""
    topic = "__transaction_state" if plan.workload.is_transactional else "__consumer_offsets"
    partitions = plan.system.partitions(topic)
    _slow_links(plan)
    plan.wait(max(1.0, plan.seconds / 2))
    leaders = sorted({each["leader"] for each in partitions.values()} & set(plan.up))
    if not leaders:
        raise RuntimeError(f"nobody leads {topic}")
    broker = plan.random.choice(leaders)
    killed = plan.put(plan.system.kill(broker), f"leader of {topic}")
    plan.put(Effect("coordinator-hunt", f"broker {broker}", nothing, counted, [broker]))
    plan.wait(max(1.0, plan.seconds / 4))
    plan.end(killed)


def wiped_disk(plan: Plan) -> None:
    """A broker stands still while records are written; another one loses its disk; the two are the majority, without
    those that have everything.
    """
    system = raftlog_of(plan)
    _, _, leader, followers = plan.led_partition()
    if not followers:
        raise RuntimeError("there are no followers")
    others = [each for each in plan.up if each != leader]
    plan.random.shuffle(others)
    late = [plan.put(system.pause(each), "misses what is written") for each in others[: (len(others) - 1) // 2 or 1]]
    plan.wait(max(1.0, plan.seconds / 3))
    process = system.kafka.running.broker(leader)
    died = plan.put(system.kill(leader), "loses its disk")
    shutil.rmtree(process.data_dir)
    newest = [plan.put(system.pause(each), "has everything") for each in plan.up]
    for effect in late:
        plan.end(effect)
    # Alone with the late ones it must not become a majority, and so it may not serve yet.
    process.start(wait=False)
    plan.put(Effect("wiped-disk", f"broker {leader}", nothing, counted, [leader]))
    plan.wait(max(3.0, plan.seconds / 3))
    for effect in newest:
        plan.end(effect)
    process.wait_until_ready()
    plan.end(died)


def paused_client(plan: Plan) -> None:
    """A client stands still for longer than its session, or its transaction, and goes on."""
    living = [each for each in plan.clients.all if each.is_alive]
    if not living:
        raise RuntimeError("no client lives")
    client = plan.random.choice(living)
    client.pause()
    effect = plan.put(Effect("pause-client", f"client {client.work.number}", client.resume, counted))
    # A transaction that is open in the client takes too long meanwhile.
    shortest = TRANSACTION_SECONDS if plan.workload.is_transactional else SESSION_SECONDS
    plan.wait(max(plan.seconds, shortest + 2.5))
    plan.end(effect)
