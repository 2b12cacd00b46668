"""Violations told in sentences.

First comes what a person needs to hear first: who answered what, and what makes it impossible. The text is plain;
escaping is the business of whoever shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog.linearizability.checker.exact.fifo import FifoViolation
from raftlog.linearizability.checker.exact.zones import ZoneViolation
from raftlog.linearizability.checker.history import FAIL, Operation, TimeUnit
from raftlog.linearizability.checker.log.stream import LogViolation, end_of
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.verdict import PossibleState

_LIST_LIMIT = 6  # states named in one text
_FACTS_LIMIT = 2  # operations told of beside the refused one


def duration(time: int, unit: TimeUnit) -> str:
    """`35 ms`, `1.2 s`, `3 steps`."""
    if unit is TimeUnit.STEPS:
        return f"{time} step{'s' * (time != 1)}"
    for size, name in ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")):
        if time >= size:
            return f"{time / size:.3g} {name}" if time < 1000 * size else f"{time / size:,.0f} {name}"
    return f"{time} ns"


def who(operation: Operation) -> str:
    """`the read by process 3`."""
    return f"the {operation.function} by process {operation.process}"


def capital(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def ago(earlier: Operation, later: Operation, unit: TimeUnit) -> str:
    """`35 ms before it began`."""
    assert earlier.returned is not None
    return f"{duration(later.call - earlier.returned, unit)} before it began"


def tell_search(
    model: Model[Any],
    operations: Sequence[Operation],
    refused: Operation,
    possible: Sequence[PossibleState],
    unit: TimeUnit,
) -> str:
    """A violation found by search: what is refused, in which states, and what was certainly over before it began."""
    reasons = {state.description: _reason(state, refused) for state in possible}
    distinct = list(dict.fromkeys(reasons.values()))
    subject = capital(who(refused))
    if not distinct:
        first = f"{subject} cannot have happened: {model.describe_operation(refused)}"
    elif len(distinct) == 1:
        first = f"{subject} {distinct[0]}"
    else:
        states = _some([f"it {description}" for description in reasons], " or ")
        first = f"{subject} answered {_value(refused.output)}, which fits no state possible by then: {states}"
    over = [operation for operation in operations if operation.precedes(refused)]
    over.sort(key=lambda operation: operation.returned or 0, reverse=True)
    facts = [
        f"{model.describe_operation(operation)} by process {operation.process} "
        f"had returned {ago(operation, refused, unit)}"
        for operation in over[:_FACTS_LIMIT]
    ]
    return "; ".join([first, *facts]) + "."


def tell_large(model: Model[Any], refused: Operation, others: int) -> str:
    """A violation that takes so many operations to see that no order of them can be told."""
    return (
        f"{capital(who(refused))} cannot have happened: no order explains {model.describe_operation(refused)} together "
        f"with the {others:,} other operations here, and which of them would be enough was not found in time."
    )


def _reason(state: PossibleState, refused: Operation) -> str:
    for refusal in state.refusals:
        if refusal.operation is refused:
            return refusal.reason
    return "cannot come next"


def tell_log(violation: LogViolation, unit: TimeUnit) -> str:
    """A violation of a log, with its offset."""
    offset = violation.offset
    operations = violation.operations
    if violation.kind == "late":
        earlier, later = operations
        return f"{capital(who(later))} {_saw(later)}, although {_had(earlier)} {ago(earlier, later, unit)}."
    if violation.kind == "conflict":
        return _conflict(offset, operations)
    if violation.kind == "overlap":
        first = f"{capital(who(operations[0]))} was given offset {operations[0].output}"
        if len(operations) == 1:
            return f"{first}, where another record had its place already."
        other = operations[1]
        return f"{first}, which belongs to {who(other)}: {_span(other)}."
    if violation.kind == "inside":
        told = f"{capital(who(operations[0]))} {_saw(operations[0])}"
        if len(operations) == 1:
            return f"{told}, but that is in the middle of a batch, which is appended whole or not at all."
        return f"{told}, but {who(operations[1])} appended {_span(operations[1])} in one piece."
    if violation.kind == "unexplained":
        return _unexplained(offset, operations, unit)
    if violation.kind == "early":
        earlier, append, reader = operations
        read = f"{capital(who(reader))} read {_value(_record(reader, offset))} at offset {offset}"
        late = f"called after {_had(earlier)}"
        return f"{read}, which only {who(append)} can have put there, and that was {late}."
    if violation.kind == "doubled":
        return f"What {who(operations[0])} appended was read at two places, once at offset {offset}."
    if not operations:
        return f"Nobody had appended offset {offset}, although there are records behind it."
    return f"{capital(who(operations[0]))} {_saw(operations[0])}, but nobody had appended offset {offset}."


def _conflict(offset: int, operations: Sequence[Operation]) -> str:
    teller = operations[0]
    told = f"{capital(who(teller))} {_verb(teller)} {_value(_record(teller, offset))} at offset {offset}"
    if len(operations) == 1:
        return f"{told}, where another record had been before."
    other = operations[1]
    return f"{told}, but {who(other)} {_verb(other)} {_value(_record(other, offset))} there."


def _unexplained(offset: int, operations: Sequence[Operation], unit: TimeUnit) -> str:
    reader = operations[0]
    told = f"{capital(who(reader))} read {_value(_record(reader, offset))} at offset {offset}"
    if len(operations) == 1:
        return f"{told}, which nobody had appended."
    append = operations[1]
    if append.outcome is FAIL:
        return f"{told}, which only {who(append)} tried to append, and that failed."
    gone = duration(append.call - (reader.returned or 0), unit)
    return f"{told}, which nobody had appended: {who(append)} was called {gone} later."


def _saw(operation: Operation) -> str:
    """What an operation claims the log's end to be at most."""
    if operation.function == "append":
        return f"was given offset {operation.output}"
    if operation.function == "end":
        return f"returned offset {operation.output} as the end"
    return f"returned offset {end_of(operation)} as the end" if operation.output[1] else f"read to {end_of(operation)}"


