"""How far each poll's process was behind the newest known record of the keys it reads.

The lag of a process in a key is the time from when the highest offset that the process had seen ceased to be the
newest known one to the beginning of the poll: a lower bound of its staleness. A poll that returned nothing of a key is
measured as well, with what was seen before; of several such in a row only the last, because the lag only grows.

A process's *stretch* ends where its places change otherwise than by polling: at an assign, a subscribe, a seek or a
crash. Inside stretches all is worked out over whole columns; from one to the next a few places are carried over.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, chain, compress, count

from raftlog.linearizability.checker.kafka.analysis.ends import KeyEnds, highest_of
from raftlog.linearizability.checker.kafka.columns.columns import (
    CRASH,
    FAIL,
    NEVER,
    NOBODY,
    NOWHERE,
    OK,
    POLL,
    SEEK,
    SUBSCRIBE,
    TXN,
    Columns,
)
from raftlog.linearizability.checker.kafka.columns.gather import (
    alike,
    ascending,
    below,
    chosen,
    clear,
    counting,
    differing,
    gaps,
    least,
    most,
    owners,
    plus,
    previous,
    put_first,
    ranks,
    rises,
    shifted,
    sizes,
    spread,
    starts_of,
    take,
)
from raftlog.linearizability.checker.kafka.columns.subscriptions import interruptions
from raftlog.linearizability.checker.kafka.context import Context
from raftlog.linearizability.checker.kafka.report.findings import Example, Judgement

SERIES_POINTS = 100
_WINDOW = 1 << 16  # rows that are measured at once
_POLLS = bytes(function in (POLL, TXN) for function in range(256))  # a table to translate functions with
_UNSURE = -2  # a place that nobody said: reported as if nothing had been seen, never judged


@dataclass(slots=True)
class Lag:
    """The worst lags met, in the history's time unit: (lag, poll operation) by key and by process, and over time."""

    by_key: list[tuple[int, int]] = field(default_factory=list)
    by_process: list[tuple[int, int]] = field(default_factory=list)
    series: list[int] = field(default_factory=lambda: [0] * SERIES_POINTS)


@dataclass(slots=True)
class _Place:
    """Where a process is: the highest offset seen of each key, the poll at which it was measured, and the last poll."""

    seen: dict[int, int] = field(default_factory=dict)
    measured: dict[int, int] = field(default_factory=dict)
    last_poll: int = NOBODY

    def leave(self, keys: Iterable[int]) -> list[tuple[int, int, int]]:
        """Stop reading keys: the last poll, key and offset seen of each that was not measured with that poll."""
        left = []
        for key in keys:
            if key in self.seen:
                seen = self.seen.pop(key)
                if self.measured.pop(key, NOBODY) != self.last_poll:
                    left.append((self.last_poll, key, seen))
        return left

    def reset(self, columns: Columns, number: int) -> list[tuple[int, int, int]]:
        """An operation changes the places otherwise than by polling; answers as `leave` does."""
        left = []
        if columns.function[number] in (CRASH, SEEK):
            left = self.leave([key for key, _ in columns.seeks.get(number, ())] or list(self.seen))
        subscription = columns.subscriptions.get(number)
        if subscription is None or columns.outcome[number] == FAIL:
            return left
        # A subscriber's keys are its group's affair, so its places are forgotten. Who assigns keys goes on where it
        # was, unless it says otherwise.
        before = dict(self.seen)
        left += self.leave(before)
        self.last_poll = NOBODY
        position = subscription.position
        start = NOWHERE if position == "beginning" else _UNSURE
        if columns.function[number] != SUBSCRIBE and position != "end":
            for key in subscription.keys:
                self.seen[key] = before.get(key, start) if position is None else start
        return left


