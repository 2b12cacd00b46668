"""Where a cluster's faults lie: a file for each, and the ports at which those who carry them out are told to look.

Counting happens in the files, under a lock: "once" is once for all brokers together, and what was counted outlives
the process that counted it.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from raftlog.testing.faults.spec import FaultSpec, from_json, refuse_impossible, to_json
from raftlog.testing.pids import is_stopped, lives

FOLDER = "faults"
BYTES_MAX = 1 << 16
LOOK = b"look\n"
DONE = b"done\n"
TELL = b"tell\n"
ANSWER_SECONDS_MAX = 2.0
DEAD = (ConnectionRefusedError, ConnectionResetError, BrokenPipeError)


class FaultDirectory:
    """The faults of the cluster whose data lie in `cluster`."""

    def __init__(self, cluster: Path | str) -> None:
        self.path = Path(cluster) / FOLDER

    def make(self) -> None:
        """Begin without faults. Raises BrokerDied where a cluster runs already: they are its own."""
        from raftlog.testing.process import BrokerDied  # a broker does without it

        self.path.mkdir(parents=True, exist_ok=True)
        for name, pid in self.pids().items():
            if lives(pid) and self.is_there(name):
                raise BrokerDied(f"{self.path.parent} is in use: {name} of another Kafka runs there (process {pid})")
        for old in self.path.iterdir():
            old.unlink()

    # -- faults ------------------------------------------------------------------------------------

    def add(self, spec: FaultSpec) -> FaultSpec:
        """Write a new fault down; it gets the next number. Nobody is told yet. Raises ValueError for what cannot be."""
        refuse_impossible(spec)
        spec.number = max(self._numbers(), default=0) + 1
        temporary = self.path / f"{os.getpid()}-{os.urandom(4).hex()}.new"
        while True:
            temporary.write_text(json.dumps(to_json(spec)))
            try:
                os.link(temporary, self._file(spec.number))  # whole from the beginning, and nobody else's
            except FileExistsError:
                spec.number += 1
                continue
            temporary.unlink()
            return spec

    def read(self, number: int) -> FaultSpec:
        """One fault as it is now. Raises FileNotFoundError."""
        with self._locked(number) as (_, spec):
            return spec

    def all(self) -> list[FaultSpec]:
        """All faults, in the order in which they were added."""
        return [self.read(number) for number in sorted(self._numbers())]

    def clear(self) -> None:
        """Remove what is healed, but for the last one: no number stands for two faults."""
        for number in sorted(self._numbers())[:-1]:
            if self.read(number).is_healed:
                self._file(number).unlink()

    def change(self, number: int, change: Callable[[FaultSpec], object]) -> FaultSpec:
        """Let `change` alter a fault while nobody else does. Raises FileNotFoundError."""
        with self._locked(number) as (descriptor, spec):
            change(spec)
            # At once, and never shorter: whoever is killed meanwhile leaves what was there before, or this.
            os.pwrite(descriptor, json.dumps(to_json(spec)).encode().ljust(os.fstat(descriptor).st_size), 0)
            return spec

    def hit(self, number: int) -> bool:
        """Count a call that the fault is about; whether it happens to this one."""
        happens = False

        def count(spec: FaultSpec) -> None:
            nonlocal happens
            seen = spec.evidence
            seen.calls += 1
            happens = not spec.is_healed and spec.when.hits(seen.calls, seen.fired)
            seen.fired += happens

        self.change(number, count)
        return happens

    def _numbers(self) -> Iterator[int]:
        return (int(file.stem) for file in self.path.glob("*.fault"))

    def _file(self, number: int) -> Path:
        return self.path / f"{number}.fault"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody counts within the block: who is stopped there has no lock that others would wait for."""
        with ExitStack() as held:
            for number in sorted(self._numbers()):
                held.enter_context(self._locked(number))
            yield

    @contextmanager
    def _locked(self, number: int) -> Iterator[tuple[int, FaultSpec]]:
        descriptor = os.open(self._file(number), os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor, from_json(json.loads(os.pread(descriptor, BYTES_MAX, 0)))
        finally:
            os.close(descriptor)

    # -- who looks ---------------------------------------------------------------------------------

    def announce(self, name: str, port: int) -> None:
        """This process looks when it is told so at `port`."""
        temporary = self.path / f"{name}.new"
        temporary.write_text(json.dumps({"port": port, "pid": os.getpid()}))
        temporary.rename(self.path / f"{name}.looker")

    def pids(self) -> dict[str, int]:
        """The process id of each that looks, by its name."""
        return {file.stem: json.loads(file.read_text())["pid"] for file in self.path.glob("*.looker")}

    def is_there(self, name: str) -> bool:
        """Whether the one that looks under this name still lives, be it that it stands still."""
        port = json.loads((self.path / f"{name}.looker").read_text())["port"]
        try:
            with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX):
                return True
        except (TimeoutError, *DEAD):
            return False

    def tell(self) -> None:
        """Have everybody look; return when all have who are alive. Who stands still looks when it goes on."""
        asked = []
        for file in sorted(self.path.glob("*.looker")):
            looker = json.loads(file.read_text())
            try:
                asking = socket.create_connection(("127.0.0.1", looker["port"]), 1.0)
                asking.sendall(LOOK)
            except (TimeoutError, *DEAD):
                continue
            if is_stopped(looker["pid"]):
                asking.close()
            else:
                asked.append(asking)
        for asking in asked:
            with asking:
                asking.settimeout(ANSWER_SECONDS_MAX)
                try:
                    asking.recv(len(DONE))
                except (TimeoutError, *DEAD):
                    pass

    def last_requests(self) -> dict[str, list[tuple[float, str]]]:
        """What clients last asked of each broker (`broker-1`), with Unix times; nothing of a dead or paused one."""
        found = {}
        for file in sorted(self.path.glob("broker-*.looker")):
            looker = json.loads(file.read_text())
            if is_stopped(looker["pid"]):
                continue
            try:
                with socket.create_connection(("127.0.0.1", looker["port"]), ANSWER_SECONDS_MAX) as asking:
                    asking.sendall(TELL)
                    answer = b"".join(iter(lambda: asking.recv(BYTES_MAX), b""))
            except (TimeoutError, *DEAD):
                continue
            with suppress(ValueError):  # it ended while it told
                found[file.stem] = [(at, text) for at, text in json.loads(answer)]
        return found
