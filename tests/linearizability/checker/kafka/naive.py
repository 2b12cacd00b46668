"""The log anomalies once more, as directly as they are defined and as slowly as that makes them.

Written apart from the analysis, over plain dictionaries, to compare with it on histories full of faults. Only for
readers of committed data.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

from raftlog.linearizability.checker.history import FAIL, INFO, OK, History, Operation


def sends(operation: Operation) -> list[tuple[str, Any, int | None]]:
    """(key, value, offset) of every send."""
    found = []
    answered = _micro(operation.output)
    for micro in answered:
        if micro[0] == "send":
            found.append((micro[1], micro[2][1], micro[2][0]))
    if operation.outcome is not OK or not answered:
        known = {(key, value) for key, value, _ in found}
        for micro in _micro(operation.input):
            if micro[0] == "send" and (micro[1], micro[2]) not in known:
                found.append((micro[1], micro[2], None))
    return found


def polls(operation: Operation) -> list[tuple[str, Any, int]]:
    """(key, value, offset) of every record polled, in order."""
    found = []
    for micro in _micro(operation.output):
        if micro[0] == "poll":
            for key, pairs in micro[1].items():
                found += [(key, value, offset) for offset, value in pairs]
    return found


def _micro(given: Any) -> list[Any]:
    if isinstance(given, dict):
        given = given.get("ops")
    return given or []


def naive_counts(history: History) -> Counter[str]:
    """How many instances of each anomaly, in a history without two values at one offset."""
    counts: Counter[str] = Counter()
    data = [one for one in history.by_call() if one.function in ("send", "poll", "txn")]
    ok_read: dict[str, set[Any]] = defaultdict(set)
    writer: dict[tuple[str, Any], Operation] = {}
    for operation in data:
        for key, value, _ in sends(operation):
            writer[key, value] = operation
        if operation.outcome is OK:
            for key, value, _ in polls(operation):
                ok_read[key].add(value)

    def must_have_committed(operation: Operation) -> bool:
        seen = any(value in ok_read[key] for key, value, _ in sends(operation))
        return operation.outcome is OK or (operation.outcome is INFO and seen)

    log: dict[str, dict[int, set[Any]]] = defaultdict(lambda: defaultdict(set))
    for operation in data:
        records = polls(operation) + (sends(operation) if must_have_committed(operation) else [])
        for key, value, offset in records:
            if offset is not None:
                log[key][offset].add(value)
    index: dict[tuple[str, Any], int] = {}
    last: dict[tuple[str, Any], int] = {}
    for key, offsets in log.items():
        times: Counter[Any] = Counter()
        for place, offset in enumerate(sorted(offsets)):
            counts["inconsistent-offsets"] += len(offsets[offset]) > 1
            for value in offsets[offset]:
                index.setdefault((key, value), place)
                last[key, value] = place
                times[value] += 1
        counts["duplicate"] += sum(count > 1 for count in times.values())
    for key, read in ok_read.items():
        bound = max([index[key, value] for value in read if (key, value) in index], default=-1)
        for (other, value), place in last.items():
            sender = writer.get((key, value))
            if other == key and place <= bound and value not in read and sender and must_have_committed(sender):
                counts["lost-write"] += 1
    for (key, value), operation in writer.items():
        counts["unseen"] += operation.outcome is OK and value not in ok_read[key]
    for operation in data:
        for key, value, _ in polls(operation):
            sender = writer.get((key, value))
            if operation.outcome is OK and sender is not None and sender.outcome is FAIL:
                counts["G1a"] += 1
        own = {(key, value) for key, value, _ in sends(operation)}
        if operation.function == "txn":
            counts["precommitted-read"] += any((key, value) in own for key, value, _ in polls(operation))
    _orders(data, index, counts)
    offsets_of: dict[tuple[str, Any], set[int]] = defaultdict(set)
    for key, offsets in log.items():
        for offset, values in offsets.items():
            for value in values:
                offsets_of[key, value].add(offset)
    _appends([(one, must_have_committed(one)) for one in data], offsets_of, counts)
    return +counts


def _orders(data: list[Operation], index: dict[tuple[str, Any], int], counts: Counter[str]) -> None:
    last_poll: dict[Any, Any] = defaultdict(dict)
    last_send: dict[Any, Any] = defaultdict(dict)

    def judge(kind: str, key: str, values: tuple[Any, Any]) -> None:
        places = [index.get((key, value)) for value in values]
        if None in places:
            return
        delta = places[1] - places[0]
        if delta > 1 and kind != "send":
            counts[f"{kind}-skip"] += 1
        elif delta < 1:
            prefix, _, what = kind.rpartition("-")
            counts[f"{prefix}-nonmonotonic-{what}" if prefix else f"nonmonotonic-{what}"] += 1

    for operation in data:
        for what, records in (("poll", polls(operation)), ("send", sends(operation))):
            by_key: dict[str, list[Any]] = defaultdict(list)
            for key, value, _ in records:
                by_key[key].append(value)
            memory = (last_poll if what == "poll" else last_send)[operation.process]
            for key, values in by_key.items():
                for pair in pairwise(values):
                    judge(f"int-{what}", key, pair)
                counted = what == "poll" or operation.outcome is not FAIL
                if key in memory and counted:
                    judge(what, key, (memory[key], values[0]))
                if operation.outcome is OK or (what == "send" and operation.outcome is INFO):
                    memory[key] = values[-1]


def _appends(
    data: list[tuple[Operation, bool]], offsets: dict[tuple[str, Any], set[int]], counts: Counter[str]
) -> None:
    """realtime-append: sends to one place that is not beyond what operations showed that were over before."""
    for operation, _ in data:
        for key, value, _ in sends(operation):
            places = offsets.get((key, value), set())
            if len(places) != 1:
                continue
            known = [
                offset
                for earlier, committed in data
                if earlier.returned is not None and earlier.returned < operation.call
                for offset in _shown(earlier, key, offsets, committed)
            ]
            counts["realtime-append"] += min(places) <= max(known, default=-1)


def _shown(operation: Operation, key: str, offsets: dict[tuple[str, Any], set[int]], committed: bool) -> list[int]:
    shown = [offset for other, _, offset in polls(operation) if other == key]
    for other, value, offset in sends(operation):
        if other != key:
            continue
        if offset is not None and (committed or operation.function == "txn"):
            shown.append(offset)
        elif operation.outcome is OK and len(offsets.get((key, value), ())) == 1:
            shown.extend(offsets[key, value])
    return shown
