"""An append-only log: what a topic partition promises.

Functions: `append` takes a list of records and answers the offset of the first; `read` takes an offset and answers
`[records, end]`: the records from there on, as many as the server liked, and whether they reached the end of the
log; `end` answers the offset that the next record will get.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from raftlog.linearizability.checker.history import Operation, Outcome
from raftlog.linearizability.checker.model import (
    OBSERVER,
    REFUSED,
    TOTAL,
    UNKNOWN,
    Call,
    Model,
    Outlook,
    Refused,
    Traits,
)

Records: TypeAlias = tuple[Any, ...]


class _Foreign:
    """Stands for a record that somebody else appended and nobody read."""

    def __repr__(self) -> str:
        return "…"


_FOREIGN = _Foreign()


_OK = Outcome.OK  # looking it up in its class takes longer
_SEQUENCE = (list, tuple)


class Log(Model[Records]):
    """One partition. The state is all records.

    With `complete=False` the history is a part of what happened: records that nobody is seen to append may have
    been appended by somebody else.
    """

    name = "log"
    functions = frozenset({"append", "read", "end"})

    def __init__(self, *, complete: bool = True) -> None:
        self.complete = complete

    def initial_state(self) -> Records:
        return ()

    def step(self, state: Records, call: Call) -> Records | Refused:
        function, given, output = call
        if not self.complete:
            return _partial_step(state, call)
        if function == "append":
            return REFUSED if output is not UNKNOWN and output != len(state) else state + given
        if output is UNKNOWN:
            return state
        if function == "end":
            return state if output == len(state) else REFUSED
        records, end = output
        stop = given + len(records)
        if stop > len(state) or (end and stop != len(state)) or state[given:stop] != records:
            return REFUSED
        return state

    def traits(self, call: Call) -> Traits:
        if not self.complete:
            return 0  # whoever looks learns how far others have appended
        if call.function != "append":
            return OBSERVER
        return TOTAL if call.output is UNKNOWN else 0

    def outlook(self, calls: Sequence[Call], operations: Sequence[Operation]) -> Outlook | None:
        """A log with another record at an offset than was read or acknowledged there has no future."""
        if not self.complete:
            return None
        known: dict[int, Any] = {}
        for call in calls:
            if call.output is UNKNOWN or call.function == "end":
                continue
            first, records = (call.output, call.input) if call.function == "append" else (call.input, call.output[0])
            for place, record in enumerate(records):
                known.setdefault(first + place, record)

        def judge(state: Records) -> Any:
            for offset in range(len(state) - 1, -1, -1):
                if offset in known and known[offset] != state[offset]:
                    return REFUSED
            return state

        return judge

    def validate(self, operation: Operation) -> None:
        wrong = _first_wrong((operation,))
        if wrong is not None:
            raise ValueError(wrong[1])

    def first_wrong(self, operations: Iterable[Operation]) -> tuple[Operation, str] | None:
        # A subclass may know other functions.
        return _first_wrong(operations) if type(self) is Log else super().first_wrong(operations)

    def describe_operation(self, operation: Operation) -> str:
        if operation.outcome is not Outcome.OK:
            return super().describe_operation(operation)
        if operation.function == "append":
            count = len(operation.input)
            return f"append({count} record{'s' * (count != 1)}) -> {operation.output}"
        if operation.function == "end":
            return f"end -> {operation.output}"
        records, end = operation.output
        return f"read({operation.input}) -> {len(records)} record{'s' * (len(records) != 1)}{', the end' * bool(end)}"

    def describe_state(self, state: Records | int) -> str:
        """A log is told by its length; a witness may know no more of it than that."""
        return f"ends at {state if isinstance(state, int) else len(state)}"

    def refusal(self, state: Records, call: Call) -> str:
        if call.function == "append":
            return f"was given offset {call.output}, but the log ends at {len(state)}"
        if call.function == "end":
            return f"answered {call.output} as the end, but the log ends at {len(state)}"
        records, end = call.output
        stop = call.input + len(records)
        if stop > len(state):
            return f"answered records up to offset {stop - 1}, but the log ends at {len(state)}"
        if state[call.input : stop] != records:
            return f"answered other records from offset {call.input} on than the log has"
        return f"saw the end at {stop}, but the log ends at {len(state)}" if end else "is possible"


def _partial_step(state: Records, call: Call) -> Records | Refused:
    """Others append whenever that helps; what they appended is known where somebody read it."""
    function, given, output = call
    if output is UNKNOWN:
        return state
    records: Records = given if function == "append" else () if function == "end" else output[0]
    first = given if function == "read" else output
    stop = first + len(records)
    length = len(state)
    bounded = function == "end" or (function == "read" and output[1])
    if (function == "append" and first < length) or (bounded and stop < length):
        return REFUSED
    state += (_FOREIGN,) * (stop - length)
    for offset, record in enumerate(records, first):
        if state[offset] is not _FOREIGN and state[offset] != record:
            return REFUSED
    return state[:first] + records + state[stop:]


def _first_wrong(operations: Iterable[Operation]) -> tuple[Operation, str] | None:
    # Asked a million times in a second: flat, and at first only whether it is what nearly all are.
    for operation in operations:
        function, output = operation.function, operation.output
        if function == "append":
            if type(output) is int and output >= 0 and type(operation.input) is list:
                continue
        elif function == "read" and type(output) is list and len(output) == 2:
            records, end = output
            given = operation.input
            if type(records) is list and type(given) is int and given >= 0 and (end is True or end is False):
                continue
        elif function == "end" and type(output) is int and output >= 0:
            continue
        if not _is_right(operation):
            return operation, _complaint(operation)
    return None


def _is_right(operation: Operation) -> bool:
    function, given, output = operation.function, operation.input, operation.output
    is_ok = operation.outcome is _OK
    if function == "append":
        return isinstance(given, _SEQUENCE) and (not is_ok or _is_offset(output))
    if function == "end":
        return not is_ok or _is_offset(output)
    return (
        function == "read"
        and _is_offset(given)
        and (
            not is_ok
            or (
                isinstance(output, _SEQUENCE)
                and len(output) == 2
                and isinstance(output[0], _SEQUENCE)
                and (output[1] is True or output[1] is False)
            )
        )
    )


def _is_offset(value: Any) -> bool:
    return type(value) is int and value >= 0


def _complaint(operation: Operation) -> str:
    """What is wrong with an operation that is none of a log's."""
    function, given, output = operation.function, operation.input, operation.output
    if function not in Log.functions:
        return f"{function!r} is no function of the model log, which has {', '.join(sorted(Log.functions))}"
    if function == "append" and not isinstance(given, _SEQUENCE):
        return f"append takes a list of records, not {given!r}"
    if function == "read":
        if not _is_offset(given):
            return f"read takes an offset, not {given!r}"
        return f"read answers [records, end], not {output!r}"
    return f"{function} answers an offset, not {output!r}"
