"""The workloads by their names: what they write to, what clients do, and what the history is judged by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from raftlog.linearizability.harness.session import Session
from raftlog.linearizability.harness.workloads.append import AppendSession
from raftlog.linearizability.harness.workloads.grouped import (
    KINDS,
    LEAVE_PROBABILITIES,
    ConsumeTransformProduceSession,
    GroupSession,
)
from raftlog.linearizability.harness.workloads.metadata import MetadataSession
from raftlog.linearizability.harness.workloads.objects import CompactedSession, TopicSession
from raftlog.linearizability.harness.workloads.transactional import (
    BankSession,
    ListAppendSession,
    TransactionSession,
)

COMPACTED: dict[str, str] = {
    "cleanup.policy": "compact",
    "segment.ms": "1500",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "2000",
}


@dataclass(frozen=True, slots=True)
class Workload:
    """`topics`: names to numbers of partitions. `functions`: what must have succeeded once for a verdict of valid.

    `options`: what `--option` may say, with the default first. `only`: the libraries that can do it, all if empty.
    """

    name: str
    summary: str
    session: Callable[..., Session]
    topics: dict[str, int]
    functions: tuple[str, ...]
    model: str = "kafka"
    configs: dict[str, str] = field(default_factory=dict)
    broker_settings: dict[str, str] = field(default_factory=dict)
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    is_transactional: bool = False
    groups: tuple[str, ...] = ()

    def renamed(self, suffix: str) -> Workload:
        """The same with other names of topics and groups."""
        topics = {name + suffix: count for name, count in self.topics.items()}
        return replace(self, topics=topics, groups=tuple(name + suffix for name in self.groups))

    @property
    def abilities(self) -> frozenset[str]:
        """What faults may ask of it: `transactions`, `coordinators`, `commits` of groups by themselves, `partitions` of
        its own, and `same segments`, so that replicas have the same bytes at the same places.
        """
        found = {
            "transactions": self.is_transactional,
            "partitions": bool(self.topics),
            "same segments": bool(self.topics) and "compact" not in self.configs.get("cleanup.policy", ""),
            "coordinators": self.is_transactional or bool(self.groups),
            "commits": bool(self.groups) and not self.is_transactional,
        }
        return frozenset(name for name, has_it in found.items() if has_it)

    @property
    def main_topic(self) -> str:
        """The one whose leaders faults are about."""
        return next(iter(self.topics), "")


QUICK_MEMBERS = {
    "group.consumer.min.heartbeat.interval.ms": "250",
    "group.consumer.heartbeat.interval.ms": "250",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
}
"""What members of the classic protocol choose by themselves (SESSION_SECONDS), for those of the newer one."""
PLAIN: dict[str, tuple[str, ...]] = {"acks": ("all", "1", "0"), "idempotence": ("true", "false")}
_ALL: tuple[Workload, ...] = (
    Workload(
        "append",
        "records sent to partitions and read from them; --option acks=1, --option idempotence=false",
        AppendSession,
        {"append": 4},
        ("send", "poll"),
        options=PLAIN,
    ),
    Workload(
        "list-append",
        "transactions of appends to lists, and reads of whole lists",
        ListAppendSession,
        {"lists": 4},
        ("txn", "poll"),
        is_transactional=True,
    ),
    Workload(
        "transactions",
        "transactions of sends and polls, some aborted",
        TransactionSession,
        {"transactions": 4},
        ("txn", "poll"),
        is_transactional=True,
    ),
    Workload(
        "consume-transform-produce",
        "records moved from topic to topic, exactly once",
        ConsumeTransformProduceSession,
        {"input": 4, "output": 4},
        ("txn", "subscribe", "poll"),
        # aiokafka asks for offsets that a transaction may still change (it does not know KIP-447), and consumes twice.
        only=("confluent", "raftlog"),
        is_transactional=True,
        groups=("verify-move",),
    ),
    Workload(
        "bank",
        "transfers between accounts, in transactions; no money is made or lost",
        BankSession,
        {"accounts": 6},
        ("txn", "poll"),
        is_transactional=True,
    ),
    Workload(
        "groups",
        "members of groups, under both protocols, static, and by assignment, that commit what they read",
        GroupSession,
        {"grouped": 6},
        ("send", "poll", "commit", "committed"),
        groups=("verify-classic", "verify-consumer", "verify-static", "verify-assign"),
        broker_settings=QUICK_MEMBERS,
        options={"kind": ("each", *KINDS), "leave": tuple(LEAVE_PROBABILITIES)},
    ),
    Workload(
        "compacted",
        "puts and deletes of keys in a compacted topic; the newest of each key is there at the end",
        CompactedSession,
        {"compacted": 4},
        ("put", "delete", "get"),
        model="key-value",
        configs=COMPACTED,
        broker_settings={"log.cleaner.backoff.ms": "500"},
        only=("confluent",),
    ),
    Workload(
        "topics",
        "topics made and deleted; at the end those are there that should be",
        TopicSession,
        {},
        ("add", "remove", "contains"),
        model="set",
        only=("confluent",),
    ),
    Workload(
        "metadata",
        "leaders, high watermarks, last stable offsets and starts of logs asked for, while records are appended",
        MetadataSession,
        {"metadata": 4},
        ("send", "poll", "leader", "high-watermark", "last-stable-offset", "list-offsets"),
    ),
)
WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _ALL}


NOT_THERE: dict[str, str] = {
    "share-groups": "raftlog has no share groups yet (KIP-932)",
    "streams-groups": "raftlog has no groups of Kafka Streams' own protocol yet (KIP-1071)",
    "tiered-storage": "raftlog keeps all segments on its own disks (KIP-405)",
}
"""Workloads for what brokers cannot do yet, and why there is none."""


def described() -> list[tuple[str, str]]:
    """Names and summaries, for `--help`."""
    return [(each.name, each.summary) for each in _ALL] + [
        (name, f"not there: {why}") for name, why in NOT_THERE.items()
    ]


__all__ = ["NOT_THERE", "WORKLOADS", "Workload", "described"]