class _Measures:
    """What to measure: poll operation, key and highest offset seen; `moment` orders them as they came to be known."""

    __slots__ = ("keys", "moments", "polls", "seen")

    def __init__(self) -> None:
        self.polls = array("i")
        self.keys = array("i")
        self.seen = array("q")
        self.moments = array("i")

    def add(self, moment: int, poll: int, key: int, seen: int) -> None:
        self.polls.append(poll)
        self.keys.append(key)
        self.seen.append(seen)
        self.moments.append(moment)

    def part(self, first: int, after: int) -> _Measures:
        """Some of them, in their order."""
        found = _Measures()
        found.polls, found.keys = self.polls[first:after], self.keys[first:after]
        found.seen, found.moments = self.seen[first:after], self.moments[first:after]
        return found

    def at(self, places: array[int]) -> _Measures:
        """Those at these places."""
        found = _Measures()
        found.polls, found.keys = take(self.polls, places), take(self.keys, places)
        found.seen, found.moments = take(self.seen, places), take(self.moments, places)
        return found


class _Stretches:
    """The ok polls in the order of their calls, and the stretch of its process that each is in."""

    def __init__(self, context: Context) -> None:
        columns = context.columns
        self.process = list(range(len(columns.processes)))  # of each stretch
        self.ends: dict[int, tuple[int, int, int]] = {}  # stretch -> its reset, the next stretch, polls before that
        everything = counting(range(len(columns)))
        by_call = everything if isinstance(context.by_call, range) else context.by_call
        places = chosen(everything, take(array("B", columns.function.translate(_POLLS)), by_call))
        outcomes = take(array("B", columns.outcome), take(by_call, places))
        places = take(places, alike(outcomes, OK))
        self.polls = take(by_call, places)
        resets = [array("i") for _ in self.process]  # of each process, in the order of calls: the place of each
        stretches = [[process] for process in self.process]
        for place, number in self._resets(columns, by_call):
            process = columns.process[number]
            self.ends[stretches[process][-1]] = (number, len(self.process), bisect_left(places, place))
            stretches[process].append(len(self.process))
            resets[process].append(place)
            self.process.append(process)
        bases = array("i", accumulate(map(len, stretches), initial=0))
        processes = take(columns.process, self.polls)
        following = plus(ranks(resets, processes, places), take(bases, processes))
        self.stretch = take(array("i", chain.from_iterable(stretches)), following)

    @staticmethod
    def _resets(columns: Columns, by_call: array[int]) -> list[tuple[int, int]]:
        """The operations that begin new stretches, each with its place in the order of calls, in this order."""
        numbers = list(interruptions(columns))
        if not numbers:
            return []
        place_of = by_call[:]
        put_first(place_of, by_call, counting(range(len(by_call))))
        return sorted((place_of[number], number) for number in numbers)


class _Rows:
    """The segments of the ok polls in the order of their calls, and how far each process had seen the key with it."""

    def __init__(self, context: Context, stretches: _Stretches) -> None:
        columns, polls = context.columns, stretches.polls
        starts = columns.segment_start
        rows = spread(starts, polls)
        self.bounds = starts_of(take(sizes(starts), polls))  # of each poll's rows
        self.poll = owners(self.bounds)
        self.keys = take(columns.segment_key, rows)
        self.stretch = take(stretches.stretch, self.poll)
        self.earlier = previous(self.stretch, self.keys)
        self.seen = take(context.segments.highest, rows)
        self._later: array[int] | None = None
        for place in below(self.seen, take(self.seen, self.earlier)):
            if self.earlier[place] != NOBODY:
                self.raise_from(place, self.seen[self.earlier[place]])

    def raise_from(self, place: int, seen: int) -> None:
        """From this row on the process had seen the key that far."""
        if self.seen[place] >= seen:
            return
        if self._later is None:
            self._later = array("i", [NOBODY]) * len(self.seen)
            put_first(self._later, take(self.earlier, linked := self._linked()), linked)
        while place != NOBODY and self.seen[place] < seen:
            self.seen[place] = seen
            place = self._later[place]

    def _linked(self) -> array[int]:
        return differing(self.earlier, NOBODY)

    def first_and_last(self) -> tuple[dict[int, list[int]], dict[tuple[int, int], int]]:
        """The first rows of each stretch's keys in order, and the last row of each stretch and key."""
        last = array("B", b"\1") * len(self.keys)
        clear(last, take(self.earlier, self._linked()))
        firsts: dict[int, list[int]] = {}
        for place in alike(self.earlier, NOBODY):
            firsts.setdefault(self.stretch[place], []).append(place)
        lasts = chosen(counting(range(len(last))), last)
        return firsts, {(self.stretch[place], self.keys[place]): place for place in lasts}


