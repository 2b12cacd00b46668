"""What the Kafka analysis of a long history costs: seconds, operations per second and peak memory.

    python -m benchmarks.checker_kafka [--operations N] [--kind mixed|transactions|commits] [--file] [--history]

Each run is a process of its own, so that its peak memory is its own; seconds are of its processor time. Without
options the operations are made as the analysis reads them, and the time they take to make is measured apart and taken
off; with --file they are read from a JSON Lines file; with --history they lie in memory as a History first.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from raftlog.linearizability.checker.formats.jsonl import JsonLinesWriter
from raftlog.linearizability.checker.history import OK, History, Operation, events_of
from raftlog.linearizability.checker.kafka import KafkaReport, analyze, check_kafka

CLIENTS = 20
KEYS = 20
READERS = 5  # clients that read every key
MICROSECOND = 1_000
KINDS = ("mixed", "transactions", "commits")


class Service:
    """A log per key, and clients that send to it and read from it at random; each has one operation at a time."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.random = random.Random(seed)
        self.logs: list[list[int]] = [[] for _ in range(KEYS)]
        self.positions = [[0] * KEYS for _ in range(CLIENTS)]
        self.committed: dict[str, int] = {}
        self.value = 0

    def operations(self, count: int) -> Iterator[Operation]:
        """Operations in the order of their returns, each answered at a random moment of its interval."""
        draw = self.random.random
        waiting: list[tuple[int, int, int, int, str, Any]] = []  # moment, call, return, client, function, input
        done: list[tuple[int, int, Operation]] = []
        for client in range(CLIENTS):
            heapq.heappush(waiting, self._next(client, int(draw() * 100) * MICROSECOND))
        for number in range(count):
            moment, call, returned, client, function, given = heapq.heappop(waiting)
            output = self._answer(client, function, given)
            operation = Operation(client, function, given, output, None, call, returned, OK)
            heapq.heappush(done, (returned, number, operation))
            heapq.heappush(waiting, self._next(client, returned + 1 + int(draw() * 200 * MICROSECOND)))
            while done and done[0][0] < moment:
                yield heapq.heappop(done)[2]
        while done:
            operation = heapq.heappop(done)[2]
            yield operation
        yield from self._read_the_rest(operation.returned or 0)

    def _read_the_rest(self, now: int) -> Iterator[Operation]:
        """One more client reads everything to the end."""
        position = [0] * KEYS
        client = CLIENTS
        self.positions.append(position)
        while any(place < len(log) for place, log in zip(position, self.logs, strict=True)):
            records = {
                f"orders-{key}": [
                    [place, log[place]] for place in range(position[key], min(len(log), position[key] + 500))
                ]
                for key, log in enumerate(self.logs)
            }
            for key, log in enumerate(self.logs):
                position[key] = min(len(log), position[key] + 500)
            now += MICROSECOND
            yield Operation(client, "poll", [["poll"]], [["poll", records]], None, now, now + 1, OK)

    def _next(self, client: int, call: int) -> tuple[int, int, int, int, str, Any]:
        draw = self.random.random
        length = int((0.2 + draw()) * 1_000 * MICROSECOND)
        function, given = self._choose(client)
        return call + int(length * draw()), call, call + length, client, function, given

    def _choose(self, client: int) -> tuple[str, Any]:
        draw = self.random.random
        if self.kind == "transactions":
            micro = [self._micro(client) for _ in range(1 + int(draw() * 4))]
            return "txn", micro
        reader = client < READERS
        if self.kind == "commits" and reader and draw() < 0.3:
            key = f"orders-{int(draw() * KEYS)}"
            if draw() < 0.5:
                return "commit", {"group": f"group-{client}", "offsets": [[key, -1]]}
            return "committed", {"group": f"group-{client}", "keys": [key]}
        return ("poll", [["poll"]]) if reader or draw() < 0.3 else ("send", [self._send()])

    def _micro(self, client: int) -> list[Any]:
        return ["poll"] if self.random.random() < 0.5 else self._send()

    def _send(self) -> list[Any]:
        self.value += 1
        return ["send", f"orders-{int(self.random.random() * KEYS)}", self.value]

    def _answer(self, client: int, function: str, given: Any) -> Any:
        if function == "commit":
            key = given["offsets"][0][0]
            offset = self.positions[client][int(key[7:])]
            given["offsets"][0][1] = offset
            self.committed[f"{given['group']} {key}"] = offset
            return None
        if function == "committed":
            key = given["keys"][0]
            return [[key, self.committed.get(f"{given['group']} {key}")]]
        # What a transaction sends becomes visible as a whole: it must not read it itself.
        answer: list[Any] = []
        for micro in given:
            answer.append(["poll", self._records(client)] if micro[0] == "poll" else None)
        for place, micro in enumerate(given):
            if micro[0] == "send":
                log = self.logs[int(micro[1][7:])]
                answer[place] = ["send", micro[1], [len(log), micro[2]]]
                log.append(micro[2])
        return answer

    def _records(self, client: int) -> dict[str, list[list[int]]]:
        """Up to 50 records of each of a few keys."""
        records = {}
        positions = self.positions[client]
        keys = range(KEYS) if client < READERS else (client % KEYS,)
        for key in keys:
            start = positions[key]
            log = self.logs[key]
            if start < len(log):
                end = min(len(log), start + 50)
                records[f"orders-{key}"] = [[offset, log[offset]] for offset in range(start, end)]
                positions[key] = end
        return records


