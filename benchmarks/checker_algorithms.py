"""What each algorithm of the checker brings: the same histories again with one of them switched off at a time.

    python -m benchmarks.checker_algorithms [--seconds 5] [--only WORD]

One row an algorithm: its lines, and how many times longer the kinds of history take without it, as far as that is at
least 1.2. A kind that takes longer than the limit is given up: its factor is told as "over". Histories are those of the
tests' correct objects, some with a planted fault.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks import checker_histories as make
from raftlog.linearizability.checker import check as checking
from raftlog.linearizability.checker.budget import Budget
from raftlog.linearizability.checker.exact import elements, fifo, overwritten, write_counts, zones
from raftlog.linearizability.checker.history import History, Operation
from raftlog.linearizability.checker.log import check as log_check
from raftlog.linearizability.checker.log import gaps, stream
from raftlog.linearizability.checker.log import witness as log_witness
from raftlog.linearizability.checker.model import CONSTANT, OBSERVER, REFUSED, TOTAL, Call, Model
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.models.offsets import ConsumerOffsets
from raftlog.linearizability.checker.models.register import CasRegister, Register
from raftlog.linearizability.checker.models.sets import Set
from raftlog.linearizability.checker.parts import choice, online, queue, register, sets
from raftlog.linearizability.checker.parts.search import SearchPart
from raftlog.linearizability.checker.search import breadth_first, depth_first, linearization_step, operation_table
from raftlog.linearizability.checker.search.search import Search
from raftlog.linearizability.checker.verdict import Invalid, Status, Unknown
from raftlog.linearizability.checker.witness import reduce
from tests.linearizability.checker.objects import WORLDS, record

WORTH_TELLING = 1.2


class Kind(NamedTuple):
    """Histories that are checked one after the other; with `explained` the witness is asked for too."""

    histories: list[History]
    model: Model[Any]
    explained: bool = False


class Switch(NamedTuple):
    """An algorithm: what it consists of, and what takes its place when it is off."""

    parts: Sequence[Any]  # modules and functions
    patches: Sequence[tuple[Any, str, Any]]


class SeveralRegisters(Model[Hashable]):
    """Registers by key as one object."""

    name = "several registers"
    functions = CasRegister.functions
    register = CasRegister()

    def initial_state(self) -> Hashable:
        return (None,) * 10

    def step(self, state: Any, call: Call) -> Any:
        key, given = call.input
        after = self.register.step(state[key], Call(call.function, given, call.output))
        return REFUSED if after is REFUSED else (*state[:key], after, *state[key + 1 :])


def world(
    name: str, *, seeds: Sequence[int] = range(3), ask: Any = None, guess: Any = None, **how: Any
) -> list[History]:
    """Histories of a tests' object, whose clients may ask for something else."""
    changes = {name: change for name, change in (("ask", ask), ("guess", guess)) if change is not None}
    return [record(replace(WORLDS[name], **changes), Random(seed), **how) for seed in seeds]


def _cas_of_eight(random: Random, fresh: int) -> tuple[str, Any]:
    if random.random() < 0.5:
        return "cas", [random.randrange(8), random.randrange(8)]
    return ("read", None) if random.random() < 0.7 else ("write", random.randrange(8))


def _add_one(random: Random, fresh: int) -> tuple[str, Any]:
    return ("add", 1) if random.random() < 0.8 else ("read", None)


def _append(random: Random, fresh: int) -> tuple[str, Any]:
    return ("append", f"<{fresh}>") if random.random() < 0.5 else ("get", None)


def _mostly_add(random: Random, fresh: int) -> tuple[str, Any]:
    return ("add", fresh) if random.random() < 0.9 else ("read", None)


