"""Steps over whole columns at once, with NumPy where it is installed and without it where not."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress, count, islice, pairwise, repeat
from operator import add, eq, itemgetter, le, lt, ne, sub
from struct import pack
from typing import Any

numpy: Any
try:
    import numpy
except ImportError:
    numpy = None

NOTHING = -(2**63)
_WORTH_IT = 64  # below this length NumPy's fixed cost is larger than the work
_ROWS_A_TABLE = 8  # the same where it comes once for each of many keys
_CHUNK = 1 << 14  # places at once: NumPy turns them into 64 bits first, which are not to leave the processor's cache
_AT_ONCE = 4096  # arguments of one call, all of them objects for as long as it lasts


def take(values: array[int], places: array[int]) -> array[int]:
    """values[place] for every place, in an array of the same type; a negative place counts from the end."""
    if numpy is not None and len(places) >= _WORTH_IT:
        found = array(values.typecode, bytes(values.itemsize)) * len(places)
        seen, filled, rest = _view(values), _view(found), _view(places)
        for first in range(0, len(rest), _CHUNK):
            after = first + _CHUNK
            seen.take(rest[first:after], out=filled[first:after], mode="wrap")  # other modes write by way of a copy
        return found
    found = array(values.typecode)
    for first in range(0, len(places), _AT_ONCE):
        some = places[first : first + _AT_ONCE]
        taken = [values[some[0]]] if len(some) == 1 else itemgetter(*some)(values)
        found.frombytes(pack(f"{len(some)}{values.typecode}", *taken))
    return found


def counting(numbers: range) -> array[int]:
    """The numbers of a range."""
    if numpy is not None and len(numbers) >= _WORTH_IT:
        return _array("i", numpy.arange(numbers.start, numbers.stop, numbers.step, dtype="i"))
    return array("i", numbers)


def steps_other_than_one(values: array[int]) -> bytearray:
    """For every place but the last whether the next value is not exactly one more."""
    if numpy is not None and len(values) >= _WORTH_IT:
        seen = _view(values)
        return bytearray((seen[1:] - seen[:-1] != 1).view(numpy.uint8).tobytes())
    return bytearray(map(ne, islice(values, 1, None), map((1).__add__, values)))


def clear(marks: bytearray | array[int], places: array[int]) -> None:
    """Set the marks at these places to 0."""
    if numpy is not None and len(places) >= _WORTH_IT:
        cleared, rest = numpy.frombuffer(marks, dtype=numpy.uint8), _view(places)
        for first in range(0, len(rest), _CHUNK):
            cleared[rest[first : first + _CHUNK]] = 0
        return
    for place in places:
        marks[place] = 0


def shifted(values: array[int], by: int) -> array[int]:
    """Every value plus `by`."""
    if numpy is not None and len(values) >= _WORTH_IT:
        return _array(values.typecode, _view(values) + _view(array(values.typecode, [by]))[0])
    return _filled(values.typecode, map(by.__add__, values))


def rises(values: array[int], keys: array[int], limit: int) -> bytearray:
    """For every place whether its value is higher than all before it with the same key; keys are below `limit`."""
    if numpy is not None and len(values) >= _WORTH_IT and len(values) >= limit * _ROWS_A_TABLE:
        order = _order(_view(keys))
        seen = _view(values).take(order)
        higher, marks = numpy.ones(len(seen), dtype="?"), numpy.empty(len(seen), dtype="?")
        for first, after in _parts(_view(keys), limit):
            if after - first > 1:
                best = numpy.maximum.accumulate(seen[first : after - 1])
                numpy.greater(seen[first + 1 : after], best, out=higher[first + 1 : after])
        marks[order] = higher
        return bytearray(marks.view("B"))
    marks, best = bytearray(len(values)), [NOTHING] * limit
    for place, (value, key) in enumerate(zip(values, keys, strict=True)):
        if value > best[key]:
            best[key] = value
            marks[place] = 1
    return marks


def _order(values: Any) -> Any:
    """The places in the order of their values; small numbers are sorted in the smallest type, in linear time."""
    small = values.dtype == "H" or (len(values) and int(values.min()) >= 0 and int(values.max()) < 1 << 16)
    return numpy.argsort(values.astype("H", copy=False) if small else values, kind="stable")


def _parts(numbers: Any, limit: int) -> Iterator[tuple[int, int]]:
    """Where the places of each number below `limit` begin and end, once they are in the order of their numbers."""
    bounds = numpy.cumsum(numpy.bincount(numbers, minlength=limit)).tolist()
    return pairwise([0, *bounds])


def least(values: array[int], default: int) -> int:
    """The smallest value, `default` of none."""
    if numpy is not None and len(values) >= _WORTH_IT:
        return int(_view(values).min())
    return min(values, default=default)


def most(values: array[int], default: int) -> int:
    """The greatest value, `default` of none."""
    if numpy is not None and len(values) >= _WORTH_IT:
        return int(_view(values).max())
    return max(values, default=default)


def peaks(values: array[int], starts: array[int]) -> array[int]:
    """For every place the greatest value so far; anew from each start on, the last of which is the end."""
    found = array(values.typecode)
    for first, after in pairwise(starts):
        if numpy is not None and after - first >= _WORTH_IT:
            found += _array(values.typecode, numpy.maximum.accumulate(_view(values[first:after])))
        else:
            found.extend(accumulate(values[first:after], max))
    return found


def peaks_of(values: array[int], groups: array[int]) -> array[int]:
    """For every place the greatest value so far of its group. Groups are in order, and nothing is negative."""
    if numpy is not None and len(values) >= _WORTH_IT:
        both = _view(groups).astype("q") << 32 | _view(values)
        return _array(values.typecode, numpy.maximum.accumulate(both, out=both).astype("u4"))
    found, best, last = array(values.typecode), 0, NOTHING
    for value, group in zip(values, groups, strict=True):
        best = max(best, value) if group == last else value
        last = group
        found.append(best)
    return found


def greatest(values: array[int], starts: array[int]) -> array[int]:
    """The greatest value from each start to the next, NOTHING where there is none."""
    if numpy is not None and len(values) >= _WORTH_IT:
        bounds = _view(starts)
        filled = bounds[1:] > bounds[:-1]
        found = numpy.full(len(filled), NOTHING)
        found[filled] = numpy.maximum.reduceat(_view(values), bounds[:-1][filled])
        return _array("q", found)
    return array("q", [max(values[first:after], default=NOTHING) for first, after in pairwise(starts)])


def greater(values: array[int], others: array[int]) -> array[int]:
    """The greater of each two values."""
    if numpy is not None and len(values) >= _WORTH_IT:
        return _array(values.typecode, numpy.maximum(_view(values), _view(others)))
    return _filled(values.typecode, map(max, values, others))


def put_first(target: array[int], places: array[int], values: array[int]) -> None:
    """target[place] = the value that comes with it; of several with one place the first."""
    if numpy is not None and len(places) >= _WORTH_IT:
        # Of several assignments to one place NumPy leaves the last.
        filled, later, news = _view(target), _view(places)[::-1], _view(values)[::-1]
        for first in range(0, len(later), _CHUNK):
            filled[later[first : first + _CHUNK]] = news[first : first + _CHUNK]
        return
    for place, value in zip(reversed(places), reversed(values), strict=True):
        target[place] = value


def owners(starts: array[int]) -> array[int]:
    """For every row the number whose range it is in: rows starts[n] to starts[n + 1] are of n."""
    if numpy is not None and len(starts) and starts[-1] >= _WORTH_IT:
        counts = numpy.diff(_view(starts))
        return _array("i", numpy.repeat(numpy.arange(len(counts), dtype="i"), counts))
    return _filled("i", chain.from_iterable(map(repeat, count(), sizes(starts))))


def spread(starts: array[int], order: range | array[int]) -> array[int]:
    """The rows of these numbers, one number after the other (see `owners`); a range stands for all of them."""
    if isinstance(order, range):
        return counting(range(starts[-1]))
    if numpy is not None and len(order) >= _WORTH_IT:
        numbers, bounds = _view(order), _view(starts)
        firsts, counts = bounds[numbers], bounds[1:][numbers] - bounds[numbers]
        ends = numpy.cumsum(counts, dtype="i")
        return _array("i", numpy.repeat(firsts - ends + counts, counts) + numpy.arange(ends[-1], dtype="i"))
    return _filled("i", chain.from_iterable(map(range, take(starts, order), take(starts, shifted(order, 1)))))


def previous(first: array[int], second: array[int]) -> array[int]:
    """For every place the last one before it with the same pair of values, none of them negative; -1 for none."""
    if numpy is not None and len(first) >= _WORTH_IT:
        pairs = _pairs(first, second)
        order = _order(pairs)
        pairs = pairs.take(order)
        found = numpy.full(len(order), -1, dtype="i")
        found[order[1:]] = numpy.where(pairs[1:] == pairs[:-1], order[:-1], -1)
        return _array("i", found)
    return _filled("i", _last_ones(first, second))


def _last_ones(first: array[int], second: array[int]) -> Iterator[int]:
    width = max(second, default=0) + 1
    last: Any = defaultdict(lambda: -1)
    if width * (max(first, default=0) + 1) <= len(first):
        last = [-1] * (width * (max(first, default=0) + 1))  # quicker, as long as it is not larger
    for place, pair in enumerate(map(add, map(width.__mul__, first), second)):
        yield last[pair]
        last[pair] = place


def _pairs(first: array[int], second: array[int]) -> Any:
    """One number for each pair of values, in the smallest type for which they are sorted in linear time."""
    ours, theirs = _view(first), _view(second)
    width = int(theirs.max()) + 1
    small = (int(ours.max()) + 1) * width < 1 << 16
    return ours.astype("H" if small else "q") * width + theirs.astype("H" if small else "q")


def differing(values: array[int], others: array[int] | int) -> array[int]:
    """The places where the two have different values; a number stands for an array that is full of it."""
    return _places(values, others, ne, "not_equal")


def alike(values: array[int], others: array[int] | int) -> array[int]:
    """The places where the two have the same value; a number as in `differing`."""
    return _places(values, others, eq, "equal")


def not_above(values: array[int], others: array[int]) -> array[int]:
    """The places where the value is not greater than the other."""
    return _places(values, others, le, "less_equal")


def below(values: array[int], others: array[int] | int) -> array[int]:
    """The places where the value is less than the other; a number as in `differing`."""
    return _places(values, others, lt, "less")


def ascending(values: array[int]) -> array[int]:
    """The places in the order of their values, of equal ones as they come."""
    if numpy is not None and len(values) >= _WORTH_IT:
        return _array("i", _order(_view(values)).astype("i"))
    return array("i", sorted(range(len(values)), key=values.__getitem__))


def ranks(tables: Sequence[array[int]], numbers: array[int], values: array[int], *, left: bool = False) -> array[int]:
    """How many entries of its table are not greater than each value (`left`: less); the tables are in order.

    `numbers` says which table it is for each value.
    """
    if numpy is not None and len(values) >= _WORTH_IT and len(values) >= len(tables) * _ROWS_A_TABLE:
        found = numpy.empty(len(values), dtype="i")
        seen, order = _view(values), _order(_view(numbers))
        for table, (first, after) in zip(tables, _parts(_view(numbers), len(tables)), strict=True):
            places = order[first:after]
            if table and len(places):
                found[places] = numpy.searchsorted(_view(table), seen.take(places), "left" if left else "right")
            else:
                found[places] = 0
        return _array("i", found)
    return _filled("i", map(bisect_left if left else bisect_right, map(tables.__getitem__, numbers), values))


def plus(values: array[int], others: array[int]) -> array[int]:
    """The sums of each two values, which must fit the type of the first."""
    if numpy is not None and len(values) >= _WORTH_IT:
        return _array(values.typecode, _view(values) + _view(others))
    return _filled(values.typecode, map(add, values, others))


def gaps(values: array[int], others: array[int]) -> array[int]:
    """How much greater each value is than the other one, in unsigned numbers: the widest gap fits no signed one."""
    if numpy is not None and len(values) >= _WORTH_IT:
        return _array("Q", (_view(values) - _view(others)).view("u8"))
    return _filled("Q", map(sub, values, others))


def _places(values: array[int], others: array[int] | int, test: Callable[[int, int], bool], name: str) -> array[int]:
    if numpy is not None and len(values) >= _WORTH_IT:
        theirs = others if isinstance(others, int) else _view(others)
        return _array("i", numpy.flatnonzero(getattr(numpy, name)(_view(values), theirs)).astype("i"))
    return _filled("i", compress(count(), map(test, values, repeat(others) if isinstance(others, int) else others)))


def places_of(value: int, marks: bytes | bytearray) -> Iterator[int]:
    """The places at which the marks, which may change meanwhile, have this value."""
    place = marks.find(value)
    while place >= 0:
        yield place
        place = marks.find(value, place + 1)


def known(values: array[int]) -> bytearray:
    """For every place whether its value is not negative."""
    if numpy is not None and len(values) >= _WORTH_IT:
        return bytearray((_view(values) >= 0).view(numpy.uint8).tobytes())
    return bytearray(map((-1).__lt__, values))


def tally(values: array[int], limit: int) -> array[int]:
    """How often each number below `limit` is among the values."""
    if numpy is not None and len(values) >= _WORTH_IT:
        return _array("q", numpy.bincount(_view(values), minlength=limit))
    counts = Counter(values)
    return array("q", map(counts.__getitem__, range(limit)))


def sizes(starts: array[int]) -> array[int]:
    """How many rows each number has: rows starts[n] to starts[n + 1] are of n."""
    if numpy is not None and len(starts) >= _WORTH_IT:
        return _array(starts.typecode, numpy.diff(_view(starts)))
    return _filled(starts.typecode, map(sub, islice(starts, 1, None), starts))


def starts_of(counts: array[int]) -> array[int]:
    """Where the rows of each number begin, and behind them the end, from how many rows it has (see `sizes`)."""
    if numpy is not None and len(counts) >= _WORTH_IT:
        found = numpy.zeros(len(counts) + 1, dtype="i")
        numpy.cumsum(_view(counts), out=found[1:])
        return _array("i", found)
    return _filled("i", accumulate(counts, initial=0))


def chosen(values: array[int], marks: array[int]) -> array[int]:
    """The values whose marks are not 0."""
    if numpy is not None and len(values) >= _WORTH_IT:
        return _array(values.typecode, _view(values)[_view(marks) != 0])
    return _filled(values.typecode, compress(values, marks))


def _filled(typecode: str, values: Iterable[int]) -> array[int]:
    """An array of values as they come. Packed into bytes some at a time they get there faster than one by one."""
    found: array[int] = array(typecode)
    rest = iter(values)
    while some := tuple(islice(rest, _AT_ONCE)):
        found.frombytes(pack(f"{len(some)}{typecode}", *some))
    return found


def _view(values: array[int]) -> Any:
    return numpy.frombuffer(values, dtype=values.typecode)


def _array(typecode: str, values: Any) -> array[int]:
    made: array[int] = array(typecode)
    made.frombytes(numpy.ascontiguousarray(values).view("B"))
    return made
