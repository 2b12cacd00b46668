"""A verdict as plain values for JSON: what `raftlog check --json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog.linearizability.checker.history import Operation
from raftlog.linearizability.checker.page.report import part_name
from raftlog.linearizability.checker.verdict import Invalid, PartVerdict, Placed, Status, Unknown, Verdict, Witness

_PARTS_LIMIT = 1_000  # valid parts beyond these are only counted


def plain_verdict(verdict: Verdict, source: str | None = None) -> dict[str, Any]:
    """The verdict. Times are in the history's unit; `index` is an operation's place in the order of calls."""
    told = [part for part in verdict.parts if part.status is not Status.VALID]
    told += [part for part in verdict.parts if part.status is Status.VALID][: _PARTS_LIMIT - len(told)]
    plain: dict[str, Any] = {
        "model": verdict.model.name,
        "status": verdict.status.value,
        "source": source,
        "operation_count": verdict.operation_count,
        "part_count": len(verdict.parts),
        "seconds": round(verdict.seconds, 6),
        "parts": [_part(part, verdict) for part in told],
    }
    if isinstance(verdict, Unknown):
        plain["limit"] = verdict.limit
        plain["reason"] = verdict.reason
    if isinstance(verdict, Invalid):
        plain["witness"] = _witness(verdict.witness, verdict)
        plain["uncompared"] = [part_name(key) for key in verdict.uncompared[:_PARTS_LIMIT]]
    return plain


def _part(part: PartVerdict, verdict: Verdict) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "key": part_name(part.key),
        "status": part.status.value,
        "algorithm": part.algorithm,
        "operation_count": len(part.operations),
        "configurations": part.configurations,
    }
    if part.limit is not None:
        plain["limit"] = part.limit
    if part.witness is not None:
        plain["words"] = part.witness.words
    return plain


def _witness(witness: Witness, verdict: Verdict) -> dict[str, Any]:
    context = {id(operation) for operation in witness.context}
    return {
        "key": part_name(witness.key),
        "words": witness.words,
        "minimal": witness.minimal,
        "prefix_end": witness.prefix_end,
        "refused": witness.refused.index,
        "operations": [
            {**_operation(operation, verdict), "certain": id(operation) not in context}
            for operation in witness.operations
        ],
        "possible": [
            {
                "state": possible.description,
                "order": _order(possible.linearization, verdict),
                "refusals": [{"index": one.operation.index, "reason": one.reason} for one in possible.refusals],
            }
            for possible in witness.possible
        ],
    }


def _operation(operation: Operation, verdict: Verdict) -> dict[str, Any]:
    return {
        "index": operation.index,
        "line": operation.line,
        "process": operation.process,
        "function": operation.function,
        "input": _value(operation.input),
        "output": _value(operation.output),
        "call": operation.call,
        "return": operation.returned,
        "outcome": operation.outcome.value,
        "text": verdict.describe_operation(operation),
    }


def _value(value: Any) -> Any:
    """The value in what JSON has: a set becomes a list, and what JSON lacks its text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    if isinstance(value, dict):
        return {name if isinstance(name, str) else repr(name): _value(item) for name, item in value.items()}
    if isinstance(value, set | frozenset):
        return [_value(item) for item in sorted(value, key=repr)]
    return repr(value)


def _order(order: Sequence[Placed], verdict: Verdict) -> list[dict[str, Any]]:
    return [{"index": placed.operation.index, "state": verdict.describe_state(placed.state)} for placed in order]
