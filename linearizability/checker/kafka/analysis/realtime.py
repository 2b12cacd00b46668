"""What was known of each key's end when an operation began: sends that came too late, and stale watermarks.

How ends become known is in `ends`, how far behind polls were in `lag`.
"""

from __future__ import annotations

from bisect import bisect_right

from raftlog.linearizability.checker.kafka.analysis.ends import highest_of, known_and_visible_ends
from raftlog.linearizability.checker.kafka.analysis.lag import Lag, measure_lag
from raftlog.linearizability.checker.kafka.columns.columns import NOWHERE
from raftlog.linearizability.checker.kafka.columns.gather import below, owners, ranks, spread, take
from raftlog.linearizability.checker.kafka.columns.segments import lay_out_sends
from raftlog.linearizability.checker.kafka.context import Context
from raftlog.linearizability.checker.kafka.report.findings import Example, Judgement

_STALE_QUESTIONS = ("high-watermark", "list-offsets latest read_uncommitted")


class RealTime:
    """The tests against the clock."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._known, self._visible = known_and_visible_ends(context, lay_out_sends(context.columns))

    def lag(self) -> Lag:
        """Measure the lag of all polls, and find stale-read."""
        return measure_lag(self.context, self._visible)

    def appends(self) -> None:
        """realtime-append: a send began when its key's known end was already beyond the offset that it got."""
        context, columns, known = self.context, self.context.columns, self._known
        rows = spread(columns.send_start, context.by_call)
        elements = take(columns.send_element, rows)
        keys = take(columns.element_key, elements)
        called = take(columns.call, take(owners(columns.send_start), rows))
        before = ranks([one.times for one in known], keys, called, left=True)
        passed = ranks([one.ends for one in known], keys, take(columns.offset, elements))
        for place in below(passed, before):
            self._late_append(rows[place], before[place] - 1)

    def _late_append(self, row: int, latest: int) -> None:
        columns = self.context.columns
        element = columns.send_element[row]
        key, offset = columns.element_key[element], columns.offset[element]
        if offset == NOWHERE or columns.writer[element] != columns.sender_of_row(row):
            return
        if element in columns.extra_offsets:
            return
        known = self._known[key]
        weight, evidence = known.ends[latest] - offset, known.operations[latest]
        self.context.findings.add(
            "realtime-append", Judgement.ERROR, weight, _tell_append, self.context, element, evidence
        )

    # Watermarks

    def watermarks(self) -> None:
        """stale-watermark: a newest offset answered although a higher end had been known for longer than the bound."""
        bound = self.context.options.max_staleness
        if bound is None:
            return
        columns = self.context.columns
        asked = {columns.questions.numbers.get(name) for name in _STALE_QUESTIONS}
        for row, question in enumerate(columns.metadata_question):
            if question not in asked:
                continue
            number, key = columns.metadata_operation[row], columns.metadata_key[row]
            known = self._known[key]
            place = bisect_right(known.ends, columns.metadata_offset[row])
            if place < len(known.ends):
                lag = columns.call[number] - known.times[place]
                if lag > bound:
                    seen = (number, key, columns.metadata_offset[row], lag)
                    self.context.findings.add(
                        "stale-watermark",
                        Judgement.ERROR,
                        lag,
                        _tell_watermark,
                        self.context,
                        seen,
                        known.operations[place],
                    )


def _tell_append(context: Context, element: int, evidence: int) -> Example:
    words, columns = context.words, context.columns
    writer, key = columns.writer[element], columns.element_key[element]
    highest = highest_of(context, evidence, key)
    text = (
        f"{words.who(writer)} sent {words.element(element)}, although {words.who(evidence)} had shown "
        f"{words.element(highest)} {words.gap(evidence, writer)} before that send began."
    )
    details = {"offset": columns.offset[element], "known": columns.offset[highest]}
    operations = dict.fromkeys((evidence, writer, *words.shows(element), *words.shows(highest)))
    return Example(text, tuple(operations), words.key(key), details)


def _tell_watermark(context: Context, seen: tuple[int, int, int, int], evidence: int) -> Example:
    words = context.words
    number, key, answer, lag = seen
    text = (
        f"{words.who(number)} answered {answer} for {words.key(key)}, although {words.who(evidence)} had shown a "
        f"record at or beyond it {words.duration(lag)} before it began "
        f"(the bound is {words.duration(context.options.max_staleness or 0)})."
    )
    operations = dict.fromkeys((evidence, number, *words.shows(highest_of(context, evidence, key))))
    return Example(text, tuple(operations), words.key(key), {"offset": answer, "lag": lag})
