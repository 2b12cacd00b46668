"""Brokers that belong together, for as long as a `with` block lasts."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from raftlog.testing.pids import lives
from raftlog.testing.process import START_TIMEOUT_SECONDS, BrokerDied, BrokerProcess

if TYPE_CHECKING:
    from raftlog.testing.faults.process import BrokerLinks
    from raftlog.testing.ports import ReservedPort

# What a laptop or a test wants: no wait for more group members, few partitions to create for the first commit.
DEVELOPMENT_SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    # How soon a member of a consumer group (KIP-848) hears that another one has joined.
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
}
BROKERS_MAX = 9
REPLICAS_MAX = 3
_FRESH = re.compile(r"raftlog-(\d{1,9})-[0-9a-f]{8}")
IN_ORDER = (0, -signal.SIGTERM, -signal.SIGKILL)
"""How a broker ends that was told to, or that a test has killed."""
PORTS_FILE = "ports.json"
"""In the cluster's directory: where its brokers listen for each other, which they remember in their logs."""


def development_settings(brokers: int) -> dict[str, str]:
    """Settings for so many brokers: with three or more, what is acknowledged with acks=all is on two of them."""
    replicas = str(min(brokers, REPLICAS_MAX))
    settings = {**DEVELOPMENT_SETTINGS, "offsets.topic.replication.factor": replicas}
    if brokers > 1:
        settings["default.replication.factor"] = replicas
    if brokers >= REPLICAS_MAX:
        settings["min.insync.replicas"] = str(REPLICAS_MAX - 1)
    return settings