def measure_lag(context: Context, ends: list[KeyEnds]) -> Lag:
    """Measure all polls, and find stale-read."""
    columns = context.columns
    lag = Lag([(0, NOBODY)] * len(columns.keys.names), [(0, NOBODY)] * len(columns.processes))
    if columns.segment_key or columns.subscriptions:
        judge = _Judge(context, ends, lag)
        for measures in _measures(context):
            judge.judge(measures)
    return lag


def _measures(context: Context) -> Iterator[_Measures]:
    """All that is to be measured, a window of rows at a time, so that memory is taken for one window only.

    Moments are three for each row: a reset before it, what its process had seen of the key before, and itself.
    """
    stretches = _Stretches(context)
    rows = _Rows(context, stretches)
    before = previous(stretches.stretch, array("i", bytes(4 * len(stretches.stretch))))  # the poll before, by place
    carried = _across(context, stretches, rows, before)
    begin = 0
    for first in range(0, len(rows.keys) or 1, _WINDOW):
        last = first + _WINDOW >= len(rows.keys)
        end = len(carried.moments) if last else bisect_left(carried.moments, 3 * (first + _WINDOW))
        measures = carried.part(begin, end)
        _measure_window(measures, rows, (stretches.polls, before), first)
        yield measures
        begin = end


def _measure_window(measures: _Measures, rows: _Rows, polls: tuple[array[int], array[int]], first: int) -> None:
    """Add what the rows from `first` on show; `polls` are their operations, and the place of the poll before each."""
    numbers, before = polls
    poll, earlier = rows.poll[first : first + _WINDOW], rows.earlier[first : first + _WINDOW]
    # The poll before did not return the key, so it was not measured then.
    passed = take(rows.poll, earlier)
    missing = differing(take(before, poll), passed)
    missing = take(missing, differing(take(passed, missing), take(poll, missing)))
    missing = take(missing, differing(take(earlier, missing), NOBODY))
    keys = rows.keys[first : first + _WINDOW]
    places = shifted(missing, first)
    measures.polls += take(numbers, take(before, take(poll, missing))) + take(numbers, poll)
    measures.keys += take(keys, missing) + keys
    measures.seen += take(rows.seen, take(earlier, missing)) + rows.seen[first : first + _WINDOW]
    measures.moments += shifted(plus(plus(places, places), places), 1)
    measures.moments += counting(range(3 * first + 2, 3 * (first + len(keys)) + 2, 3))


def _across(context: Context, stretches: _Stretches, rows: _Rows, before: array[int]) -> _Measures:
    """From stretch to stretch: where each begins, and what its end leaves to be measured, in order."""
    measures = _Measures()
    columns, polls = context.columns, stretches.polls
    firsts, lasts = rows.first_and_last()
    last_poll = dict(zip(stretches.stretch, polls, strict=True))
    starts: dict[int, _Place] = {}
    left: list[tuple[tuple[int, int], list[tuple[int, int, int]]]] = []  # in the order of the first
    for stretch, process in enumerate(stretches.process):
        place = starts.pop(stretch, None) or _Place()
        for row in firsts.get(stretch, ()):
            key, poll = rows.keys[row], rows.poll[row]
            latest = polls[before[poll]] if before[poll] != NOBODY else place.last_poll
            if key in place.seen and place.measured.get(key, NOBODY) != latest:
                measures.add(3 * row + 1, latest, key, place.seen[key])
            if key in place.seen:
                rows.raise_from(row, place.seen[key])
            last = lasts[stretch, key]
            place.seen[key], place.measured[key] = rows.seen[last], polls[rows.poll[last]]
        place.last_poll = last_poll.get(stretch, place.last_poll)
        if stretch in stretches.ends:
            number, following, done = stretches.ends[stretch]
            left.append(((3 * rows.bounds[done], following), place.reset(columns, number)))
            starts[following] = place
        else:
            left.append(((3 * len(rows.keys), len(stretches.process) + process), place.leave(list(place.seen))))
    for (moment, _), measured in sorted(left):
        for poll, key, seen in measured:
            measures.add(moment, poll, key, seen)
    return measures.at(ascending(measures.moments))


