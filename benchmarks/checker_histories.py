"""Histories to measure the checker with: correct objects and clients that are never idle."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raftlog.linearizability.checker.history import OK, Event, EventType, History, Operation

if TYPE_CHECKING:
    from raftlog.linearizability.checker.exact.columns import LogColumns, RegisterColumns

LONGEST = 1_000  # time units of one operation


class Register:
    """Clients that read, write and compare-and-set one register; each takes effect at a random moment of its call."""

    def __init__(self, clients: int, *, values: int = 5, unique: bool = False, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.clients = clients
        self.values = values
        self.unique = unique
        self.state: Any = None
        self.written = 0

    def operations(self, count: int) -> Iterator[Operation]:
        """Operations in the order of their effects."""
        draw = self.random.random
        waiting: list[tuple[int, int, int]] = []  # moment of the effect, call, client
        for client in range(self.clients):
            call = int(draw() * LONGEST)
            heapq.heappush(waiting, (call + int(draw() * LONGEST), call, client))
        for _ in range(count):
            moment, call, client = heapq.heappop(waiting)
            returned = moment + int(draw() * LONGEST)
            function, given, output = self._apply()
            yield Operation(client, function, given, output, None, call, returned, OK)
            call = returned + 1 + int(draw() * 100)
            heapq.heappush(waiting, (call + int(draw() * LONGEST), call, client))

    def _apply(self) -> tuple[str, Any, Any]:
        chance = self.random.random()
        if chance < 0.5:
            return "read", None, self.state
        if self.unique:
            self.written += 1
            self.state = self.written
            return "write", self.written, None
        new = self.random.randrange(self.values)
        if chance < 0.75:
            self.state = new
            return "write", new, None
        expected = self.random.randrange(self.values)
        applied = self.state == expected
        if applied:
            self.state = new
        return "cas", (expected, new), applied


class Log:
    """Clients that append to one log and read from near its end: 3.2 records an operation."""

    def __init__(self, in_flight: int, *, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.in_flight = in_flight
        self.end = 0
        self.records: list[int] = []

    def operations(self, count: int) -> Iterator[Operation]:
        """Operations in the order of their effects. Records are their offsets."""
        draw = self.random.random
        waiting: list[tuple[int, int, int]] = []
        for client in range(self.in_flight):
            call = int(draw() * LONGEST)
            heapq.heappush(waiting, (call + int(draw() * LONGEST), call, client))
        for _ in range(count):
            moment, call, client = heapq.heappop(waiting)
            returned = moment + int(draw() * LONGEST)
            operation = self._apply(client, call, returned)
            yield operation
            call = returned + 1 + int(draw() * 100)
            heapq.heappush(waiting, (call + int(draw() * LONGEST), call, client))

    def _apply(self, client: int, call: int, returned: int) -> Operation:
        draw = self.random.random()
        if draw < 0.5:
            first = self.end
            self.end += 1 + int(draw * 10)
            return Operation(client, "append", list(range(first, self.end)), first, None, call, returned, OK)
        first = max(0, self.end - int((draw - 0.5) * 14.8))
        records = list(range(first, self.end))
        return Operation(client, "read", first, [records, True], None, call, returned, OK)


def history(operations: Iterator[Operation]) -> History:
    """The finished history of these operations."""
    return History.of(operations)


def growing(operations: Iterator[Operation]) -> Iterator[Event]:
    """Events of operations given in the order of their effects, holding only what is open."""
    pending: list[tuple[int, int, int, EventType, Operation]] = []
    for number, operation in enumerate(operations):
        assert operation.returned is not None
        heapq.heappush(pending, (operation.call, 0, number, EventType.INVOKE, operation))
        heapq.heappush(pending, (operation.returned, 1, number, EventType.OK, operation))
        # An effect still to come may have been called up to two operations' time ago.
        settled = operation.call - 2 * LONGEST - 100
        while pending[0][0] < settled:
            _, _, _, kind, subject = heapq.heappop(pending)
            yield kind, subject
    while pending:
        _, _, _, kind, subject = heapq.heappop(pending)
        yield kind, subject


def log_columns(count: int, in_flight: int, seed: int = 1) -> LogColumns:
    """The like of `Log` as columns, made by NumPy: ten million operations take seconds."""
    import numpy as np

    from raftlog.linearizability.checker.exact.columns import APPEND, READ, LogColumns

    generator = np.random.default_rng(seed)
    kind = np.where(generator.random(count) < 0.5, APPEND, READ).astype(np.int8)
    size = np.where(kind == APPEND, generator.integers(1, 6, count), 0)
    end = np.cumsum(size)
    wanted = np.where(kind == APPEND, size, generator.integers(0, 8, count))
    first = np.maximum(end - wanted, 0)
    length = end - first
    moment = np.arange(count, dtype=np.int64) * (LONGEST // in_flight)
    call = moment - generator.integers(0, LONGEST // 2, count)
    returned = moment + generator.integers(0, LONGEST // 2, count)
    order = np.argsort(returned, kind="stable")
    kind, first, length, call, returned = (column[order] for column in (kind, first, length, call, returned))
    begins = np.concatenate(([0], np.cumsum(length)[:-1]))
    records = np.arange(int(length.sum()), dtype=np.int64) - np.repeat(begins - first, length)
    return LogColumns(kind, call, returned, first, length, kind == READ, records)


def register_columns(count: int, clients: int, seed: int = 1) -> RegisterColumns:
    """The like of `Register(unique=True)` as columns."""
    import numpy as np

    from raftlog.linearizability.checker.exact.columns import RegisterColumns

    generator = np.random.default_rng(seed)
    is_write = generator.random(count) < 0.5
    value = np.cumsum(is_write) - 1
    moment = np.arange(count, dtype=np.int64) * (LONGEST // clients)
    call = moment - generator.integers(0, LONGEST // 2, count)
    returned = moment + generator.integers(0, LONGEST // 2, count)
    order = np.argsort(returned, kind="stable")
    return RegisterColumns(is_write[order], call[order], returned[order], value[order])
