"""What happened to the cluster, told from the samples: leaders, in-sync replicas, logs that became shorter, terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from raftlog.linearizability.report.run import Fault, PartitionSample, Sample

Kind = Literal["operation", "truncated", "leader", "fault", "isr", "quorum"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; `key` is the partition it happened to, None for the cluster as a whole."""

    time: int
    kind: Kind
    text: str
    key: str | None = None


def events_of(faults: Sequence[Fault], samples: Sequence[Sample]) -> list[Event]:
    """All of them in the order of time. A sampled one is as late as the sample that showed it."""
    found = [*_of_faults(faults), *_of_samples(samples)]
    return sorted(found, key=lambda event: event.time)


def _of_faults(faults: Sequence[Fault]) -> Iterator[Event]:
    for fault in faults:
        yield Event(fault.start, "fault", f"{fault.label} begins")
        if fault.end is not None:
            yield Event(fault.end, "fault", f"{fault.label} ends")


def _of_samples(samples: Sequence[Sample]) -> Iterator[Event]:
    term: int | None = None
    quorum: int | None = None
    known: dict[str, PartitionSample] = {}
    for sample in samples:
        if sample.quorum_leader is not None and (sample.quorum_leader, sample.term) != (quorum, term):
            if quorum is not None:
                text = f"quorum: leader {quorum} → {sample.quorum_leader}, term {term} → {sample.term}"
                yield Event(sample.time, "quorum", text)
            quorum, term = sample.quorum_leader, sample.term
        for key, partition in sample.partitions.items():
            before = known.get(key)
            if before is not None:
                yield from _changes(sample.time, key, before, partition)
            known[key] = _newest(before, partition)


def _newest(before: PartitionSample | None, now: PartitionSample) -> PartitionSample:
    """What is known after a sample in which not all was answered."""
    if before is None:
        return now

    def newer(name: str) -> int | None:
        found: int | None = getattr(now, name)
        old: int | None = getattr(before, name)
        return old if found is None else found

    return PartitionSample(
        newer("leader"),
        newer("leader_epoch"),
        before.isr if now.isr is None else now.isr,
        newer("high_watermark"),
        newer("last_stable"),
        newer("log_end"),
    )


def _changes(time: int, key: str, before: PartitionSample, now: PartitionSample) -> Iterator[Event]:
    if now.leader is not None and (now.leader, now.leader_epoch) != (before.leader, before.leader_epoch):
        epoch = f", epoch {before.leader_epoch} → {now.leader_epoch}" if now.leader_epoch is not None else ""
        yield Event(time, "leader", f"{key}: leader {before.leader} → {now.leader}{epoch}", key)
    if now.isr is not None and before.isr is not None and now.isr != before.isr:
        yield Event(time, "isr", f"{key}: in-sync replicas {_brokers(before.isr)} → {_brokers(now.isr)}", key)
    for name, words in (("log_end", "log end"), ("high_watermark", "high watermark")):
        old, new = getattr(before, name), getattr(now, name)
        if old is not None and new is not None and new < old:
            yield Event(time, "truncated", f"{key}: the {words} went back from {old:,} to {new:,}", key)


def _brokers(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "none"
