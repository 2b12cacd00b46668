"""Histories with verdicts to draw: small ones explained by trying every order, long ones known by construction.

The verdicts are made here and not by the checker, so that these tests say what the page does with a verdict of a
given shape, whatever the checker would find.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from raftlog.linearizability.checker.history import FAIL, INFO, OK, Annotation, History, Operation, Outcome
from raftlog.linearizability.checker.model import REFUSED, UNKNOWN, Call, Model
from raftlog.linearizability.checker.models.register import CasRegister, Register
from raftlog.linearizability.checker.page import Finding, Report
from raftlog.linearizability.checker.verdict import (
    Invalid,
    PartVerdict,
    Placed,
    PossibleState,
    Refusal,
    Status,
    Unknown,
    Valid,
    Witness,
)

MS = 1_000_000


def operation(
    process: int | str,
    function: str,
    given: Any,
    output: Any,
    times: tuple[int, int | None],
    *,
    outcome: Outcome = OK,
    key: Any = None,
) -> Operation:
    """Times are in milliseconds."""
    call, returned = times
    end = None if returned is None else returned * MS
    return Operation(process, function, given, output, key, call * MS, end, outcome)


def call_of(op: Operation) -> Call:
    given = tuple(op.input) if isinstance(op.input, list) else op.input
    return Call(op.function, given, op.output if op.outcome is OK else UNKNOWN)


def orders(model: Model[Any], operations: Sequence[Operation]) -> Iterator[tuple[Placed, ...]]:
    """Every order of the operations that real time and the model allow; those of unknown outcome may be left out."""
    stack: list[tuple[tuple[Placed, ...], Any]] = [((), model.initial_state())]
    while stack:
        placed, state = stack.pop()
        done = {id(step.operation) for step in placed}
        left = [op for op in operations if id(op) not in done]
        if all(op.outcome is INFO for op in left):
            yield placed
        for op in left:
            if any(other.precedes(op) for other in left):
                continue
            after = model.step(state, call_of(op))
            if after is not REFUSED:
                stack.append(((*placed, Placed(op, after)), after))


def witness_of(model: Model[Any], core: Sequence[Operation], refused: Operation, words: str) -> Witness:
    """The witness of a core that nothing explains, `refused` being the first whose return nothing survives."""
    before = [op for op in core if op is not refused and op.call <= (refused.returned or 0)]
    must = [op for op in before if op.returned is not None and op.returned < (refused.returned or 0)]
    maybe = [op for op in before if op not in must]
    possible: dict[Any, tuple[Placed, ...]] = {}
    for order in _orders_with(model, must, maybe):
        state = order[-1].state if order else model.initial_state()
        if state not in possible or len(order) < len(possible[state]):
            possible[state] = order
    states = []
    for state, order in possible.items():
        done = {id(step.operation) for step in order}
        refusals = tuple(
            Refusal(op, model.refusal(state, call_of(op)))
            for op in [refused, *maybe]
            if id(op) not in done and model.step(state, call_of(op)) is REFUSED
        )
        states.append(PossibleState(state, model.describe_state(state), order, refusals))
    longest = max(possible.values(), key=len, default=())
    return Witness(None, tuple(core), refused, refused.returned or 0, longest, tuple(states), words, True)


def _orders_with(
    model: Model[Any], must: Sequence[Operation], maybe: Sequence[Operation]
) -> Iterator[tuple[Placed, ...]]:
    for mask in range(1 << len(maybe)):
        chosen = [*must, *(op for bit, op in enumerate(maybe) if mask >> bit & 1)]
        for order in orders(model, chosen):
            if len(order) == len(chosen):
                yield order


def stale_read() -> tuple[Invalid, History]:
    """Five clients on one register, a leader change, and a read that answers what was overwritten before it began."""
    write1 = operation(0, "write", 1, None, (0, 4))
    lost = operation(1, "write", 7, None, (2, None), outcome=INFO)
    cas = operation(2, "cas", [1, 2], True, (6, 13))
    read2 = operation(3, "read", None, 2, (10, 15))
    write3 = operation(0, "write", 3, None, (17, 22))
    read3 = operation(3, "read", None, 3, (23, 26))
    stale = operation(4, "read", None, 2, (25, 31))
    failed = operation(2, "cas", [9, 4], False, (18, 24), outcome=FAIL)
    later = operation(0, "read", None, 3, (33, 36))
    history = History.of(
        [write1, lost, cas, read2, write3, read3, stale, failed, later],
        [
            Annotation("leader is node 2", 0, 8 * MS, "leader"),
            Annotation("election", 8 * MS, 16 * MS, "leader", None, "node 1 and node 3 stood"),
            Annotation("leader is node 3", 16 * MS, 40 * MS, "leader"),
            Annotation("node 2 cut off", 7 * MS, 24 * MS, "faults", None, "iptables on node 2, both directions"),
            Annotation("connection lost", 9 * MS, None, "client", 1),
        ],
        source="stale-read.jsonl",
    )
    model = CasRegister()
    core = (write1, cas, write3, read3, stale)
    words = (
        "The read by process 4 returned 2, although the write of 3 by process 0 had been acknowledged 3 ms before it "
        "began, and nothing wrote 2 again."
    )
    witness = witness_of(model, core, stale, words)
    explained = next(order for order in orders(model, [write1, cas, read2, write3, read3]) if len(order) == 5)
    part = PartVerdict(None, Status.INVALID, history.by_call(), "search", 42, explained, witness)
    return Invalid(model, (part,), len(history), 0.00042, witness=witness), history


def register_run(count: int, *, clients: int = 10, keys: int = 1, seed: int = 1) -> tuple[Valid, History]:
    """A register's history of any length, made from the order that explains it."""
    rng = random.Random(seed)
    free = [0] * clients
    operations: list[Operation] = []
    orders: dict[Any, list[Placed]] = {}
    values: dict[Any, int | None] = {}
    point = 0
    for _ in range(count):
        point += rng.randrange(1_000, 90_000)
        client = rng.randrange(clients)
        if free[client] > point - 2_000:
            client = free.index(min(free))
        call = max(free[client] + 1, point - rng.randrange(1_000, 400_000))
        point = max(point, call)
        key = f"key-{rng.randrange(keys)}" if keys > 1 else None
        value = values.get(key)
        written = rng.random() < 0.5
        new = rng.randrange(5) if written else value
        end = point + rng.randrange(1_000, 400_000)
        free[client] = end
        given, output = (new, None) if written else (None, value)
        op = Operation(client, "write" if written else "read", given, output, key, call, end, OK)
        values[key] = new
        operations.append(op)
        orders.setdefault(key, []).append(Placed(op, new))
    faults = [
        Annotation(f"fault {place}", start, start + point // 60, "faults")
        for place, start in enumerate(range(point // 20, point, point // 10 + 1))
    ]
    history = History.of(operations, faults, source="long.jsonl")
    model = CasRegister()
    parts = tuple(
        PartVerdict(key, Status.VALID, [step.operation for step in order], "search", len(order), tuple(order))
        for key, order in orders.items()
    )
    return Valid(model, parts, count, 0.731), history


def with_wrong_read(count: int, **options: Any) -> tuple[Invalid, History]:
    """A long run in which one read in the middle answers what nobody ever wrote."""
    valid, history = register_run(count, **options)
    by_call = history.by_call()
    wrong = next(op for op in by_call[count // 2 :] if op.function == "read")
    wrong.output = 77
    part = next(part for part in valid.parts if any(op is wrong for op in part.operations))
    order = part.linearization
    place = next(place for place, step in enumerate(order) if step.operation is wrong)
    words = f"The read by process {wrong.process} returned 77, which nobody wrote."
    witness = Witness(
        part.key,
        (wrong,),
        wrong,
        wrong.returned or 0,
        (),
        (PossibleState(None, "holds None", (), (Refusal(wrong, "answered 77, but the register holds None"),)),),
        words,
        True,
    )
    bad = PartVerdict(part.key, Status.INVALID, part.operations, "search", place, order[:place], witness)
    parts = tuple(bad if one is part else one for one in valid.parts)
    return Invalid(valid.model, parts, count, 0.731, witness=witness), history


def undecided() -> tuple[Unknown, History]:
    """A run that was given up half-way."""
    valid, history = register_run(60, clients=4)
    part = valid.parts[0]
    half = PartVerdict(
        None, Status.UNKNOWN, part.operations, "search", 3_000_000, part.linearization[:30], None, "memory"
    )
    reason = "Nothing contradicts the first 30 of 60 operations; then the memory budget of 500 MB ran out."
    return Unknown(valid.model, (half,), 60, 12.5, limit="memory", reason=reason), history


def findings() -> Report:
    """What an analysis without a verdict shows: sends and polls of several partitions, with two findings."""
    send0 = operation("producer-a", "send", [["orders", 0, "a1"]], [["orders", 0, 17]], (0, 3))
    send1 = operation("producer-b", "txn", [["orders", 0, "b1"], ["orders", 1, "b2"]], [18, 40], (1, 9))
    poll0 = operation("consumer-1", "poll", None, [["orders", 0, [17, "a1"]]], (4, 6))
    poll1 = operation("consumer-2", "poll", None, [["orders", 1, [40, "b2"]]], (10, 14))
    poll2 = operation("consumer-1", "poll", None, [], (11, 15))
    history = History.of([send0, send1, poll0, poll1, poll2], [Annotation("broker 1 killed", 2 * MS, 7 * MS, "faults")])
    partitions = {id(send0): (0,), id(send1): (0, 1), id(poll0): (0,), id(poll1): (1,), id(poll2): (0,)}
    return Report(
        status=Status.INVALID,
        words="2 anomalies in 5 operations: a transaction was seen in one partition only, and a cycle.",
        history=history,
        title="orders.jsonl",
        facts=[("model", "kafka"), ("", "5 operations"), ("isolation", "read committed")],
        findings=[
            Finding(
                "A transaction was visible in one of its partitions only",
                "The transaction by producer-b wrote orders-0 at 18 and orders-1 at 40.\n"
                "consumer-2 saw offset 40; consumer-1, polling later, did not see offset 18.",
                (send1, poll1, poll2),
            ),
            Finding("Nothing polled after a rebalance", "consumer-1 answered no records.", (poll2,), "note"),
        ],
        keys_of=lambda op: [("orders", index) for index in partitions[id(op)]],
    )


HOSTILE = (
    "</script><img src=x onerror=\"window.broken='img'\"><script>window.broken='script'</script>"
    "<svg/onload=\"window.broken='svg'\">--><!--&lt;b&gt;\u2028\u202e\x00\x1b[31m\ud800']});window.broken='js';//"
)


def hostile() -> tuple[Invalid, History]:
    """Every text that reaches the page tries to become markup or script."""
    wrote = operation(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: [HOSTILE]}, (0, 3), key=HOSTILE)
    read = operation(HOSTILE + "2", "read", HOSTILE, HOSTILE, (5, 9), key=HOSTILE)
    other = operation(0, "read", None, None, (6, 7), key="another")
    other.error = HOSTILE
    annotation = Annotation(HOSTILE, 0, 4 * MS, HOSTILE, HOSTILE, HOSTILE)
    history = History.of([wrote, read, other], [annotation], source=HOSTILE)
    order = (Placed(wrote, HOSTILE),)
    possible = PossibleState(HOSTILE, HOSTILE, order, (Refusal(read, HOSTILE),))
    witness = Witness(HOSTILE, (wrote, read), read, read.returned or 0, order, (possible,), HOSTILE, True)
    parts = (
        PartVerdict(HOSTILE, Status.INVALID, (wrote, read), HOSTILE, 2, order, witness),
        PartVerdict("another", Status.VALID, (other,), "search"),
    )
    return Invalid(Register(), parts, 3, 0.1, witness=witness), history


def with_possible(verdict: Invalid, count: int) -> Invalid:
    """The verdict with its first possible state so many times, each under a name of its own."""
    witness = verdict.witness
    one = witness.possible[0]
    many = tuple(replace(one, description=f"holds {number}") for number in range(count))
    told = replace(witness, possible=many)
    parts = tuple(replace(part, witness=told) if part.witness is witness else part for part in verdict.parts)
    return Invalid(verdict.model, parts, verdict.operation_count, verdict.seconds, witness=told)
