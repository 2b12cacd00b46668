"""Saying what an operation did, where a value stands and when something happened, for examples and reports.

Knows: how columns read as sentences. Refuses to know: any anomaly.
"""

from __future__ import annotations

from typing import Any

from raftlog.linearizability.checker.history import FAIL as FAIL_OUTCOME
from raftlog.linearizability.checker.history import INFO as INFO_OUTCOME
from raftlog.linearizability.checker.history import OK as OK_OUTCOME
from raftlog.linearizability.checker.history import Operation, TimeUnit
from raftlog.linearizability.checker.kafka.columns import (
    FUNCTION_NAME,
    INFO,
    NEVER,
    NOWHERE,
    OUTCOME_NAME,
    Columns,
)
from raftlog.linearizability.checker.kafka.fields import show

_OUTCOMES = (OK_OUTCOME, FAIL_OUTCOME, INFO_OUTCOME)
_SHOWN_RECORDS = 6


class Words:
    """Describes the rows of columns. Times are told from the start of the history."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._start = min(columns.call, default=0)

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

    def gap(self, earlier: int, later: int) -> str:
        """How long one operation had been over when another began."""
        return self.duration(self.columns.call[later] - self.columns.returned[earlier])

    def operation(self, number: int) -> str:
        """What an operation did, on one line."""
        columns = self.columns
        parts = [f"send {self.element(element)}" for element in columns.sends_of(number)]
        for key, first, after in columns.segments_of(number):
            parts.append(f"poll {self.key(key)}: {self._records(first, after)}")
        for key, end in sorted(columns.ends.get(number, {}).items()):
            parts.append(f"visible end of {self.key(key)} {end}")
        subscription = columns.subscriptions.get(number)
        if subscription is not None:
            parts.append(", ".join(sorted(self.key(key) for key in subscription.keys)) or "nothing")
        text = "; ".join(parts[:_SHOWN_RECORDS]) + ("; …" if len(parts) > _SHOWN_RECORDS else "")
        interval = f"{self.called(number)} to {self.returned(number)}".replace("to at ", "to ")
        error = columns.errors.get(number)
        outcome = OUTCOME_NAME[columns.outcome[number]] + (f" ({error})" if error else "")
        return f"{self.process(number)} {self.function(number)} {interval}, {outcome}" + (f": {text}" if text else "")

    def _records(self, first: int, after: int) -> str:
        columns = self.columns
        rows = list(range(first, after))
        if len(rows) > _SHOWN_RECORDS:
            rows = rows[:3] + rows[-2:]
        texts = []
        for place, row in enumerate(rows):
            if place and row != rows[place - 1] + 1:
                texts.append(f"… {after - first - len(rows)} more …")
            offset = self.row_offset(row)
            texts.append(f"{self.value(columns.polled[row])} at {'?' if offset is None else offset}")
        return ", ".join(texts)

    def row_offset(self, row: int) -> int | None:
        """The offset at which a polled record came."""
        columns = self.columns
        if row in columns.polled_offset:
            return columns.polled_offset[row]
        return columns.offset[columns.polled[row]]

    def as_operation(self, number: int) -> Operation:
        """An operation of the history made again from its columns, with sends, polls and keys in `output`."""
        columns = self.columns
        output: list[Any] = []
        for row in range(columns.send_start[number], columns.send_start[number + 1]):
            element = columns.send_element[row]
            known = columns.send_ack.get(row, columns.offset[element])
            offset = None if known == NOWHERE else known
            output.append(["send", self.key(columns.element_key[element]), [offset, columns.values[element]]])
        polled: dict[str, list[list[Any]]] = {}
        for key, first, after in columns.segments_of(number):
            records = [[self.row_offset(row), columns.values[columns.polled[row]]] for row in range(first, after)]
            polled.setdefault(self.key(key), []).extend(records)
        if polled:
            output.append(["poll", polled])
        returned = columns.returned[number]
        return Operation(
            columns.processes[columns.process[number]],
            self.function(number),
            [[*micro[:2], micro[2][1]] if micro[0] == "send" else ["poll"] for micro in output],
            output,
            None,
            columns.call[number],
            None if returned == NEVER else returned,
            _OUTCOMES[columns.outcome[number]],
            columns.errors.get(number),
            number,
            columns.line[number] or None,
        )

    def unknown_note(self, number: int) -> str:
        """A reminder where an outcome is unknown."""
        return " (outcome unknown)" if self.columns.outcome[number] == INFO else ""
