"""Saying what an operation did, where a value stands and when something happened, for examples and reports."""

from __future__ import annotations

from raftlog.linearizability.checker.history import TimeUnit
from raftlog.linearizability.checker.kafka.columns.columns import (
    FUNCTION_NAME,
    NEVER,
    NOBODY,
    NOWHERE,
    OUTCOME_NAME,
    Columns,
)
from raftlog.linearizability.checker.kafka.columns.fields import show
from raftlog.linearizability.checker.kafka.columns.gather import least
from raftlog.linearizability.checker.kafka.columns.restore import restored
from raftlog.linearizability.checker.kafka.report.describe import describe

_MOST_SHOWN = 8  # operations that show the same thing


class Words:
    """Describes the rows of columns. Times are told from the start of the history."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._start = least(columns.call, 0)
        self._elsewhere: dict[int, list[int]] | None = None

    def duration(self, length: int) -> str:
        """A length of time, in the unit in which it is easily read."""
        if self.columns.time_unit is TimeUnit.STEPS:
            return f"{length} steps" if length != 1 else "1 step"
        for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000)):
            if length >= size:
                return f"{length / size:.3f}".rstrip("0").rstrip(".") + f" {unit}"
        return f"{length} ns"

    def time(self, moment: int) -> str:
        """A moment: "at 1.204 s"."""
        if self.columns.time_unit is TimeUnit.STEPS:
            return f"at step {moment}"
        return f"at {(moment - self._start) / 1_000_000_000:.6f}".rstrip("0").rstrip(".") + " s"

    def called(self, number: int) -> str:
        """When an operation began."""
        return self.time(self.columns.call[number])

    def returned(self, number: int) -> str:
        """When an operation ended."""
        moment = self.columns.returned[number]
        return "never" if moment == NEVER else self.time(moment)

    def key(self, key: int) -> str:
        """A key's name."""
        return self.columns.keys.names[key]

    def value(self, element: int) -> str:
        """An element's value."""
        return show(self.columns.values[element])

    def element(self, element: int) -> str:
        """A value with its key and offset: "v7" (orders-0, offset 12)."""
        place = self.columns.offset[element]
        where = "offset unknown" if place == NOWHERE else f"offset {place}"
        return f"{self.value(element)} ({self.key(self.columns.element_key[element])}, {where})"

    def function(self, number: int) -> str:
        """The name of an operation's function."""
        return self.columns.functions.get(number) or FUNCTION_NAME[self.columns.function[number]]

    def process(self, number: int) -> str:
        """Which process an operation is of."""
        process = self.columns.processes[self.columns.process[number]]
        return f"process {process}" if isinstance(process, int) else str(process)

    def who(self, number: int) -> str:
        """An operation by its process, function and place in the file: process 3's send (line 57)."""
        line = self.columns.line[number]
        outcome = self.columns.outcome[number]
        ended = "" if outcome == 0 else f", {OUTCOME_NAME[outcome]}"
        where = f"line {line}" if line else self.called(number)
        return f"{self.process(number)}'s {self.function(number)} ({where}{ended})"

    def shows(self, element: int) -> tuple[int, ...]:
        """An operation that shows where an element stands: who polled it first, else who sent it."""
        columns = self.columns
        for number in (columns.first_reader[element], columns.writer[element]):
            if number != NOBODY:
                return (number,)
        return ()

    def pollers_elsewhere(self, element: int) -> tuple[int, ...]:
        """The operations that polled an element at another offset than its first."""
        columns = self.columns
        if self._elsewhere is None:
            self._elsewhere = {}
            for row in columns.polled_offset:
                self._elsewhere.setdefault(columns.polled[row], []).append(row)
        rows = self._elsewhere.get(element, [])[:_MOST_SHOWN]
        return tuple(columns.operation_of_row(row) for row in rows)

    def gap(self, earlier: int, later: int) -> str:
        """How long one operation had been over when another began."""
        return self.duration(self.columns.call[later] - self.columns.returned[earlier])

    def operation(self, number: int) -> str:
        """What an operation did and when, on one line."""
        columns = self.columns
        interval = f"{self.called(number)} to {self.returned(number)}".replace("to at ", "to ")
        error = columns.errors.get(number)
        outcome = OUTCOME_NAME[columns.outcome[number]] + (f" ({error})" if error else "")
        return f"{self.process(number)}, {interval}, {outcome}: {describe(restored(columns, number))}"
