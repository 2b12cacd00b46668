"""Faults of one cluster, as a test asks for them: `kafka.faults`."""

from __future__ import annotations

import difflib
import functools
import os
import time
from collections.abc import Callable, Collection, Iterable
from random import Random
from typing import TYPE_CHECKING

from raftlog.testing.faults.brokers import BrokerFaults
from raftlog.testing.faults.directory import FaultDirectory
from raftlog.testing.faults.fault import Fault, NeverFired, heal_all
from raftlog.testing.faults.link_faults import LinkFaults, between, shape
from raftlog.testing.faults.matching import ANY_API
from raftlog.testing.faults.spec import ALWAYS, CLIENTS, FaultSpec, When
from raftlog.testing.waiting import wait_until
from raftlog.wire.apis import APIS
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.client.sync import SyncAdmin
    from raftlog.testing.clusters import Cluster
    from raftlog.testing.faults.schedule import Schedule
    from raftlog.wire.messages.metadata import MetadataResponseTopic

APPLIED = ("REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
"""Brokers say so of what they have carried out, or will."""
API_NAMES = tuple(api.name for api in APIS.values())
LEADER_SECONDS_MAX = 20.0
SEED_VARIABLE = "RAFTLOG_FAULT_SEED"


@functools.cache
def run_seed() -> int:
    """One for all clusters of this process, so that one is enough to run it again."""
    return int(os.environ.get(SEED_VARIABLE) or Random().getrandbits(31))


class Faults:
    """First match wins. Names that do not exist raise ValueError. `seed` decides whatever chance decides.

    `topic`, `partition`, `group`, `transactional_id` and `client` (a pattern: `billing*`) say which requests a fault
    is about. Requests between brokers are left alone unless `client` names them. A request is refused as a whole.
    """

    def __init__(self, cluster: Cluster, admin: Callable[[], SyncAdmin]) -> None:
        """`admin`: who knows the cluster's topics and roles."""
        self._admin = admin
        self.cluster = cluster
        self.directory = FaultDirectory(self.cluster.directory)
        self.seed = run_seed()
        self.made: list[Fault] = []
        self.schedules: list[Schedule] = []

    # -- requests ----------------------------------------------------------------------------------

    def error(
        self,
        api: str,
        code: str | ErrorCode,
        *,
        applied: bool | None = None,
        topic: str = "",
        partition: int = -1,
        group: str = "",
        transactional_id: str = "",
        client: str = "",
    ) -> Fault:
        """The next request of this API is answered with an error code. `applied`: it is carried out all the same;
        the default is what brokers do, which carry out what they answer with REQUEST_TIMED_OUT.
        """
        name = code.name if isinstance(code, ErrorCode) else _known(code, ErrorCode.__members__, "error code")
        spec = FaultSpec("error", api=_known(api, API_NAMES, "API"), code=name)
        spec.applied = name in APPLIED if applied is None else applied
        return self._about(spec, topic, partition, group, transactional_id, client=client)

    def disconnect(
        self, api: str = ANY_API, *, applied: bool = False, topic: str = "", partition: int = -1, group: str = "",
        transactional_id: str = "", client: str = "",
    ) -> Fault:  # fmt: skip
        """The next request of this API ends its connection: before it is carried out, or after that (`applied`)."""
        spec = FaultSpec("disconnect", api=_known_api(api), applied=applied)
        return self._about(spec, topic, partition, group, transactional_id, client=client)

    def delay(
        self, api: str, seconds: float, *, topic: str = "", partition: int = -1, group: str = "",
        transactional_id: str = "", client: str = "",
    ) -> Fault:  # fmt: skip
        """The next request of this API, and what its connection asks behind it, is carried out so much later."""
        spec = FaultSpec("delay", api=_known_api(api), seconds=seconds)
        return self._about(spec, topic, partition, group, transactional_id, client=client)

    def observe(
        self, api: str = ANY_API, *, topic: str = "", partition: int = -1, group: str = "",
        transactional_id: str = "", client: str = "",
    ) -> Fault:  # fmt: skip
        """Nothing happens, and it is counted: `fired`. It need not happen."""
        spec = FaultSpec("observe", api=_known_api(api), when=When(times=ALWAYS))
        return self._about(spec, topic, partition, group, transactional_id, client=client)

    def client(self, pattern: str) -> ClientFaults:
        """What can happen to clients whose client id is like this: `faults.client("billing*").blackhole()`."""
        return ClientFaults(self, pattern)

    def _about(
        self, spec: FaultSpec, topic: str, partition: int, group: str, transactional_id: str, *, client: str
    ) -> Fault:
        spec.topic, spec.partition, spec.group = topic, partition, group
        spec.transactional_id, spec.client = transactional_id, client
        if topic:
            spec.topic_id = self._topic(topic, max(0, partition)).topic_id.hex()
        return self.add(spec)

    def _topic(self, topic: str, partition: int) -> MetadataResponseTopic:
        from raftlog.client.core.errors import Rejected

        try:
            found = self._admin().topic(topic)
        except Rejected as error:
            if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                raise
            raise ValueError(f"there is no topic {topic!r} that a fault could be about: make it first") from error
        if partition not in (each.partition_index for each in found.partitions):
            raise ValueError(f"topic {topic!r} has no partition {partition}")
        return found

    # -- links -------------------------------------------------------------------------------------

    def link(self, one: int | BrokerFaults | str, other: int | BrokerFaults | str) -> LinkFaults:
        """Between two brokers, or "clients" and a broker."""
        self._has_links()
        return LinkFaults(self, self._end(one), self._end(other))

    def isolate(self, broker: int | BrokerFaults) -> Fault:
        """Nothing passes between a broker and the others. Clients still reach it."""
        one = self._end(broker)
        return self._cut("isolate", between([one], [other for other in self._ids if other != one]))

    def split(self, brokers: Iterable[int | BrokerFaults]) -> Fault:
        """Nothing passes between these brokers and the rest."""
        here = [self._end(broker) for broker in brokers]
        return self._cut("split", between(here, [other for other in self._ids if other not in here]))

    def partition(self, shape_name: str = "majority", *, seed: int | None = None) -> Fault:
        """A partition of a shape: one, majority, majorities-ring, bridge, chain, one-way. `seed`: who is where."""
        return self._cut("split", shape(shape_name, self._ids, Random(self.seed if seed is None else seed)))

    def _cut(self, kind: str, links: list[tuple[int, int]]) -> Fault:
        self._has_links()
        if not links:
            raise ValueError("that cuts no link")
        return self.add(FaultSpec(kind, links=links))

    def _has_links(self) -> None:
        if self.cluster.links is None:
            raise ValueError(
                "this Kafka was started without links that could be cut: use Kafka(links=True), kafka_cluster(), or"
                ' {"links": True} in kafka_settings'
            )

    def _end(self, end: int | BrokerFaults | str) -> int:
        if end == "clients":
            return CLIENTS
        number = end.id if isinstance(end, BrokerFaults) else end
        if number not in self._ids:
            raise ValueError(f"there is no broker {end!r}: {self._ids}")
        assert isinstance(number, int)
        return number

    @property
    def _ids(self) -> list[int]:
        return [broker.node_id for broker in self.cluster.brokers]

    # -- brokers -----------------------------------------------------------------------------------

    def broker(self, number: int) -> BrokerFaults:
        """The broker with this id."""
        if number not in self._ids:
            raise ValueError(f"there is no broker {number!r}: {self._ids}")
        return BrokerFaults(self, number)

    def leader_of(self, topic: str, partition: int = 0) -> BrokerFaults:
        """The broker that leads a partition, as soon as there is one."""

        def look() -> int:
            partitions = self._topic(topic, partition).partitions
            return max(0, next(each.leader_id for each in partitions if each.partition_index == partition))

        return self.broker(wait_until(look, LEADER_SECONDS_MAX, lambda: f"a leader of {topic} {partition}"))

    def quorum_leader(self) -> BrokerFaults:
        """The broker that leads the metadata quorum, as soon as there is one."""

        def look() -> int:
            return max(0, self._admin().describe_quorum().leader)

        return self.broker(wait_until(look, LEADER_SECONDS_MAX, lambda: "a leader of the metadata quorum"))

    def coordinator(self, group: str) -> BrokerFaults:
        """The broker that coordinates a group now."""
        return self.broker(self._admin().coordinator(group))

    # -- many --------------------------------------------------------------------------------------

    def schedule(
        self, *, seed: int | None = None, seconds: float = 10.0, kinds: Collection[str] | None = None
    ) -> Schedule:
        """Faults at random, as the simulator makes them from a seed: `with faults.schedule(seed=7, seconds=60):`."""
        from raftlog.testing.faults.schedule import Schedule

        made = Schedule(self, self.seed if seed is None else seed, seconds, kinds)
        self.schedules.append(made)
        return made

    def add(self, spec: FaultSpec, undo: Callable[[], object] | None = None) -> Fault:
        """Put a fault in force, and return when everybody knows it."""
        if not self.cluster.has_faults:
            raise ValueError("this Kafka was started without faults: use Kafka(faults=True)")
        spec.began = time.time()
        fault = Fault(self, self.directory.add(spec), undo)
        self.made.append(fault)
        self.directory.tell()
        return fault

    def happened(self, fault: Fault, size: int = 0) -> None:
        """Count what this process has done itself."""

        def count(spec: FaultSpec) -> None:
            spec.evidence.calls += 1
            spec.evidence.fired += 1
            spec.evidence.bytes += size

        self.directory.change(fault.number, count)

    def heal(self) -> None:
        """End all faults (`heal_all`), and wait until brokers that were down serve again."""
        heal_all(self.made)

    def check(self) -> None:
        """Raises NeverFired when a fault has had no effect, and says so of each fault once. Of a schedule one must
        have had one: its faults come by chance, and some are over before anything meets them.
        """
        by_chance = {fault for schedule in self.schedules for fault in schedule.put}
        idle: list[Fault | Schedule] = [
            fault for fault in self.made if fault.kind != "observe" and fault not in by_chance and not fault.fired
        ]
        idle += [schedule for schedule in self.schedules if not any(fault.fired for fault in schedule.put)]
        untold = [each for each in idle if not each.told]
        for each in untold:
            each.told = True
        if untold:
            raise NeverFired("\n  ".join(["these faults had no effect:", *map(str, untold)]))

    def forget(self) -> None:
        """What was made so far is of an earlier test, and over."""
        self.made.clear()
        self.schedules.clear()
        self.directory.clear()

    def close(self) -> set[int]:
        """The cluster is about to stop: all faults are over, who is down stays down, and what was done stays known.

        Returns the brokers whose disks were failing: they may have ended badly, or may still.
        """
        ended = [fault for fault in self.made if fault.end()]
        if ended:
            self.directory.tell()
        for fault in self.made:
            fault.keep()
        return {broker for fault in ended if fault.kind == "sync-error" for broker in fault.spec.brokers}

    def report(self) -> str:
        """Each fault with its time, words and evidence: a line for each."""
        lines = []
        for fault in self.made:
            spec = fault.spec
            end = f"{spec.ended - spec.began:.3f} s" if spec.is_healed else "in force"
            clock = time.strftime("%H:%M:%S", time.localtime(spec.began)) + f"{spec.began % 1:.3f}"[1:]
            lines.append(f"{clock} for {end}: {spec} ({spec.evidence})")
        return "\n".join(lines)


class ClientFaults:
    """What can happen to some clients, whatever they ask."""

    def __init__(self, faults: Faults, pattern: str) -> None:
        self._faults = faults
        self._pattern = pattern

    def blackhole(self) -> Fault:
        """Nothing that they ask is carried out or answered. When it is healed, their connections end."""
        spec = FaultSpec("blackhole", api=ANY_API, client=self._pattern, when=When(times=ALWAYS))
        return self._faults.add(spec)

    def disconnect(self) -> Fault:
        """Their next request ends its connection."""
        return self._faults.disconnect(client=self._pattern)

    def delay(self, seconds: float) -> Fault:
        """Each of their requests is carried out so much later."""
        return self._faults.delay(ANY_API, seconds, client=self._pattern).always()


def _known_api(api: str) -> str:
    return api if api == ANY_API else _known(api, API_NAMES, "API")


def _known(name: str, names: Iterable[str], what: str) -> str:
    names = list(names)
    if name in names:
        return name
    close = difflib.get_close_matches(name.lower(), [each.lower() for each in names], 1)
    meant = next((each for each in names if close and each.lower() == close[0]), None)
    raise ValueError(f"there is no {what} {name!r}" + (f": did you mean {meant!r}?" if meant else ""))
