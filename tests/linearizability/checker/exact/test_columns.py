"""Logs and registers as columns get the answers of the same rules one operation at a time."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from raftlog.linearizability.checker.exact.zones import check_zones
from raftlog.linearizability.checker.history import OK, History, Operation
from raftlog.linearizability.checker.log.gaps import finish
from raftlog.linearizability.checker.log.stream import LogCheck
from tests.effort import at_least
from tests.linearizability.checker.objects import WORLDS, record


def columns_of(history: History) -> Any:
    numpy = pytest.importorskip("numpy")
    from raftlog.linearizability import LogColumns
    from raftlog.linearizability.checker.exact.columns import APPEND, END, READ

    numbers: dict[Any, int] = {}
    rows, told = [], []
    for op in history.operations:
        if op.function == "end":
            rows.append((END, op.call, op.returned, op.output, 0, True))
            continue
        append = op.function == "append"
        records = op.input if append else op.output[0]
        first = op.output if append else op.input
        rows.append((APPEND if append else READ, op.call, op.returned, first, len(records), append or op.output[1]))
        told += [numbers.setdefault(one, len(numbers)) for one in records]
    kind, call, returned, first, count, end = (numpy.array(column) for column in zip(*rows, strict=True))
    return LogColumns(kind, call, returned, first, count, end.astype(bool), numpy.array(told, dtype=numpy.int64))


def known_only(history: History) -> list[Operation]:
    return [operation for operation in history.operations if operation.outcome is OK]


def test_logs_as_columns_get_the_answer_of_the_stream() -> None:
    pytest.importorskip("numpy")
    from raftlog.linearizability import check_columns

    seen = [0, 0]
    for seed in range(at_least(500)):
        random = Random(seed)
        wrong = random.choice((0.0, 0.02, 0.1))
        history = History.of(known_only(record(WORLDS["log"], random, count=30, clients=4, wrong=wrong)))
        stream = LogCheck()
        stream.extend(history.operations)
        found = finish(stream)
        violation = check_columns(columns_of(history))
        assert (violation is None) == (found is None), seed
        seen[violation is None] += 1
        if violation is not None:
            shown = [history.operations[row] for row in violation.rows]
            assert violation.kind == "gap" or shown, seed
    assert min(seen) > 40


def test_registers_as_columns_get_the_answer_of_the_zones() -> None:
    numpy = pytest.importorskip("numpy")
    from raftlog.linearizability import RegisterColumns, check_columns

    seen = [0, 0]
    for seed in range(at_least(500)):
        random = Random(seed)
        wrong = random.choice((0.0, 0.02, 0.1))
        world = WORLDS["unique-register"]
        operations = known_only(record(world, random, count=30, clients=4, wrong=wrong))
        if not operations:
            continue
        values = [op.input if op.function == "write" else -1 if op.output is None else op.output for op in operations]
        violation = check_columns(
            RegisterColumns(
                numpy.array([op.function == "write" for op in operations]),
                numpy.array([op.call for op in operations]),
                numpy.array([op.returned for op in operations]),
                numpy.array(values),
            )
        )
        found = check_zones(operations)
        assert (violation is None) == (found is None), seed
        seen[violation is None] += 1
    assert min(seen) > 40
