"""What a page or a terminal shows: a verdict, or the findings of any other analysis, in one neutral shape.

An analysis that has no `Verdict` (the one of Kafka histories) fills a `Report` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, assert_never

from raftlog.linearizability.checker.history import History, Key, Operation, in_order
from raftlog.linearizability.checker.verdict import Invalid, PartVerdict, Status, Unknown, Valid, Verdict, Witness

Severity: TypeAlias = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an analysis found, and the operations that show it.

    `text` may have several lines. `operations` are in the order in which they are to be read (a cycle: along its
    edges); the page numbers them in that order. A number stands for the operation with that `index`: its place in
    the order of calls.
    """

    title: str
    text: str
    operations: Sequence[Operation | int] = ()
    severity: Severity = "error"


def _keys(operation: Operation) -> Sequence[Key]:
    return () if operation.key is None else (operation.key,)


def _describe(operation: Operation) -> str:
    return f"{operation.function}({'' if operation.input is None else repr(operation.input)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that is shown.

    `parts` may be empty; the parts to filter by are then the keys that `keys_of` answers for each operation, which
    may be several (a transaction over partitions). `facts` are short pairs shown beside the status: ("model", "log").
    `describe_state` is only asked about states of the parts.
    """

    status: Status
    words: str
    history: History
    title: str = ""
    facts: Sequence[tuple[str, str]] = ()
    parts: Sequence[PartVerdict] = ()
    witness: Witness | None = None  # the one to open at
    findings: Sequence[Finding] = ()
    describe_operation: Callable[[Operation], str] = _describe
    describe_state: Callable[[object], str] = str
    initial_state: str = ""
    keys_of: Callable[[Operation], Sequence[Key]] = _keys


def report_of(
    verdict: Verdict,
    history: History | None = None,
    *,
    title: str | None = None,
    findings: Sequence[Finding] = (),
) -> Report:
    """The report of a verdict. Without a history it shows the operations of the verdict's parts."""
    if history is None:
        history = History.of([operation for part in verdict.parts for operation in part.operations])
    model = verdict.model
    part = model.part
    initial = model.initial_states()
    return Report(
        status=verdict.status,
        words=_words(verdict),
        history=history,
        title=title if title is not None else history.source or "",
        facts=_facts(verdict, history),
        parts=verdict.parts,
        witness=verdict.witness if isinstance(verdict, Invalid) else None,
        findings=findings,
        describe_operation=verdict.describe_operation,
        describe_state=verdict.describe_state,
        initial_state=verdict.describe_state(initial[0]) if len(initial) == 1 else "",
        keys_of=lambda operation: (part(operation),),
    )


def of_the_witness(report: Report) -> Report:
    """The report with the operations of its witness and no others: for a history that is too large to be shown."""
    witness = report.witness
    parts = [
        PartVerdict(part.key, part.status, witness.operations, part.algorithm, part.configurations, (), witness)
        for part in report.parts
        if witness is not None and part.key == witness.key
    ]
    whole = report.history
    operations = in_order(witness.operations) if witness is not None else []
    shown = History(operations, whole.annotations, whole.time_unit, whole.source)  # `of` would number them anew
    return replace(report, history=shown, parts=parts, findings=(), facts=[*report.facts, ("shown", "the witness")])


def plural(count: int, noun: str) -> str:
    """`1 part`, `1,200 operations`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def part_name(key: Key) -> str:
    """How a part is called on a page: the key itself where it is text, else its repr; `` for the only object."""
    if key is None:
        return ""
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and isinstance(key[1], int):
        return f"{key[0]}-{key[1]}"  # a topic and its partition, as Kafka writes them
    return key if isinstance(key, str) else repr(key)


def _words(verdict: Verdict) -> str:
    match verdict:
        case Invalid():
            return _of_invalid(verdict)
        case Unknown():
            return verdict.reason
        case Valid():
            count = verdict.operation_count
            if not count:
                return "There is nothing to explain: the history has no operations."
            if count == 1:
                return "The only operation is right by itself."
            return f"Some order of all {count:,} operations explains every answer."
        case _:
            assert_never(verdict)


def _of_invalid(verdict: Invalid) -> str:
    words = verdict.witness.words
    count = len(verdict.uncompared)
    if not count:
        return words
    name = f"The part {part_name(verdict.uncompared[0])}" if count == 1 else f"Some of {count:,} other parts"
    return f"{words} {name} may have been wrong before that: the budget was not enough to see."


def _facts(verdict: Verdict, history: History) -> list[tuple[str, str]]:
    processes = len({operation.process for operation in history.operations})
    many = "process" if processes == 1 else "processes"
    facts = [("model", str(verdict.model.name)), ("", plural(verdict.operation_count, "operation"))]
    if len(history) == verdict.operation_count:  # of a growing history no more is kept than shows the violation
        facts.append(("", f"{processes:,} {many}"))
    facts.append(("", plural(len(verdict.parts), "part")))
    if verdict.seconds > 0:
        facts.append(("checked in", _duration(verdict.seconds)))
    return facts


def _duration(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