def _had(operation: Operation) -> str:
    """What an operation proves to be in the log."""
    last = end_of(operation) - 1
    if operation.function == "append":
        return f"the append of {_span(operation)} had been acknowledged"
    if operation.function == "end":
        return f"process {operation.process} had been told that the end is {operation.output}"
    return f"process {operation.process} had read offset {last}"


def _span(operation: Operation) -> str:
    first, last = operation.output, end_of(operation) - 1
    if first > last:
        return f"nothing at offset {first}"
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def _verb(operation: Operation) -> str:
    return "put" if operation.function == "append" else "read"


def _record(operation: Operation, offset: int) -> Any:
    if operation.function == "append":
        first, records = operation.output, operation.input
    else:
        first, records = operation.input, operation.output[0]
    place = offset - (first if isinstance(first, int) else offset)
    return records[place] if 0 <= place < len(records) else None


def tell_zones(violation: ZoneViolation, unit: TimeUnit) -> str:
    """A violation of a register that was found from the times of writes and answers."""
    if violation.kind == "unwritten":
        return f"{capital(who(violation.operations[0]))} answered {_value(violation.values[0])}, which nobody wrote."
    if violation.kind == "overwritten":
        blocker, answer = violation.operations[-2:]
        found, left = map(_value, violation.values)
        gone = duration(answer.call - (blocker.returned or 0), unit)
        return f"{capital(who(answer))} found {found}, although {left} had been written over it {gone} before it began."
    if violation.kind == "early":
        write, read = violation.operations
        gone = duration(write.call - (read.returned or 0), unit)
        return f"{capital(who(read))} answered {_value(violation.values[0])} {gone} before its write was called."
    one, other = map(_value, violation.values)
    if violation.kind == "overlap":
        return f"The register would have to hold {one} and {other} at the same time."
    return f"The register held {one} all the time in which it would have to hold {other}."


def tell_fifo(violation: FifoViolation, unit: TimeUnit) -> str:
    """A violation of a queue that was found from the times of its values."""
    operations = violation.operations
    value = _value(violation.value)
    if violation.kind == "unwritten":
        return f"{capital(who(operations[0]))} answered {value}, which nobody had enqueued."
    if violation.kind == "twice":
        return f"{capital(who(operations[0]))} and {who(operations[1])} both answered {value}, which was enqueued once."
    if violation.kind == "early":
        enqueue, dequeue = operations
        gone = duration(enqueue.call - (dequeue.returned or 0), unit)
        return f"{capital(who(dequeue))} answered {value} {gone} before its enqueue was called."
    if violation.kind == "empty":
        inside = [_value(one.input) for one in operations[1:] if one.function == "enqueue"]
        return f"{capital(who(operations[0]))} found the queue empty, although it held {_some(inside, ', then ')} then."
    if violation.kind == "left":
        return "More values should be gone than dequeues of unknown outcome can have removed."
    first, second, dequeue = operations[:3]
    gap = duration(second.call - (first.returned or 0), unit)
    older = f"{_value(first.input)} had been enqueued {gap} before it"
    return f"{capital(who(dequeue))} answered {value}, although {older} and was still inside."


def tell_lone(operation: Operation) -> str:
    """An answer that stays wrong whatever of the other operations happened or not."""
    answered = f"{capital(who(operation))} answered {_value(operation.output)}"
    return f"{answered}, which nothing that was called by then explains."


def _value(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 2 :]}"


def _some(texts: Sequence[str], conjunction: str) -> str:
    if len(texts) > _LIST_LIMIT + 1:  # of one more there is no saying `one of 1 others`
        return ", ".join(texts[:_LIST_LIMIT]) + f"{conjunction}one of {len(texts) - _LIST_LIMIT} others"
    return conjunction.join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)