def _lose(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    return (state, sorted(state)[1:]) if function == "read" else (state | {given}, None)


def _one_of_twenty(random: Random, fresh: int) -> tuple[str, Any]:
    return random.choice(("add", "remove", "contains")), random.randrange(20)


def _one_of_nine(random: Random, fresh: int) -> tuple[str, Any]:
    partition = f"p{random.randrange(9)}"
    if random.random() < 0.5:
        return "fetch", partition
    return "commit", {"offset": random.randrange(4), "partition": partition}


def ten_keys() -> list[Operation]:
    operations = []
    for key in range(10):
        for operation in world("cas-register", seeds=[key], count=300, clients=4)[0].operations:
            operation.key = key
            operations.append(operation)
    return operations


def as_one_object(model: Model[Any], operations: Sequence[Operation]) -> dict[Any, list[Operation]]:
    """Instead of `split`: all keys are one part."""
    return {None: [replace(one, input=(one.key, one.input)) if one.key is not None else one for one in operations]}


def kinds() -> dict[str, Kind]:
    def register(clients: int, count: int) -> Kind:
        return Kind([make.history(make.Register(clients).operations(count))], CasRegister())

    unique = make.history(make.Register(10, unique=True).operations(20_000))
    models = {name: one.model for name, one in WORLDS.items()}
    return {
        "10 registers": Kind([History.of(ten_keys())], CasRegister()),
        "register, 10 clients": register(10, 10_000),
        "register, 30 clients": register(30, 10_000),
        "register, 30 clients, unknown": Kind(
            world("cas-register", count=1000, clients=30, unknown=0.03), CasRegister()
        ),
        "register, hard": Kind(
            world("cas-register", seeds=[4], ask=_cas_of_eight, count=1500, clients=12, unknown=0.08, wrong=0.004),
            CasRegister(),
        ),
        "register, bad, explained": Kind(
            world("cas-register", seeds=range(20), count=300, clients=4, wrong=0.005), CasRegister(), True
        ),
        "register, 100 clients, bad, explained": Kind(
            world("register", seeds=range(2), count=3000, clients=100, wrong=0.002), Register(), True
        ),
        "unique writes": Kind([unique], Register()),
        "key-value, 10 clients": Kind(world("key-value", count=1000, clients=10), models["key-value"]),
        "key-value, appends": Kind(world("key-value", ask=_append, count=500, clients=10), models["key-value"]),
        "key-value, appends, bad, explained": Kind(
            world("key-value", seeds=[1], ask=_append, count=6000, clients=4, wrong=0.01), models["key-value"], True
        ),
        "key-value, unknown, bad": Kind(
            world("key-value", seeds=range(5), count=300, clients=5, unknown=0.02, wrong=0.01), models["key-value"]
        ),
        "counter, unknown": Kind(
            world("counter", seeds=[0], count=400, clients=8, unknown=0.05, wrong=0.01), models["counter"]
        ),
        "counter, long, bad, explained": Kind(
            world("counter", seeds=[1], count=20_000, clients=4, wrong=0.0002), models["counter"], True
        ),
        "counter, equal adds, 12 clients": Kind(
            world("counter", ask=_add_one, count=600, clients=12, wrong=0.01), models["counter"]
        ),
        "queue of differing values": Kind(world("queue", count=700, clients=4), models["queue"]),
        "set, an element lost": Kind(
            world("set", ask=_mostly_add, guess=_lose, count=200, clients=8, wrong=0.1, unknown=0.02), Set()
        ),
        "set of 20 elements, unknown": Kind(
            world("set", ask=_one_of_twenty, count=1000, clients=8, unknown=0.02), Set()
        ),
        "9 partitions' offsets, unknown": Kind(
            world("offsets", ask=_one_of_nine, count=600, clients=8, unknown=0.02), ConsumerOffsets()
        ),
        "log": Kind([make.history(make.Log(10).operations(5_000))], Log()),
        "log, unknown, bad, explained": Kind(
            world("log", seeds=range(5), count=300, clients=5, unknown=0.03, wrong=0.01), Log(), True
        ),
    }


def _raise(error: Exception) -> Callable[..., Any]:
    def never(*_: Any, **__: Any) -> Any:
        raise error

    return never


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _without(trait: int) -> list[tuple[bool, bool, bool]]:
    all_kinds = operation_table._KINDS
    return [all_kinds[traits & ~trait] for traits in range(len(all_kinds))]


def _searched(model: Model[Any], operations: Sequence[Operation]) -> Any:
    return SearchPart(model, operations) if type(model) is Log else choice.part_check(model, operations)


def switches() -> dict[str, Switch]:
    """By algorithm how it is switched off."""
    deep, wide, step = depth_first.DepthFirst, breadth_first.BreadthFirst, linearization_step.LinearizationStep
    table = operation_table.OperationTable
    wanders = [(depth_first, name, 1 << 60) for name in ("_WRONG_TURNS", "_ORDERS", "_CHOICES")]
    complete = breadth_first._Effort(1 << 60, False)
    suited = [(model, "suited", Model.suited) for model in (Set, ConsumerOffsets)]
    return {
        "parts (locality)": Switch([checking.split], [(checking, "split", as_one_object)]),
        "parts within an object": Switch([Set.suited, ConsumerOffsets.suited], suited),
        "logs, exact": Switch([stream, gaps, log_check, log_witness], [(checking, "part_check", _searched)]),
        "zones": Switch([zones], [(register, "check_zones", _raise(zones.NotUnique()))]),
        "queues, exact": Switch([fifo], [(queue, "check_fifo", _raise(fifo.NotFifo()))]),
        "elements one by one": Switch([elements], [(sets, "check_elements", _nothing)]),
        "write counts": Switch([write_counts], [(register, "check_write_counts", _nothing)]),
        "overwritten answers": Switch([overwritten], [(register, "check_overwritten", _nothing)]),
        "depth first": Switch([depth_first], [(Search, "_depth_first", lambda self: iter(()))]),
        "depth first: what failed before": Switch([deep._is_worth], [(deep, "_is_worth", lambda *_: True)]),
        "depth first: what fits only now": Switch([deep._fitted], [(deep, "_fitted", lambda _, place, at: at[1:3])]),
        "breadth first": Switch([breadth_first, linearization_step], wanders),
        "breadth first: narrow at first": Switch([wide._leave_out], [(breadth_first, "_FRUGAL", complete)]),
        "breadth first: reuse, retreat": Switch([wide._retreat, wide._remember], [(breadth_first, "_RETREATS", 0)]),
        "equal calls": Switch(
            [step._distinct, deep.once],
            [(step, "_distinct", lambda _, found, *__: found), (deep, "once", lambda _, places, __: places)],
        ),
        "observers at once": Switch([], [(operation_table, "_KINDS", _without(OBSERVER))]),
        "absorbed operations": Switch(
            [deep._settled, step._settle], [(operation_table, "_KINDS", _without(TOTAL | CONSTANT))]
        ),
        "states nobody can tell apart": Switch([table.look_ahead], [(table, "look_ahead", _nothing)]),
        "past cut off": Switch([reduce._Prefixes], [(reduce, "STARTS_LIMIT", 0)]),
        "witness as it grew": Switch([online.witness_as_it_grew], [(checking, "witness_as_it_grew", _nothing)]),
        "questions asked once": Switch([], [(reduce, "_REMEMBERED", -1)]),
    }


def measure(kind: Kind, seconds: float) -> tuple[float, list[Status]] | None:
    """Processor seconds, the least of some runs, and the verdicts; None when it takes longer than that."""
    least = float("inf")
    began = time.process_time()
    while True:
        gc.collect()
        statuses = []
        run = time.process_time()
        for history in kind.histories:
            verdict = checking.check(history, kind.model, budget=Budget(seconds=seconds, clock=time.process_time))
            if isinstance(verdict, Unknown) or time.process_time() - run > seconds:
                return None
            if kind.explained and isinstance(verdict, Invalid):
                assert verdict.witness.words
            statuses.append(verdict.status)
        least = min(least, time.process_time() - run)
        if time.process_time() - began > seconds / 20:
            return least, statuses


def factors(switch: Switch, base: dict[str, tuple[Kind, float, list[Status]]], seconds: float) -> Iterator[str]:
    """The kinds that take longer when the algorithm is off."""
    for name, (kind, usual, statuses) in base.items():
        with ExitStack() as off:
            for target, attribute, instead in switch.patches:
                off.enter_context(patch.object(target, attribute, instead))
            if switch.patches[0][2] is as_one_object:
                kind = kind._replace(model=SeveralRegisters())
            found = measure(kind, seconds)
        if found is None:
            yield f"{name}: over {seconds / usual:,.0f}"
            continue
        assert found[1] == statuses, name
        if found[0] / usual >= WORTH_TELLING:
            yield f"{name}: {found[0] / usual:,.3g}"


def lines_of(thing: Any) -> int:
    return len(inspect.getsource(thing).splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description="What each algorithm of the checker brings.")
    parser.add_argument("--seconds", type=float, default=5.0, help="after which a kind of history is given up")
    parser.add_argument("--only", default="", metavar="WORD", help="algorithms with this in their name")
    options = parser.parse_args()
    base = {}
    for name, kind in kinds().items():
        found = measure(kind, options.seconds)
        assert found is not None, name
        base[name] = (kind, *found)
        bad = sum(status is Status.INVALID for status in found[1])
        print(f"{name}: {1e3 * found[0]:,.3g} ms, {len(kind.histories)} histories, {bad} bad", flush=True)
    print("\n| algorithm | lines | without it so many times longer |\n| --- | --- | --- |", flush=True)
    for name, switch in switches().items():
        if options.only not in name:
            continue
        concerned = {"10 registers": base["10 registers"]} if name == "parts (locality)" else base
        told = "; ".join(factors(switch, concerned, options.seconds))
        print(f"| {name} | {sum(map(lines_of, switch.parts)) or ''} | {told} |", flush=True)


if __name__ == "__main__":
    main()
