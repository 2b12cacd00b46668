"""The report of one run, or of two side by side, as an HTML page that holds everything it needs.

The data are those of the checker's page (the columns of operations), and with each run what is not in its history; the
script in `assets` reads them. Times are nanoseconds from the first call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import IO, Any

from raftlog.linearizability.checker.page.encode import pieces, shortened, value_text
from raftlog.linearizability.checker.page.html import Assets, as_json, assets_of, document
from raftlog.linearizability.checker.page.report import Report, plural
from raftlog.linearizability.report.account import Account, Told
from raftlog.linearizability.report.judged import Curve
from raftlog.linearizability.report.neighbourhood import Neighbourhood
from raftlog.linearizability.report.run import LogLine, Sample
from raftlog.linearizability.report.stories import Story
from raftlog.linearizability.report.summary import summary_of
from raftlog.linearizability.report.text import render_text

RUNS_MAX = 2
LINE_LIMIT = 600  # characters of a line of a broker's log
CELL_LIMIT = 60  # characters of a value in the table of a log
_CHECKER = "raftlog.linearizability.checker.page"
_OWN = __package__
_STYLES = ((_CHECKER, "page.css"), (_OWN, "report.css"))
# In the order in which they are read; each uses only what stands before it when it is loaded.
_SCRIPTS = (
    (_CHECKER, "base.js"),
    (_CHECKER, "columns.js"),
    (_CHECKER, "theme.js"),
    (_OWN, "runs.js"),
    (_OWN, "tracks.js"),
    (_OWN, "stage.js"),
    (_OWN, "plots.js"),
    (_OWN, "lanes.js"),
    (_OWN, "story.js"),
    (_OWN, "panel.js"),
    (_OWN, "controls.js"),
    (_OWN, "main.js"),
)


def write_page(stream: IO[str], accounts: Sequence[Account]) -> None:
    """Write the page of one run or two, all of it ASCII. Raises ValueError for more, and what the stream raises."""
    if not 1 <= len(accounts) <= RUNS_MAX:
        raise ValueError(f"a page shows one run or two, not {len(accounts)}")
    title = " | ".join(f"{account.status.value}: {account.run.name}" for account in accounts)
    for piece in document(title, _assets(), _data(accounts)):
        stream.write(piece)


@cache
def _assets() -> Assets:
    return assets_of(_STYLES, _SCRIPTS, (_OWN, "body.html"))


def _data(accounts: Sequence[Account]) -> Iterator[str]:
    yield '{"runs":['
    for place, account in enumerate(accounts):
        yield "," if place else ""
        yield from _run(account)
    yield f'],"report":{as_json(render_text(accounts))}}}'


def _run(account: Account) -> Iterator[str]:
    report = Report(
        status=account.status,
        words=summary_of(account),
        history=account.run.history,
        title=account.run.name,
        facts=_facts(account),
        describe_operation=account.judged.describe,
        keys_of=account.judged.keys_of,
    )
    yield "{"
    for name, value in pieces(report, values=False):
        yield f"{as_json(name)}:{as_json(value)},\n"
    encoder = _Encoder(account)
    told = [encoder.told(one) for one in account.told]
    yield f'"told":{as_json(told)},\n"run":{as_json(encoder.rest())}}}'


def _facts(account: Account) -> list[tuple[str, str]]:
    about = account.run.about
    facts = [(name, str(about[name])) for name in ("workload", "fault", "system") if about.get(name)]
    facts += [("", plural(about["brokers"], "broker"))] if isinstance(about.get("brokers"), int) else []
    facts.append(("", plural(len(account.run.history), "operation")))
    facts.append(("", f"{(account.run.end - account.run.start) / 1e9:.0f} s"))
    if about.get("seed") is not None:
        facts.append(("seed", str(about["seed"])))
    return facts


class _Encoder:
    """What a run has besides its history, as plain values."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.zero = account.zero
        self.faults = {id(fault): place for place, fault in enumerate(account.run.faults)}
        shown = [line for one in account.told for story in one.stories for line in story.lines]
        unique = {id(line): line for line in [*account.lines, *shown]}
        self.lines = sorted(unique.values(), key=lambda line: line.time)
        self.line_places = {id(line): place for place, line in enumerate(self.lines)}

    def time(self, time: int | None) -> int | None:
        return None if time is None else time - self.zero

    def told(self, told: Told) -> dict[str, Any]:
        return {
            "name": told.kind.name,
            "definition": told.kind.definition,
            "severity": told.kind.severity,
            "judgement": told.kind.judgement.value,
            "count": told.kind.count,
            "model": told.kind.model,
            "stories": [self._story(story) for story in told.stories],
        }

    def _story(self, story: Story) -> dict[str, Any]:
        return {
            "text": story.text,
            "key": story.key,
            "operations": [operation.index for operation in story.operations],
            "minimal": story.minimal,
            "start": self.time(story.start),
            "end": self.time(story.end),
            "pivot": self.time(story.pivot),
            "under": [self.faults[id(fault)] for fault in story.under],
            "before": -1 if story.before is None else self.faults[id(story.before)],
            "events": [[self.time(event.time), event.kind, event.text] for event in story.events],
            "lines": [self.line_places[id(line)] for line in story.lines],
            "log": None if story.log is None else _log(story.log),
        }

    def rest(self) -> dict[str, Any]:
        run = self.account.run
        return {
            "command": run.command,
            "about": [[name, _plain(value)] for name, value in run.about.items() if name in _TOLD],
            "doubts": list(self.account.doubts),
            "clients": [[name, text] for name, text in run.clients.items()],
            "phases": [
                [str(phase.get("name")), self.time(phase.get("begin")), self.time(phase.get("end"))]
                for phase in run.about.get("phases") or ()
                if isinstance(phase, Mapping) and isinstance(phase.get("begin"), int)
            ],
            "faults": [
                {
                    "kind": fault.kind,
                    "target": fault.target,
                    "start": self.time(fault.start),
                    "end": self.time(fault.end),
                    "effect": fault.effect,
                    "evidence": [[name, _plain(value)] for name, value in fault.evidence.items()],
                    "error": fault.error,
                }
                for fault in run.faults
            ],
            "samples": self._samples(run.samples),
            "events": [[self.time(event.time), event.kind, event.text, event.key] for event in self.account.events],
            "unseen": self._curve(self.account.judged.unseen),
            "lag": self._curve(self.account.judged.lag),
            "lines": [self._line(line) for line in self.lines],
        }

    def _samples(self, samples: Sequence[Sample]) -> dict[str, Any]:
        """Columns with a value a sample; null where nobody answered."""
        partitions = sorted({key for sample in samples for key in sample.partitions})
        brokers = sorted({broker for sample in samples for broker in sample.brokers})
        groups = sorted({group for sample in samples for group in sample.groups})
        names = ("leader", "leader_epoch", "isr", "high_watermark", "last_stable", "log_end")

        def of(key: str, name: str) -> list[Any]:
            return [getattr(sample.partitions.get(key), name, None) for sample in samples]

        return {
            "times": [self.time(sample.time) for sample in samples],
            "term": [sample.term for sample in samples],
            "quorum": [sample.quorum_leader for sample in samples],
            "partitions": {key: {name: of(key, name) for name in names} for key in partitions},
            "brokers": {broker: [sample.brokers.get(broker) for sample in samples] for broker in brokers},
            "groups": {group: [_behind(sample, group) for sample in samples] for group in groups},
        }

    def _curve(self, curve: Curve) -> dict[str, Any]:
        return {"times": [self.time(time) for time in curve.times], "values": list(curve.values)}

    def _line(self, line: LogLine) -> list[Any]:
        return [self.time(line.time), line.broker, line.level, shortened(line.text, LINE_LIMIT)]


