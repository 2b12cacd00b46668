"""The two clusters that are measured side by side: three (or more) raftlog brokers, and as many of Apache Kafka."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from abc import abstractmethod
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from benchmarks.brokers import KAFKA, OTHER, Broker, is_free, python_of, start_kafka
from benchmarks.measure import progress
from raftlog.testing import BrokerDied, Cluster

CLIENT = {"topic.metadata.refresh.fast.interval.ms": 100, "log_level": 0}


class BrokerSet(Broker):
    """Several brokers under one bootstrap list. `pids` by node id."""

    def __init__(self, nodes: int = 3, settings: dict[str, str] | None = None) -> None:
        super().__init__(settings)
        self.nodes = nodes
        self.pids: dict[int, int] = {}

    def cpu_seconds(self) -> float:
        """Of all brokers together, by the scheduler's account. One that was killed meanwhile is not counted."""
        nanoseconds = 0
        for pid in self.pids.values():
            for account in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    nanoseconds += int(account.read_text().split()[0])
        return nanoseconds / 1e9

    def resident_mb(self) -> float:
        """Of the largest broker."""
        return max(resident(pid) for pid in self.pids.values())

    def signal(self, node: int, number: signal.Signals) -> None:
        """Send a signal to one broker."""
        os.kill(self.pids[node], number)

    @abstractmethod
    def restart(self, node: int) -> None:
        """Start one broker that was stopped or killed, with the data that it has."""

    def restart_all(self) -> None:
        """Start all brokers at once; each was killed."""
        for node in self.pids:
            self.restart(node)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Who leads, as a client sees it."""
        metadata = admin(self.bootstrap).list_topics(topic, timeout=10)
        leader: int = metadata.topics[topic].partitions[partition].leader
        return leader

    def wait_until_in_sync(self, topic: str, seconds_max: float = 120) -> None:
        """Return when every partition of the topic has all its replicas in sync."""
        client = admin(self.bootstrap)
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            partitions = client.list_topics(topic, timeout=10).topics[topic].partitions.values()
            if all(p.leader >= 0 and len(p.isrs) == len(p.replicas) for p in partitions):
                return
            time.sleep(0.1)
        raise TimeoutError(f"{topic} is not in sync after {seconds_max} s")


def resident(pid: int) -> float:
    """Resident memory in MB (10^6 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("no VmRSS")


def admin(bootstrap: str) -> Any:
    """An admin client that finds another broker quickly."""
    return AdminClient({"bootstrap.servers": bootstrap, **CLIENT})


class RaftlogSet(BrokerSet):
    """raftlog brokers with a list of peers."""

    name = "raftlog"
    python: tuple[str, ...] = (sys.executable,)

    def start(self) -> None:
        if not self.pids:
            self.cluster = Cluster(self.nodes, self.directory, settings=self.settings, python=self.python)
        self.cluster.start()
        self.bootstrap = self.cluster.bootstrap_servers
        self.pids = {broker.node_id: broker.pid for broker in self.cluster.brokers}
        self.pid = 1

    def stop(self) -> None:
        for broker in self.cluster.brokers:
            if broker.running:
                broker.resume()
        try:
            self.cluster.stop()
        except BrokerDied as late:
            # Ten thousand logs are brought to one disk by three brokers at once: no reason to lose what was measured.
            progress(str(late).partition(";")[0])
            self.cluster.kill()
        self.cluster.close()

    def restart(self, node: int) -> None:
        broker = self.cluster.broker(node)
        broker.stop()
        broker.start()
        self.pids[node] = broker.pid


    def restart_all(self) -> None:
        for broker in self.cluster.brokers:
            broker.kill()
            broker.start(wait=False)
        for broker in self.cluster.brokers:
            broker.wait_until_ready()
        self.pids = {broker.node_id: broker.pid for broker in self.cluster.brokers}

    def wipe(self, node: int) -> None:
        """Kill a broker, and start it on an empty disk."""
        broker = self.cluster.broker(node)
        broker.kill()
        shutil.rmtree(broker.data_dir)
        broker.start()
        self.pids[node] = broker.pid


class OtherRaftlogSet(RaftlogSet):
    """The brokers of another checkout."""

    name = OTHER

    def __init__(self, nodes: int, tree: Path) -> None:
        super().__init__(nodes)
        self.python = python_of(tree)


class KafkaSet(BrokerSet):
    """Apache Kafka nodes, each broker and controller."""

    name = "Kafka"

    def __init__(self, nodes: int = 3, settings: dict[str, str] | None = None) -> None:
        super().__init__(nodes, settings)
        self._port = 0
        self._commands: dict[int, list[str]] = {}

    def start(self) -> None:
        self._port = self._port or free_ports(2 * self.nodes)
        arguments = ["--dir", str(self.directory), "--nodes", str(self.nodes), "--port", str(self._port)]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
        self.bootstrap = start_kafka(*arguments)
        recorded = json.loads((self.directory / "pids.json").read_text())
        self.pids = {int(node): pid for node, pid in recorded.items()}
        self._commands = {
            node: Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0") for node, pid in self.pids.items()
        }
        self.pid = 1

    def stop(self) -> None:
        (self.directory / "pids.json").write_text(json.dumps(self.pids))
        for pid in self.pids.values():
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGCONT)
        subprocess.run([str(KAFKA), "stop", "--dir", str(self.directory)], capture_output=True, timeout=60, check=True)

    def restart(self, node: int) -> None:
        wait_until_gone(self.pids[node])
        with open(self.directory / f"broker-{node}" / "broker.log", "ab") as output:
            process = subprocess.Popen(
                self._commands[node], stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.pids[node] = process.pid


def wait_until_gone(pid: int, seconds_max: float = 60) -> None:
    """Return when a process has ended, also one whose parent collects nobody."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        status = Path(f"/proc/{pid}/status")
        if not status.exists() or "\nState:\tZ" in status.read_text():
            return
        time.sleep(0.02)
    raise TimeoutError(f"process {pid} did not end")


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody uses just now."""
    for port in random.sample(range(20_000, 32_000, 2), 200):
        if all(is_free(candidate) for candidate in range(port, port + count)):
            return port
    raise RuntimeError("no free ports between 20000 and 32000")
