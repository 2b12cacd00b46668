"""Runs made by hand, with what goes wrong in them known: `python -m tests.linearizability.report.samples FOLDER`.

Three brokers, two partitions. Broker 3 is killed for a while, which hurts nobody. Then the leader of orders-0 is cut
off from the others and goes on alone, until it is killed: a replica that has not what it acknowledged leads (an unclean
election), and offsets are given away again. A clock jumps on nobody: a fault without effect.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SECOND = 1_000_000_000
WALL = int(datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()) * SECOND
SECONDS = 60
CUT, ALONE, KILLED, ELECTED, HEALED = 20.0, 21.5, 24.0, 24.8, 30.0
KEYS = ("orders-0", "orders-1")


@dataclass
class Partition:
    """A log that the acknowledged records are in, and what the followers have of it."""

    name: str
    records: list[str] = field(default_factory=list)
    replicated: int = 0
    leader: int = 1
    epoch: int = 3
    isr: tuple[int, ...] = (1, 2, 3)


class Scenario:
    """Operations in the order of their calls. `broken` says whether the election is unclean."""

    def __init__(self, operations: int, *, broken: bool, seed: int = 7) -> None:
        self.random = random.Random(seed)
        self.broken = broken
        self.partitions = {name: Partition(name) for name in KEYS}
        self.partitions["orders-1"].leader = 2
        self.lines: list[dict[str, Any]] = []
        self.samples: list[dict[str, Any]] = []
        self.positions: dict[tuple[str, str], int] = {}
        self.sent = 0
        self._play(operations)

    def _play(self, operations: int) -> None:
        times = sorted(self.random.uniform(0, SECONDS - 5) for _ in range(operations))
        sampled = 0.0
        for time in times:
            while sampled <= time:
                self._move(sampled)
                self._sample(sampled)
                sampled += 1.0
            self._move(time)
            if self.random.random() < 0.5:
                self._send(time)
            else:
                self._poll(time, f"consumer {self.random.randrange(3)}", 20)
        for step in range(60):
            for key in KEYS:
                self._poll(SECONDS - 4 + step * 0.05, "final reader", 10**6, key)
        while sampled <= SECONDS:
            self._sample(sampled)
            sampled += 1.0

    def _move(self, time: float) -> None:
        """What the brokers do as time goes on."""
        for partition in self.partitions.values():
            alone = partition.name == KEYS[0] and partition.leader == 1 and time >= CUT
            if not alone or not self.broken:
                partition.replicated = len(partition.records)
        first = self.partitions[KEYS[0]]
        if first.leader == 1 and time >= ALONE:
            first.isr = (1,) if self.broken else (1, 2, 3)
        if time >= ELECTED and first.leader == 1:
            first.leader, first.epoch, first.isr = 2, 4, (2, 3)
            del first.records[first.replicated :]
        if time >= HEALED + 2 and first.leader == 2:
            first.isr = (1, 2, 3)
        second = self.partitions[KEYS[1]]
        second.isr = (1, 2) if 9 <= time < 15 else (1, 2, 3)

    def _sample(self, time: float) -> None:
        told = {}
        for partition in self.partitions.values():
            dead = partition.leader == 1 and KILLED <= time < ELECTED
            high = len(partition.records)
            told[partition.name] = {
                "leader": partition.leader,
                "epoch": partition.epoch,
                "log_start": 0,
                "isr": list(partition.isr),
                "high_watermark": None if dead else high,
                "log_end": None if dead else high,
                "last_stable": None if dead else high,
            }
        term = 2 if time < KILLED + 0.5 else 3
        brokers = {"1": "up", "2": "up", "3": "up"}
        for kind, target, start, end, _ in FAULTS:
            if kind == "kill" and start <= time < end:
                brokers[target.split()[1]] = "down"
        quorum = {"term": term, "leader": 1 if term == 2 else 3}
        self.samples.append({"time": at(time), "partitions": told, "quorum": quorum, "groups": {}, "brokers": brokers})

    def _send(self, time: float) -> None:
        key = self.random.choice(KEYS)
        partition = self.partitions[key]
        process = self.random.randrange(5)
        value = f"v{self.sent}"
        self.sent += 1
        invoke = {"function": "send", "input": [["send", key, value]]}
        took = self.random.lognormvariate(1.0, 0.6) / 1000
        if key == KEYS[0] and KILLED <= time < ELECTED:
            self._record(process, time, min(3.0, took + 1), invoke, "info", error="_MSG_TIMED_OUT")
            return
        if CUT <= time < HEALED and self.random.random() < 0.02:
            self._record(process, time, took, invoke, "fail", error="NOT_ENOUGH_REPLICAS")
            return
        if key == KEYS[0] and CUT <= time < ALONE:
            took += ALONE - time if self.broken else 0.05
        offset = len(partition.records)
        partition.records.append(value)
        self._record(process, time, took, invoke, "ok", [["send", key, [offset, value]]])

    def _poll(self, time: float, process: str, most: int, key: str = "") -> None:
        key = key or self.random.choice(KEYS)
        partition = self.partitions[key]
        from_offset = self.positions.get((process, key), 0)
        if process == "final reader" and not from_offset:
            self._record(process, time - 0.04, 0.001, {"function": "assign", "input": [key]}, "ok")
        end = partition.replicated if CUT <= time < ELECTED and self.broken else len(partition.records)
        records = [[from_offset + at, value] for at, value in enumerate(partition.records[from_offset:end][:most])]
        self.positions[process, key] = from_offset + len(records)
        took = self.random.lognormvariate(0.5, 0.7) / 1000 + (0 if records else 0.02)
        answer = [["poll", {key: records}]] if records else [["poll", {}]]
        self._record(process, time, took, {"function": "poll", "input": [["poll"]]}, "ok", answer)

    def _record(self, process: Any, time: float, took: float, invoke: dict[str, Any], outcome: str, output: Any = None,
                error: str | None = None) -> None:  # fmt: skip
        line = {"type": "operation", "process": process, **invoke, "call": at(time), "outcome": outcome}
        line["return"] = at(time + took)
        if output is not None:
            line["output"] = output
        if error is not None:
            line["error"] = error
        self.lines.append(line)


def at(seconds: float) -> int:
    return round(seconds * SECOND) + 5_000 * SECOND


FAULTS = (
    ("kill", "broker 3", 8.0, 14.0, {"fired": 1, "connections": 14}),
    ("partition", "broker 1 | 2, 3", CUT, HEALED, {"fired": 211, "bytes": 48_210, "connections": 4}),
    ("kill", "broker 1 (leader of orders-0)", KILLED, HEALED, {"fired": 1, "connections": 9}),
    ("clock", "broker 2", 40.0, 45.0, {"fired": 0}),
)


def log_of(broker: int) -> str:
    """What a broker logged, in raftlog's text form."""
    told = [(0.5 * step, "INFO", f"log        node={broker} rolled segment topic=orders-{step % 2}")
            for step in range(2, 110)]  # fmt: skip
    if broker == 1:
        told = [one for one in told if not KILLED <= one[0] < HEALED]
        told.append((ALONE, "WARNING", "replica    node=1 orders-0: in-sync replicas 1,2,3 -> 1"))
    if broker == 2:
        told.append((ELECTED, "ERROR", "replica    node=2 orders-0: unclean election, epoch 4"))
        told.append((9.0, "WARNING", "replica    node=2 orders-1: in-sync replicas 1,2,3 -> 1,2"))
    lines = []
    for time, level, text in sorted(told):
        stamp = datetime.fromtimestamp((WALL + round(time * SECOND)) / SECOND, UTC)
        lines.append(f"{stamp:%Y-%m-%dT%H:%M:%S}.{stamp.microsecond // 1000:03d}Z {level:<8} {text}")
    return "\n".join(lines) + "\n"


