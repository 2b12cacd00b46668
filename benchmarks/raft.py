"""What a commit costs: nodes in processes of their own on one machine, fsync on, loopback.

    python -m benchmarks.raft [--seconds 5] [--bytes 100] [--nodes 1 3 5 7 9]

Prints the time of a commit, one at a time (p50, p99), commits a second when many are proposed at once, and how long a
quorum is without a leader when its process is killed with -9.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NODES = (1, 2, 3)
PIPELINED = 256
"""Proposals under way at a time."""


# -- one node, in a process of its own -----------------------------------------------------------------


class Counter:
    """A state machine that counts."""

    def __init__(self) -> None:
        self.index = 0

    def restore(self, index: int, chunks: Iterable[bytes]) -> None:
        """See RestoreCallback."""
        self.index = index

    def replay(self, index: int, entry: bytes) -> None:
        """See ReplayCallback."""
        self.index = index

    def snapshot(self) -> tuple[int, Iterable[bytes]]:
        """See SnapshotSource."""
        return self.index, [b"%d" % self.index]


async def node_main(options: dict[str, Any]) -> None:
    """Run a node; obey lines on stdin, answer on stdout."""
    from raftlog.broker.store.disk import OsDisk
    from raftlog.raft.quorum import QuorumLog

    node_id = options["node"]
    peers = {int(one): ("127.0.0.1", port) for one, port in options["ports"].items()}
    log = QuorumLog(
        options["directory"], node_id=node_id, peers=peers, listen=peers[node_id], monotonic=time.monotonic,
        disk=OsDisk(),
    )  # fmt: skip
    counter = Counter()
    log.on_leadership(lambda leads: tell({"leads": leads, "term": log.term, "at": time.monotonic()}))
    await log.start(counter.restore, counter.replay, counter.snapshot)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        data = os.urandom(command["bytes"])
        if command["do"] == "one":
            tell({"times": await one_at_a_time(log, data, command["seconds"])})
        else:
            tell({"rate": await pipelined(log, data, command["seconds"])})
    await log.close()


def tell(values: dict[str, Any]) -> None:
    """Answer the driver."""
    print(json.dumps(values), flush=True)


async def one_at_a_time(log: Any, data: bytes, seconds: float) -> list[float]:
    """Seconds that each commit took."""
    times = []
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        await log.propose([data])
        times.append(time.monotonic() - began)
    return times


async def pipelined(log: Any, data: bytes, seconds: float) -> float:
    """Commits a second with PIPELINED under way."""
    done = 0
    began = time.monotonic()

    async def worker() -> None:
        nonlocal done
        while time.monotonic() - began < seconds:
            await log.propose([data])
            done += 1

    await asyncio.gather(*(worker() for _ in range(PIPELINED)))
    return done / (time.monotonic() - began)


# -- the driver ------------------------------------------------------------------------------------------


class Process:
    """A node's process."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.node = options["node"]
        self.last: dict[str, Any] = {}
        command = [sys.executable, "-m", "benchmarks.raft", "--node", json.dumps(options)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        while True:
            answer = self.read()
            if "leads" not in answer:
                return answer

    def read(self) -> dict[str, Any]:
        """The next line that the node says."""
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        if "leads" in answer:
            self.last = answer
        return answer


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_leader(processes: list[Process]) -> tuple[Process, float]:
    """The first that says that it leads, and when it said so."""
    import selectors

    with selectors.DefaultSelector() as selector:
        for process in processes:
            assert process.process.stdout is not None
            selector.register(process.process.stdout, selectors.EVENT_READ, process)
        while True:
            process = selector.select()[0][0].data
            answer = process.read()
            if answer.get("leads"):
                return process, answer["at"]


def measure(directory: Path, seconds: float, size: int, nodes: int) -> dict[str, Any]:
    """All figures of a quorum of so many nodes."""
    ports = {node: free_port() for node in range(1, nodes + 1)}
    began = time.monotonic()
    processes = [Process({"node": n, "ports": ports, "directory": str(directory / str(n))}) for n in ports]
    result: dict[str, Any] = {"nodes": nodes}
    try:
        leader, at = wait_for_leader(processes)
        result["start_to_leader_s"] = round(at - began, 3)
        times = sorted(leader.ask(do="one", seconds=seconds, bytes=size)["times"])
        result["commit_p50_ms"] = round(statistics.median(times) * 1e3, 3)
        result["commit_p99_ms"] = round(times[int(len(times) * 0.99)] * 1e3, 3)
        result["commits_one_at_a_time_per_s"] = round(len(times) / seconds)
        result["commits_pipelined_per_s"] = round(leader.ask(do="many", seconds=seconds, bytes=size)["rate"])
        rest = [process for process in processes if process is not leader]
        if len(rest) > 1:
            killed = time.monotonic()
            leader.process.send_signal(signal.SIGKILL)
            _, at = wait_for_leader(rest)
            result["leader_killed_to_new_leader_ms"] = round((at - killed) * 1e3, 1)
    finally:
        for process in processes:
            process.process.kill()
            process.process.wait()
    return result


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--nodes", type=int, nargs="+", default=[len(NODES)])
    parser.add_argument("--node", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.node:
        import uvloop

        uvloop.run(node_main(json.loads(arguments.node)))
        return
    for nodes in arguments.nodes:
        with tempfile.TemporaryDirectory(dir=".") as directory:
            print(json.dumps(measure(Path(directory), arguments.seconds, arguments.bytes, nodes)), flush=True)


if __name__ == "__main__":
    main()