_TOLD = (
    "workload",
    "fault",
    "system",
    "brokers",
    "clients",
    "seconds",
    "rate",
    "seed",
    "libraries",
    "settings",
    "options",
    "versions",
    "topics",
    "status",
)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(each) for each in value)
    return value if isinstance(value, str) else value_text(value)


def _behind(sample: Sample, group: str) -> int | None:
    """Records between a group's committed offsets and the high watermarks."""
    behind = [
        partition.high_watermark - offset
        for key, offset in sample.groups.get(group, {}).items()
        if (partition := sample.partitions.get(key)) is not None
        and partition.high_watermark is not None
        and isinstance(offset, int)
    ]
    return sum(max(0, each) for each in behind) if behind else None


def _log(log: Neighbourhood) -> dict[str, Any]:
    offsets = range(log.first, log.last + 1)
    return {
        "key": log.key,
        "focus": log.focus,
        "first": log.first,
        "values": [[_cell(value) for value in log.values.get(offset, ())] for offset in offsets],
        "rows": [
            {
                "operation": row.operation.index,
                "wrote": row.wrote,
                "from": row.span[0],
                "to": row.span[1],
                "cells": [_cell(row.cells[offset]) if offset in row.cells else None for offset in offsets],
            }
            for row in log.rows
        ],
    }


def _cell(value: Any) -> str:
    return shortened(value if isinstance(value, str) else value_text(value), CELL_LIMIT)
