"""Histories that make no sense, for every model: an error that says what is wrong, or a verdict, and nothing else."""

from __future__ import annotations

import contextlib
import copy
from random import Random
from typing import Any

import pytest

from raftlog.linearizability.checker.budget import Budget
from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import FAIL, INFO, OK, History, HistoryError, Operation, Outcome
from raftlog.linearizability.checker.model import Call, Model, Refused
from raftlog.linearizability.checker.models.catalogue import MODELS
from raftlog.linearizability.checker.models.counter import Counter
from raftlog.linearizability.checker.models.key_value import KeyValue
from raftlog.linearizability.checker.models.register import CasRegister, Register
from raftlog.linearizability.checker.page import render_html, render_text, report_of
from raftlog.linearizability.checker.verdict import Invalid, Unknown, Valid
from tests.effort import at_least
from tests.linearizability.checker.as_it_grows import check_online

pytestmark = pytest.mark.long

DEEP: Any = 1
for _ in range(60):
    DEEP = [DEEP]

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**70,
    0.5,
    "",
    "a",
    "\x1b[2J<script>",
    [],
    [0, 1],
    [[], True],
    [["a"], False],
    [[None, [2]], True],
    {},
    {"offset": 1},
    {"offset": 2, "partition": "p", "generation": 1},
    {"offset": "x"},
    {"token": 3},
    {"token": "x"},
    {"generation": [1]},
    {"a": {"b": [1, {}]}},
    DEEP,
]


def nonsense(model: Model[Any], random: Random) -> list[Operation]:
    functions = sorted(model.functions)
    operations = []
    for number in range(random.randint(1, 8)):
        call = random.randint(0, 9)
        outcome = random.choice((OK, OK, OK, FAIL, INFO))
        returned = None if outcome is INFO else call + random.randint(0, 5)
        operations.append(
            Operation(
                random.choice((1, 2, "three")),
                random.choice(functions),
                random.choice(VALUES),
                random.choice(VALUES),
                random.choice((None, None, "k", 5)),
                call,
                returned,
                outcome,
                line=number + 1,
            )
        )
    return operations


def plausible(model: Model[Any], random: Random) -> list[Operation]:
    """Nonsense of which nothing is refused."""
    kept = []
    for operation in nonsense(model, random) + nonsense(model, random):
        try:
            model.validate(operation)
        except ValueError:
            continue
        kept.append(operation)
    return kept


@pytest.mark.parametrize("name", sorted(MODELS))
def test_nonsense_gets_an_error_with_its_line_or_a_verdict(name: str) -> None:
    model = MODELS[name]()
    verdicts = 0
    for seed in range(at_least(400)):
        random = Random(seed)
        operations = nonsense(model, random) if seed % 4 == 0 else plausible(model, random)
        history = History.of(operations, source="nonsense.jsonl")
        try:
            verdict = check(history, model, budget=Budget(configurations=20_000))
        except HistoryError as error:
            assert error.line is not None and str(error).startswith("nonsense.jsonl:")
            with contextlib.suppress(HistoryError):  # it may see a violation before it comes to the bad line
                assert isinstance(check_online(history, model), Invalid), seed
            continue
        assert isinstance(verdict, Valid | Invalid | Unknown)
        verdicts += 1
        online = check_online(history, model, budget=Budget(configurations=20_000))
        assert Unknown in (type(online), type(verdict)) or online.status is verdict.status, seed
        if seed % 8 == 1:
            text = render_text(report_of(verdict, history))
            assert "\x1b" not in text
            assert "<script>\\u" not in render_html(verdict, history)
    assert verdicts > 50


@pytest.mark.parametrize("name", sorted(MODELS))
def test_no_operations_are_a_valid_history(name: str) -> None:
    assert isinstance(check(History.of([]), MODELS[name]()), Valid)
    assert isinstance(check_online(History.of([]), MODELS[name]()), Valid)


def test_only_operations_that_failed_or_are_unknown_are_valid() -> None:
    operations = [
        Operation(1, "read", None, call=0, returned=1, outcome=FAIL),
        Operation(2, "write", 3, call=0, returned=None, outcome=INFO),
    ]
    assert isinstance(check(operations, Register()), Valid)


def test_a_function_of_another_model_is_named_with_those_that_there_are() -> None:
    history = History.of([Operation(1, "pop", None, None, None, 0, 1, OK, line=7)], source="x.jsonl")
    with pytest.raises(HistoryError, match=r"x.jsonl:7: 'pop' is no function of the model register, which has read, w"):
        check(history, Register())


