"""The committed offset of one key against brute force: an error is only told where no order explains the fetches."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from raftlog.linearizability.checker.history import FAIL, INFO, OK, History, Operation
from raftlog.linearizability.checker.kafka import KafkaOptions, analyze
from tests.effort import at_least

HISTORIES = at_least(500)  # in each part
ERRORS = {"lost-commit", "nonmonotonic-committed-read", "aborted-commit-read"}


def random_register(seed: int) -> History:
    """Commits and fetches that overlap at random, the fetches answering anything that somebody tried to commit."""
    draw = random.Random(seed)
    operations = []
    offsets = draw.sample(range(1, 10), draw.randint(1, 4))
    for number in range(draw.randint(2, 7)):
        call = draw.randint(0, 30)
        at = (call, call + draw.randint(0, 12))
        if offsets and draw.random() < 0.5:
            offset = offsets.pop() if draw.random() < 0.8 else offsets[-1]
            outcome = draw.choice([OK, OK, OK, INFO, FAIL])
            given = {"group": "g", "offsets": {"x": offset}}
            operations.append(Operation(number, "commit", given, None, None, *at, outcome))
        else:
            operations.append(Operation(number, "committed", {"group": "g"}, [["x", None]], None, *at, OK))
    tried = [None, *[one.input["offsets"]["x"] for one in operations if one.function == "commit"]]
    for one in operations:
        if one.function == "committed":
            one.output = [["x", draw.choice(tried)]]
    return History.of(operations)


def explained(operations: Sequence[Operation], hidden: Sequence[Operation] = ()) -> bool:
    """Whether some order of the operations, with any of the unknown ones left out, explains every fetch.

    Before one of the `hidden` fetches somebody may have committed what it answered, and nobody recorded it.
    """
    asked = [one for one in operations if one.outcome is not FAIL]

    def walk(left: list[Operation], held: int | None) -> bool:
        if all(one.outcome is INFO for one in left):
            return True
        earliest = min(one.end for one in left)
        for one in left:
            if one.call > earliest:
                continue
            rest = [other for other in left if other is not one]
            if one.function == "commit":
                if walk(rest, one.input["offsets"]["x"]):
                    return True
            elif (one in hidden or one.output[0][1] == held) and walk(rest, one.output[0][1]):
                return True
        return False

    return walk(asked, None)


def foreseeing(history: History) -> list[Operation]:
    """The fetches that answered what was only committed later: that may have been a commit nobody recorded."""
    commits = [one for one in history if one.function == "commit"]
    found = []
    for fetch in history:
        if fetch.function == "committed" and fetch.output[0][1] is not None:
            same = [one for one in commits if one.input["offsets"]["x"] == fetch.output[0][1]]
            if all(one.call > fetch.end and one.outcome is not FAIL for one in same):
                found.append(fetch)
    return found


def goes_on(fetch: Operation, history: History) -> bool:
    """Whether the fetch answered more than anybody had committed or seen by then, as automatic commits would."""
    others = [one for one in history if one.call <= fetch.end and one is not fetch]
    told = [one.input["offsets"]["x"] if one.function == "commit" else one.output[0][1] for one in others]
    return all(offset is None or offset < fetch.output[0][1] for offset in told)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_what_is_told_of_a_register_no_order_explains(part: int) -> None:
    wrong = found = 0
    for seed in range(part * HISTORIES, part * HISTORIES + HISTORIES):
        history = random_register(seed)
        report = analyze(history, KafkaOptions(allow=frozenset({"commit-past-processed"})))
        told = {one.name for one in report.errors} & ERRORS
        foreseen = foreseeing(history)
        right = explained(history.operations, [fetch for fetch in foreseen if goes_on(fetch, history)])
        assert not (told and right), f"seed {seed}: {told}\n{report.text()}"
        if not foreseen:
            wrong += not right
            found += bool(told)
    assert found > 0.95 * wrong > 100, f"{found} of {wrong}"