class Cluster:
    """Brokers 1..n in one directory: `broker-<id>` holds the data of each, `broker-<id>.log` what it logs.

    One broker runs alone; several are started with a list of peers and form a quorum. Each keeps its ports over
    restarts; the ports of a cluster belong to it until `close`.
    """

    def __init__(
        self,
        n: int,
        directory: Path | str,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        log_to_stderr: bool = False,
        extra_arguments: Sequence[str] = (),
        python: Sequence[str] = (sys.executable,),
        faults: bool = False,
        links: bool = False,
    ) -> None:
        """`port` is the first broker's, the others' follow it; 0 lets the operating system choose. `settings` are added
        to `development_settings(n)`. Raises ValueError for a number of brokers that cannot be, OSError for a port
        that is taken. `python` is the interpreter that runs the brokers. `faults`: they may happen to the brokers;
        `links`: to what runs between them and their clients, too.
        """
        if not 1 <= n <= BROKERS_MAX:
            raise ValueError(f"{n} brokers: 1 to {BROKERS_MAX} can run together")
        self.directory = Path(directory)
        self.has_faults = faults or links
        self._reserved: list[ReservedPort] = []
        self.links: BrokerLinks | None = None
        if self.has_faults:
            extra_arguments = (*extra_arguments, "--faults", str(self.directory))
        ports = [port + at if port else 0 for at in range(n)]
        peer_ports: list[int] = []
        if n > 1:
            peer_ports = self._reserve_peer_ports(n)
            peers = ",".join(f"{at + 1}@127.0.0.1:{peer}" for at, peer in enumerate(peer_ports))
            extra_arguments = (*extra_arguments, "--peers", peers)
        if n > 1 or links:
            ports = [self._reserve(each) for each in ports]
        if links:
            from raftlog.testing.faults.process import BrokerLinks

            # Clients come in at these, and brokers listen at others.
            self.links = BrokerLinks(self.directory, ports, peer_ports, self._reserve, python)
            ports = self.links.brokers_ports
        self.brokers = [
            BrokerProcess(
                node_id,
                self.directory / f"broker-{node_id}",
                port=ports[node_id - 1],
                settings={**development_settings(n), **(settings or {}), **self._listeners(node_id)},
                log_file=None if log_to_stderr else self.directory / f"broker-{node_id}.log",
                extra_arguments=extra_arguments,
                python=python,
            )
            for node_id in range(1, n + 1)
        ]

    def _listeners(self, node_id: int) -> Mapping[str, str]:
        return {} if self.links is None else self.links.listeners(node_id)

    def _reserve(self, port: int = 0) -> int:
        from raftlog.testing.ports import ReservedPort  # one broker starts without it, and so a little faster

        reserved = ReservedPort(port=port)
        self._reserved.append(reserved)
        return reserved.number

    def _reserve_peer_ports(self, n: int) -> list[int]:
        """The ports that a cluster in this directory had before, or new ones."""
        import json

        file = self.directory / PORTS_FILE
        known = json.loads(file.read_text()) if file.exists() else []
        ports = [self._reserve(known[at] if at < len(known) else 0) for at in range(n)]
        self.directory.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(json.dumps(ports))
        new.replace(file)  # whole or not at all, also when we are killed meanwhile
        return ports

    def close(self) -> None:
        """Give the reserved ports back. The brokers should have stopped."""
        for reserved in self._reserved:
            reserved.release()
        self._reserved.clear()

    def broker(self, node_id: int) -> BrokerProcess:
        """The broker with this id."""
        return self.brokers[node_id - 1]

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,host:port`, as every Kafka client takes it."""
        return ",".join(self.addresses)

    @property
    def addresses(self) -> list[str]:
        """Where clients reach each broker."""
        if self.links is not None:
            return self.links.addresses
        return [broker.address for broker in self.brokers]

    def start(self, timeout: float = START_TIMEOUT_SECONDS, meanwhile: Callable[[], None] | None = None) -> None:
        """Start all brokers at once and return when all serve; when one does not, stop the others and raise.

        `meanwhile`: called while they start.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.has_faults:
            from raftlog.testing.faults.directory import FaultDirectory

            FaultDirectory(self.directory).make()
        try:
            if self.links is not None:
                self.links.start(wait=False)
            for broker in self.brokers:
                broker.start(wait=False)
            if meanwhile is not None:
                meanwhile()
            if self.links is not None:
                self.links.wait_until_ready(timeout)
            for broker in self.brokers:
                broker.wait_until_ready(timeout)
        except BaseException:
            self.kill()
            raise

    def stop(self, failing: Collection[int] = ()) -> None:
        """Stop all brokers in order; raise BrokerDied when one of them ended badly that was not to fail."""
        for broker in self.brokers:
            if broker.running:
                broker.terminate()
        codes = [broker.stop() for broker in self.brokers]
        if self.links is not None:
            self.links.kill()
        ended = zip(self.brokers, codes, strict=True)
        bad = [broker for broker, code in ended if code not in IN_ORDER and broker.node_id not in failing]
        if bad:
            raise BrokerDied(f"broker {bad[0].node_id} {bad[0].how_it_ended()}{bad[0].last_words()}")

    def kill(self) -> None:
        """kill -9 for all."""
        for broker in self.brokers:
            broker.kill()
        if self.links is not None:
            self.links.kill()


@contextmanager
def cluster(
    brokers: int = 1,
    *,
    directory: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
    log_to_stderr: bool = False,
) -> Iterator[Cluster]:
    """Brokers that serve when the block begins and are gone when it ends.

    `brokers`: how many. `directory`: where their data lies and stays; a throw-away one by default. `settings`: Kafka's
    broker configs, for example {"num.partitions": "3"}. Raises BrokerDied, with the broker's log, when one does not
    start.
    """
    with (
        data_directory(directory) as path,
        running(Cluster(brokers, path, settings=settings, log_to_stderr=log_to_stderr)) as made,
    ):
        yield made


@contextmanager
def running(made: Cluster) -> Iterator[Cluster]:
    """The same with a cluster that is there already. Raises BrokerDied also when one does not end in order."""
    try:
        made.start()
        yield made
        made.stop()
    finally:
        made.kill()
        made.close()


@contextmanager
def data_directory(given: Path | str | None) -> Iterator[Path]:
    """The directory that was asked for, or a fresh one that is removed at the end."""
    if given is not None:
        yield Path(given)
        return
    # Not tempfile: it costs a tenth of the time in which a broker starts.
    place = Path(os.environ.get("TMPDIR") or "/tmp")
    _remove_what_was_left(place)
    path = place / f"raftlog-{os.getpid()}-{os.urandom(4).hex()}"
    path.mkdir(mode=0o700)
    held = os.open(path, os.O_RDONLY)
    with suppress(OSError):  # not everywhere; nobody removes it there
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield path
    finally:
        _remove(path)
        os.close(held)


def _remove_what_was_left(place: Path) -> None:
    """Remove the fresh directories of those who were killed: their process is gone, and so is their lock, which also
    tells of processes that we cannot see, such as those of another container.
    """
    with suppress(OSError):  # who makes a directory there is told why it cannot be
        for name in os.listdir(place):
            own = _FRESH.fullmatch(name)
            if own is not None and not lives(int(own[1])):
                _remove_unless_held(place / name)


def _remove_unless_held(path: Path) -> None:
    try:
        held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:
        return  # somebody else's
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path)
    except OSError:
        pass  # in use
    finally:
        os.close(held)


def _remove(path: Path) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)
