"""raftlog brokers, with everything that `raftlog.testing` can do to them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from raftlog import __version__
from raftlog.linearizability.harness.mutated import python
from raftlog.linearizability.harness.systems.system import (
    NEW_DISK,
    REPLICAS,
    CannotStart,
    Effect,
    System,
    counted,
    nothing,
)
from raftlog.testing.clusters import Cluster, data_directory
from raftlog.testing.faults.fault import Fault, heal_all
from raftlog.testing.faults.faults import Faults
from raftlog.testing.kafka import Kafka
from raftlog.testing.pids import is_stopped
from raftlog.testing.process import BrokerDied, BrokerProcess
from raftlog.testing.waiting import NotInTime, wait_until

DISK_LOST = "no data directory is left"
"""A broker says so when it ends for that reason, with os.EX_SOFTWARE."""
SPARE_SECONDS_MAX = 10.0
DEVELOPMENT = {"transaction.state.log.num.partitions": "4"}


class RaftlogSystem(System):
    """Brokers behind links of their own, on data that is thrown away."""

    name = "raftlog"
    abilities = frozenset({"processes", "links", "disks", "clocks", "requests", "voters", REPLICAS})
    version = __version__

    def __init__(self, brokers: int, settings: Mapping[str, str], mutant: str = "") -> None:
        super().__init__()
        self._mutant = mutant
        self.broker_ids = tuple(range(1, brokers + 1))
        self._data = data_directory(None)
        self._settings = {**DEVELOPMENT, **settings}
        self._kafka: Kafka | None = None

    def start(self) -> None:
        """See System."""
        directory = self._data.__enter__()
        kafka = _Brokers(len(self.broker_ids), settings=self._settings, directory=directory, links=True)
        kafka.python = python(self._mutant)
        try:
            kafka.start()
        except (BrokerDied, AssertionError, OSError, ValueError) as error:
            self._data.__exit__(None, None, None)
            raise CannotStart(str(error)) from error
        self._kafka = kafka

    @property
    def kafka(self) -> Kafka:
        """The cluster."""
        assert self._kafka is not None
        return self._kafka

    @property
    def faults(self) -> Faults:
        """What can go wrong in it."""
        return self.kafka.faults

    @property
    def bootstrap(self) -> str:
        """See System."""
        return self.kafka.bootstrap_servers

    def stop(self, logs: Path) -> list[str]:
        """See System."""
        wrong: list[str] = []
        if self._kafka is None:
            return wrong
        self.close_admin()
        cluster = self.kafka.running
        try:
            self.faults.heal()
        except (BrokerDied, OSError) as error:
            wrong.append(f"a fault could not be healed: {_first_line(error)}")
        try:
            self.kafka.stop()
        except BrokerDied as error:
            wrong.append(f"a broker did not stop in order: {_first_line(error)}")
        cluster.kill()
        for broker in cluster.brokers:
            if broker.log_file is not None and broker.log_file.exists():
                shutil.copy(broker.log_file, logs / broker.log_file.name)
        self._data.__exit__(None, None, None)
        return wrong

    def states(self) -> dict[int, str]:
        """See System."""
        return {each.node_id: _state(each) for each in self.kafka.running.brokers}

    def data_directory(self, broker: int) -> Path:
        """See System."""
        return self.kafka.running.broker(broker).data_dir

    # -- what can happen ---------------------------------------------------------------------------

    def kill(self, broker: int) -> Effect:
        """See System."""
        return self.effect(lambda: self.faults.broker(broker).kill(), f"broker {broker}")

    def stop_broker(self, broker: int) -> Effect:
        """See System."""
        return self.effect(lambda: self.faults.broker(broker).stop(), f"broker {broker}")

    def pause(self, broker: int) -> Effect:
        """See System."""
        return self.effect(lambda: self.faults.broker(broker).pause(), f"broker {broker}")

    def power_cut(self, broker: int) -> Effect:
        """What was not synced is lost; started again when healed."""
        return self.effect(lambda: self.faults.broker(broker).power_cut(), f"broker {broker}")

    def start_all(self) -> None:
        """Start all that do not run, at once: alone none of them may be a majority."""
        down = [each for each in self.kafka.running.brokers if not each.running]
        for each in down:
            each.start(wait=False)
        for each in down:
            each.wait_until_ready()

    def lost_disks(self) -> list[int]:
        """See System."""
        ended = [each for each in self.kafka.running.brokers if each.returncode == os.EX_SOFTWARE]
        return [each.node_id for each in ended if DISK_LOST in each.last_words()]

    def replace_disk(self, broker: int) -> Effect | None:
        """See System. Its partitions must be in sync elsewhere, twice."""
        process = self.kafka.running.broker(broker)
        process.stop()
        try:
            wait_until(lambda: self._is_spare(broker), SPARE_SECONDS_MAX, lambda: "others in sync")
        except NotInTime:
            if broker not in self.lost_disks():
                process.start()
            return None
        shutil.rmtree(process.data_dir)
        process.start()
        return Effect(NEW_DISK, f"broker {broker}", nothing, counted, [broker])

    def _is_spare(self, broker: int) -> bool:
        replicas = self.in_sync_replicas(broker)
        return replicas is not None and all(broker not in each and len(each) >= 2 for each in replicas)

    def effect(self, make: Callable[[], Fault], target: str) -> Effect:
        """A fault of `raftlog.testing`, put in. One that fails leaves nothing behind that nobody would heal."""
        earlier = len(self.faults.made)
        try:
            fault = make()
        except Exception:
            heal_all(self.faults.made[earlier:])
            raise
        spec = fault.spec
        evidence: Callable[[], dict[str, Any]] = lambda: asdict(fault.evidence)  # noqa: E731
        return Effect(fault.kind, target, fault.heal, evidence, list(spec.brokers), list(spec.links))


class _Brokers(Kafka):
    """A cluster whose brokers run with another interpreter."""

    python: Sequence[str] = ()

    def _make_cluster(self, directory: Path) -> Cluster:
        return Cluster(self.broker_count, directory, settings=self.settings, links=True, python=self.python)


def _state(broker: BrokerProcess) -> str:
    if not broker.running:
        return "down"
    return "paused" if is_stopped(broker.pid) else "up"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
