"""What the caller may decide about an analysis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from raftlog.linearizability.checker.budget import Budget
from raftlog.linearizability.checker.kafka.catalogue import CATALOGUE

Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]
Mode: TypeAlias = Literal["assign", "subscribe"]


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """How to judge a history. Durations are in the history's time unit (nanoseconds, or steps).

    Raises ValueError for a name that no anomaly has, or a value that makes no sense.
    """

    # The isolation level of consumers whose assign or subscribe does not name one.
    isolation: Isolation = "read_committed"
    # The ways in which consumers get their keys; None: those that the history shows. With "subscribe" among them,
    # poll-skip and nonmonotonic-poll are allowed, since a rebalance may lie between two polls; where only the history
    # says so, not for processes that assigned their keys themselves.
    subscription_modes: frozenset[Mode] | None = None
    # Whether sends and polls outside `txn` operations are transactions too (Jepsen's histories with --txn).
    transactions: bool = False
    # The group of consumers that name none. All such consumers share it.
    group: str = ""
    # stale-read and stale-watermark are judged only with a bound; 0 allows no staleness at all.
    max_staleness: int | None = None
    # How long after a transaction is known to be decided a read point may still show a part of it. Kafka itself
    # acknowledges a commit before its markers are in all partitions. None: never judged by visible ends.
    transaction_visibility: int | None = 0
    # True: every record may be consumed once by a subscribed consumer's ok operations. None: judged where the history
    # itself claims it, that is for transactions that commit their group's offsets. False: counted only.
    exactly_once: bool | None = None
    # Names of anomalies that are no error in this test, and of some that are, whatever the rules say.
    allow: frozenset[str] = frozenset()
    forbid: frozenset[str] = frozenset()
    # How many dependencies the searches for shortest cycles may walk in all.
    cycle_steps: int = 5_000_000
    # Time and memory; None: no limit.
    budget: Budget = field(default_factory=lambda: Budget(megabytes=None))

    def __post_init__(self) -> None:
        unknown = sorted((self.allow | self.forbid) - CATALOGUE.keys())
        if unknown:
            raise ValueError(f"no anomaly is called {', '.join(unknown)}")
        both = sorted(self.allow & self.forbid)
        if both:
            raise ValueError(f"both allowed and forbidden: {', '.join(both)}")
        if self.isolation not in ("read_committed", "read_uncommitted"):
            raise ValueError(f"isolation is {self.isolation!r}, not read_committed or read_uncommitted")
        unknown_modes = sorted((self.subscription_modes or frozenset()) - {"assign", "subscribe"})
        if unknown_modes:
            raise ValueError(f"no subscription mode is called {', '.join(unknown_modes)}")
        if (self.max_staleness or 0) < 0 or (self.transaction_visibility or 0) < 0:
            raise ValueError("a bound in time cannot be negative")
