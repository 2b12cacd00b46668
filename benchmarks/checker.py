"""What the checker costs: one table, each figure beside the bar it is held to.

    python -m benchmarks.checker [--histories FOLDER] [--quick]

Seconds are of this process's processor time, the best of several runs, with nothing parsed. With a folder that holds
`etcd/*.log` and `kv/*.txt` those recorded histories are measured too. `--quick` leaves out the longest. The Kafka
analysis has a benchmark of its own, `benchmarks.checker_kafka`.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import checker_histories as make
from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.exact.columns import check_columns
from raftlog.linearizability.checker.exact.zones import check_zones
from raftlog.linearizability.checker.formats.jepsen import read_jepsen
from raftlog.linearizability.checker.formats.porcupine import read_porcupine
from raftlog.linearizability.checker.history import History
from raftlog.linearizability.checker.log.stream import LogCheck
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.models.key_value import KeyValue
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.models.register import CasRegister, Register
from raftlog.linearizability.checker.online import OnlineCheck
from raftlog.linearizability.checker.recorder import Recorder
from raftlog.linearizability.checker.verdict import Invalid, Status
from raftlog.linearizability.resources import memory_used

MILLION = 1_000_000
RUNS = 5


class Row(NamedTuple):
    """One line of the table; figures in the unit that the text says."""

    work: str
    figure: float
    unit: str
    at_least: float | None = None
    aim: float | None = None
    larger_is_better: bool = False

    def __str__(self) -> str:
        bars = [_bar(self.at_least, self.unit), _bar(self.aim, self.unit)]
        return f"| {self.work} | {self.figure:,.3g} {self.unit} | {bars[0]} | {bars[1]} | {self._met()} |"

    def _met(self) -> str:
        if self.at_least is None:
            return ""
        sign = -1 if self.larger_is_better else 1
        if self.aim is not None and sign * self.figure <= sign * self.aim:
            return "aim"
        return "yes" if sign * self.figure <= sign * self.at_least else "no"


def _bar(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:g} {unit}"


def best(work: Callable[[], Any], runs: int = RUNS) -> float:
    """Seconds of processor time, the least of several runs, with the collector swept before each."""
    least = float("inf")
    for _ in range(runs):
        gc.collect()
        began = time.process_time()
        work()
        least = min(least, time.process_time() - began)
    return least


def checked(history: History, model: Model[Any], expected: Status, *, explain: bool = False) -> None:
    verdict = check(history, model)
    assert verdict.status is expected, verdict
    if explain and isinstance(verdict, Invalid):
        assert verdict.witness.words


def recorded(folder: Path) -> Iterator[Row]:
    """The histories of a folder: Jepsen's of etcd, and Porcupine's of a key-value store."""
    times = []
    for path in sorted((folder / "etcd").glob("*.log")):
        history = read_jepsen(path)
        expected = check(history, CasRegister()).status
        times.append(best(lambda one=history, right=expected: checked(one, CasRegister(), right), 9))  # type: ignore[misc]
    if times:
        yield Row(f"etcd, slowest of {len(times)}", 1e3 * max(times), "ms", 1, 0.4)
        yield Row(f"etcd, all {len(times)}", 1e3 * sum(times), "ms", 15, 8)
    for path in sorted((folder / "kv").glob("c10-*.txt")):
        history = read_porcupine(path)
        expected = Status.VALID if path.stem.endswith("ok") else Status.INVALID
        took = best(lambda one=history, right=expected: checked(one, KeyValue(""), right, explain=True), 9)  # type: ignore[misc]
        yield Row(f"key-value {path.stem}, explained", 1e3 * took, "ms", 5, 2)


def registers() -> Iterator[Row]:
    """Search, and zones where all values written differ."""
    for clients, count in ((10, 100_000), (30, 10_000)):
        history = make.history(make.Register(clients).operations(count))
        took = best(lambda one=history: checked(one, CasRegister(), Status.VALID), 3)  # type: ignore[misc]
        yield Row(f"register of 5 values, {clients} clients, {count:,} operations", took, "s", 1.5, 0.8)
    history = make.history(make.Register(10, unique=True).operations(MILLION))
    assert check_zones(history.operations) is None
    yield Row("unique writes, 1 M operations, zones", best(lambda: check_zones(history.operations), 3), "s", 1)
    yield Row("the same through check()", best(lambda: checked(history, Register(), Status.VALID), 3), "s")


def logs() -> Iterator[Row]:
    """The stream in pure Python."""
    history = make.history(make.Log(50).operations(MILLION))
    records = sum(len(op.input if op.function == "append" else op.output[0]) for op in history.operations)
    name = f"log, 50 in flight, {records / MILLION:.1f} records an operation"

    def stream() -> None:
        assert LogCheck().extend(history.operations) is None

    yield Row(f"{name}, stream", 1 / best(stream, 3), "M/s", 1, 1.5, True)
    yield Row("the same through check()", 1 / best(lambda: checked(history, Log(), Status.VALID), 3), "M/s")


def columns(log_operations: int) -> Iterator[Row]:
    """Whole arrays."""
    log = make.log_columns(log_operations, 50)
    assert check_columns(log) is None
    bars = (3, 2) if log_operations == 10 * MILLION else (None, None)
    took = best(lambda: check_columns(log), 3)
    yield Row(f"log, {log_operations // MILLION} M operations, NumPy", took, "s", *bars)
    register = make.register_columns(MILLION, 10)
    assert check_columns(register) is None
    yield Row("unique writes, 1 M operations, NumPy", best(lambda: check_columns(register)), "s", 0.1)


def online(operations: int) -> Iterator[Row]:
    """A growing history: memory after a tenth and at the end."""
    for name, source, model in (
        ("log, 50 in flight", make.Log(50), Log()),
        ("register of 5 values, 10 clients", make.Register(10), CasRegister()),
    ):
        check = OnlineCheck(model)
        events = make.growing(source.operations(operations))
        sizes = []
        checking = 0.0
        began = time.process_time()
        while some := list(islice(events, operations // 1000)):
            fed = time.process_time()
            assert check.extend(some) is None
            checking += time.process_time() - fed
            sizes.append(memory_used())
        took = time.process_time() - began
        assert check.finish().status is Status.VALID
        million = operations / MILLION
        grown = (sizes[-1] - sizes[len(sizes) // 10]) / 2**20
        yield Row(f"online, {name}, {million:g} M operations: growth after the first tenth", grown, "MB")
        yield Row("the same, the check alone", million / checking, "M/s")
        yield Row("the same, with making the history", million / took, "M/s")


def recording() -> Iterator[Row]:
    """What recording adds to a test, per event."""
    recorder = Recorder(time.monotonic_ns)

    def record() -> None:
        for number in range(50_000):
            recorder.ok(recorder.invoke(1, "write", number))
        for _ in recorder.drain():
            pass

    yield Row("recording, an event", 1e6 * best(record) / 100_000, "µs", 2)


def main() -> None:
    parser = argparse.ArgumentParser(description="What the checker costs.")
    parser.add_argument("--histories", type=Path, help="folder with etcd/*.log and kv/*.txt")
    parser.add_argument("--quick", action="store_true", help="shorter logs as columns and online")
    options = parser.parse_args()
    print("| work | figure | at least | aim | met |\n| --- | --- | --- | --- | --- |", flush=True)
    groups = [recording(), registers(), logs(), columns((1 if options.quick else 10) * MILLION)]
    groups.append(online(100_000 if options.quick else 10 * MILLION))
    if options.histories is not None:
        groups.insert(0, recorded(options.histories))
    for group in groups:
        for row in group:
            print(row, flush=True)


if __name__ == "__main__":
    main()
