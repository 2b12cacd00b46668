"""What brokers answered about a key itself: its high watermark, last stable offset, ListOffsets and leader.

The first three never go back in real time, and an epoch has one leader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from raftlog.linearizability.checker.kafka.columns.columns import NOBODY, Columns
from raftlog.linearizability.checker.kafka.context import Context
from raftlog.linearizability.checker.kafka.report.findings import Example, Judgement

_NAMES = {
    "high-watermark": "nonmonotonic-high-watermark",
    "last-stable-offset": "nonmonotonic-last-stable-offset",
}


def check_metadata(context: Context) -> None:
    """nonmonotonic-high-watermark, -last-stable-offset and -list-offsets, and two-leaders."""
    columns = context.columns
    streams: dict[tuple[int, int], list[int]] = {}
    for row, question in enumerate(columns.metadata_question):
        streams.setdefault((columns.metadata_key[row], question), []).append(row)
    for (_, question), rows in streams.items():
        name = _NAMES.get(columns.questions.names[question], "nonmonotonic-list-offsets")
        for earlier, later in _setbacks(columns, rows):
            weight = columns.metadata_offset[earlier] - columns.metadata_offset[later]
            context.findings.add(name, Judgement.ERROR, weight, _tell_setback, context, (earlier, later))
    _leaders(context)


def _setbacks(columns: Columns, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of rows (earlier, later) in which the later operation began after the earlier had returned, and answered
    less than it. For each later row the earlier one is that of the greatest answer known by then."""
    operation, answer = columns.metadata_operation, columns.metadata_offset
    returning = deque(sorted(rows, key=lambda row: columns.returned[operation[row]]))
    best = NOBODY
    for row in sorted(rows, key=lambda row: columns.call[operation[row]]):
        while returning and columns.returned[operation[returning[0]]] < columns.call[operation[row]]:
            done = returning.popleft()
            if best == NOBODY or answer[done] > answer[best]:
                best = done
        if best != NOBODY and answer[row] < answer[best]:
            yield best, row


def _leaders(context: Context) -> None:
    first: dict[tuple[int, int], tuple[int, str]] = {}
    told: set[tuple[int, int, str]] = set()
    for number, key, leader, epoch in context.columns.leaders:
        known = first.setdefault((key, epoch), (number, leader))
        if known[1] != leader and (key, epoch, leader) not in told:
            told.add((key, epoch, leader))
            claims = ((known[0], known[1]), (number, leader))
            context.findings.add("two-leaders", Judgement.ERROR, 1, _tell_leaders, context, (key, epoch), claims)


def _tell_setback(context: Context, rows: tuple[int, int]) -> Example:
    words, columns = context.words, context.columns
    earlier, later = (columns.metadata_operation[row] for row in rows)
    before, after = (columns.metadata_offset[row] for row in rows)
    key = words.key(columns.metadata_key[rows[0]])
    what = columns.questions.names[columns.metadata_question[rows[0]]]
    text = (
        f"{what} of {key}: {words.who(later)} answered {after}, although {words.who(earlier)} had answered {before} "
        f"{words.gap(earlier, later)} before it began."
    )
    return Example(text, (earlier, later), key, {"question": what, "before": before, "after": after})


def _tell_leaders(context: Context, where: tuple[int, int], claims: tuple[tuple[int, str], tuple[int, str]]) -> Example:
    words = context.words
    key, epoch = where
    (first, one), (second, other) = claims
    text = (
        f"In leader epoch {epoch} of {words.key(key)} the leader is {one} according to {words.who(first)}, "
        f"and {other} according to {words.who(second)}."
    )
    return Example(text, (first, second), words.key(key), {"epoch": epoch, "leaders": [one, other]})
