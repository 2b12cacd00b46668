"""What brokers hold when all is healed: replicas that are in sync, and the same batches in each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from raftlog.client.core.errors import KafkaError, Rejected
from raftlog.client.offsets import LATEST
from raftlog.linearizability.harness.systems.system import System
from raftlog.testing.waiting import NotInTime, wait_until
from raftlog.wire.batch import check_crc, iterate_batches
from raftlog.wire.records import CorruptRecord

IN_SYNC_SECONDS_MAX = 60.0
EXAMPLES = 8


class Batch(NamedTuple):
    """One batch of a log."""

    base_offset: int
    epoch: int
    checksum: int
    last_offset: int


def read_log(folder: Path) -> Iterator[Batch]:
    """The batches of a partition's segments, up to one that is not whole or not what its checksum says."""
    try:
        yield from chain.from_iterable(_batches(file.read_bytes()) for file in sorted(folder.glob("*.log")))
    except CorruptRecord:
        return


def _batches(data: bytes) -> Iterator[Batch]:
    """Raises CorruptRecord."""
    for position, header in iterate_batches(data):
        if not check_crc(data, position, header.size):
            raise CorruptRecord("a checksum is wrong")
        yield Batch(header.base_offset, header.partition_leader_epoch, header.crc, header.last_offset)


def begins_at(folder: Path) -> int:
    """Where a partition's oldest segment begins."""
    return min((int(segment.stem) for segment in folder.glob("*.log")), default=0)


def judge_replicas(system: System, topics: Mapping[str, int], *, compares: bool) -> dict[str, Any]:
    """The check, for run.json: all replicas come into sync, and if `compares`, hold the same.

    Nobody writes any more but coordinators that end what was left open, so that logs are compared as far as the
    shortest goes, which must be as far as the high watermark. What nobody answers for is unknown.
    """
    found = _when_in_sync(system, topics)
    different = _differences(system, topics, found) if compares else []
    anomalies = []
    if found.late:
        words = "After all faults were healed a replica never came into sync again."
        anomalies.append(_anomaly("replica-not-in-sync", words, found.late))
    if different:
        anomalies.append(_anomaly("replicas-differ", "Replicas in sync hold different batches, or not all.", different))
    doubts = [f"its replicas are not known: {each}" for each in found.unanswered]
    return {
        "model": "replicas",
        "file": "history.jsonl",
        "options": [],
        "status": "invalid" if anomalies else "unknown" if doubts else "valid",
        "reason": anomalies[0]["examples"][0]["text"] if anomalies else next(iter(doubts), ""),
        "operation_count": 0,
        "seconds": 0.0,
        "anomalies": anomalies,
        "measurements": {},
    }


@dataclass(slots=True)
class Replicas:
    """What the system says. `late`: what is not in sync, in words; `unanswered`: about whom nobody says anything."""

    partitions: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)


def _when_in_sync(system: System, topics: Mapping[str, int]) -> Replicas:
    """As soon as all are, or what is missing then."""
    found = Replicas()

    def all_in_sync() -> bool:
        nonlocal found
        found = _look(system, topics)
        return not found.late and not found.unanswered

    with suppress(NotInTime):
        wait_until(all_in_sync, IN_SYNC_SECONDS_MAX, lambda: "replicas in sync")
    return found


def _look(system: System, topics: Mapping[str, int]) -> Replicas:
    found = Replicas()
    for topic, count in topics.items():
        try:
            partitions = system.described(topic)
        except Rejected as error:  # such as a topic that is gone
            found.late.append(f"{topic} is not there: {error}")
        except KafkaError as error:
            found.unanswered.append(f"{topic}: {error}")
        else:
            found.partitions[topic] = partitions
            found.late += _out_of_sync(topic, count, partitions)
    return found


def _out_of_sync(topic: str, count: int, partitions: Mapping[int, dict[str, Any]]) -> Iterator[str]:
    for index in range(count):
        each = partitions.get(index, {"replicas": [], "isr": []})
        if not each["isr"] or each["isr"] != sorted(each["replicas"]):
            yield f"{topic}-{index} has replicas {each['replicas']}, of them in sync {each['isr']}"


def _differences(system: System, topics: Mapping[str, int], replicas: Replicas) -> list[str]:
    """In words. A topic whose high watermarks nobody tells is `unanswered`."""
    found: list[str] = []
    for topic, partitions in replicas.partitions.items():
        count = topics[topic]
        try:
            committed = _high_watermarks(system, topic, count)  # asked for first: from here on it can only be more
        except KafkaError as error:
            committed = {}
            replicas.unanswered.append(f"{topic}: {error}")
        for index, partition in partitions.items():
            name = f"{topic}-{index}"
            folders = {each: system.data_directory(each) / name for each in partition["isr"]}
            logs = {each: list(read_log(folder)) for each, folder in folders.items()}
            if index < count:
                starts = {each: begins_at(folder) for each, folder in folders.items()}
                found += _too_short(name, logs, starts, committed.get((topic, index), 0))
            if index < count and len(logs) > 1:
                found += _different(name, logs)
    return found


def _high_watermarks(system: System, topic: str, count: int) -> dict[tuple[str, int], int]:
    """Raises KafkaError."""
    return system.admin.offsets_at([(topic, index) for index in range(count)], LATEST, read_committed=False)


def _too_short(
    name: str, logs: Mapping[int, list[Batch]], starts: Mapping[int, int], high_watermark: int
) -> Iterator[str]:
    for broker, log in logs.items():
        end = log[-1].last_offset + 1 if log else starts[broker]
        if end < high_watermark:
            yield f"{name} on broker {broker} ends at {end}, below the high watermark {high_watermark}"


def _different(name: str, logs: Mapping[int, list[Batch]]) -> Iterator[str]:
    start = max(log[0].base_offset if log else 1 << 62 for log in logs.values())
    end = min(log[-1].base_offset if log else -1 for log in logs.values())
    one, *others = logs
    mine = [batch for batch in logs[one] if start <= batch.base_offset <= end]
    for other in others:
        theirs = [batch for batch in logs[other] if start <= batch.base_offset <= end]
        for here, there in zip(mine, theirs, strict=False):
            if here != there:
                yield f"{name} on broker {one} has {here}, and on broker {other} {there}"
                break


def _anomaly(name: str, definition: str, texts: list[str]) -> dict[str, Any]:
    examples = [{"text": text, "key": text.partition(" ")[0], "operations": [], "details": {}} for text in texts]
    return {
        "name": name,
        "definition": definition,
        "severity": "critical",
        "judgement": "error",
        "count": len(texts),
        "examples": examples[:EXAMPLES],
    }
