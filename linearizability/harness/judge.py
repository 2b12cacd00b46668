"""From a run's folder to its verdict: the checker's, the workload's own checks, and whether silence means something."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import HistoryError
from raftlog.linearizability.checker.kafka import KafkaOptions, check_kafka
from raftlog.linearizability.checker.models.catalogue import MODELS
from raftlog.linearizability.checker.verdict import Invalid
from raftlog.linearizability.files import read_file
from raftlog.linearizability.harness.settings import RunSettings
from raftlog.linearizability.harness.workloads.catalogue import Workload
from raftlog.linearizability.resources import Allowance

BUDGET_SECONDS = 300.0
BUDGET_MEGABYTES = 2000.0
EXAMPLES = 8
NANOSECONDS = 1_000_000
"""Of a millisecond."""


@dataclass(slots=True)
class Ruling:
    """`status`: valid, invalid or unknown. `checks` are those of run.json."""

    status: str
    reason: str
    doubts: list[str] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The `verdict` of run.json."""
        return {"status": self.status, "reason": self.reason, "doubts": self.doubts, "checks": self.checks}

    @property
    def anomalies(self) -> list[dict[str, Any]]:
        """Those that are errors."""
        return [each for one in self.checks for each in one["anomalies"] if each["judgement"] == "error"]


STALE_LEADER = frozenset({
    "nonmonotonic-high-watermark", "nonmonotonic-last-stable-offset", "nonmonotonic-list-offsets",
})  # fmt: skip
"""What a leader shows that was deposed and has not heard of it: Kafka has no leases."""
WRITTEN_TWICE = frozenset({
    "duplicate", "int-nonmonotonic-poll", "int-poll-skip", "nonmonotonic-poll", "poll-skip",
})  # fmt: skip
"""A producer that tries again may write twice. Who reads a value at its second place seems to go back, or to jump."""
LOST_BY_ITS_LEADER = frozenset({
    "lost-write", "unseen", "inconsistent-offsets", "realtime-append", "nonmonotonic-send",
})  # fmt: skip
"""What a leader has acknowledged alone may be gone with it, and its offsets given to others."""
NOT_READ_YET = frozenset({"consumed-never", "lost-write", "unseen"})
"""What an operation that is under way, or of unknown outcome, may have read: no error before all is read back."""
VISIBLE_SECONDS = 10.0
VISIBLE_SECONDS_WITH_FAULTS = 60.0
"""Brokers acknowledge a commit when it is decided, and write its markers then; a leader that was deposed and has not
heard of it shows none. No fault lasts as long as this: what is visible in part later than that stays so.
"""


def allowed(workload: Workload, settings: RunSettings, *, is_read_back: bool) -> list[str]:
    """Anomalies that are no error in this run: Kafka promises nothing else there."""
    options = settings.options
    names = set(STALE_LEADER) if settings.fault != "none" else set()
    if options.get("idempotence", "true") == "false":
        names |= WRITTEN_TWICE
    if options.get("acks", "all") != "all":
        names |= LOST_BY_ITS_LEADER
    if not is_read_back:
        names |= NOT_READ_YET
    return sorted(names) if workload.model == "kafka" else []


@dataclass(frozen=True, slots=True)
class Terms:
    """How the history of a run is judged by the Kafka analysis."""

    visibility_ms: int
    allow: tuple[str, ...]
    forbid: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """As `raftlog check --model kafka` is told."""
        named = (("--allow", self.allow), ("--forbid", self.forbid))
        lists = [word for flag, names in named if names for word in (flag, ",".join(names))]
        return ["--transaction-visibility-ms", str(self.visibility_ms), *lists]


def terms_of(workload: Workload, settings: RunSettings, *, is_over: bool, is_read_back: bool) -> Terms:
    """`is_over`: the history has everything that clients ever sent."""
    seconds = VISIBLE_SECONDS if settings.fault == "none" else VISIBLE_SECONDS_WITH_FAULTS
    allow = allowed(workload, settings, is_read_back=is_read_back)
    return Terms(round(1000 * seconds), tuple(allow), ("unwritten-read",) if is_over else ())


def judge(history: Path, workload: Workload, terms: Terms) -> dict[str, Any]:
    """The check of a history, for run.json. Raises HistoryError for one that cannot be read."""
    if workload.model == "kafka":
        return _judge_kafka(history, terms)
    return _judge_model(history, workload.model)


