"""More faults: of groups, metadata, producers, exactly-once processing, and of staleness beyond a bound."""

from __future__ import annotations

import random
from typing import Any

from raftlog.linearizability.checker.history import FAIL, OK, Operation
from tests.linearizability.checker.kafka.faults import (
    STRANGER,
    add,
    before,
    ended,
    fault,
    highest,
    micros,
    pick,
    readers,
    segments,
)

SECOND = 1_000_000_000


# Groups


def commits(operations: list[Operation], key: str) -> list[Operation]:
    """The acknowledged commits of a key."""
    return [one for one in ended(operations, "commit") if key in one.input["offsets"]]


def fetched(operations: list[Operation]) -> set[tuple[str, Any]]:
    """(key, offset) of all that was fetched."""
    return {(key, offset) for one in ended(operations, "committed") for key, offset in one.output}


@fault("nonmonotonic-commit", "subscribe", "nonmonotonic-committed-read lost-commit")
def a_commit_goes_back(operations: list[Operation], draw: random.Random) -> bool:
    places = []
    seen = fetched(operations)
    for key in ("k0", "k1", "k2", "k3"):
        for one in commits(operations, key):
            earlier = [other.input["offsets"][key] for other in before(commits(operations, key), one)]
            if earlier and max(earlier) > 1 and (key, one.input["offsets"][key]) not in seen:
                places.append((one, key, max(earlier)))
    chosen = pick(draw, places)
    if chosen is None:
        return False
    operation, key, greatest = chosen
    operation.input["offsets"][key] = greatest - 1
    return True


@fault("lost-commit", "subscribe", "nonmonotonic-committed-read")
def a_commit_is_lost(operations: list[Operation], draw: random.Random) -> bool:
    places = []
    for one in ended(operations, "committed"):
        for place, (key, _) in enumerate(one.output):
            if before(commits(operations, key), one):
                places.append(one.output[place])
    chosen = pick(draw, places)
    if chosen is None:
        return False
    chosen[1] = None
    return True


@fault("nonmonotonic-committed-read", "subscribe")
def a_fetch_goes_back(operations: list[Operation], draw: random.Random) -> bool:
    """Of a group whose commits are automatic, so that only fetches tell its offsets."""
    given = {"group": "automatic", "keys": ["k0"]}
    for offset in (5, 5, 3):
        add(operations, STRANGER, "committed", given, [["k0", offset]])
    return True


@fault("aborted-commit-read", "subscribe", "commit-past-processed")
def a_failed_commit_is_fetched(operations: list[Operation], draw: random.Random) -> bool:
    given = {"group": "other", "offsets": {"k0": 2}}
    add(operations, STRANGER, "commit", given, None, outcome=FAIL)
    add(operations, STRANGER, "committed", {"group": "other", "keys": ["k0"]}, [["k0", 2]])
    return True


@fault("commit-past-processed", "subscribe", "lost-commit nonmonotonic-committed-read nonmonotonic-commit")
def a_commit_goes_too_far(operations: list[Operation], draw: random.Random) -> bool:
    """A record arrives that nobody of the group polls, and the group's last member commits beyond it."""
    if not commits(operations, "k0"):
        return False
    end = highest(operations, "k0") + 5
    last = max(commits(operations, "k0"), key=lambda one: one.call)
    add(operations, STRANGER, "send", [["send", "k0", "late"]], [["send", "k0", [end, "late"]]])
    add(operations, STRANGER + 1, "assign", {"keys": ["k0"], "group": "reader"}, None)
    add(operations, STRANGER + 1, "poll", [["poll"]], [["poll", {"k0": [[end, "late"]]}]])
    add(operations, int(last.process), "commit", {"group": "g", "offsets": {"k0": end + 1}}, None)
    return True


@fault("fenced-commit", "subscribe", "nonmonotonic-commit lost-commit nonmonotonic-committed-read aborted-commit-read")
def a_fenced_commit_succeeds(operations: list[Operation], draw: random.Random) -> bool:
    fenced = [
        one
        for one in ended(operations, "commit", FAIL)
        if any(other.output["generation"] > one.input["generation"] for other in before(ended(operations, "join"), one))
    ]
    chosen = pick(draw, fenced)
    if chosen is None:
        return False
    chosen.outcome, chosen.error = OK, None
    return True


@fault("two-owners", "subscribe")
def a_key_is_given_to_two_members(operations: list[Operation], draw: random.Random) -> bool:
    joins = ended(operations, "join")
    places = [
        (one, key)
        for one in joins
        for other in joins
        for key in other.output["keys"]
        if one.output["generation"] == other.output["generation"] and one.output["member"] != other.output["member"]
    ]
    chosen = pick(draw, places)
    if chosen is None:
        return False
    chosen[0].output["keys"].append(chosen[1])
    return True


# Metadata


def lower(operations: list[Operation], draw: random.Random, function: str) -> bool:
    """Let an answer be one less than another had been that was over before."""
    places = []
    for one in ended(operations, function):
        for key in one.output:
            known = max([other.output[key] for other in before(ended(operations, function), one)], default=0)
            if known:
                places.append((one, key, known))
    chosen = pick(draw, places)
    if chosen is None:
        return False
    operation, key, known = chosen
    operation.output[key] = known - 1
    return True


