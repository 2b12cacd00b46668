"""What one client process does, told to the runner: a line of JSON for each call and each completion."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TextIO

from raftlog.linearizability.harness.libraries.ports import CALL_SECONDS, Polled, TopicPartition
from raftlog.linearizability.harness.outcomes import CallFailed, Refused

PROCESS_STRIDE = 1_000_000
"""Client processes get their numbers in steps of this, and take a new one after each unknown outcome."""
__all__ = ["CALL_SECONDS", "Journal", "Operation", "by_key", "key_of"]


def key_of(partition: TopicPartition) -> str:
    """A partition as the history names it."""
    return f"{partition[0]}-{partition[1]}"


def by_key(polled: Polled) -> dict[str, list[list[Any]]]:
    """The records of a poll, as the history has them."""
    found: dict[str, list[list[Any]]] = {}
    for each in polled.records:
        found.setdefault(key_of((each.topic, each.partition)), []).append([each.offset, each.value])
    return found


class Operation:
    """One call under way."""

    def __init__(self, journal: Journal, number: int, function: str) -> None:
        self._journal = journal
        self.number = number
        self.function = function
        self.is_over = False

    def ok(self, output: Any = None) -> None:
        """It happened."""
        self._end("ok", output, None)

    def failed(self, error: CallFailed, output: Any = None) -> None:
        """It did not happen, or nobody knows."""
        self._end("fail" if isinstance(error, Refused) else "info", output, str(error))

    def _end(self, outcome: str, output: Any, error: str | None) -> None:
        self.is_over = True
        line = {"e": outcome, "id": self.number, "time": time.monotonic_ns()}
        if output is not None:
            line["output"] = output
        if error is not None:
            line["error"] = error[:300]
        self._journal.say(line)
        if outcome == "info":
            self._journal.retire()


class Journal:
    """`process` is the number under which the next call is recorded."""

    def __init__(self, out: TextIO, client: int) -> None:
        self._out = out
        self._operations = 0
        self.process = client * PROCESS_STRIDE

    def say(self, line: dict[str, Any]) -> None:
        """Tell the runner."""
        self._out.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._out.flush()

    def retire(self) -> None:
        """From here on this is another process: nobody knows what the one before has still under way."""
        self.process += 1

    def invoke(self, function: str, given: Any = None, *, key: str | None = None, at: int | None = None) -> Operation:
        """A call begins. `at`: it began then, and what it is about was known only later."""
        self._operations += 1
        line = {"e": "invoke", "id": self._operations, "process": self.process, "function": function}
        line["time"] = time.monotonic_ns() if at is None else at
        if given is not None:
            line["input"] = given
        if key is not None:
            line["key"] = key
        self.say(line)
        return Operation(self, self._operations, function)

    def did(self, function: str, given: Any, call: Callable[[], Any], *, key: str | None = None) -> Any:
        """Record a call that answers what the history should have. Raises what it raised, recorded."""
        operation = self.invoke(function, given, key=key)
        try:
            output = call()
        except CallFailed as failed:
            operation.failed(failed)
            raise
        operation.ok(output)
        return output

    def note(self, name: str, value: Any = 1) -> None:
        """Something that the verdict or the report wants to know, beside the operations."""
        self.say({"e": "note", "name": name, "value": value, "time": time.monotonic_ns()})
