"""Faults that are stories: several things in an order, each of which needs the one before."""

from __future__ import annotations

import os
from pathlib import Path

from raftlog.client.core.errors import KafkaError
from raftlog.client.offsets import LATEST
from raftlog.linearizability.harness.plan import Plan
from raftlog.linearizability.harness.systems.raftlog import RaftlogSystem
from raftlog.linearizability.harness.systems.system import Effect, counted, nothing

STEP_SECONDS_MAX = 30.0
ZOMBIE_SECONDS = 8.0
"""In which a client that goes on does something; one whose group has given its partitions away may not."""
LOG_HEADER_BYTES = 61
"""Of a batch; a bit behind them is one that its checksum covers."""

BIT_FLIP = "bit-flip"
TELL_THEIR_POINT = frozenset({
    "isr-of-one", "lone-leader", "hunt", "coordinator-hunt", "wiped-disk", "zombie-writer", BIT_FLIP,
})  # fmt: skip
"""Stories whose last effect says whether they came to their point. A broker that was killed on the way is none."""


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

    How many offsets it took alone, and the effect of its death. Raises RuntimeError when the story ends early.
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
    fenced = plan.clients.notes["fenced"]
    zombie.pause()
    number = len(plan.clients.all)
    work = zombie.work.to_json() | {"number": number, "stand_in_for": zombie.work.number}
    stand_in = plan.clients.start(type(zombie.work)(**work))

    def evidence() -> dict[str, float]:
        return counted(plan.clients.notes["fenced"] - fenced)

    words = f"client {zombie.work.number}, taken over by {number}"
    effect = plan.put(Effect("zombie-writer", words, zombie.resume, evidence))
    # What has succeeded with a transactional id has fenced off who had it before.
    plan.wait_for(lambda: stand_in.has_succeeded, STEP_SECONDS_MAX)
    zombie.resume()
    plan.wait_for(lambda: plan.clients.notes["fenced"] > fenced, ZOMBIE_SECONDS)
    plan.end(effect)
    stand_in.tell({"do": "stop"})


def bit_flip(plan: Plan) -> None:
    """A follower dies, and a bit of its newest segment flips while it is down. It stays as it is."""
    topic, partition, _, followers = plan.led_partition()
    living = [each for each in followers if each in plan.up]
    if not living:
        raise RuntimeError(f"no follower of {topic}-{partition} is up")
    broker = plan.random.choice(living)
    plan.put(plan.system.kill(broker), f"follower of {topic}-{partition}")
    folder = plan.system.data_directory(broker) / f"{topic}-{partition}"
    files = [file for file in sorted(folder.glob("*.log")) if file.stat().st_size > LOG_HEADER_BYTES]
    if not files:
        raise RuntimeError(f"broker {broker} has no records of {topic}-{partition}")
    bit = plan.random.randrange(8 * LOG_HEADER_BYTES, 8 * files[-1].stat().st_size)
    _flip(files[-1], bit)
    words = f"bit {bit} of {topic}-{partition}/{files[-1].name} on broker {broker}"
    plan.put(Effect(BIT_FLIP, words, nothing, lambda: counted(1, bytes=1), [broker]))


def _flip(file: Path, bit: int) -> None:
    with open(file, "r+b", buffering=0) as stream:
        stream.seek(bit // 8)
        byte = stream.read(1)[0] ^ 1 << bit % 8
        stream.seek(bit // 8)
        stream.write(bytes([byte]))
        os.fsync(stream.fileno())
