"""One walk along the clock: what was known of each key's end when an operation began.

Knows: that a send which began after an offset was known must get a higher one, and how far behind the newest known
record each poll was. Refuses to know: the order of one process's operations, and cycles.

An operation's facts count from its return on, and are held against operations that began strictly later. A fact is
an acknowledged send or a polled record. The lag of a process in a key is the time from when the highest offset that
the process had seen ceased to be the newest known one to the beginning of the poll: a lower bound of its staleness.
For the lag only facts count that readers of committed data can have seen: in keys with transactions, an open one may
hide what was acknowledged, so there only what such readers polled counts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

from raftlog.linearizability.checker.kafka.columns import (
    CRASH,
    FAIL,
    NEVER,
    NOBODY,
    NOWHERE,
    OK,
    READ_UNCOMMITTED,
    SEEK,
    SUBSCRIBE,
    TRANSACTIONAL,
    TXN,
    Columns,
)
from raftlog.linearizability.checker.kafka.context import Context
from raftlog.linearizability.checker.kafka.findings import Example, Judgement
from raftlog.linearizability.checker.kafka.gather import rises
from raftlog.linearizability.checker.kafka.segments import lay_out_sends

SERIES_POINTS = 100
_UNSURE = -2  # a place that nobody said: reported as if nothing had been seen, never judged
_STALE_QUESTIONS = ("high-watermark", "list-offsets latest read_uncommitted")


@dataclass(slots=True)
class Lag:
    """The worst lags met, in the history's time unit: (lag, poll operation) by key and by process, and over time."""

    by_key: list[tuple[int, int]] = field(default_factory=list)
    by_process: list[tuple[int, int]] = field(default_factory=list)
    series: list[int] = field(default_factory=lambda: [0] * SERIES_POINTS)


class _KeyHistory:
    """When a key's known end moved: times, ends (the highest known offset + 1) and the operations that showed it."""

    __slots__ = ("ends", "operations", "times")

    def __init__(self) -> None:
        self.times = array("q")
        self.ends = array("q")
        self.operations = array("i")


class _KnownEnds:
    """The known end of every key now, and how it came there."""

    __slots__ = ("columns", "end", "keys")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.keys = [_KeyHistory() for _ in columns.keys.names]
        self.end = array("q", [0]) * len(columns.keys.names)

    def advance(self, number: int, key: int, end: int) -> None:
        """An operation that is over shows an end; nothing if a higher one is known."""
        if end <= self.end[key]:
            return
        self.end[key] = end
        known = self.keys[key]
        known.times.append(self.columns.returned[number])
        known.ends.append(end)
        known.operations.append(number)


class _Tracked:
    """How far one process has seen the keys it reads: the highest offset, NOWHERE for none yet.

    `measured` is the poll at which each key's lag was last taken.
    """

    __slots__ = ("last_poll", "measured", "seen")

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.measured: dict[int, int] = {}
        self.last_poll = NOBODY


