"""Histories without end, as they grow: correct objects, many clients, and no operation kept once it ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random
from typing import Any

from raftlog.linearizability.checker.history import INFO, OK, Event, EventType, Operation
from tests.linearizability.checker.objects import WORLDS, World

INVOKE, DONE, LOST = EventType.INVOKE, EventType.OK, EventType.INFO


class Growing:
    """Clients of one object. Each operation takes effect at some event inside its interval."""

    def __init__(self, world: World, seed: int, *, clients: int = 10, unknown: float = 0.0) -> None:
        self.world = world
        self.state: Any = world.initial
        self.count = 0  # operations called
        self._random = Random(seed)
        self._clients = clients
        self._unknown = unknown
        self._time = 0
        self._waiting: list[Operation] = []
        self._answered: list[Operation] = []

    def events(self, operations: int) -> Iterator[Event]:
        """The events until so many more operations were called."""
        random = self._random
        draw = random.random
        end = self.count + operations
        while self.count < end:
            self._time += 1
            busy = len(self._waiting) + len(self._answered)
            if busy < self._clients and draw() < 0.5:
                yield INVOKE, self._call()
            elif self._waiting and draw() < 0.5:
                self._answer(self._waiting.pop(int(draw() * len(self._waiting))))
            elif self._answered:
                operation = self._answered.pop(int(draw() * len(self._answered)))
                operation.returned = self._time
                if draw() < self._unknown:
                    operation.outcome, operation.output = INFO, None
                    yield LOST, operation
                else:
                    operation.outcome = OK
                    yield DONE, operation

    def _call(self) -> Operation:
        function, given = self._ask()
        self.count += 1
        operation = Operation(self.count % 97, function, given, call=self._time)
        self._waiting.append(operation)
        return operation

    def _ask(self) -> tuple[str, Any]:
        return self.world.ask(self._random, self.count)

    def _answer(self, operation: Operation) -> None:
        self.state, operation.output = self.world.answer(self._random, self.state, operation.function, operation.input)
        self._answered.append(operation)


class GrowingLog(Growing):
    """A log of which the object itself remembers only the end: readers are at most so far behind."""

    BEHIND = 32

    def __init__(self, seed: int, *, clients: int = 10, unknown: float = 0.0) -> None:
        super().__init__(WORLDS["log"], seed, clients=clients, unknown=unknown)
        self._tail: deque[str] = deque(maxlen=2 * self.BEHIND)
        self._end = 0

    def _ask(self) -> tuple[str, Any]:
        draw = self._random.random()
        if draw < 0.3:
            return "append", [f"{self.count}.{place}" for place in range(1 + int(draw * 10))]
        return ("read", max(0, self._end - int(draw * self.BEHIND))) if draw < 0.9 else ("end", None)

    def _answer(self, operation: Operation) -> None:
        if operation.function == "append":
            operation.output = self._end
            self._tail.extend(operation.input)
            self._end += len(operation.input)
        elif operation.function == "end":
            operation.output = self._end
        else:
            base = self._end - len(self._tail)
            operation.input = max(operation.input, base)
            operation.output = [list(self._tail)[operation.input - base :], True]
        self._answered.append(operation)
