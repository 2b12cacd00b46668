"""A report as plain text: for the terminal, for the failure message of a test, and for the page's text form."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence

from raftlog.linearizability.checker.history import Annotation, Operation, Outcome, Process, TimeUnit
from raftlog.linearizability.checker.page.encode import process_name
from raftlog.linearizability.checker.page.report import Finding, Report, part_name, plural
from raftlog.linearizability.checker.page.timeline import ASCII, UNICODE, timeline
from raftlog.linearizability.checker.verdict import Placed, PossibleState, Status, Witness

WIDTH = 100
STATES_LIMIT = 3  # states before the refusal that are told in full
STEPS_LIMIT = 40  # steps of an order; of a longer one the last
FINDINGS_LIMIT = 20
BARS_LIMIT = 60  # operations drawn; more are no picture any longer
LABEL_LIMIT = 60  # characters of an operation
SPARE = "~"  # stands behind an operation of the witness that may as well not have happened
NAME_LIMIT = 30  # characters of a client


def render_text(report: Report, *, width: int = WIDTH, ascii_only: bool = False) -> str:
    """The report as lines of at most about `width` characters, each ended by a newline.

    Control characters of the history are written as escapes, so that no operation can steer a terminal.
    """
    text = "\n".join(_Writer(report, width, ascii_only).lines())
    if ascii_only:
        text = text.replace("…", "...").replace("µ", "u").encode("ascii", "backslashreplace").decode("ascii")
    return text + "\n"


def plain(text: str) -> str:
    """The text in one line, with what cannot be printed as escapes."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


