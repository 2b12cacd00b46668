"""A run in a few sentences: what went wrong, when, and under which faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raftlog.linearizability.checker.page.report import plural
from raftlog.linearizability.checker.verdict import Status
from raftlog.linearizability.report.account import Account, Told
from raftlog.linearizability.report.run import Fault
from raftlog.linearizability.report.stories import SECOND, Story

KINDS_MAX = 3  # of errors that are named in the first sentence
_SHORT = {
    "inconsistent-offsets": (
        "offset was given to two different records",
        "offsets were given to two different records",
    ),
    "duplicate": ("record stands in the log twice", "records stand in the log twice"),
    "lost-write": ("acknowledged record was lost", "acknowledged records were lost"),
    "unseen": ("acknowledged record was never read", "acknowledged records were never read"),
    "realtime-append": (
        "record stands before one that was acknowledged earlier",
        "records stand before ones that were acknowledged earlier",
    ),
    "G1a": ("read of a record whose send had failed", "reads of records whose send had failed"),
    "torn-transaction": ("transaction was seen in part", "transactions were seen in part"),
    "lost-commit": ("acknowledged commit of offsets was lost", "acknowledged commits of offsets were lost"),
    "two-owners": ("partition had two owners in a group", "partitions had two owners in a group"),
    "two-leaders": ("partition had two leaders in one epoch", "partitions had two leaders in one epoch"),
    "consumed-twice": ("record was consumed twice", "records were consumed twice"),
    "consumed-never": ("record was skipped", "records were skipped"),
}


def seconds(account: Account, time: int) -> str:
    """A moment as the page's axis has it: `21.50 s` after the first operation."""
    return f"{(time - account.zero) / SECOND:.2f} s"


def stretch(account: Account, fault: Fault) -> str:
    """`20.0 s to 30.0 s`."""
    start, end = (None if time is None else (time - account.zero) / SECOND for time in (fault.start, fault.end))
    return f"{start:.1f} s to {'the end' if end is None else f'{end:.1f} s'}"


def summary_of(account: Account) -> str:
    """Up to three sentences, each on a line."""
    return "\n".join(_sentences(account))


def _sentences(account: Account) -> Iterator[str]:
    if account.status is Status.INVALID:
        yield _what(account.errors) if account.errors else account.reason
        story = account.first
        if story is not None:
            yield _when(account, story)
            yield from _turn(account, story)
        return
    scope = f"{account.judged.scope} under {plural(len(account.run.faults), 'fault')}"
    if account.status is Status.UNKNOWN:
        yield f"No error was found in {scope}, but that says little: {account.reason or 'not all could be judged.'}"
        yield from (f"{doubt[:1].upper()}{doubt[1:]}" for doubt in account.doubts)
    else:
        yield f"No error in {scope}."
        idle = account.idle_faults
        if idle:
            names = ", ".join(fault.label for fault in idle[:KINDS_MAX]) + (", …" if len(idle) > KINDS_MAX else "")
            yield f"{len(idle):,} of {plural(len(account.run.faults), 'fault')} had no effect: {names}."


def _what(errors: Sequence[Told]) -> str:
    """`49 acknowledged records were lost; 49 offsets hold different records; and 2 kinds of error more.`"""
    told = [_short(one) for one in errors[:KINDS_MAX]]
    more = len(errors) - len(told)
    if more:
        told.append(f"and {plural(more, 'kind')} of error more")
    return "; ".join(told) + "."


def _short(told: Told) -> str:
    if told.kind.name in _SHORT:
        return f"{told.kind.count:,} {_SHORT[told.kind.name][told.kind.count != 1]}"
    return f"{told.kind.name} {'once' if told.kind.count == 1 else f'{told.kind.count:,} times'}"


def _when(account: Account, story: Story) -> str:
    where = f"In {story.key} at" if story.key else "At"
    return f"{where} {seconds(account, story.start)}, {under(account, story)}."


def under(account: Account, story: Story) -> str:
    """Which faults were in force: `while kill broker 1 (24 s to 30 s) was in force`."""
    if story.under:
        names = [f"{fault.label} ({stretch(account, fault)})" for fault in story.under[:3]]
        more = len(story.under) - len(names)
        if more:
            names.append(plural(more, "more fault"))
        listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
        return f"while {listed} {'was' if len(story.under) == 1 else 'were'} in force"
    if story.before is not None:
        when = stretch(account, story.before)
        return f"while no fault was in force; the last one before was {story.before.label} ({when})"
    return "while no fault was in force, nor had one been before"


def _turn(account: Account, story: Story) -> Iterator[str]:
    """What the samples show at the moment on which it turned."""
    told = [event.text for event in story.events if event.time == story.pivot and event.key == story.key]
    if told and story.key is not None:
        changes = "; ".join(text.removeprefix(f"{story.key}: ") for text in told)
        yield f"By {seconds(account, story.pivot)}, as samples show: {changes}."
