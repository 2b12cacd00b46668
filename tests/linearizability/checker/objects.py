"""Correct objects and their clients: what random histories are recorded from.

Each `World` knows one model: which operations its clients try, what a correct object answers, and how to spoil an
answer. `record` runs clients against it with arbitrary overlapping intervals, `scramble` makes histories that may or
may not be linearizable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from raftlog.linearizability.checker.history import History, Operation, Outcome
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.models.counter import Counter
from raftlog.linearizability.checker.models.key_value import KeyValue
from raftlog.linearizability.checker.models.lock import Lock
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.models.offsets import ConsumerOffsets
from raftlog.linearizability.checker.models.queue import Queue
from raftlog.linearizability.checker.models.register import CasRegister, Register
from raftlog.linearizability.checker.models.sets import Set

Ask = Callable[[Random, int], tuple[str, Any]]  # the number is fresh: no other operation gets it
Answer = Callable[[Random, Any, str, Any], tuple[Any, Any]]  # state, function, input -> state after, output


@dataclass(frozen=True)
class World:
    name: str
    model: Model[Any]
    initial: Any
    ask: Ask
    answer: Answer
    guess: Answer  # a plausible answer that may be wrong


def _ask_register(random: Random, fresh: int) -> tuple[str, Any]:
    return ("read", None) if random.random() < 0.5 else ("write", random.randrange(3))


def _ask_unique(random: Random, fresh: int) -> tuple[str, Any]:
    return ("read", None) if random.random() < 0.5 else ("write", fresh)


def _ask_cas(random: Random, fresh: int) -> tuple[str, Any]:
    if random.random() < 0.6:
        return _ask_register(random, fresh)
    return "cas", [random.randrange(3), random.randrange(3)]


def _answer_register(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    if function == "read":
        return state, state
    if function == "write":
        return given, None
    expected, new = given
    return (new, True) if state == expected else (state, False)


def _ask_key_value(random: Random, fresh: int) -> tuple[str, Any]:
    draw = random.random()
    if draw < 0.4:
        return "get", None
    if draw < 0.8:
        return "append", random.choice("ab") if random.random() < 0.5 else f"<{fresh}>"
    return ("put", random.choice("ab")) if draw < 0.95 else ("delete", None)


def _answer_key_value(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    if function == "get":
        return state, state
    if function == "append":
        return (state or "") + given, None
    return (given, None) if function == "put" else (None, None)


def _answer_nil(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    """The same where an absent value is told by a word."""
    after, output = _answer_key_value(random, None if state == "nil" else state, function, given)
    return after or "nil", (output or "nil") if function == "get" else None


def _ask_log(random: Random, fresh: int) -> tuple[str, Any]:
    draw = random.random()
    if draw < 0.4:
        return "append", [f"{fresh}.{place}" for place in range(random.choice((1, 1, 2, 3)))]
    return ("read", random.randrange(4)) if draw < 0.85 else ("end", None)


def _ask_equal_log(random: Random, fresh: int) -> tuple[str, Any]:
    function, given = _ask_log(random, fresh)
    return function, [random.choice("ab") for _ in given] if function == "append" else given


def _answer_log(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    if function == "append":
        return (*state, *given), len(state)
    if function == "end":
        return state, len(state)
    stop = random.randint(min(given, len(state)), len(state))
    if given > len(state):
        return state, None
    return state, [list(state[given:stop]), stop == len(state) and random.random() < 0.8]


def _guess_log(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    after, output = _answer_log(random, state, function, given)
    if function != "read":
        return after, max(0, output + random.choice((-1, 0, 0, 1)))
    if output is None:
        return after, [[], True]
    records, end = output
    return after, [records[: random.randint(0, len(records))], random.random() < 0.5 and end]


def _answer_others_log(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    others = tuple(f"other {len(state)}.{place}" for place in range(random.choice((0, 0, 1, 2))))
    return _answer_log(random, (*state, *others), function, given)


def _guess_others_log(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    return _guess_log(random, _answer_others_log(random, state, "end", None)[0], function, given)


def _ask_queue(random: Random, fresh: int) -> tuple[str, Any]:
    return ("enqueue", fresh) if random.random() < 0.55 else ("dequeue", None)


def _answer_queue(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    if function == "enqueue":
        return (*state, given), None
    return (state[1:], state[0]) if state else ((), None)


def _guess_queue(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    after, output = _answer_queue(random, state, function, given)
    if function == "dequeue" and len(state) > 1 and random.random() < 0.3:
        return (state[0], *state[2:]), state[1]
    return after, output


def _ask_set(random: Random, fresh: int) -> tuple[str, Any]:
    function = random.choice(("add", "add", "remove", "contains", "read"))
    return function, None if function == "read" else random.randrange(3)


def _answer_set(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    if function == "read":
        return state, sorted(state)
    there = given in state
    if function == "contains":
        return state, there
    told = random.random() < 0.5
    if function == "add":
        return state | {given}, (not there) if told else None
    return state - {given}, there if told else None


def _ask_elements(random: Random, fresh: int) -> tuple[str, Any]:
    return random.choice(("add", "remove", "contains")), random.randrange(2)


def _guess_set(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    after, output = _answer_set(random, state, function, given)
    if function == "read" and random.random() < 0.3:
        return after, [value for value in range(3) if random.random() < 0.5]
    if isinstance(output, bool) and random.random() < 0.2:
        return after, not output
    return after, output


def _ask_counter(random: Random, fresh: int) -> tuple[str, Any]:
    return ("read", None) if random.random() < 0.4 else ("add", random.choice((None, 1, 2, -1)))


def _answer_counter(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    if function == "read":
        return state, state
    after = state + (1 if given is None else given)
    return after, after if random.random() < 0.4 else None


def _guess_counter(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    after, output = _answer_counter(random, state, function, given)
    return after, output if output is None else output + random.choice((-1, 0, 0, 0, 1))


def _ask_lock(random: Random, fresh: int) -> tuple[str, Any]:
    function = random.choice(("acquire", "acquire", "release", "access"))
    return function, None if function == "acquire" else random.randrange(4)


def _answer_lock(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    last, held, seen = state
    if function == "acquire":
        return (state, None) if held else ((last + 1, True, seen), last + 1)
    if function == "release":
        holds = held and given == last
        return (last, held and not holds, seen), holds if random.random() < 0.5 else None
    passes = seen <= given <= last
    return (last, held, given if passes else seen), passes


def _guess_lock(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    after, output = _answer_lock(random, state, function, given)
    if function == "acquire" and random.random() < 0.2:
        return after, random.choice((None, 0, 1, 2))
    return after, not output if isinstance(output, bool) and random.random() < 0.15 else output


def _ask_offsets(random: Random, fresh: int) -> tuple[str, Any]:
    draw = random.random()
    if draw < 0.4:
        return "fetch", random.choice((None, "p"))
    if draw < 0.55:
        return "join", None
    given: dict[str, Any] = {"offset": random.randrange(4)}
    if random.random() < 0.5:
        given["partition"] = "p"
    if random.random() < 0.6:
        given["generation"] = random.randrange(3)
    return "commit", given


def _answer_offsets(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    generation, offsets = state
    if function == "fetch":
        return state, dict(offsets).get(given)
    if function == "join":
        return (generation + 1, offsets), generation + 1
    if given.get("generation", generation) != generation:
        return state, False
    return (generation, (*offsets, (given.get("partition"), given["offset"]))), True


def _guess_offsets(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
    after, output = _answer_offsets(random, state, function, given)
    if function == "fetch" and random.random() < 0.2:
        return after, random.choice((None, 0, 1, 2, 3))
    return after, not output if isinstance(output, bool) and random.random() < 0.1 else output


def _spoil(values: Callable[[Random], Any]) -> Callable[[Answer], Answer]:
    def around(answer: Answer) -> Answer:
        def guess(random: Random, state: Any, function: str, given: Any) -> tuple[Any, Any]:
            after, output = answer(random, state, function, given)
            if isinstance(output, bool):
                return after, output if random.random() < 0.85 else not output
            if function in ("read", "get") and random.random() < 0.25:
                return after, values(random)
            return after, output

        return guess

    return around


_few = _spoil(lambda random: random.choice((None, 0, 1, 2)))
_texts = _spoil(lambda random: random.choice((None, "a", "b", "ab", "ba", "aa")))

WORLDS = {
    world.name: world
    for world in (
        World("register", Register(), None, _ask_register, _answer_register, _few(_answer_register)),
        World("unique-register", Register(), None, _ask_unique, _answer_register, _few(_answer_register)),
        World("cas-register", CasRegister(), None, _ask_cas, _answer_register, _few(_answer_register)),
        World("key-value", KeyValue(), None, _ask_key_value, _answer_key_value, _texts(_answer_key_value)),
        World("key-value-nil", KeyValue("nil"), "nil", _ask_key_value, _answer_nil, _texts(_answer_nil)),
        World("log", Log(), (), _ask_log, _answer_log, _guess_log),
        World("partial-log", Log(complete=False), (), _ask_log, _answer_others_log, _guess_others_log),
        World("equal-records", Log(), (), _ask_equal_log, _answer_log, _guess_log),
        World("queue", Queue(), (), _ask_queue, _answer_queue, _guess_queue),
        World("set", Set(), frozenset(), _ask_set, _answer_set, _guess_set),
        World("elements", Set(), frozenset(), _ask_elements, _answer_set, _guess_set),
        World("counter", Counter(), 0, _ask_counter, _answer_counter, _guess_counter),
        World("lock", Lock(), (-1, False, -1), _ask_lock, _answer_lock, _guess_lock),
        World("offsets", ConsumerOffsets(), (-1, ()), _ask_offsets, _answer_offsets, _guess_offsets),
    )
}


def record(
    world: World, random: Random, *, count: int, clients: int, unknown: float = 0.0, wrong: float = 0.0
) -> History:
    """A history of `count` operations by `clients`, each taking effect at some instant inside its interval.

    A part `unknown` of them never answers, half of those having no effect; a part `wrong` of the answers is a guess.
    """
    state = world.initial
    time = 0
    operations: list[Operation] = []
    waiting: dict[int, Operation] = {}  # called, without effect yet
    answered: dict[int, Operation] = {}
    idle = list(range(clients))
    while len(operations) < count or waiting or answered:
        time += random.choice((0, 1, 1, 2))
        client = random.randrange(clients)
        if client in waiting:
            operation = waiting.pop(client)
            lost = random.random() < unknown
            if lost and random.random() < 0.5:
                continue  # never had an effect and never answers
            answer = world.guess if random.random() < wrong else world.answer
            state, output = answer(random, state, operation.function, operation.input)
            if not lost:
                operation.output = output
                answered[client] = operation
        elif client in answered:
            operation = answered.pop(client)
            operation.returned = time
            operation.outcome = Outcome.OK
        elif len(operations) < count:
            function, given = world.ask(random, len(operations))
            operation = Operation(client, function, given, call=time)
            operations.append(operation)
            waiting[client] = operation
    assert len(idle) == clients
    return History.of([operation for operation in operations if not _is_void(operation)])


def _is_void(operation: Operation) -> bool:
    """A read past the end has no answer in the model: leave it out."""
    if operation.function == "read" and isinstance(operation.input, int):
        return operation.output is None
    return operation.outcome is Outcome.INFO and operation.output is not None


def scramble(world: World, random: Random, *, count: int) -> History:
    """A small history that may well be wrong: wrong answers, moved ends, lost answers, false failures."""
    history = record(
        world,
        random,
        count=count,
        clients=random.randint(1, 4),
        unknown=random.choice((0.0, 0.0, 0.15)),
        wrong=random.choice((0.1, 0.4, 0.8)),
    )
    for operation in history.operations:
        if operation.returned is not None and random.random() < 0.4:
            operation.returned = max(operation.call, operation.returned + random.randint(-4, 1))
        elif random.random() < 0.1:
            operation.call -= random.randint(0, 3)
        elif operation.returned is not None and random.random() < 0.05:
            operation.outcome, operation.output = Outcome.FAIL, None  # although it did happen
    return History.of(history.operations)


def scramble_several(world: World, random: Random) -> History:
    """A history of a few objects, each as it comes out of `scramble`, at about the same time."""
    operations: list[Operation] = []
    for key in "abcd"[: random.randint(2, 4)]:
        later = random.randint(0, 12)
        for operation in scramble(world, random, count=random.randint(4, 9)).operations:
            operation.key = key
            operation.call += later
            if operation.returned is not None:
                operation.returned += later
            operations.append(operation)
    return History.of(operations)
