"""A history that is read in pieces and checked by key has the verdict of one process. Without Spark."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.formats.jsonl import read_history
from raftlog.linearizability.checker.history import HistoryError
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.models.register import Register
from raftlog.linearizability.checker.page.plain import plain_verdict
from raftlog.pipeline.verify.chunks import Joined
from raftlog.pipeline.verify.columns import read_columns
from raftlog.pipeline.verify.distributed import EDGES, Budget, Checking, Plan, Ranking, merge, read_pieces
from raftlog.pipeline.verify.parcels import number_of, sort_out
from tests.effort import examples


def by_pieces(path: Path, model: Model[Any], chunk_bytes: int) -> dict[str, Any]:
    """The steps of `check_on_spark`, one after the other in this process."""
    plan = Plan(str(path), path.stat().st_size, chunk_bytes, model)
    pieces = pa.RecordBatch.from_pydict({"id": list(range(plan.pieces))})
    rows = [row for batch in read_pieces(plan, iter([pieces])) for row in batch.to_pylist()]
    edges = [pickle.loads(row["content"]) for row in rows if row["parcel"] == EDGES]
    joined = Joined(sorted(edges, key=lambda each: each.chunk), str(path))
    extra = sort_out(joined.operations, plan.part_of, plan.pieces)
    rows = [row for row in rows if row["parcel"] != EDGES]
    rows += [{"parcel": number, "chunk": -1, "content": content} for number, content in extra.items()]
    task = Checking(model, joined.time_unit, joined.first_lines, Budget())
    tasks = [[row for row in rows if row["parcel"] == number] for number in range(plan.pieces)]
    found = [each for rows_of in tasks for each in collected(task, rows_of)]
    count = sum(each.operations for each in edges) + len(joined.operations)
    verdict, worst = merge(found, model, joined, count)
    if worst is not None:
        ranking = Ranking(joined.first_lines, worst.operations)
        ranking.tell(collected(ranking, rows))
    return plain_verdict(verdict)


def collected(task: Any, rows: list[dict[str, Any]]) -> list[Any]:
    batches = [pa.RecordBatch.from_pylist([row]) for row in rows]
    return [pickle.loads(row["content"]) for batch in task(iter(batches)) for row in batch.to_pylist()]


def random_history(seed: int) -> list[dict[str, Any]]:
    """Clients, some with several calls in flight, some that never hear back; a few answers are wrong."""
    draw = random.Random(seed)
    lines: list[dict[str, Any]] = [{"type": "history", "version": 1, "time_unit": "ns"}]
    values: dict[str, int] = {}
    open_calls: list[tuple[dict[str, Any], Any]] = []
    busy: set[Any] = set()
    wrong = draw.choice([0.0, 0.02])
    for time in range(1, 400):
        if open_calls and (draw.random() < 0.5 or len(open_calls) > 6):
            call, output = open_calls.pop(draw.randrange(len(open_calls)))
            kind = draw.choice(["ok"] * 8 + ["info"])
            told = {"type": kind, "process": call["process"], "time": time * 10}
            if kind == "ok":
                told["output"] = output
            if "id" in call:
                told["id"] = call["id"]
            else:
                busy.discard(call["process"])
            lines.append(told)
            continue
        process, key = draw.choice([1, 2, "three", 4]), f"key-{draw.randrange(9)}"
        call = {"type": "invoke", "process": process, "function": "read", "key": key, "input": None, "time": time * 10}
        output: Any = values.get(key)
        if draw.random() < 0.4:
            call |= {"function": "write", "input": time}
            values[key], output = time, None
        elif draw.random() < wrong:
            output = -1
        if process in busy:
            call["id"] = time
        busy.add(process)
        lines.append(call)
        open_calls.append((call, output))
    return lines


def usual_history(seed: int) -> list[dict[str, Any]]:
    """Lines as most programs write them: each client a number and with one call at a time; some answers are wrong.

    By the seed, values are numbers or text, and written once or several times.
    """
    draw = random.Random(seed)
    lines: list[dict[str, Any]] = [{"type": "history", "version": 1, "time_unit": "step"}] if seed % 3 else []
    name = str if seed % 2 else int
    values: dict[Any, Any] = {}
    busy: dict[int, Any] = {}
    wrong, again, lost = draw.choice([0.0, 0.01]), draw.choice([0.0, 0.05]), draw.choice([0.0, 0.03])
    for time in range(1, 500):
        stamp, process = time * 10, draw.randrange(6)
        if process in busy:
            told = {"type": "ok", "process": process, "output": busy.pop(process), "time": stamp}
            if draw.random() < lost:
                told |= {"type": draw.choice(["info", "fail"]), "output": None, "error": "no answer"}
            lines.append(told)
            continue
        key = draw.choice([None, *(f"key-{at}" for at in range(9))])
        call = {"type": "invoke", "process": process, "function": "read", "input": None, "time": stamp}
        if key is not None:
            call["key"] = key
        busy[process] = name(-1) if draw.random() < wrong else values.get(key)
        if draw.random() < 0.4:
            value = values[key] if key in values and draw.random() < again else name(time)
            call |= {"function": "write", "input": value}
            values[key], busy[process] = value, None
        lines.append(call)
    return lines


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("seed", range(examples(12)))
def test_verdict_and_witness_are_those_of_one_process_wherever_the_file_is_cut(tmp_path: Path, seed: int) -> None:
    path = written(tmp_path / "history.jsonl", random_history(seed))
    here = plain_verdict(check(read_history(str(path)), Register()))
    size = path.stat().st_size
    for chunk_bytes in (size + 1, size // 2, 3_000, 777):
        there = by_pieces(path, Register(), chunk_bytes)
        assert {**there, "seconds": 0, "uncompared": []} == {**here, "seconds": 0, "uncompared": []}


@pytest.mark.parametrize("seed", range(examples(12)))
def test_usual_lines_are_parsed_as_columns_and_the_verdict_is_the_same(tmp_path: Path, seed: int) -> None:
    path = written(tmp_path / "history.jsonl", usual_history(seed))
    here = plain_verdict(check(read_history(str(path)), Register()))
    size = path.stat().st_size
    for chunk_bytes in (size + 1, size // 2, 3_000, 777):
        there = by_pieces(path, Register(), chunk_bytes)
        assert {**there, "seconds": 0, "uncompared": []} == {**here, "seconds": 0, "uncompared": []}
    assert read_columns(path.read_bytes(), 0) is not None


UNUSUAL = [
    '{"type":"ok","process":1,"output":null,"output":3,"time":1}',
    '{"type":"invoke","process":7,"function":"read","input":null,"output":null,"time":1}',
    '{"type":"invoke","process":7,"function":"read","input":null,"id":4,"time":1}',
    '{"type":"invoke","process":7,"function":"read","input":null,"time":1.0}',
    '{"type":"invoke","process":true,"function":"read","input":null,"time":1}',
    '{"type":"invoke","process":7,"function":null,"input":null,"time":1}',
    '{"type":"invoke","process":7,"function":"write","input":[1],"time":1}',
    '{"type":"invoke","process":7,"function":"write","input":"\\ud800","time":1}',
    '{"type":"invoke","process":7,"function":"read","key":"\xff","input":null,"time":1}',
    '{"type":"invoke","process":7,"function":"read","input":null,"time":1}{"type":"ok","process":7,"time":1}',
    '{"type":"annotation","label":"a fault","time":1}',
    '{"type":"history","version":1}',
    '{"process":7,"type":"invoke","function":"read","input":null,"time":1}',
    " ",
    "",
]


@pytest.mark.parametrize("line", UNUSUAL)
def test_a_line_that_is_unusual_is_left_to_the_library(line: str) -> None:
    before = b'{"type":"invoke","process":1,"function":"read","input":null,"time":1}\n'
    after = b'{"type":"ok","process":1,"output":null,"time":1}\n'
    assert read_columns(before + after, 1) is not None
    assert read_columns(before + line.encode("latin-1") + b"\n" + after, 1) is None


WRONG = {
    "a completion without a call": [{"type": "ok", "process": 9, "output": None, "time": 95}],
    "is before": [{"type": "invoke", "process": 9, "function": "read", "input": None, "time": 1}],
    "while its read of line": [
        {"type": "invoke", "process": 9, "function": "read", "input": None, "time": 95},
        {"type": "invoke", "process": 9, "function": "read", "input": None, "time": 95},
    ],
    "not JSON": ["{"],
    "is no function of the model": [
        {"type": "operation", "process": 9, "function": "fly", "input": None, "call": 95, "return": 96, "key": "k"}
    ],
}


@pytest.mark.parametrize("reason", WRONG)
def test_what_is_wrong_with_a_history_is_told_with_its_line(tmp_path: Path, reason: str) -> None:
    good = [
        {"type": kind, "process": at % 3, "time": at * 10 + (kind == "ok"), **more}
        for at in range(20)
        for kind, more in (("invoke", {"function": "write", "input": at, "key": "k"}), ("ok", {"output": None}))
    ]
    path = tmp_path / "history.jsonl"
    texts = [json.dumps(line) for line in good]
    wrong = [each if isinstance(each, str) else json.dumps(each) for each in WRONG[reason]]
    path.write_text("\n".join([*texts[:20], *wrong, *texts[20:]]) + "\n")
    with pytest.raises(HistoryError, match=reason) as here:
        check(read_history(str(path)), Register())
    for chunk_bytes in (10_000, 400, 111):
        with pytest.raises(HistoryError, match=reason) as there:
            by_pieces(path, Register(), chunk_bytes)
        assert abs((there.value.line or 0) - (here.value.line or 0)) <= 1


def test_an_empty_file_is_no_history(tmp_path: Path) -> None:
    path = written(tmp_path / "history.jsonl", [])
    with pytest.raises(HistoryError, match="no line is in it"):
        by_pieces(path, Register(), 100)


@pytest.mark.long
def test_a_key_has_the_same_number_in_every_process() -> None:
    """The hash of None is an address before Python 3.12, and another one in each process."""
    code = "from raftlog.pipeline.verify.parcels import number_of; print(number_of((None, 1, 'a')), number_of(None))"
    told = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(3)}
    assert told == {f"{number_of((None, 1, 'a'))} {number_of(None)}\n".encode()}


def test_equal_keys_have_equal_numbers_and_other_ones_mostly_have_not() -> None:
    assert number_of(1) == number_of(1.0) == number_of(True)
    assert number_of(("a", 1)) == number_of(("a", 1.0)) != number_of((1, "a"))
    assert len({number_of(f"key-{at}") % 64 for at in range(1_000)}) == 64


def line(kind: str, process: Any, time: int, **more: Any) -> dict[str, Any]:
    more = {"function": "read", "key": f"key-{time % 3}", **more} if kind == "invoke" else more
    return {"type": kind, "process": process, "time": time, **more}


@pytest.mark.parametrize(
    "lines",
    [
        # 1 is still open when it calls again; what it calls with an id is no call of this kind.
        [line("invoke", 1, 50), line("invoke", 1, 60), line("invoke", 1, 70, id=7), line("ok", 1, 80)],
        # The id is open.
        [line("invoke", 1, 50, id=7), line("invoke", 2, 60, id=7), line("ok", 2, 70, id=7), line("ok", 1, 80, id=7)],
        [line("invoke", 1, 50, id=7), line("invoke", 2, 60, id=7), line("ok", 1, 70, id=7), line("ok", 1, 80)],
        # Whole operations have nothing to do with what is open.
        [
            line("invoke", 1, 50),
            {"type": "operation", "process": 1, "function": "read", "call": 1, "return": 9, "key": "key-0"},
            line("ok", 1, 80),
        ],
        [line("invoke", [1], 50, id=7), line("ok", 1, 60)],
        [line("invoke", 1, 50, id=7), line("invoke", 1, 55, id=8), line("ok", 1, 60, id=7), line("ok", 1, 70, id=8)],
        [line("invoke", 1, 50), line("ok", 1, 60), line("invoke", 1, 55)],
        [line("invoke", 1, 50), line("ok", 1, 60), line("ok", 1, 61)],
    ],
)
def test_what_is_no_history_is_refused_by_pieces_for_the_same_line(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    before = [each for time in range(0, 8, 2) for each in (line("invoke", 9, time), line("ok", 9, time + 1))]
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (*before, *lines)))

    def told(verdict: Callable[[], dict[str, Any]]) -> Any:
        try:
            found = verdict()
        except HistoryError as error:
            return error.line
        del found["seconds"]
        return found

    whole = told(lambda: plain_verdict(check(read_history(str(path)), Register())))
    for chunk_bytes in (40, 90, 150, 10_000):
        assert told(lambda size=chunk_bytes: by_pieces(path, Register(), size)) == whole  # type: ignore[misc]
