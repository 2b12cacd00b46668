"""Faults that are scenarios: several things in an order, each of which needs the one before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from raftlog.client.cluster import Member
from raftlog.client.core.errors import KafkaError, Rejected
from raftlog.client.offsets import LATEST
from raftlog.linearizability.harness.libraries.ports import SESSION_SECONDS, TRANSACTION_SECONDS
from raftlog.linearizability.harness.plan import Plan
from raftlog.linearizability.harness.systems.raftlog import RaftlogSystem
from raftlog.linearizability.harness.systems.system import Effect, System, counted, nothing
from raftlog.testing.waiting import wait_until
from raftlog.wire.batch import decode_batch, iterate_batches
from raftlog.wire.errors import ErrorCode
from raftlog.wire.records import CorruptRecord

STEP_SECONDS_MAX = 30.0
ZOMBIE_SECONDS = 8.0
"""In which a client that goes on does something; one whose group has given its partitions away may not."""
LOG_HEADER_BYTES = 61
"""Of a batch; a bit behind them is one that its checksum covers."""

SLOW_SYNC_SECONDS = 0.4
SLOW_LINK_SECONDS = (0.05, 0.4)
LOST_ANSWERS = (
    "Produce", "EndTxn", "AddPartitionsToTxn", "TxnOffsetCommit", "OffsetCommit", "CreateTopics", "DeleteTopics"
)  # fmt: skip
LOST_PROBABILITY = 0.1

BIT_FLIP, HELIX, VOTERS = "bit-flip", "helix", "voters"
TELL_THEIR_POINT = frozenset({
    "isr-of-one", "lone-leader", "hunt", "coordinator-hunt", "wiped-disk", "zombie-writer", BIT_FLIP, HELIX,
})  # fmt: skip
"""Scenarios whose last effect says whether they came to their point. A broker that was killed on the way is none."""


def raftlog_of(plan: Plan) -> RaftlogSystem:
    """The system, for faults that need one of ours."""
    assert isinstance(plan.system, RaftlogSystem)
    return plan.system


def rolling_restart(plan: Plan) -> None:
    """Each broker in turn; the next one when the one before serves."""
    for broker in plan.system.broker_ids:
        effect = plan.put(plan.system.stop_broker(broker), "in turn")
        plan.wait(plan.seconds / 20)
        plan.end(effect)
        plan.wait(plan.seconds / 10)


def reassign(plan: Plan) -> None:
    """Two partitions get other replicas, or the same ones in another order."""
    moved = 0
    for _ in range(2):
        topic, partition = plan.a_partition()
        before = plan.system.partitions(topic).get(partition, {}).get("replicas", [])
        if not before:
            continue
        after = plan.random.sample(sorted(plan.system.broker_ids), len(before))
        try:
            plan.system.admin.reassign({(topic, partition): after})
        except KafkaError as error:
            raise RuntimeError(f"{topic}-{partition} cannot be moved: {error}") from error
        moved += after != before
        words = f"{topic}-{partition} from {before} to {after}"
        plan.put(Effect("reassign", words, nothing, lambda has_moved=after != before: counted(int(has_moved)), after))  # type: ignore[misc]


def voters(plan: Plan) -> None:
    """A broker's vote on the metadata is taken, and given back when its time is over."""
    system, removed = plan.system, 0
    quorum = system.admin.describe_quorum()
    voter = plan.random.choice(quorum.voters)
    role = "leader of the metadata quorum" if voter.node_id == quorum.leader else ""

    def give_back() -> None:
        what = lambda: f"broker {voter.node_id} has its vote again"  # noqa: E731
        wait_until(lambda: _votes(system, voter), STEP_SECONDS_MAX, what)

    # It is told before it is done: an answer that is lost leaves the vote away, too.
    plan.put(Effect(VOTERS, f"broker {voter.node_id}", give_back, lambda: counted(removed), [voter.node_id]), role)
    system.admin.remove_voter(voter.node_id)
    removed = 1


def _votes(system: System, voter: Member) -> bool:
    """Whether a broker votes now; it is given its vote if it has none."""
    assert voter.address is not None
    try:
        system.admin.add_voter(voter.node_id, voter.address)
    except Rejected as error:
        return error.code is ErrorCode.DUPLICATE_VOTER
    except KafkaError:
        return False
    return True


def isr_of_one(plan: Plan) -> None:
    """What the leader took alone is lost when one of its followers is elected."""
    alone, words, brokers, killed = _alone(plan)
    plan.put(Effect("isr-of-one", words, nothing, lambda: counted(max(0, alone)), brokers))
    plan.wait(max(1.0, plan.seconds / 4))
    plan.end(killed)


def lone_leader(plan: Plan) -> None:
    """The same where one in-sync replica is not enough: the leader takes nothing alone, and nothing is lost."""
    _, words, brokers, killed = _alone(plan)
    plan.put(Effect("lone-leader", words, nothing, counted, brokers))
    plan.wait(max(1.0, plan.seconds / 4))
    plan.end(killed)


