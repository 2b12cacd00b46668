"""Apache Kafka from a folder of jars, each node broker and controller. `RAFTLOG_KAFKA` names the folder: that of a
release, or whatever holds its jars.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from socket import create_connection

from raftlog.linearizability.harness.systems.system import PROCESSES, REPLICAS, CannotStart, Effect, System, counted
from raftlog.testing.clusters import REPLICAS_MAX, data_directory
from raftlog.testing.pids import is_stopped
from raftlog.testing.ports import ReservedPort
from raftlog.testing.waiting import NotInTime, wait_until

VARIABLE = "RAFTLOG_KAFKA"
START_SECONDS = 120.0
STOP_SECONDS = 60.0
HEAP = "512m"


def jars() -> Path:
    """The folder with Kafka's jars. Raises CannotStart when there is none, or no Java."""
    given = os.environ.get(VARIABLE)
    if not given:
        raise CannotStart(f"say where Kafka is: {VARIABLE}=/path/to/kafka, the folder of a release")
    for folder in (Path(given) / "libs", Path(given)):
        if any(folder.glob("kafka-clients-*.jar")):
            if shutil.which("java") is None:
                raise CannotStart("Kafka needs Java 17 or newer, and there is no `java`")
            return folder
    raise CannotStart(f"{VARIABLE}={given} holds no jars of Kafka: name the folder of a release")


class KafkaSystem(System):
    """Nodes 1..n on data that is thrown away."""

    name = "kafka"
    abilities = PROCESSES | {REPLICAS}

    def __init__(self, brokers: int, settings: Mapping[str, str]) -> None:
        super().__init__()
        self.broker_ids = tuple(range(1, brokers + 1))
        self._settings = dict(settings)
        self._data = data_directory(None)
        self._jars = jars()
        found = next(self._jars.glob("kafka-clients-*.jar")).name
        version = re.fullmatch(r"kafka-clients-(.+)\.jar", found)
        self.version = version[1] if version else None
        self._reserved = [ReservedPort() for _ in range(2 * brokers)]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._home = Path()

    def _port(self, broker: int) -> int:
        return self._reserved[2 * broker - 2].number

    def _controller_port(self, broker: int) -> int:
        return self._reserved[2 * broker - 1].number

    @property
    def bootstrap(self) -> str:
        """See System."""
        return ",".join(f"127.0.0.1:{self._port(broker)}" for broker in self.broker_ids)

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """See System."""
        self._home = self._data.__enter__()
        # Java binds where nobody else is bound: the ports are free again from here on.
        for each in self._reserved:
            each.release()
        identity = base64.urlsafe_b64encode(b"raft" + uuid.uuid4().bytes[4:]).decode().rstrip("=")
        try:
            for broker in self.broker_ids:
                self._format(broker, identity)
            for broker in self.broker_ids:
                self._launch(broker)
            for broker in self.broker_ids:
                self._wait(broker)
        except (NotInTime, subprocess.SubprocessError) as error:
            self._end()
            raise CannotStart(f"Kafka does not start: {error}") from error

    def _format(self, broker: int, identity: str) -> None:
        home = self._home / f"broker-{broker}"
        home.mkdir(parents=True)
        voters = ",".join(f"{each}@127.0.0.1:{self._controller_port(each)}" for each in self.broker_ids)
        replicas = min(REPLICAS_MAX, len(self.broker_ids))
        in_sync = max(1, replicas - 1)
        properties: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": broker,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port(broker)},"
            f"CONTROLLER://127.0.0.1:{self._controller_port(broker)}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port(broker)}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": home / "data",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "transaction.state.log.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
            **self._settings,
        }
        config = home / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        format_it = ["kafka.tools.StorageTool", "format", "-t", identity, "-c", str(config)]
        subprocess.run(self._java(*format_it), check=True, capture_output=True, timeout=START_SECONDS)

    def _java(self, *arguments: str) -> list[str]:
        return ["java", f"-Xmx{HEAP}", "-cp", f"{self._jars}/*", *arguments]

    def _launch(self, broker: int) -> None:
        home = self._home / f"broker-{broker}"
        with open(self._log(broker), "ab") as log:
            self._processes[broker] = subprocess.Popen(
                self._java("kafka.Kafka", str(home / "server.properties")),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _log(self, broker: int) -> Path:
        return self._home / f"broker-{broker}.log"

    def _wait(self, broker: int) -> None:
        def look() -> bool:
            if self._processes[broker].poll() is not None:
                raise NotInTime(f"broker {broker} ended: {self._log(broker).read_text(errors='replace')[-500:]}")
            try:
                create_connection(("127.0.0.1", self._port(broker)), 1.0).close()
            except OSError:
                return False
            return True

        wait_until(look, START_SECONDS, lambda: f"broker {broker} listens")

    def stop(self, logs: Path) -> list[str]:
        """See System."""
        self.close_admin()
        codes = {broker: process.poll() for broker, process in self._processes.items()}
        wrong = [
            f"broker {broker} has ended, with exit code {code}" for broker, code in codes.items() if code is not None
        ]
        self._end()
        for broker in self.broker_ids:
            if self._log(broker).exists():
                shutil.copy(self._log(broker), logs / f"broker-{broker}.log")
        self._data.__exit__(None, None, None)
        return wrong

    def _end(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(STOP_SECONDS)

    def states(self) -> dict[int, str]:
        """See System."""
        found = {}
        for broker, process in self._processes.items():
            is_up = process.poll() is None
            found[broker] = ("paused" if is_stopped(process.pid) else "up") if is_up else "down"
        return found

    def data_directory(self, broker: int) -> Path:
        """See System."""
        return self._home / f"broker-{broker}" / "data"

    # -- what can happen ---------------------------------------------------------------------------

    def kill(self, broker: int) -> Effect:
        """See System."""
        return self._down("kill", broker, signal.SIGKILL)

    def stop_broker(self, broker: int) -> Effect:
        """See System."""
        return self._down("stop", broker, signal.SIGTERM)

    def _down(self, kind: str, broker: int, sign: signal.Signals) -> Effect:
        process = self._processes[broker]
        if process.poll() is not None:
            raise RuntimeError(f"broker {broker} does not run")
        process.send_signal(sign)
        process.send_signal(signal.SIGCONT)  # one that stands still hears nothing
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            # Without a quorum it waits for minutes to hand over what it leads.
            process.kill()
            process.wait()

        def start() -> None:
            if self._processes[broker].poll() is not None:
                self._launch(broker)
                self._wait(broker)

        return Effect(kind, f"broker {broker}", start, counted, [broker])

    def pause(self, broker: int) -> Effect:
        """See System."""
        process = self._processes[broker]
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_stopped(process.pid), 10.0, lambda: f"broker {broker} stops")

        def resume() -> None:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)

        return Effect("freeze", f"broker {broker}", resume, counted, [broker])