def write_run(folder: Path, operations: int = 3_000, *, broken: bool = True, seed: int = 7) -> Path:
    """A run's folder as `raftlog verify` leaves it."""
    scenario = Scenario(operations, broken=broken, seed=seed)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    about = {
        "format": 1,
        "command": f"raftlog verify --workload append --fault isr-of-one --time {SECONDS} --seed {seed}",
        "workload": "append",
        "fault": "isr-of-one",
        "system": "raftlog",
        "brokers": 3,
        "clients": 5,
        "seconds": SECONDS,
        "rate": operations // SECONDS,
        "seed": seed,
        "libraries": ["confluent", "aiokafka"],
        "settings": {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"} if broken else {},
        "options": {},
        "versions": {"raftlog": "0.1.0", "python": "3.11.9", "confluent": "2.8.0", "aiokafka": "0.12.0"},
        "began": WALL // SECOND,
        "origin": at(0),
        "phases": [
            {"name": name, "begin": at(begin), "end": at(end)}
            for name, begin, end in (("load", 0, 55), ("heal", 55, 56), ("final", 56, 60))
        ],
        "topics": [{"name": "orders", "partitions": 2}],
        "status": "done",
        "verdict": {
            "status": "invalid" if broken else "unknown",
            "reason": "4 kinds of error." if broken else "A fault had no effect.",
            "doubts": [] if broken else ["clock of broker 2: it had no effect"],
            "checks": [{"model": "kafka", "options": ["--isolation", "read_committed"], "status": "valid"}],
        },
    }
    (folder / "run.json").write_text(json.dumps(about, indent=1))
    history = ['{"type": "history", "version": 1, "time_unit": "ns"}', *map(json.dumps, scenario.lines)]
    (folder / "history.jsonl").write_text("\n".join(history) + "\n")
    events = []
    for number, (kind, target, start, end, evidence) in enumerate(FAULTS, 1):
        begin = {"type": "begin", "number": number, "kind": kind, "target": target, "brokers": [], "links": []}
        events.append({**begin, "time": at(start)})
        effect = evidence["fired"] > 0
        events.append({"type": "end", "number": number, "time": at(end), "effect": effect, "evidence": evidence})
    (folder / "faults.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in scenario.samples))
    for broker in (1, 2, 3):
        (folder / "logs" / f"broker-{broker}.log").write_text(log_of(broker))
    return folder


if __name__ == "__main__":
    write_run(Path(sys.argv[1]), *map(int, sys.argv[2:3]), broken="clean" not in sys.argv)