def _alone(plan: Plan) -> tuple[int, str, list[int], Effect]:
    """The followers stand still until the leader is alone in sync, and for some time more; it dies; they go on.

    How many offsets it took alone, and the effect of its death. Raises RuntimeError when the scenario ends early.
    """
    topic, partition, leader, followers = plan.led_partition()
    if not followers:
        raise RuntimeError(f"{topic}-{partition} has one replica only")
    paused = [plan.put(plan.system.pause(broker), f"follower of {topic}-{partition}") for broker in followers]

    def isr() -> list[int]:
        return list(plan.system.partitions(topic).get(partition, {}).get("isr", []))

    if not plan.wait_for(lambda: isr() == [leader], STEP_SECONDS_MAX):
        raise RuntimeError(f"the in-sync replicas of {topic}-{partition} are still {isr()}")
    before = _end(plan, topic, partition)
    plan.wait(max(1.0, plan.seconds / 4))
    alone = _end(plan, topic, partition) - before
    killed = plan.put(plan.system.kill(leader), f"the only in-sync replica of {topic}-{partition}")
    for effect in paused:
        plan.end(effect)
    if not plan.wait_for(lambda: plan.system.leader_of(topic, partition) in followers, STEP_SECONDS_MAX):
        raise RuntimeError(f"no follower of {topic}-{partition} was elected")
    elected = plan.system.leader_of(topic, partition)
    words = f"{topic}-{partition}: broker {leader} took {alone} offsets alone, broker {elected} leads"
    return alone, words, [leader, elected], killed


def _end(plan: Plan, topic: str, partition: int) -> int:
    """The high watermark. Raises KafkaError."""
    return plan.system.admin.offsets_at([(topic, partition)], LATEST, read_committed=False)[topic, partition]


def pause_kill(plan: Plan) -> None:
    """A follower stands still while records are written; the leader dies; then who has them stands still, and the
    follower and the leader that was started again are the majority.
    """
    _, _, leader, followers = plan.led_partition()
    late = plan.random.choice(followers)
    _lagging_majority(plan, leader, [each for each in followers if each != late], plan.system.pause(late))


def part_kill(plan: Plan) -> None:
    """The same with a follower that is cut off from the brokers."""
    system = plan.system
    assert isinstance(system, RaftlogSystem)
    _, _, leader, followers = plan.led_partition()
    late = plan.random.choice(followers)
    cut = system.effect(lambda: system.faults.isolate(late), f"broker {late} from the others")
    _lagging_majority(plan, leader, [each for each in followers if each != late], cut)


def _lagging_majority(plan: Plan, leader: int, newest: list[int], late: Effect) -> None:
    plan.put(late, "a follower that misses writes")
    plan.wait(plan.seconds / 4)
    system = plan.system
    # On a machine that dies, where the system can do that: what was not synced is gone.
    end = system.power_cut(leader) if isinstance(system, RaftlogSystem) else system.kill(leader)
    died = plan.put(end, "a leader with the newest records")
    plan.wait(plan.seconds / 8)
    paused = [plan.put(system.pause(each), "has the newest records") for each in newest if each in plan.up]
    plan.end(late)
    plan.end(died)
    plan.wait(plan.seconds / 3)
    for effect in paused:
        plan.end(effect)


def zombie_writer(plan: Plan) -> None:
    """A client is stopped, another one with its transactional id does its work, and the first one goes on."""
    living = [each for each in plan.clients.all if each.is_alive and each.work.stand_in_for is None]
    if not living:
        raise RuntimeError("no client lives")
    zombie = plan.random.choice(living)
    fenced = zombie.notes["fenced"]
    zombie.pause()
    number = len(plan.clients.all)
    work = zombie.work.to_json() | {"number": number, "stand_in_for": zombie.work.number}
    stand_in = plan.clients.start(type(zombie.work)(**work))

    def evidence() -> dict[str, float]:
        return counted(zombie.notes["fenced"] - fenced)

    words = f"client {zombie.work.number}, taken over by {number}"
    effect = plan.put(Effect("zombie-writer", words, zombie.resume, evidence))
    # What has succeeded with a transactional id has fenced off who had it before.
    plan.wait_for(lambda: stand_in.has_succeeded, STEP_SECONDS_MAX)
    zombie.resume()
    plan.wait_for(lambda: zombie.notes["fenced"] > fenced, ZOMBIE_SECONDS)
    plan.end(effect)
    stand_in.tell({"do": "stop"})


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