class RealTime:
    """The walk. `lag` is filled by it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        columns = self.columns = context.columns
        self.lag = Lag([(0, NOBODY)] * len(columns.keys.names), [(0, NOBODY)] * len(columns.processes))
        self._known = self._visible = _KnownEnds(columns)
        self._hiding = _hiding_keys(columns)
        if self._hiding:
            self._visible = _KnownEnds(columns)
        self._tracked = [_Tracked() for _ in columns.processes]
        self._sends = lay_out_sends(columns)
        self._highest = context.segments.highest
        self._news = self._may_advance()
        self._start = min(columns.call, default=0)
        self._span = max(1, max(columns.call, default=0) - self._start)

    def _may_advance(self) -> bytearray:
        """Which segments can show a new end: in the order of their returns, those beyond all before of their key."""
        columns = self.columns
        if not isinstance(self.context.by_returned, range) or any(map(READ_UNCOMMITTED.__and__, columns.flags)):
            return bytearray(b"\1") * len(self._highest)
        return rises(self._highest, columns.segment_key, len(columns.keys.names))

    def walk(self) -> None:
        """Find realtime-append and stale-read, and measure the lag."""
        columns, by_returned = self.columns, self.context.by_returned
        calls, returns, function = columns.call, columns.returned, columns.function
        outcome, segment_start, send_start = columns.outcome, columns.segment_start, columns.send_start
        send_offset, send_key, ends = self._sends.offset, self._sends.key, self._known.end
        count, done = len(columns), 0
        learn = self._learn_both if self._hiding else self._learn
        for number in self.context.by_call:
            called = calls[number]
            while done < count and returns[by_returned[done]] < called:
                learn(by_returned[done])
                done += 1
            kind = function[number]
            if kind > TXN:
                self._reassign(number, kind)
                continue
            for row in range(send_start[number], send_start[number + 1]):
                if send_offset[row] < ends[send_key[row]]:
                    self._late_append(number, row)
            if kind and outcome[number] == OK:  # poll or txn
                self._poll(number, segment_start[number], segment_start[number + 1])
        while done < count and returns[by_returned[done]] != NEVER:
            learn(by_returned[done])
            done += 1
        for process in range(len(columns.processes)):
            self._leave(process, list(self._tracked[process].seen))

    def _learn(self, number: int) -> None:
        """The operation is over: what it showed is known from now on."""
        columns, known = self.columns, self._known
        ends = known.end
        first, after = columns.send_start[number], columns.send_start[number + 1]
        if first != after:
            keys, offsets = self._sends.key, self._sends.acknowledged
            for row in range(first, after):
                if offsets[row] >= ends[keys[row]]:
                    known.advance(number, keys[row], offsets[row] + 1)
        after = columns.segment_start[number + 1]
        segment = self._news.find(1, columns.segment_start[number], after)
        while segment >= 0:
            key, offset = columns.segment_key[segment], self._highest[segment]
            if offset >= ends[key]:
                known.advance(number, key, offset + 1)
            segment = self._news.find(1, segment + 1, after)

    def _learn_both(self, number: int) -> None:
        """The same, and apart from it what no open transaction can hide."""
        columns, known, visible, hiding = self.columns, self._known, self._visible, self._hiding
        ends, seen = known.end, visible.end
        keys, offsets = self._sends.key, self._sends.acknowledged
        for row in range(columns.send_start[number], columns.send_start[number + 1]):
            key, offset = keys[row], offsets[row]
            if offset >= ends[key]:
                known.advance(number, key, offset + 1)
            if offset >= seen[key] and key not in hiding:
                visible.advance(number, key, offset + 1)
        dirty = columns.flags[number] & READ_UNCOMMITTED
        after = columns.segment_start[number + 1]
        segment = self._news.find(1, columns.segment_start[number], after)
        while segment >= 0:
            key, offset = columns.segment_key[segment], self._highest[segment]
            if offset >= ends[key]:
                known.advance(number, key, offset + 1)
            if offset >= seen[key] and not (dirty and key in hiding):
                visible.advance(number, key, offset + 1)
            segment = self._news.find(1, segment + 1, after)

    def _late_append(self, number: int, row: int) -> None:
        """A send began when its key's known end was already beyond the offset that it got, if it got one."""
        columns = self.context.columns
        element, key = columns.send_element[row], self._sends.key[row]
        offset = columns.offset[element]
        if offset == NOWHERE or columns.writer[element] != number or element in columns.extra_offsets:
            return
        evidence = self._known.keys[key].operations[-1]
        weight = self._known.end[key] - offset
        self.context.findings.add(
            "realtime-append", Judgement.ERROR, weight, _tell_append, self.context, element, evidence
        )

    # Lag

    def _poll(self, number: int, first: int, after: int) -> None:
        """Note what a poll saw. Keys it saw nothing of are looked at when that changes: their lag only grows."""
        columns = self.columns
        tracked = self._tracked[columns.process[number]]
        seen, measured, last_poll = tracked.seen, tracked.measured, tracked.last_poll
        highest_of, ends, keys = self._highest, self._visible.end, columns.segment_key
        for segment in range(first, after):
            key = keys[segment]
            highest = highest_of[segment]
            before = seen.get(key)
            if before is not None:
                taken = measured.get(key, NOBODY)
                if taken != last_poll and taken != number:  # not met by this operation's own earlier poll
                    self._measure(last_poll, key, before)
                if before > highest:
                    highest = before
            seen[key] = highest
            measured[key] = number
            if highest + 1 < ends[key]:
                self._measure(number, key, highest)
        tracked.last_poll = number

    def _measure(self, number: int, key: int, highest: int) -> None:
        """How long before the poll `highest` had ceased to be the newest known offset of the key."""
        known = self._visible.keys[key]
        ends = known.ends
        place = len(ends) - 1
        if place < 0 or ends[place] <= highest + 1:
            return
        if place and ends[place - 1] > highest + 1:
            place = bisect_right(ends, highest + 1)
        called = self.columns.call[number]
        lag = called - known.times[place]
        if lag <= 0:
            return
        totals = self.lag
        if lag > totals.by_key[key][0]:
            totals.by_key[key] = (lag, number)
        process = self.columns.process[number]
        if lag > totals.by_process[process][0]:
            totals.by_process[process] = (lag, number)
        point = (called - self._start) * (SERIES_POINTS - 1) // self._span
        if lag > totals.series[point]:
            totals.series[point] = lag
        bound = self.context.options.max_staleness
        if bound is not None and lag > bound and highest != _UNSURE:
            evidence = known.operations[place]
            self.context.findings.add(
                "stale-read", Judgement.ERROR, lag, _tell_stale, self.context, (number, key, highest, lag), evidence
            )

    def _leave(self, process: int, keys: list[int]) -> None:
        """A process stops reading keys, or the history ends: how far behind was its last poll?"""
        tracked = self._tracked[process]
        for key in keys:
            highest = tracked.seen.pop(key)
            if tracked.last_poll != tracked.measured.pop(key, NOBODY):
                self._measure(tracked.last_poll, key, highest)

    def _reassign(self, number: int, kind: int) -> None:
        columns = self.context.columns
        process = columns.process[number]
        seen = self._tracked[process].seen
        if kind == CRASH or (kind == SEEK and columns.outcome[number] != FAIL):
            keys = [key for key, _ in columns.seeks.get(number, ())] or list(seen)
            self._leave(process, [key for key in keys if key in seen])
        subscription = columns.subscriptions.get(number)
        if subscription is None or columns.outcome[number] == FAIL:
            return
        # A subscriber's keys are its group's affair, so its places are forgotten. Who assigns keys goes on where it
        # was, unless it says otherwise.
        before = dict(seen)
        self._leave(process, list(seen))
        self._tracked[process].last_poll = NOBODY
        if kind == SUBSCRIBE or subscription.from_end:
            return
        for key in subscription.keys:
            seen[key] = NOWHERE if subscription.from_beginning else before.get(key, _UNSURE)

    # Watermarks

    def watermarks(self) -> None:
        """stale-watermark: a newest offset answered although a higher end had been known for longer than the bound.

        To be called after `walk`.
        """
        bound = self.context.options.max_staleness
        if bound is None:
            return
        columns = self.context.columns
        asked = {columns.questions.numbers.get(name) for name in _STALE_QUESTIONS}
        for row, question in enumerate(columns.metadata_question):
            if question not in asked:
                continue
            number, key = columns.metadata_operation[row], columns.metadata_key[row]
            known = self._known.keys[key]
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


