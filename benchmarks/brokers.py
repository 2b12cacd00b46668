"""What is measured side by side, as processes of their own: raftlog, and beside it Apache Kafka or another raftlog.

Kafka comes from the folder of peers beside the checkout (or RAFTLOG_PEERS); without it, or without Java, only raftlog
is measured. The other raftlog is a checkout with a virtual environment in `.venv` (`make test` makes one).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path(os.environ.get("RAFTLOG_PEERS", ROOT.parent / "shared" / "peers"))
KAFKA = PEERS / "kafka" / "kafka"
START_TRIES = 5
OTHER = "other"
"""The name of a raftlog of another checkout."""


def free_port() -> int:
    """A port of the loopback interface that nobody uses just now, and neither the next one (Kafka's controller).

    Below the range from which the system gives ports to clients, so that none is taken between look and use.
    """
    for port in random.sample(range(20_000, 32_000, 2), 100):
        if all(is_free(candidate) for candidate in (port, port + 1)):
            return port
    raise RuntimeError("no free port between 20000 and 32000")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def kafka_is_here() -> bool:
    """Whether Kafka can be measured: its folder and a Java are there."""
    return KAFKA.exists() and shutil.which("java") is not None


def start_kafka(*arguments: str) -> str:
    """Start Apache Kafka; its bootstrap servers. Raises RuntimeError."""
    for _ in range(START_TRIES):
        done = subprocess.run(
            [str(KAFKA), "start", *arguments], capture_output=True, text=True, timeout=180, check=False
        )
        if done.returncode == 0:
            return done.stdout.strip()
        if "--cluster-id" not in done.stderr:
            break
        # It drew a cluster id that begins with a dash, one of 64, and took it for an option: another one will do.
    raise RuntimeError(f"Kafka did not start: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def kafka_tool(name: str, *arguments: str, timeout: float = 600) -> str:
    """Run one of Kafka's own tools; what it printed."""
    done = subprocess.run(
        [str(KAFKA), "tool", name, *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"kafka tool {name} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Broker(ABC):
    """A running broker: its bootstrap address and its process."""

    name = "?"

    def __init__(self, settings: dict[str, str] | None = None, directory: Path | None = None) -> None:
        self.settings = settings or {}
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="raftlog-bench-"))
        self.bootstrap = ""
        self.pid = 0

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    @abstractmethod
    def start(self) -> None:
        """Start and wait until it serves; a broker that was stopped comes back on the same port and data."""

    @abstractmethod
    def stop(self) -> None:
        """Ask it to stop, and wait."""

    def cpu_seconds(self) -> float:
        """Time that the process's threads have spent on a processor.

        From the scheduler's own account: user and system time of /proc/PID/stat are sampled at ticks of the clock, and
        work that is woken by timers meets those too often or never.
        """
        nanoseconds = 0
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                nanoseconds += int((thread / "schedstat").read_text().split()[0])
        return nanoseconds / 1e9

    def resident_mb(self) -> float:
        """Resident memory in MB (10^6 bytes), shared pages of files included."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise RuntimeError("no VmRSS")


class Raftlog(Broker):
    """One raftlog broker."""

    name = "raftlog"
    python: tuple[str, ...] = (sys.executable,)

    def command(self) -> list[str]:
        """What is executed, but for the settings and the descriptor that says ready."""
        port = int(self.bootstrap.rpartition(":")[2] or free_port())
        command = [*self.python, "-m", "raftlog", "broker", "--node-id", "1", "--data-dir", str(self.directory)]
        return [*command, "--listen", f"127.0.0.1:{port}"]

    def start(self) -> None:
        read_end, write_end = os.pipe()
        command = [*self.command(), "--ready-fd", str(write_end)]
        for key, value in {"group.initial.rebalance.delay.ms": "0", **self.settings}.items():
            command += ["--set", f"{key}={value}"]
        with open(self.directory / "broker.out", "ab") as output:
            # A session of its own, as Kafka's brokers have: Linux shares processors between sessions first
            # (sched_autogroup), and the client's threads would count against the broker.
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, pass_fds=[write_end], start_new_session=True
            )
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            line = ready.readline()
        if not line:
            raise RuntimeError(f"the broker did not start: {(self.directory / 'broker.out').read_text()[-2000:]}")
        self.bootstrap = json.loads(line)["address"]
        self.pid = self.process.pid

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(30)


def python_of(tree: Path) -> tuple[str, ...]:
    """The interpreter of another checkout; -P and -E: what it runs is that, wherever it starts and whatever is set."""
    return str(tree.resolve() / ".venv" / "bin" / "python"), "-P", "-E"


class Kafka(Broker):
    """One Apache Kafka node, broker and controller in one."""

    name = "Kafka"

    def start(self) -> None:
        port = int(self.bootstrap.rpartition(":")[2] or free_port())
        arguments = ["--dir", str(self.directory), "--nodes", "1", "--port", str(port)]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
        self.bootstrap = start_kafka(*arguments)
        self.pid = json.loads((self.directory / "pids.json").read_text())["1"]

    def stop(self) -> None:
        subprocess.run([str(KAFKA), "stop", "--dir", str(self.directory)], capture_output=True, timeout=60, check=True)


def beside_raftlog(tree: str | None) -> list[type[Broker]]:
    """What raftlog is measured beside: the raftlog of another checkout, Kafka, or nothing where Kafka is not there."""
    if tree is not None:
        return [type("OtherRaftlog", (Raftlog,), {"name": OTHER, "python": python_of(Path(tree))})]
    return [Kafka] if kafka_is_here() else []


def wait_for_topic(bootstrap: str, topic: str, seconds_max: float = 30) -> None:
    """Return when the topic has a leader, as a client sees it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        metadata = admin.list_topics(topic, timeout=5).topics.get(topic)
        if metadata and not metadata.error and all(p.leader >= 0 for p in metadata.partitions.values()):
            return
    raise TimeoutError(f"topic {topic} has no leader after {seconds_max} s")


def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, config: dict[str, str] | None = None, *, replicas: int = 1
) -> None:
    """Create a topic and wait until it can be used."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=config or {})
    for future in admin.create_topics([new], request_timeout=60).values():
        future.result()
    wait_for_topic(bootstrap, topic)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic; the files go when the broker's delay (a minute) is over."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([topic], request_timeout=60).values():
        future.result()