def write_file(path: str, kind: str, count: int, seed: int) -> None:
    """The history as a file, call and completion lines in order."""
    with open(path, "w") as stream:
        writer = JsonLinesWriter(stream)
        for event in events_of(list(Service(kind, seed).operations(count))):
            writer.write(event)


def peak_megabytes() -> float:
    """The most memory this process has held. (getrusage would count what the process that started it held.)"""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure(arguments: argparse.Namespace) -> None:
    """One run, in this process, told on one line."""
    kind, count, seed = arguments.kind, arguments.operations, arguments.seed
    taken_off = 0.0
    if arguments.measure_file:
        started = time.process_time()
        report = check_kafka(arguments.measure_file)
    elif arguments.history:
        history = History.of(list(Service(kind, seed).operations(count)))
        print(f"{'':14} History in memory: {peak_megabytes():.0f} MB")
        started = time.process_time()
        report = analyze(history)
    else:
        started = time.process_time()
        for _ in Service(kind, seed).operations(count):
            pass
        taken_off = time.process_time() - started
        started = time.process_time()
        report = analyze(Service(kind, seed).operations(count))
    seconds = time.process_time() - started - taken_off
    show(kind, report, seconds)


def show(kind: str, report: KafkaReport, seconds: float) -> None:
    """The figures of one run."""
    measured = report.measurements
    print(
        f"{kind:14} {report.operation_count:>9,} operations, {measured.records_sent:>9,} sent, "
        f"{measured.records_polled:>9,} polled: {seconds:6.2f} s, {report.operation_count / seconds:>9,.0f} a second, "
        f"peak {peak_megabytes():5.0f} MB, {report.status.value}"
    )
    for anomaly in report.anomalies:
        print(f"{'':14} {anomaly.judgement.value} {anomaly.name} ({anomaly.count:,})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", action="store_true", help="read from a JSON Lines file")
    parser.add_argument("--history", action="store_true", help="lie in memory as a History first")
    parser.add_argument("--measure-here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure-file", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure_here:
        arguments.kind = arguments.kind[0]
        measure(arguments)
        return
    for kind in arguments.kind or KINDS:
        command = [sys.executable, "-m", "benchmarks.checker_kafka", "--measure-here", "--kind", kind]
        command += ["--operations", str(arguments.operations), "--seed", str(arguments.seed)]
        if arguments.history:
            command.append("--history")
        with tempfile.TemporaryDirectory() as directory:
            if arguments.file:
                path = os.path.join(directory, "history.jsonl")
                write_file(path, kind, arguments.operations, arguments.seed)
                print(f"{'':14} file of {os.path.getsize(path) / 1e6:.0f} MB")
                command += ["--measure-file", path]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