class _Judge:
    """Takes the lags of all that is to be measured."""

    def __init__(self, context: Context, ends: list[KeyEnds], lag: Lag) -> None:
        self.context = context
        self.ends = ends
        self.lag = lag
        self.begins = self._begins()
        self.times = array("q")  # those of all keys, each with NEVER at its end
        self.bases = array("i")
        for one in ends:
            self.bases.append(len(self.times))
            self.times += one.times
            self.times.append(NEVER)

    def judge(self, measures: _Measures) -> None:
        """Note the worst lags, the first of equal ones, and find stale-read."""
        columns, lag = self.context.columns, self.lag
        measures, lags = self._behind(measures)
        keys, polls = measures.keys, measures.polls
        for place in compress(count(), rises(lags, keys, len(lag.by_key))):
            if lags[place] > lag.by_key[keys[place]][0]:
                lag.by_key[keys[place]] = (lags[place], polls[place])
        processes = take(columns.process, polls)
        for place in compress(count(), rises(lags, processes, len(lag.by_process))):
            if lags[place] > lag.by_process[processes[place]][0]:
                lag.by_process[processes[place]] = (lags[place], polls[place])
        points = ranks([self.begins], array("i", bytes(4 * len(polls))), take(columns.call, polls))
        for place in compress(count(), rises(lags, points, SERIES_POINTS)):
            lag.series[points[place]] = max(lag.series[points[place]], lags[place])
        bound = self.context.options.max_staleness
        if bound is not None and bound < 1 << 64:
            for place in below(array("Q", [bound]) * len(lags), lags):
                self._stale(polls[place], keys[place], measures.seen[place], lags[place])

    def _behind(self, measures: _Measures) -> tuple[_Measures, array[int]]:
        """Those polls that began after more had become known than their process had seen, in order, and their lags."""
        since, called = self._since(measures), take(self.context.columns.call, measures.polls)
        places = below(since, called)
        places = take(places, ascending(take(measures.moments, places)))
        return measures.at(places), gaps(take(called, places), take(since, places))

    def _since(self, measures: _Measures) -> array[int]:
        """When a higher offset than the one seen became known, NEVER if none did."""
        later = ranks([one.ends for one in self.ends], measures.keys, shifted(measures.seen, 1))
        return take(self.times, plus(later, take(self.bases, measures.keys)))

    def _begins(self) -> array[int]:
        """When each stretch of the history's time but the first begins."""
        calls = self.context.columns.call
        start = least(calls, 0)
        span = max(1, most(calls, 0) - start)
        last = SERIES_POINTS - 1
        return array("q", (start + -(-point * span // last) for point in range(1, SERIES_POINTS)))

    def _stale(self, number: int, key: int, highest: int, lag: int) -> None:
        if highest == _UNSURE:
            return
        ends = self.ends[key]
        evidence = ends.operations[bisect_right(ends.ends, highest + 1)]
        found = (number, key, highest, lag)
        self.context.findings.add("stale-read", Judgement.ERROR, lag, _tell_stale, self.context, found, evidence)


def _tell_stale(context: Context, seen: tuple[int, int, int, int], evidence: int) -> Example:
    words = context.words
    number, key, highest, lag = seen
    place = f"nothing of {words.key(key)}" if highest == NOWHERE else f"{words.key(key)} up to offset {highest}"
    bound = words.duration(context.options.max_staleness or 0)
    text = (
        f"{words.who(number)} had seen {place} when it began {words.called(number)}; {words.who(evidence)} had shown "
        f"a higher offset {words.duration(lag)} earlier (the bound is {bound})."
    )
    shown = words.shows(highest_of(context, evidence, key))
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
