"""What a fault is put into: the system, its roles, the clients, and the randomness of the seed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from raftlog.linearizability.harness.clients import Clients
from raftlog.linearizability.harness.systems.system import Effect, System
from raftlog.linearizability.harness.workloads.catalogue import Workload

LOOK_SECONDS = 0.05


class Interrupted(Exception):
    """The run is about to end: what was put in is healed."""


def wait_for(look: Callable[[], bool], seconds: float, over: threading.Event) -> bool:
    """Whether it became so within so many seconds. Raises Interrupted when `over` is set."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            return False
        if over.wait(LOOK_SECONDS):
            raise Interrupted
    return True


@dataclass(slots=True)
class Plan:
    """`seconds`: how long the fault should last. `add` tells of an effect as soon as it is there; `end` heals it, and
    tells of that, before the fault's time is over.
    """

    system: System
    workload: Workload
    clients: Clients
    random: Random
    seconds: float
    over: threading.Event
    add: Callable[[Effect], None]
    end: Callable[[Effect], None]

    def put(self, effect: Effect, role: str = "") -> Effect:
        """An effect is in force. `role`: why this broker."""
        if role:
            effect.target += f", {role}"
        self.add(effect)
        return effect

    def wait(self, seconds: float) -> None:
        """Let so much time pass. Raises Interrupted."""
        if self.over.wait(seconds):
            raise Interrupted

    def wait_for(self, look: Callable[[], bool], seconds: float) -> bool:
        """Whether it became so within so many seconds. Raises Interrupted."""
        return wait_for(look, seconds, self.over)

    # -- whom --------------------------------------------------------------------------------------

    @property
    def up(self) -> list[int]:
        """Brokers that run now."""
        return [broker for broker, state in self.system.states().items() if state == "up"]

    def target(self) -> tuple[int, str]:
        """A broker to be hit, and its role: by chance one that leads something, or any. Raises RuntimeError."""
        roles: list[Callable[[], tuple[int, str]]] = [self._any, self._quorum_leader]
        if self.workload.main_topic:
            roles += [self._leader, self._leader]
        if self.workload.groups:
            roles.append(self._coordinator)
        broker, role = self.random.choice(roles)()
        if broker in self.up:
            return broker, role
        return self._any()

    def _any(self) -> tuple[int, str]:
        up = self.up
        if not up:
            raise RuntimeError("no broker is up")
        return self.random.choice(up), ""

    def _quorum_leader(self) -> tuple[int, str]:
        return self.system.quorum_leader(), "leader of the metadata quorum"

    def _leader(self) -> tuple[int, str]:
        topic, partition = self.a_partition()
        return self.system.leader_of(topic, partition), f"leader of {topic}-{partition}"

    def _coordinator(self) -> tuple[int, str]:
        group = self.random.choice(self.workload.groups)
        return self.system.coordinator(group), f"coordinator of {group}"

    def a_partition(self) -> tuple[str, int]:
        """One of the workload's partitions."""
        topic = self.random.choice(sorted(self.workload.topics))
        return topic, self.random.randrange(self.workload.topics[topic])

    def led_partition(self) -> tuple[str, int, int, list[int]]:
        """Topic, partition, leader and followers of a partition that has a leader. Raises RuntimeError."""
        topic, partition = self.a_partition()
        found = self.system.partitions(topic).get(partition)
        if found is None or found["leader"] not in self.up:
            raise RuntimeError(f"nobody leads {topic}-{partition}")
        leader = found["leader"]
        return topic, partition, leader, [each for each in found["replicas"] if each != leader]
