"""What runs must have reached: a campaign in which one of these never happened says nothing about it, and fails.

Counted from the folder of a run: its history, its samples, its faults, and what its brokers logged.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from raftlog.linearizability.harness.folder import FAULTS, HISTORY, LOGS, SAMPLES

ELECTED = "a partition got another leader while a client waited for its answer"
SHRANK = "the in-sync replicas shrank"
GREW = "a replica came back into sync"
QUORUM = "another broker led the metadata quorum"
OPEN = "committed records stood behind an open transaction"
UNKNOWN = "a client was not answered"
REFUSED = "a client was refused"
REBALANCED = "a consumer lost partitions to another member"
ABORTED = "a transaction was aborted on purpose"
TIMED_OUT = "a transaction was aborted because of its time-out"
FENCED = "a producer was fenced"
CUT = "records of a replica were cut off"
UNCLEAN = "a replica that was not in sync was elected"
PROPERTIES = (
    ELECTED, SHRANK, GREW, QUORUM, OPEN, UNKNOWN, REFUSED, REBALANCED, ABORTED, TIMED_OUT, FENCED, CUT, UNCLEAN,
)  # fmt: skip
LOGGED = {"is aborted: it took longer than its time-out": TIMED_OUT, "truncated": CUT}


def reached(folder: Path) -> dict[str, int]:
    """How often each happened in a run."""
    found: Counter[str] = Counter()
    elections = _of_samples(list(_lines(folder / SAMPLES)), found)
    for operation in _lines(folder / HISTORY):
        if operation["type"] == "operation":
            _of_operation(operation, elections, found)
    for line in _lines(folder / FAULTS):
        if line["type"] == "begin" and line["kind"] == "isr-of-one":
            found[UNCLEAN] += 1
    for log in (folder / LOGS).glob("broker-*.log"):
        text = log.read_text(errors="replace")
        for words, name in LOGGED.items():
            found[name] += text.count(words)
    return dict(found)


def never_reached(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What none of these runs came to."""
    return [name for name in PROPERTIES if not any(run.get("reached", {}).get(name) for run in runs)]


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    if file.exists():
        with open(file, encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _of_samples(samples: Sequence[dict[str, Any]], found: Counter[str]) -> dict[str, list[tuple[int, int]]]:
    """Between which times each partition got another leader."""
    elections: dict[str, list[tuple[int, int]]] = {}
    for before, after in pairwise(samples):
        one, other = (each.get("quorum") or {} for each in (before, after))
        found[QUORUM] += bool(one.get("leader") and other.get("leader") and one["leader"] != other["leader"])
        for key, now in after["partitions"].items():
            then = before["partitions"].get(key)
            if not now or not then:
                continue
            if now["leader"] != then["leader"]:
                elections.setdefault(key, []).append((before["time"], after["time"]))
            isr, was = set(now["isr"] or ()), set(then["isr"] or ())
            found[SHRANK] += bool(was - isr)
            found[GREW] += bool(isr - was and was)
            found[OPEN] += (now["last_stable"] or 0) < (now["high_watermark"] or 0)
    return elections


def _of_operation(
    operation: Mapping[str, Any], elections: Mapping[str, list[tuple[int, int]]], found: Counter[str]
) -> None:
    error, outcome = str(operation.get("error", "")), operation.get("outcome", "ok")
    end = operation.get("return", 1 << 63)
    found[UNKNOWN] += outcome == "info"
    found[ABORTED] += "aborted on purpose" in error
    found[REFUSED] += outcome == "fail" and "aborted on purpose" not in error
    found[FENCED] += "FENCED" in error or "INVALID_PRODUCER_EPOCH" in error
    output, given = operation.get("output"), operation.get("input")
    if isinstance(output, dict):
        found[REBALANCED] += any(event in ("revoked", "lost") for event, _ in output.get("rebalance", ()))
    keys = {step[1] for step in given if step[0] == "send"} if isinstance(given, list) else set()
    found[ELECTED] += any(
        operation["call"] < after and end > before for key in keys for before, after in elections.get(key, ())
    )
