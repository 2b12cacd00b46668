"""The checker on Spark beside one process: a history of registers by key, from the file to the verdict.

    python -m benchmarks.verify [--operations 10000000] [--keys 100000] [--master local[2]] [--rounds 1]

Each run is a process of its own, `raftlog check` with and without `--spark`, in turns; its start and Spark's count.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CLIENTS = 50
MEGABYTES = 40_000


def lines(operations: int, keys: int) -> Iterator[str]:
    """Clients that are never idle read and write registers; every value is written once."""
    draw = random.Random(1).random
    values = ["null"] * keys
    answers = ["null"] * CLIENTS
    yield '{"type":"history","version":1,"time_unit":"ns"}\n'
    for at in range(operations + CLIENTS):
        client, time_now = at % CLIENTS, 2 * at
        if at >= CLIENTS:
            yield f'{{"type":"ok","process":{client},"output":{answers[client]},"time":{time_now}}}\n'
        if at >= operations:
            continue
        key = int(draw() * keys)
        if draw() < 0.5:
            function, given, answers[client] = "write", str(at), "null"
            values[key] = given
        else:
            function, given, answers[client] = "read", "null", values[key]
        call = f'"function":"{function}","key":"key-{key}","input":{given},"time":{time_now + 1}'
        yield f'{{"type":"invoke","process":{client},{call}}}\n'


def seconds(path: Path, *more: str) -> float:
    """Of one check, the verdict of which has to be valid."""
    command = [sys.executable, "-m", "raftlog", "check", str(path), "--model", "register", "--json"]
    command += ["--budget-seconds", "3600", "--budget-mb", str(MEGABYTES), *more]
    began = time.perf_counter()
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    found = time.perf_counter() - began
    assert told.returncode == 0, told.stdout[-500:] + told.stderr[-2000:]
    assert json.loads(told.stdout)["status"] == "valid"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        with path.open("w") as stream:
            stream.writelines(lines(options.operations, options.keys))
        size = path.stat().st_size / 1e6
        print(f"{options.operations:,} operations over {options.keys:,} keys, {size:,.0f} MB", flush=True)
        alone, spread = [], []
        for _ in range(options.rounds):
            alone.append(seconds(path))
            print(f"one process {alone[-1]:.1f} s", flush=True)
            spread.append(seconds(path, "--spark", options.master))
            print(f"{options.master} {spread[-1]:.1f} s", flush=True)
        ratios = [one / other for one, other in zip(alone, spread, strict=True)]
        spread_of = f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{statistics.median(ratios):.2f} x one process {spread_of}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