def bit_flip(plan: Plan) -> None:
    """A follower dies, and a bit of its newest segment flips while it is down. It stays as it is."""
    topic, partition, _, followers = plan.led_partition()
    living = [each for each in followers if each in plan.up]
    if not living:
        raise RuntimeError(f"no follower of {topic}-{partition} is up")
    broker = plan.random.choice(living)
    plan.put(plan.system.kill(broker), f"follower of {topic}-{partition}")
    newest = _newest_segment(plan, broker, f"{topic}-{partition}")
    words = _flip(newest, plan.random.randrange(8 * LOG_HEADER_BYTES, 8 * newest.stat().st_size), broker)
    plan.put(Effect(BIT_FLIP, words, nothing, lambda: counted(1, bytes=1), [broker]))


class _Rotten(NamedTuple):
    """A batch of which a bit has flipped: on which broker, in which file, and where in it."""

    broker: int
    file: Path
    at: int
    size: int


def helix(plan: Plan) -> None:
    """Replica after replica of a partition dies, and a bit of it flips: of each another part, so that each has damage,
    and each byte is whole on two. Who reads it ends. Then the batches are restored from other replicas.
    """
    topic, partition, _, _ = plan.led_partition()
    name, system = f"{topic}-{partition}", raftlog_of(plan)
    brokers = list(system.partitions(topic)[partition]["replicas"])
    if not set(brokers) <= set(plan.up):
        raise RuntimeError(f"not all replicas of {name} are up")
    rotten: list[_Rotten] = []
    heal = lambda: _restore(system, rotten, brokers)  # noqa: E731
    evidence = lambda: counted(int(len(rotten) == len(brokers)), bytes=len(rotten))  # noqa: E731
    plan.put(Effect(HELIX, f"{name} on brokers {brokers}", heal, evidence, brokers))
    for part, broker in enumerate(brokers):
        killed = plan.put(system.kill(broker), f"replica of {name}")
        newest = _newest_segment(plan, broker, name)
        content = newest.read_bytes()
        batches = [(at, header.size) for at, header in iterate_batches(content) if at + header.size <= len(content)]
        # Logs grow meanwhile, so that a later part of a later one lies behind what was damaged before.
        first, last = part * len(batches) // len(brokers), (part + 1) * len(batches) // len(brokers)
        if first == last:
            raise RuntimeError(f"broker {broker} has {len(batches)} batches of {name} only")
        at, size = batches[plan.random.randrange(first, last)]
        rotten.append(_Rotten(broker, newest, at, size))
        words = _flip(newest, plan.random.randrange(8 * (at + LOG_HEADER_BYTES), 8 * (at + size)), broker)
        plan.put(Effect(BIT_FLIP, words, nothing, lambda: counted(1, bytes=1), [broker]))
        plan.end(killed)
        if not plan.wait_for(lambda broker=broker: system.in_sync([broker]), STEP_SECONDS_MAX):  # type: ignore[misc]
            raise RuntimeError(f"broker {broker} is not in sync again: {words}")


def _restore(system: RaftlogSystem, rotten: Sequence[_Rotten], replicas: Sequence[int]) -> None:
    """What the error in the broker's log says is to be done: the batch is taken from a replica where it is whole."""
    processes = [system.kafka.running.broker(each.broker) for each in rotten]
    for process in processes:
        process.stop()
    try:
        for each in rotten:
            _write_whole(each, [system.data_directory(broker) / each.file.parent.name for broker in replicas])
    finally:
        for process in processes:
            process.start(wait=False)
    for process in processes:
        process.wait_until_ready()


def _write_whole(rotten: _Rotten, folders: Iterable[Path]) -> None:
    found = (_whole_batch(folder / rotten.file.name, rotten) for folder in folders)
    whole = next((batch for batch in found if batch is not None), None)
    if whole is None:
        raise RuntimeError(f"nobody has the batch at byte {rotten.at} of {rotten.file} as it was")
    with open(rotten.file, "r+b", buffering=0) as stream:
        stream.seek(rotten.at)
        stream.write(whole)
        os.fsync(stream.fileno())


def _whole_batch(file: Path, rotten: _Rotten) -> bytes | None:
    batch = file.read_bytes()[rotten.at : rotten.at + rotten.size]
    try:
        decode_batch(batch)
    except CorruptRecord:
        return None
    return batch


def _newest_segment(plan: Plan, broker: int, name: str) -> Path:
    folder = plan.system.data_directory(broker) / name
    files = [file for file in sorted(folder.glob("*.log")) if file.stat().st_size > LOG_HEADER_BYTES]
    if not files:
        raise RuntimeError(f"broker {broker} has no records of {name}")
    return files[-1]


def _flip(file: Path, bit: int, broker: int) -> str:
    """Which, in words."""
    with open(file, "r+b", buffering=0) as stream:
        stream.seek(bit // 8)
        byte = stream.read(1)[0] ^ 1 << bit % 8
        stream.seek(bit // 8)
        stream.write(bytes([byte]))
        os.fsync(stream.fileno())
    return f"bit {bit} of {file.parent.name}/{file.name} on broker {broker}"