class _Writer:
    def __init__(self, report: Report, width: int, ascii_only: bool) -> None:
        self.report = report
        self.width = width
        self.by_number: list[Operation] = []
        self.spare: set[int] = set()
        self.cross = "X" if ascii_only else "✕"
        self.strokes = ASCII if ascii_only else UNICODE

    def lines(self) -> Iterator[str]:
        report = self.report
        facts = ", ".join(f"{name} {value}" if name else value for name, value in report.facts)
        heading = [report.status.value.upper(), report.title, facts]
        yield plain("  ".join(part for part in heading if part))
        yield from self._paragraph(report.words)
        if report.witness is not None:
            yield from self._witness(report.witness)
        for number, finding in enumerate(report.findings[:FINDINGS_LIMIT], 1):
            yield from self._finding(number, finding)
        if len(report.findings) > FINDINGS_LIMIT:
            yield ""
            yield f"… and {plural(len(report.findings) - FINDINGS_LIMIT, 'more finding')}."
        # Of a growing history the parts that are not bad were judged no further, and there is nothing to tell of them.
        bad = [part for part in report.parts if part.status is Status.INVALID or part.limit is not None]
        if len(bad) > 1:
            yield ""
            yield f"{plural(len(bad), 'part')} not valid:"
            for part in bad[:FINDINGS_LIMIT]:
                reason = part.witness.words if part.witness is not None else f"ran out of {part.limit}"
                yield plain(f"  {part_name(part.key)}: {part.status.value}, {reason}")
            if len(bad) > FINDINGS_LIMIT:
                yield f"  … and {len(bad) - FINDINGS_LIMIT:,} more"

    def _paragraph(self, words: str) -> Iterator[str]:
        for line in words.split("\n"):
            yield from textwrap.wrap(plain(line), self.width, break_long_words=False, break_on_hyphens=False) or [""]

    def _witness(self, witness: Witness) -> Iterator[str]:
        best = witness.possible[0] if witness.possible else None
        order = best.linearization if best is not None else witness.linearization
        marks = {id(placed.operation): str(number) for number, placed in enumerate(order, 1)}
        refused = best.refusals if best is not None else ()
        marks.update((id(refusal.operation), self.cross) for refusal in refused)
        marks[id(witness.refused)] = self.cross
        yield ""
        if witness.key is not None:
            yield plain(f"Key {part_name(witness.key)}:")
        self.spare = {id(operation) for operation in witness.context if operation.outcome is Outcome.OK}
        yield from self._bars(witness.operations, marks)
        if self.spare:
            yield f"({SPARE} it makes no difference whether this happened)"
        for number, possible in enumerate(witness.possible[:STATES_LIMIT], 1):
            yield ""
            yield from self._state(witness, possible, number)
        if len(witness.possible) > STATES_LIMIT:
            more = plural(len(witness.possible) - STATES_LIMIT, "more possible state")
            yield f"… and {more}, none of which explains it."
        if not witness.possible:
            refusal = (self.cross, witness.refused, "nothing explains its answer")
            yield from self._steps(witness.linearization, [refusal])

    def _bars(self, operations: Sequence[Operation], marks: dict[int, str]) -> Iterator[str]:
        shown = list(operations)[-BARS_LIMIT:]
        if len(shown) < len(operations):
            yield f"(the last {BARS_LIMIT} of {len(operations):,} operations)"

        def label(operation: Operation) -> str:
            mark = marks.get(id(operation))
            described = self._described(operation)
            if id(operation) in self.spare:
                described = f"{described} {SPARE}"
            return described if mark is None else f"{mark} {described}"

        first, last = _span(shown)
        beside = [
            annotation
            for annotation in self.report.history.annotations
            if annotation.start <= last and (annotation.end or annotation.start) >= first
        ]
        yield from timeline(shown, label, self._process, width=self.width, strokes=self.strokes)
        time = self._time()
        for annotation in beside[:FINDINGS_LIMIT]:
            yield self._annotation(annotation, time)

    def _annotation(self, annotation: Annotation, time: Callable[[int], str]) -> str:
        until = "" if annotation.end is None else f" to {time(annotation.end)}"
        return plain(f"({annotation.lane}: {annotation.label}, {time(annotation.start)}{until})")

    def _state(self, witness: Witness, possible: PossibleState, number: int) -> Iterator[str]:
        count = len(witness.possible)
        which = "The object" if count == 1 else f"{number} of {count}: the object"
        how = "after this order:" if possible.linearization else "at the start."
        yield plain(f"{which} {_stands(possible.description)} {how}")
        refused = [(self.cross, refusal.operation, refusal.reason) for refusal in possible.refusals]
        known = 0 if number == 1 else _common(possible.linearization, witness.possible[0].linearization)
        yield from self._steps(possible.linearization, refused, known)

    def _steps(
        self, linearization: Sequence[Placed], refused: Sequence[tuple[str, Operation, str]], known: int = 0
    ) -> Iterator[str]:
        """The steps and what is refused after them; the first `known` were told before."""
        describe = self.report.describe_state
        skipped = max(0, len(linearization) - STEPS_LIMIT)
        if known > max(skipped, 2):
            skipped = known
            yield f"  … {plural(skipped, 'step')} as in 1"
        elif skipped:
            yield f"  … {plural(skipped, 'operation')} before"
        rows = []
        for number, placed in enumerate(linearization[skipped:], skipped + 1):
            rows.append((str(number), placed.operation, describe(placed.state)))
        yield from self._rows([*rows, *refused[:STEPS_LIMIT]])

    def _rows(self, rows: Sequence[tuple[str, Operation, str]]) -> Iterator[str]:
        """A table: mark, client, operation, and what is to be said of it."""
        if not rows:
            return
        cells = [(mark, self._process(op.process), self._described(op), plain(note)) for mark, op, note in rows]
        widths = [max(len(row[place]) for row in cells) for place in range(3)]
        for mark, process, described, note in cells:
            yield f"  {mark:>{widths[0]}}  {process:<{widths[1]}}  {described:<{widths[2]}}  {note}".rstrip()

    def _finding(self, number: int, finding: Finding) -> Iterator[str]:
        yield ""
        yield plain(f"{number}. {finding.severity}: {finding.title}")
        for line in finding.text.split("\n"):
            yield plain(f"   {line}".rstrip())
        if finding.operations:
            yield ""
        shown: list[Operation] = []
        for operation in finding.operations:
            if isinstance(operation, int):
                self.by_number = self.by_number or self.report.history.by_call()
                operation = self.by_number[operation]
            shown.append(operation)
        marks = {id(operation): str(place) for place, operation in enumerate(shown, 1)}
        yield from self._bars(list({id(operation): operation for operation in shown}.values()), marks)

    def _described(self, operation: Operation) -> str:
        return _cut(plain(self.report.describe_operation(operation)), LABEL_LIMIT)

    def _process(self, process: Process) -> str:
        return _cut(plain(process_name(process)), NAME_LIMIT)

    def _time(self) -> Callable[[int], str]:
        """How a time is written: as it is in steps, in milliseconds since the first call otherwise."""
        if self.report.history.time_unit is TimeUnit.STEPS:
            return lambda time: f"step {time}"
        base = min((operation.call for operation in self.report.history.operations), default=0)
        return lambda time: f"{(time - base) / 1e6:+.3f} ms"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _common(one: Sequence[Placed], other: Sequence[Placed]) -> int:
    """How many steps the two orders share at their beginning."""
    for place, (step, like) in enumerate(zip(one, other, strict=False)):
        if step.operation is not like.operation:
            return place
    return min(len(one), len(other))


def _stands(description: str) -> str:
    """`holds 3` can follow "the object" as it is; anything else is put in quotation marks of a sentence."""
    return description if description.split(" ")[0].endswith("s") else f"is {description}"


def _span(operations: Sequence[Operation]) -> tuple[int, int]:
    if not operations:
        return 0, -1
    return (
        min(operation.call for operation in operations),
        max(operation.call if operation.returned is None else operation.returned for operation in operations),
    )