def test_an_operation_that_returned_before_its_call_is_no_history() -> None:
    with pytest.raises(HistoryError, match=r"h:3: the operation returned before it was called"):
        History.of([Operation(1, "read", None, None, None, 5, 4, OK, line=3)], source="h")


@pytest.mark.parametrize(("written", "read"), [({}, []), ({"a": 1}, [["a", 1]]), ([{"a": 1}], [[["a", 1]]])])
def test_an_object_is_not_the_list_of_its_pairs(written: object, read: object) -> None:
    for model in (Register(), CasRegister(), KeyValue()):
        write, look = ("put", "get") if model.name == "key-value" else ("write", "read")
        one = Operation(1, write, written, None, None, 0, 1, OK)
        other = Operation(2, look, None, read, None, 2, 3, OK)
        assert isinstance(check([one, other], model), Invalid)
        assert isinstance(check([one, Operation(2, look, None, written, None, 2, 3, OK)], model), Valid)


NAN = float("nan")


@pytest.mark.parametrize("value", [NAN, [NAN], bytearray(b"x"), {"a": [NAN]}])
@pytest.mark.parametrize(("name", "write", "read"), [("register", "write", "read"), ("queue", "enqueue", "dequeue")])
def test_a_value_that_cannot_be_compared_is_refused(name: str, write: str, read: str, value: object) -> None:
    for answer in (value, copy.deepcopy(value)):
        one = Operation(1, write, value, None, None, 0, 1, OK)
        other = Operation(2, read, None, answer, None, 2, 3, OK)
        for judge in (check, check_online):
            with pytest.raises(HistoryError, match="cannot be compared with other values: record it as text"):
                judge(History.of([one, other]), MODELS[name]())


@pytest.mark.parametrize(
    ("name", "function", "given", "output", "complaint"),
    [
        ("cas-register", "cas", [1, 2], 0, "cas answers true (as null does) or false, not 0"),
        ("offsets", "commit", {"offset": 1}, 0, "commit answers true (as null does) or false, not 0"),
        ("lock", "access", 1, None, "access answers true or false, not None"),
        ("lock", "release", 1, 1, "release answers true or false, not 1"),
        ("queue", "enqueue", None, None, "enqueue takes a value, and null is none: it is what an empty queue answers"),
    ],
)
def test_an_answer_that_could_be_taken_for_another_is_refused(
    name: str, function: str, given: object, output: object, complaint: str
) -> None:
    history = History.of([Operation(1, function, given, output, None, 0, 1, OK, line=3)], source="h")
    with pytest.raises(HistoryError) as raised:
        check(history, MODELS[name]())
    assert str(raised.value) == f"h:3: {complaint}"


def test_a_verdict_is_neither_true_nor_false() -> None:
    with pytest.raises(TypeError, match="never true or false"):
        bool(check([], Register()))


def test_an_unknown_verdict_names_the_budget_that_ran_out() -> None:
    enqueues = [Operation(number, "enqueue", number % 7, None, None, 0, 10, OK) for number in range(40)]
    dequeues = [Operation(number, "dequeue", None, number % 6, None, 5, 20, OK) for number in range(40)]
    ticks = iter(range(1_000_000))
    budgets = {
        "configurations": Budget(configurations=100),
        "time": Budget(seconds=10, clock=lambda: next(ticks)),
        "memory": Budget(megabytes=0.001),
    }
    for limit, budget in budgets.items():
        verdict = check([*enqueues, *dequeues], MODELS["queue"](), budget=budget)
        assert isinstance(verdict, Unknown)
        assert verdict.limit == limit
        assert verdict.reason.startswith("Nothing contradicts the history so far, but the budget ran out: ")


class _Counted(Counter):
    """A counter that counts its steps."""

    steps = 0

    def step(self, state: int, call: Call) -> int | Refused:
        self.steps += 1
        return super().step(state, call)


def test_the_time_is_looked_at_also_where_one_return_has_very_many_unknown_outcomes_to_try() -> None:
    model = _Counted()
    adds = [Operation(number, "add", 2**number, None, None, 0, None, INFO) for number in range(40)]
    reads = [Operation(99, "read", None, 0b10110 << 2 * number, None, number, number, OK) for number in (1, 9, 17)]
    verdict = check([*adds, *reads], model, budget=Budget(seconds=20_000, clock=lambda: float(model.steps)))
    assert isinstance(verdict, Unknown) and verdict.limit == "time"
    assert model.steps < 22_000


