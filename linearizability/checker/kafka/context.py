"""What every analysis is given: the history's columns, the keys' order, the order of time, and where to put findings.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from raftlog.linearizability.checker.budget import Meter
from raftlog.linearizability.checker.kafka.columns.columns import Columns
from raftlog.linearizability.checker.kafka.columns.gather import ascending, below
from raftlog.linearizability.checker.kafka.columns.order import Order
from raftlog.linearizability.checker.kafka.columns.segments import Segments
from raftlog.linearizability.checker.kafka.options import KafkaOptions
from raftlog.linearizability.checker.kafka.report.findings import Findings, Judgement
from raftlog.linearizability.checker.kafka.report.words import Words


@dataclass(slots=True)
class Context:
    """One analysis under way."""

    columns: Columns
    order: Order
    segments: Segments
    options: KafkaOptions
    findings: Findings
    words: Words
    meter: Meter
    by_call: range | array[int]
    by_returned: range | array[int]
    subscribes: bool


def sort_by(times: array[int]) -> range | array[int]:
    """The numbers of operations in the order of these times; a range where they are in order already."""
    return ascending(times) if below(times[1:], times[:-1]) else range(len(times))


def allowed_if(condition: bool) -> Judgement:
    """ALLOWED under the condition, else ERROR."""
    return Judgement.ALLOWED if condition else Judgement.ERROR
