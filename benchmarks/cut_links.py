"""How long a producer waits when links between brokers are cut, while they are cut and after they are healed.

    python -m benchmarks.cut_links [--seconds 15] [--only PAIR]

Three brokers in network namespaces (Linux, root), 6 partitions with three replicas and min.insync.replicas=2, one
unmodified librdkafka producer that sends 400 records a second. For each cut: the longest time without an
acknowledgement, on any partition and on the worst one. Packets are dropped without a word.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.namespaces import Network, can_be_made, network

BROKERS = (1, 2, 3)
CLIENT = 9
TOPIC, PARTITIONS = "cut", 6
RECORDS_A_SECOND = 400
SETTLE_SECONDS = 15.0
KAFKA_PORT, PEER_PORT = 9092, 9192

CUTS: dict[str, tuple[str, tuple[tuple[int, int], ...]]] = {
    "peers": ("a leader from its peers", ((1, 2), (2, 1), (1, 3), (3, 1))),
    "out": ("one way, out of a leader", ((1, 2), (1, 3))),
    "into": ("one way, into a leader", ((2, 1), (3, 1))),
    "pair": ("a leader and one follower, a third sees both", ((1, 2), (2, 1))),
    "all": ("a leader from all, clients too", ((1, 2), (2, 1), (1, 3), (3, 1), (1, CLIENT), (CLIENT, 1))),
}


class Waits(NamedTuple):
    """The longest times without an acknowledgement, in seconds: on any partition, and on the worst one."""

    anywhere: float
    worst: float


def produce(bootstrap: str) -> None:
    """The client's process: produce until told to stop, then tell when each partition was acknowledged."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, PARTITIONS, len(BROKERS), config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(30)
    acknowledged: dict[int, list[float]] = defaultdict(list)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    producer = Producer({"bootstrap.servers": bootstrap})
    sent, told, began = 0, False, time.monotonic()
    while not stopping:
        while sent < (time.monotonic() - began) * RECORDS_A_SECOND:
            partition = sent % PARTITIONS
            producer.produce(
                TOPIC,
                b"x" * 100,
                partition=partition,
                on_delivery=lambda error, message: (
                    None if error else acknowledged[message.partition()].append(time.monotonic())
                ),
            )
            sent += 1
        producer.poll(0.002)
        if sent > RECORDS_A_SECOND and not told:
            told = True
            print("going", flush=True)
    print(json.dumps(acknowledged), flush=True)


def longest_wait(times: Sequence[float], begin: float, end: float) -> float:
    """The longest time without an acknowledgement between two moments."""
    inside = [begin, *(moment for moment in sorted(times) if begin < moment < end), end]
    return max(later - earlier for earlier, later in pairwise(inside))


def waits(acknowledged: dict[int, list[float]], begin: float, end: float) -> Waits:
    """Over all partitions together, and over the worst."""
    together = [moment for times in acknowledged.values() for moment in times]
    each = [longest_wait(acknowledged.get(index, []), begin, end) for index in range(PARTITIONS)]
    return Waits(longest_wait(together, begin, end), max(each))


def start_brokers(hosts: Network, directory: Path) -> list[subprocess.Popen[bytes]]:
    """Three brokers, one on each host."""
    peers = ",".join(f"{number}@{hosts.address(number)}:{PEER_PORT}" for number in BROKERS)
    started = []
    for number in BROKERS:
        command = [sys.executable, "-m", "raftlog", "broker", "--id", str(number), "--peers", peers]
        command += ["--data-dir", str(directory / str(number)), "--listen", f"{hosts.address(number)}:{KAFKA_PORT}"]
        log = (directory / f"{number}.log").open("wb")
        started.append(hosts.start(number, [*command, "--json"], stdout=subprocess.PIPE, stderr=log))
    for broker in started:
        assert broker.stdout is not None
        if not broker.stdout.readline():
            raise RuntimeError("a broker did not start")
    return started


def run(cut: Sequence[tuple[int, int]], seconds: float, settle_seconds: float = SETTLE_SECONDS) -> tuple[Waits, Waits]:
    """The waits while links are cut, and after they are healed."""
    with network([*BROKERS, CLIENT]) as hosts, tempfile.TemporaryDirectory() as scratch:
        brokers = start_brokers(hosts, Path(scratch))
        bootstrap = ",".join(f"{hosts.address(number)}:{KAFKA_PORT}" for number in BROKERS)
        command = [sys.executable, "-m", "benchmarks.cut_links", "--produce", bootstrap]
        client = hosts.start(CLIENT, command, stdout=subprocess.PIPE)
        try:
            assert client.stdout is not None
            if client.stdout.readline() != b"going\n":
                raise RuntimeError("the producer did not start")
            cut_at = time.monotonic()
            hosts.cut(cut)
            time.sleep(seconds)
            hosts.heal(cut)
            healed_at = time.monotonic()
            time.sleep(settle_seconds)
            ended_at = time.monotonic()
            client.terminate()
            told = json.loads(client.communicate(timeout=60)[0].splitlines()[-1])
            acknowledged = {int(partition): times for partition, times in told.items()}
            return waits(acknowledged, cut_at, healed_at), waits(acknowledged, healed_at, ended_at)
        finally:
            kill([client, *brokers])


def kill(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what has not ended."""
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait(30)


def main() -> int:
    """One line for each cut."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="how long links are cut")
    parser.add_argument("--only", choices=sorted(CUTS), action="append", help="one of the cuts; may be repeated")
    parser.add_argument("--produce", metavar="BOOTSTRAP", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.produce:
        produce(options.produce)
        return 0
    if not can_be_made():
        print("network namespaces need Linux and root", file=sys.stderr)
        return 1
    print("| cut | while it is cut: any / worst partition | after it is healed |\n| --- | --- | --- |")
    for name in options.only or CUTS:
        what, links = CUTS[name]
        during, after = run(links, options.seconds)
        print(
            f"| {what} | {during.anywhere:.1f} / {during.worst:.1f} s | {after.anywhere:.1f} / {after.worst:.1f} s |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
