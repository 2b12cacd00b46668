"""Measuring two brokers fairly on a noisy machine: warm both up, alternate, swap the order, tell the spread.

On a virtual machine the host takes processor time away (steal, `/proc/stat`), and rates fall with it. So rounds in
which it took more than two per cent are measured again, at most as many again as were asked for, and those with the
least stolen count: they are chosen by what was stolen, never by what came out.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.brokers import Broker

# A round in which the host took less than this share of the processors is as good as any.
_STOLEN_MAX = 0.02
OURS = "raftlog"


@dataclass(slots=True)
class Sample:
    """One measurement: the figure, and the broker's CPU seconds and gigabytes (10^9 bytes) while it was taken.

    `beside` is a second figure of the same measurement (a p99 beside a p50).
    """

    value: float
    cpu_seconds: float = 0.0
    gigabytes: float = 0.0
    beside: float = 0.0


@dataclass(slots=True)
class Row:
    """One line of the table: figures of each broker in the order in which they were taken."""

    work: str
    unit: str
    higher_is_better: bool
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    @property
    def other(self) -> str:
        """What it was measured beside: Kafka, or another raftlog."""
        return next((name for name in self.samples if name != OURS), "Kafka")

    def median(self, name: str) -> float:
        return statistics.median(sample.value for sample in self.samples[name])

    def ratios(self) -> list[float]:
        """raftlog / the other, round by round; none where a difference of two measurements came out at zero or less."""
        if len(self.samples) != 2:
            return []
        pairs = zip(self.samples[OURS], self.samples[self.other], strict=True)
        both = [(ours.value, theirs.value) for ours, theirs in pairs]
        return [ours / theirs for ours, theirs in both] if all(ours > 0 < theirs for ours, theirs in both) else []

    def cpu_per_gigabyte(self, name: str) -> float | None:
        gigabytes = sum(sample.gigabytes for sample in self.samples.get(name, []))
        return sum(s.cpu_seconds for s in self.samples[name]) / gigabytes if gigabytes else None

    def cells(self) -> list[str]:
        """work | raftlog | the other | ratio (lowest to highest) | CPU s/GB of each."""
        cells = [self.work]
        for name in (OURS, self.other):
            cells.append(f"{_short(self.median(name))} {self.unit}" if name in self.samples else "")
        ratios = self.ratios()
        if ratios:
            cells.append(f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})")
        else:
            cells.append("")
        loads = [self.cpu_per_gigabyte(name) for name in (OURS, self.other) if name in self.samples]
        cells.append(" / ".join(f"{load:.2f}" for load in loads if load is not None))
        return cells


def _short(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:,.0f} k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def processor_times() -> tuple[int, int]:
    """Ticks that the host took from the processors, and all ticks, since the start; zeros where nobody counts."""
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return 0, 0
    return fields[7], sum(fields)


def quietest(rounds: Sequence[tuple[float, dict[str, Sample]]], count: int) -> list[dict[str, Sample]]:
    """Of rounds with what was stolen in them, the `count` with the least, in the order in which they were measured."""
    chosen = sorted(range(len(rounds)), key=lambda number: (max(rounds[number][0], _STOLEN_MAX), number))[:count]
    return [rounds[number][1] for number in sorted(chosen)]


def alternate(
    row: Row, brokers: Sequence[Broker], work: Callable[[Broker, int], Sample], *, rounds: int, warm_up: int = 1
) -> Row:
    """Do `work(broker, round)` on each broker in turn, the order swapped every round; warm-up rounds are dropped."""
    measured: list[tuple[float, dict[str, Sample]]] = []
    for number in range(-warm_up, rounds * 2):
        if sum(stolen <= _STOLEN_MAX for stolen, _ in measured) == rounds:
            break
        of_round: dict[str, Sample] = {}
        shares: list[float] = []
        for broker in brokers if number % 2 == 0 else reversed(brokers):
            before, (stolen_before, ticks_before) = broker.cpu_seconds(), processor_times()
            sample = of_round[broker.name] = work(broker, number)
            sample.cpu_seconds = broker.cpu_seconds() - before
            stolen_after, ticks_after = processor_times()
            shares.append((stolen_after - stolen_before) / max(1, ticks_after - ticks_before))
            value = f"{_short(sample.value)} {row.unit}"
            told = f"round {number + 1} of {rounds} quiet ones: {broker.name} {value}, {shares[-1]:.1%} stolen"
            progress(f"{row.work}: {told}")
        if number >= 0:
            # The more disturbed of the two makes the ratio what it is.
            measured.append((max(shares), of_round))
    for samples in quietest(measured, rounds):
        for name, sample in samples.items():
            row.samples.setdefault(name, []).append(sample)
    return row


def beside(row: Row, work: str, unit: str) -> Row:
    """A row of the second figures of the measurements of `row`."""
    samples = {name: [Sample(sample.beside) for sample in taken] for name, taken in row.samples.items()}
    return Row(work, unit, row.higher_is_better, samples)


def progress(text: str) -> None:
    """Say on standard error what is going on."""
    print(text, file=sys.stderr, flush=True)


def table(rows: Sequence[Row]) -> str:
    """A Markdown table."""
    other = next((row.other for row in rows if len(row.samples) > 1), "Kafka")
    lines = [
        f"| work | raftlog | {other} | raftlog ÷ {other} (spread) | broker CPU s/GB, raftlog / {other} |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    return "\n".join(lines)