@fault("nonmonotonic-high-watermark")
def a_high_watermark_goes_back(operations: list[Operation], draw: random.Random) -> bool:
    return lower(operations, draw, "high-watermark")


@fault("nonmonotonic-last-stable-offset", also="torn-transaction")
def a_last_stable_offset_goes_back(operations: list[Operation], draw: random.Random) -> bool:
    return lower(operations, draw, "last-stable-offset")


@fault("nonmonotonic-list-offsets")
def list_offsets_goes_back(operations: list[Operation], draw: random.Random) -> bool:
    return lower(operations, draw, "list-offsets")


@fault("two-leaders")
def a_second_leader(operations: list[Operation], draw: random.Random) -> bool:
    found = ended(operations, "leader")
    chosen = pick(draw, found)
    if chosen is None or len(found) < 2:
        return False
    chosen.output["k0"] = {"leader": 2, "epoch": 4}
    return True


# Transactions and producers


@fault("torn-transaction", also="nonmonotonic-last-stable-offset")
def a_part_of_a_transaction_is_hidden(operations: list[Operation], draw: random.Random) -> bool:
    """Two keys, one transaction over both, and a read point that has one part of it and not the other."""
    places = {key: highest(operations, key) + 5 for key in ("k0", "k1")}
    given = [["send", key, f"part {key}"] for key in places]
    answer = [["send", key, [place, f"part {key}"]] for key, place in places.items()]
    add(operations, STRANGER, "txn", given, answer)
    add(operations, STRANGER + 1, "last-stable-offset", None, {"k0": places["k0"] + 2, "k1": places["k1"]})
    records = {key: [[place, f"part {key}"]] for key, place in places.items()}
    add(operations, STRANGER + 2, "poll", [["poll"]], [["poll", records]])
    return True


@fault("fenced-producer")
def an_older_epoch_succeeds(operations: list[Operation], draw: random.Random) -> bool:
    newer = [one for one in ended(operations, "txn") if isinstance(one.input, dict) and one.input["epoch"] > 0]
    chosen = pick(draw, newer)
    if chosen is None:
        return False
    chosen.input = {**chosen.input, "epoch": chosen.input["epoch"] - 1}
    return True


@fault("epoch-reused")
def an_epoch_is_given_out_twice(operations: list[Operation], draw: random.Random) -> bool:
    chosen = pick(draw, [one for one in ended(operations, "init-producer") if one.output["epoch"] > 0])
    if chosen is None:
        return False
    chosen.output = {"epoch": chosen.output["epoch"] - 1}
    return True


def copies(operations: list[Operation]) -> list[Operation]:
    """The ok transactions that commit their group's offsets."""
    return [one for one in ended(operations, "txn") if micros(one, "commit")]


@fault("consumed-twice", "exactly-once")
def a_record_is_consumed_twice(operations: list[Operation], draw: random.Random) -> bool:
    found = [(one, key, pairs) for one, key, pairs in segments(copies(operations)) if pairs]
    places = [
        (micros(other, "poll")[0][1], key, pairs)
        for one, key, pairs in found
        for other in copies(operations)
        if one.returned < other.call and micros(other, "commit")[0][2] and key not in micros(other, "poll")[0][1]
    ]
    chosen = pick(draw, places)
    if chosen is None:
        return False
    records, key, pairs = chosen
    records[key] = [list(pairs[-1])]
    return True


@fault("consumed-never", "exactly-once", "commit-past-processed int-poll-skip torn-transaction")
def a_record_is_consumed_by_nobody(operations: list[Operation], draw: random.Random) -> bool:
    known = readers(operations)
    first: dict[str, list[Any]] = {}
    places = []
    for one, key, pairs in segments(sorted(operations, key=lambda one: one.call)):
        if one.function == "txn" and pairs:
            first.setdefault(key, pairs)
            places += [pairs] if pairs is not first[key] and len(known[pairs[0][1]]) == 2 else []
    chosen = pick(draw, places)
    if chosen is None:
        return False
    del chosen[0]
    return True


# Bounds


@fault("stale-read", "subscribe", max_staleness=SECOND)
def a_consumer_is_left_behind(operations: list[Operation], draw: random.Random) -> bool:
    add(operations, STRANGER, "assign", {"keys": ["k0"], "position": "beginning"}, None)
    add(operations, STRANGER, "poll", [["poll"]], [["poll", {}]], at=(2 * SECOND, 2 * SECOND + 1))
    return highest(operations, "k0") >= 0


@fault("stale-watermark", "subscribe", max_staleness=SECOND)
def a_watermark_is_left_behind(operations: list[Operation], draw: random.Random) -> bool:
    end = highest(operations, "k0")
    for one in ended(operations, "high-watermark"):
        one.output.pop("k0", None)
    add(operations, STRANGER, "high-watermark", None, {"k0": end}, at=(2 * SECOND, 2 * SECOND + 1))
    return end > 0
