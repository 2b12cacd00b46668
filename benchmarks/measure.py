"""Measuring two brokers fairly on a noisy machine: warm both up, alternate, swap the order, tell the spread.

Knows rounds, medians and how a row of the table looks. Refuses to know what is measured.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.brokers import Broker


@dataclass(slots=True)
class Sample:
    """One measurement: the figure, and the broker's CPU seconds and gigabytes (10^9 bytes) while it was taken."""

    value: float
    cpu_seconds: float = 0.0
    gigabytes: float = 0.0


@dataclass(slots=True)
class Row:
    """One line of the table: figures of each broker in the order in which they were taken."""

    work: str
    unit: str
    higher_is_better: bool
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def median(self, name: str) -> float:
        return statistics.median(sample.value for sample in self.samples[name])

    def ratios(self) -> list[float]:
        """raftlog / Kafka, round by round; none where a difference of two measurements came out at or below zero."""
        if set(self.samples) != {"raftlog", "Kafka"}:
            return []
        pairs = zip(self.samples["raftlog"], self.samples["Kafka"], strict=True)
        both = [(ours.value, theirs.value) for ours, theirs in pairs]
        return [ours / theirs for ours, theirs in both] if all(ours > 0 < theirs for ours, theirs in both) else []

    def cpu_per_gigabyte(self, name: str) -> float | None:
        gigabytes = sum(sample.gigabytes for sample in self.samples.get(name, []))
        return sum(s.cpu_seconds for s in self.samples[name]) / gigabytes if gigabytes else None

    def cells(self) -> list[str]:
        """work | raftlog | Kafka | ratio (lowest to highest) | CPU s/GB of each."""
        cells = [self.work]
        for name in ("raftlog", "Kafka"):
            cells.append(f"{_short(self.median(name))} {self.unit}" if name in self.samples else "")
        ratios = self.ratios()
        if ratios:
            cells.append(f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})")
        else:
            cells.append("")
        loads = [self.cpu_per_gigabyte(name) for name in ("raftlog", "Kafka") if name in self.samples]
        cells.append(" / ".join(f"{load:.2f}" for load in loads if load is not None))
        return cells


def _short(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:,.0f} k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def alternate(
    row: Row, brokers: Sequence[Broker], work: Callable[[Broker, int], Sample], *, rounds: int, warm_up: int = 1
) -> Row:
    """Do `work(broker, round)` on each broker in turn, the order swapped every round; warm-up rounds are dropped."""
    for number in range(-warm_up, rounds):
        order = list(brokers) if number % 2 == 0 else list(reversed(brokers))
        for broker in order:
            before = broker.cpu_seconds()
            sample = work(broker, number)
            sample.cpu_seconds = broker.cpu_seconds() - before
            if number >= 0:
                row.samples.setdefault(broker.name, []).append(sample)
            progress(f"{row.work}: round {number + 1}/{rounds} {broker.name} {_short(sample.value)} {row.unit}")
    return row


def progress(text: str) -> None:
    """Say on standard error what is going on."""
    print(text, file=sys.stderr, flush=True)


def table(rows: Sequence[Row]) -> str:
    """A Markdown table."""
    lines = [
        "| work | raftlog | Kafka | raftlog ÷ Kafka (spread) | broker CPU s/GB, raftlog / Kafka |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    return "\n".join(lines)
