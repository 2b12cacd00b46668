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


def explained(operations: Sequence[Operation]) -> bool:
    """Whether some order of the operations, with any of the unknown ones left out, explains every fetch."""
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
            elif one.output[0][1] == held and walk(rest, held):
                return True
        return False

    return walk(asked, None)


def foreseen(history: History) -> bool:
    """Whether a fetch answered what was only committed later: that may have been a commit nobody recorded."""
    commits = [one for one in history if one.function == "commit" and one.outcome is not FAIL]
    for fetch in history:
        if fetch.function == "committed" and fetch.output[0][1] is not None:
            same = [one for one in commits if one.input["offsets"]["x"] == fetch.output[0][1]]
            if same and all(one.call > fetch.end for one in same):
                return True
    return False


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_what_is_told_of_a_register_no_order_explains(part: int) -> None:
    wrong = found = 0
    for seed in range(part * HISTORIES, part * HISTORIES + HISTORIES):
        history = random_register(seed)
        report = analyze(history, KafkaOptions(allow=frozenset({"commit-past-processed"})))
        told = {one.name for one in report.errors} & ERRORS
        right = explained(history.operations)
        assert not (told and right), f"seed {seed}: {told}\n{report.text()}"
        if not foreseen(history):
            wrong += not right
            found += bool(told)
    assert found > 0.95 * wrong > 100, f"{found} of {wrong}"