def _hiding_keys(columns: Columns) -> frozenset[int]:
    """The keys in which some transaction may be open at some time."""
    found: set[int] = set()
    for number, flags in enumerate(columns.flags):
        if flags & TRANSACTIONAL:
            found.update(map(columns.element_key.__getitem__, columns.sends_of(number)))
            if len(found) == len(columns.keys.names):
                break
    return frozenset(found)


def _tell_append(context: Context, element: int, evidence: int) -> Example:
    words, columns = context.words, context.columns
    writer, key = columns.writer[element], columns.element_key[element]
    highest = _highest_of(context, evidence, key)
    text = (
        f"{words.who(writer)} sent {words.element(element)}, although {words.who(evidence)} had shown "
        f"{words.element(highest)} {words.gap(evidence, writer)} before that send began."
    )
    details = {"offset": columns.offset[element], "known": columns.offset[highest]}
    operations = dict.fromkeys((evidence, writer, *words.shows(element), *words.shows(highest)))
    return Example(text, tuple(operations), words.key(key), details)


def _highest_of(context: Context, number: int, key: int) -> int:
    """The element of the highest offset that an operation sent to a key or polled of it."""
    columns = context.columns
    highest = NOBODY
    for other in [*columns.sends_of(number), *columns.polled_by(number)]:
        if columns.element_key[other] == key and (highest == NOBODY or columns.offset[other] > columns.offset[highest]):
            highest = other
    return highest


def _tell_stale(context: Context, seen: tuple[int, int, int, int], evidence: int) -> Example:
    words = context.words
    number, key, highest, lag = seen
    place = f"nothing of {words.key(key)}" if highest == NOWHERE else f"{words.key(key)} up to offset {highest}"
    bound = words.duration(context.options.max_staleness or 0)
    text = (
        f"{words.who(number)} had seen {place} when it began {words.called(number)}; {words.who(evidence)} had shown "
        f"a higher offset {words.duration(lag)} earlier (the bound is {bound})."
    )
    shown = words.shows(_highest_of(context, evidence, key))
    operations = dict.fromkeys((evidence, number, *_place_of(context, number, key), *shown))
    return Example(text, tuple(operations), words.key(key), {"offset": highest, "lag": lag})


def _place_of(context: Context, number: int, key: int) -> tuple[int, ...]:
    """The last operation of a poll's process, up to itself, that set or moved its place in a key."""
    columns = context.columns
    process, called = columns.process[number], columns.call[number]
    best = NOBODY
    for other in range(len(columns)):
        if columns.process[other] != process or columns.call[other] > called:
            continue
        polled = columns.segment_key[columns.segment_start[other] : columns.segment_start[other + 1]]
        moved = key in polled or other in columns.subscriptions
        if moved and (best == NOBODY or columns.call[other] >= columns.call[best]):
            best = other
    return () if best == NOBODY else (best,)


def _tell_watermark(context: Context, seen: tuple[int, int, int, int], evidence: int) -> Example:
    words = context.words
    number, key, answer, lag = seen
    text = (
        f"{words.who(number)} answered {answer} for {words.key(key)}, although {words.who(evidence)} had shown a "
        f"record at or beyond it {words.duration(lag)} before it began "
        f"(the bound is {words.duration(context.options.max_staleness or 0)})."
    )
    operations = dict.fromkeys((evidence, number, *words.shows(_highest_of(context, evidence, key))))
    return Example(text, tuple(operations), words.key(key), {"offset": answer, "lag": lag})
