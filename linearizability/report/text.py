"""The report of a run as plain text: for a terminal, and for the page's text form."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from raftlog.linearizability.checker.history import Operation
from raftlog.linearizability.checker.page.encode import process_name, shortened, value_text
from raftlog.linearizability.checker.page.report import plural
from raftlog.linearizability.checker.page.text import plain
from raftlog.linearizability.checker.page.timeline import timeline
from raftlog.linearizability.report.account import Account, Told
from raftlog.linearizability.report.lanes import lanes_of
from raftlog.linearizability.report.neighbourhood import Neighbourhood
from raftlog.linearizability.report.run import Fault, LogLine
from raftlog.linearizability.report.stories import GRAVE, Story
from raftlog.linearizability.report.summary import seconds, stretch, summary_of, under

WIDTH = 100
STORIES_SHOWN = 1  # of each error, in full
TOLD_MAX = 6  # errors told in full; the rest by name
FAULTS_MAX = 40
LINES_SHOWN = 12
CLIENT_LINES = 5
LABEL_LIMIT = 60
VALUE_LIMIT = 24
NAME_LIMIT = 26


def render_text(accounts: Sequence[Account], *, width: int = WIDTH) -> str:
    """The runs one after the other, as lines of at most about `width` characters, each ended by a newline."""
    blocks = ["\n".join(plain(line) for line in _Writer(account, width).lines()) for account in accounts]
    return f"\n\n{'=' * width}\n\n".join(blocks) + "\n"


class _Writer:
    def __init__(self, account: Account, width: int) -> None:
        self.account = account
        self.width = width

    def lines(self) -> Iterator[str]:
        account = self.account
        run = account.run
        yield f"{account.status.value.upper()}  {run.name}"
        for sentence in summary_of(account).split("\n"):
            yield from self._wrapped(sentence)
        yield ""
        yield from lanes_of(account, self.width)
        for number, told in enumerate(account.errors, 1):
            yield ""
            yield from self._told(number, told)
        rest = [one for one in account.told if not one.is_error]
        if rest:
            yield ""
            yield from self._wrapped(
                "Found, and no error here: " + ", ".join(f"{one.kind.name} ({one.kind.count:,})" for one in rest)
            )
        if run.faults:
            yield ""
            yield from self._faults()
        for name, text in run.clients.items():
            yield ""
            yield f"What {name} wrote to its standard error"
            yield from (f"   {shortened(line, 4 * self.width)}" for line in text.splitlines()[-CLIENT_LINES:])
        if run.command:
            yield ""
            yield f"Run it again: {run.command}"

    def _wrapped(self, words: str, indent: str = "") -> list[str]:
        return textwrap.wrap(
            words,
            self.width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _told(self, number: int, told: Told) -> Iterator[str]:
        kind = told.kind
        times = "once" if kind.count == 1 else f"{kind.count:,} times"
        yield f"{number}. {kind.name}, {times} ({kind.severity})"
        yield from self._wrapped(kind.definition, "   ")
        for story in told.stories[: STORIES_SHOWN if number <= TOLD_MAX else 0]:
            yield from self._story(story)

    def _story(self, story: Story) -> Iterator[str]:
        account = self.account
        yield ""
        yield from self._wrapped(story.text, "   ")
        yield from self._wrapped(f"{seconds(account, story.start)}, {under(account, story)}.", "   ")
        if story.events:
            yield ""
            yield from (f"   {seconds(account, event.time):>10}  {event.text}" for event in story.events)
        if story.operations:
            yield ""
            called = "The smallest witness" if story.minimal else "Witness"
            yield f"   {called}: {plural(len(story.operations), 'operation')}"
            drawn = timeline(story.operations, self._label, _name, width=self.width - 3)
            yield from (f"   {line}" for line in drawn)
        if story.log is not None:
            yield ""
            yield from (f"   {line}" for line in _log(story.log, self.width - 3))
        yield from self._lines(story)

    def _label(self, operation: Operation) -> str:
        text = plain(self.account.judged.describe(operation))
        return text if len(text) <= LABEL_LIMIT else f"{text[: LABEL_LIMIT - 1]}…"

    def _lines(self, story: Story) -> Iterator[str]:
        """Of the brokers' log lines the grave ones, those about the partition, and the closest to the turning point."""
        if not story.lines:
            return

        def rank(line: LogLine) -> tuple[bool, bool, int]:
            about = story.key is not None and story.key in line.text
            return (line.level not in GRAVE, not about, abs(line.time - story.pivot))

        closest = sorted(story.lines, key=rank)[:LINES_SHOWN]
        yield ""
        yield f"   What the brokers logged ({len(closest)} of {len(story.lines)} lines)"
        for line in sorted(closest, key=lambda line: line.time):
            text = f"broker {line.broker} {line.level:<7} {line.text}".split("\n")[0]
            yield f"   {seconds(self.account, line.time):>10}  {shortened(text, 4 * self.width)}"

    def _faults(self) -> Iterator[str]:
        faults = self.account.run.faults
        idle = len(self.account.idle_faults)
        yield plural(len(faults), "fault") + (f", {idle} without effect" if idle else "")
        for fault in faults[:FAULTS_MAX]:
            yield f"   {stretch(self.account, fault):<24}  {fault.label}: {_evidence(fault)}"
        if len(faults) > FAULTS_MAX:
            yield f"   … {len(faults) - FAULTS_MAX:,} more"


def _evidence(fault: Fault) -> str:
    if fault.error:
        return f"could not be put in: {fault.error}"
    counted = [
        f"{name} {value:g}" for name, value in fault.evidence.items() if isinstance(value, int | float) and value
    ]
    told = ", ".join(counted)
    if fault.effect is None:
        return told or "the run ended before its effect was known"
    return told or "it happened" if fault.effect else "WITHOUT EFFECT"


def _name(operation_process: int | str) -> str:
    return plain(process_name(operation_process))


def _log(log: Neighbourhood, width: int) -> Iterator[str]:
    """A table: a row for the log itself and for each operation, a column for each offset."""
    holds = {offset: "|".join(map(_value, values)) for offset, values in log.values.items()}
    first, last = log.first, max([offset for offset in holds if holds[offset]] + [log.focus])
    names = ["offset", "holds"]
    cells = [{offset: str(offset) for offset in range(first, last + 1)}, holds]
    for row in log.rows:
        names.append(f"{process_name(row.operation.process)} {'wrote' if row.wrote else 'read'}"[:NAME_LIMIT])
        passed = {} if row.wrote else dict.fromkeys(range(row.span[0], row.span[1] + 1), "·")
        cells.append(passed | {offset: _value(value) for offset, value in row.cells.items()})
    gutter = max(map(len, names))
    columns = {
        offset: max(len(_cut(line.get(offset, ""))) for line in cells)
        for offset in sorted(range(first, last + 1), key=lambda offset: abs(offset - log.focus))
    }
    while len(columns) > 3 and gutter + sum(size + 2 for size in columns.values()) > width:
        columns.popitem()  # the farthest
    yield f"The log of {log.key} around offset {log.focus}"
    for name, line in zip(names, cells, strict=True):
        told = (f"{_cut(line.get(offset, '')):>{columns[offset]}}" for offset in sorted(columns))
        yield f"{name:<{gutter}}  {'  '.join(told)}".rstrip()


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_LIMIT else f"{text[: VALUE_LIMIT - 1]}…"


def _value(value: object) -> str:
    return plain(value if isinstance(value, str) else value_text(value))