NOT_OF_A_LOG = [
    ("append", ["a"], True, OK, "append answers an offset, not True"),
    ("append", [], -1, OK, "append answers an offset, not -1"),
    ("append", "a", None, INFO, "append takes a list of records, not 'a'"),
    ("append", {"a": 1}, 0, FAIL, "append takes a list of records, not {'a': 1}"),
    ("read", -1, [[], False], OK, "read takes an offset, not -1"),
    ("read", 0, [["a"], 1], OK, "read answers [records, end], not [['a'], 1]"),
    ("read", 0, ["a", True], OK, "read answers [records, end], not ['a', True]"),
    ("read", 0, [["a"]], OK, "read answers [records, end], not [['a']]"),
    ("end", None, 1.0, OK, "end answers an offset, not 1.0"),
    ("pop", None, 1, OK, "'pop' is no function of the model log, which has append, end, read"),
]


@pytest.mark.parametrize("situation", ["valid", "invalid", "far", "undecided", "unknown"])
@pytest.mark.parametrize(("function", "given", "output", "outcome", "complaint"), NOT_OF_A_LOG)
def test_an_operation_that_is_none_of_a_logs_is_told_whatever_the_verdict_would_have_been(
    function: str, given: object, output: object, outcome: Outcome, complaint: str, situation: str
) -> None:
    """A log's operations are validated while they are checked, and the check may end before it has seen them all."""
    sound = {
        "valid": [("append", ["a"], 0, OK), ("read", 0, [["a"], True], OK)],
        "invalid": [("append", ["a"], 0, OK), ("read", 0, [["b"], True], OK)],
        "far": [("append", ["a"], 10**15, OK)],
        "undecided": [("append", ["z"], None, INFO), ("append", ["z"], None, INFO), ("read", 0, [["z"], True], OK)],
        "unknown": [("append", ["a"] * 1000, 0, OK)],
    }[situation]
    operations = [Operation(1, *one[:3], "k", 5 * at, 5 * at + 1, one[3]) for at, one in enumerate(sound)]
    # The first that is wrong is of the part that is looked at last; between lie more than are taken in one go.
    operations += [Operation(1, "end", None, 0, "other", 50, 51, OK) for _ in range(2000)]
    operations.append(Operation(2, function, given, output, "other", 60, 61, outcome, line=7))
    operations.append(Operation(2, function, given, output, "k", 60, 62, outcome, line=8))
    budget = Budget(megabytes=0.001) if situation == "unknown" else None
    with pytest.raises(HistoryError) as raised:
        check(History.of(operations, source="h"), MODELS["log"](), budget=budget)
    assert str(raised.value) == f"h:7: {complaint}"
    kept = [operation for operation in operations if operation.line is None]
    verdict = check(History.of(kept), MODELS["log"](), budget=budget)
    assert isinstance(verdict, {"valid": Valid, "unknown": Unknown}.get(situation, Invalid | Valid))


@pytest.mark.parametrize("value", [[1], {"a": [1]}, [[]]])
def test_what_an_object_begins_with_may_be_a_list_or_an_object(value: Any) -> None:
    def history(*told: tuple[str, Any, Any]) -> History:
        return History.of(Operation(1, *one, None, 2 * at, 2 * at + 1, OK) for at, one in enumerate(told))

    twice = [("write", 2, None), ("write", 2, None), ("read", None, 2)]  # not unique: a search judges it
    for model in (Register(value), CasRegister(value)):
        assert isinstance(check(history(("read", None, value), *twice), model), Valid)
        assert isinstance(check(history(("read", None, [2]), *twice), model), Invalid)
    assert isinstance(check(history(("cas", [value, 2], True), ("read", None, 2)), CasRegister(value)), Valid)
    assert isinstance(
        check(history(("get", None, value), ("put", 1, None), ("delete", None, None)), KeyValue(value)), Valid
    )


def test_what_is_appended_where_nothing_is_stands_alone_whatever_stands_for_nothing() -> None:
    def valid(absent: Any, *told: tuple[str, Any, Any]) -> bool:
        operations = [Operation(1, *one, None, 2 * at, 2 * at + 1, OK) for at, one in enumerate(told)]
        return isinstance(check(operations, KeyValue(absent)), Valid)

    for absent, given in (("nil", "a"), ([7], [1]), (0, "a"), (None, "a")):
        for before in ((), (("put", 5, None), ("delete", None, None)), (("put", None, None),)):
            assert valid(absent, *before, ("append", given, None), ("get", None, given))
    assert valid("", ("put", None, None), ("get", None, None), ("append", "a", None))
    assert not valid("", ("put", "b", None), ("get", None, None), ("append", "a", None))