def _judge_kafka(history: Path, terms: Terms) -> dict[str, Any]:
    options = KafkaOptions(
        transaction_visibility=terms.visibility_ms * NANOSECONDS,
        allow=frozenset(terms.allow),
        forbid=frozenset(terms.forbid),
        budget=Allowance(BUDGET_SECONDS, BUDGET_MEGABYTES).left(),
    )
    report = check_kafka(history, options)
    found = report.to_json()
    return {
        "model": "kafka",
        "file": history.name,
        "options": terms.words,
        "status": found["status"],
        "reason": report.headline.partition(": ")[2],
        "operation_count": found["operation_count"],
        "seconds": found["seconds"],
        "anomalies": found["anomalies"],
        "measurements": found["measurements"],
    }


def _judge_model(history: Path, name: str) -> dict[str, Any]:
    allowance = Allowance(BUDGET_SECONDS, BUDGET_MEGABYTES)
    read = read_file(str(history), "jsonl", allowance, lambda count: None)
    verdict = check(read, MODELS[name](), budget=allowance.left())
    anomalies = []
    if isinstance(verdict, Invalid):
        example = {"text": verdict.witness.words, "key": verdict.witness.key, "operations": [], "details": {}}
        anomalies.append(_anomaly("not-linearizable", f"No order of the operations explains a {name}.", [example]))
    return {
        "model": name,
        "file": history.name,
        "options": [],
        "status": verdict.status.value,
        "reason": anomalies[0]["examples"][0]["text"] if anomalies else "",
        "operation_count": verdict.operation_count,
        "seconds": verdict.seconds,
        "anomalies": anomalies,
        "measurements": {},
    }


def _anomaly(name: str, definition: str, examples: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "definition": definition,
        "severity": "critical",
        "judgement": "error",
        "count": len(examples),
        "examples": examples[:EXAMPLES],
    }


# -- money -----------------------------------------------------------------------------------------


def judge_money(history: Path, *, is_read_back: bool) -> dict[str, Any]:
    """Whether each transfer that anybody has read was read with both of its legs, and all amounts are zero together.
    A leg that nobody has read is no proof where not everything was read.
    """
    legs: dict[str, dict[int, str]] = {}
    count = 0
    for operation in operations(history):
        count += 1
        if operation.get("outcome", "ok") != "ok" or operation["function"] not in ("poll", "txn"):
            continue
        for key, value in _polled(operation.get("output")):
            name, _, amount = value.partition(":")
            legs.setdefault(name, {})[int(amount)] = key
    torn = [_torn(name, *next(iter(found.items()))) for name, found in legs.items() if sum(found) != 0 and is_read_back]
    total = sum(sum(found) for found in legs.values())
    anomalies = []
    if torn:
        words = f"A transfer was read in one account and not in the other; the balance is off by {total}."
        anomalies.append(_anomaly("money-lost-or-made", words, torn))
    return {
        "model": "bank",
        "file": history.name,
        "options": [],
        "status": "invalid" if torn else "valid",
        "reason": torn[0]["text"] if torn else f"{len(legs)} transfers, and the balance is {total}.",
        "operation_count": count,
        "seconds": 0.0,
        "anomalies": anomalies,
        "measurements": {"transfers": len(legs), "balance": total},
    }


def _torn(name: str, amount: int, account: str) -> dict[str, Any]:
    words = f"Of transfer {name} only the leg of {amount} in {account} was ever read."
    return {"text": words, "key": account, "operations": [], "details": {"transfer": name}}


def operations(history: Path) -> Iterator[dict[str, Any]]:
    """The operations of a run's history."""
    with open(history, encoding="utf-8") as lines:
        for line in lines:
            operation = json.loads(line)
            if operation["type"] == "operation":
                yield operation


def _polled(output: Any) -> Iterator[tuple[str, str]]:
    steps = output.get("ops", ()) if isinstance(output, dict) else output or ()
    polls = [step[1] for step in steps if step[0] == "poll"]
    return ((key, value) for poll in polls for key, records in poll.items() for _, value in records)


__all__ = ["HistoryError", "Ruling", "Terms", "allowed", "judge", "judge_money", "operations", "terms_of"]
