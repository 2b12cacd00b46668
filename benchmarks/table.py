"""`make bench`: every figure of README.md in one table, raftlog and Apache Kafka side by side in one run.

    python -m benchmarks.table [--only producer-perf,latency] [--rounds 3] [--scale 1.0] [--output FILE]
                              [--against TREE]

With --against TREE another checkout of raftlog takes the place of Kafka: old and new code in turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import idle_consumers, java_clients, librdkafka, scaling, single_node
from benchmarks.brokers import ROOT, Broker, Raftlog, beside_raftlog
from benchmarks.measure import Row, progress, table


def machine() -> str:
    """Processor, cores, Python and commit."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    asked = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return (
        f"{model}, {os.cpu_count()} cores shared by broker and clients, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, commit {commit.stdout.strip() or 'unknown'}"
    )


def together(
    work: Callable[[list[Broker]], list[Row]], others: list[type[Broker]], settings: dict[str, str] | None = None
) -> list[Row]:
    """Run with all brokers up."""
    brokers: list[Broker] = [kind(settings) for kind in (Raftlog, *others)]
    try:
        for broker in brokers:
            broker.start()
        return work(brokers)
    finally:
        for broker in brokers:
            if broker.pid:
                broker.__exit__()


def run_chosen(
    parser: argparse.ArgumentParser, options: argparse.Namespace, workloads: Mapping[str, Callable[[], list[Row]]]
) -> int:
    """Run the workloads that `--only` names (all without it), print their table, and write it to `--output`."""
    chosen = options.only.split(",") if options.only else list(workloads)
    unknown = [name for name in chosen if name not in workloads]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(workloads)}")
    rows: list[Row] = []
    text = ""
    for name in chosen:
        # What was measured is kept, should a later workload fail after half an hour.
        try:
            rows += workloads[name]()
        except Exception:
            print(text)
            raise
        text = f"{machine()}\n\n{table(rows)}\n"
        if options.output:
            Path(options.output).write_text(text)
    print(text)
    return 0


def main() -> int:
    """Run what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds of each broker, after a warm-up")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records that a full run sends")
    parser.add_argument("--only", default="", help="comma-separated names")
    parser.add_argument("--output", help="write the table to this file too")
    parser.add_argument("--gigabytes", type=float, default=5.0, help="for resident memory after load")
    parser.add_argument("--against", metavar="TREE", help="another checkout of raftlog, in place of Kafka")
    options = parser.parse_args()
    others = beside_raftlog(options.against)
    if not others:
        progress("Kafka's folder or Java is not there: raftlog is measured alone")
    rounds, scale = options.rounds, options.scale
    workloads: dict[str, Callable[[], list[Row]]] = {
        "start": lambda: [single_node.start(rounds, others)],
        "producer-perf": lambda: together(lambda b: java_clients.producing(b, rounds, scale), others),
        "consumer-perf": lambda: together(lambda b: java_clients.consuming(b, rounds, scale), others),
        "librdkafka": lambda: together(lambda b: librdkafka.rows(b, rounds, scale), others),
        "latency": lambda: together(lambda b: single_node.latency(b, rounds), others),
        "memory": lambda: together(lambda b: single_node.memory(b, options.gigabytes), others),
        "many-partitions": single_node.many_partitions,
        "idle-consumers": lambda: together(lambda b: idle_consumers.rows(b, rounds), others),
        "partitions": lambda: together(lambda b: scaling.partitions(b, rounds, scale), others),
        "connections": lambda: together(lambda b: scaling.connections(b, rounds, scale), others),
    }
    return run_chosen(parser, options, workloads)


if __name__ == "__main__":
    sys.exit(main())
