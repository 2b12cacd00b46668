"""Kafka for tests, started over and over: how often that fails, and how long it takes until a record was read back.

    python -m benchmarks.starts 1000
"""

from __future__ import annotations

import sys
import time

from raftlog.testing import BrokerDied, Kafka

PROGRESS_EVERY = 100


def starts(count: int, *, faults: bool = True) -> tuple[list[float], list[str]]:
    """Seconds from nothing to the first record, of each start that came to that, and why the others did not."""
    seconds, failures = [], []
    for number in range(1, count + 1):
        kafka = Kafka(faults=faults)
        began = time.perf_counter()
        try:
            kafka.start()
            seconds.append(time.perf_counter() - began)
            kafka.stop()
        except (BrokerDied, AssertionError, OSError) as error:
            failures.append(f"start {number}: {error}")
        if number % PROGRESS_EVERY == 0:
            print(f"{number} starts, {len(failures)} failures, {summary(seconds)}", file=sys.stderr, flush=True)
    return seconds, failures


def summary(seconds: list[float]) -> str:
    """Median, 95th percentile and worst."""
    if not seconds:
        return "none came to a record"
    ordered = sorted(seconds)
    median, p95 = (ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.95))
    return f"first record after {median:.3f} s (median), {p95:.3f} s (p95), {ordered[-1]:.3f} s (longest)"


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seconds, failures = starts(count)
    print(f"{count} starts, {len(failures)} failures, {summary(seconds)}")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
