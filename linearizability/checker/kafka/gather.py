"""Steps over whole columns at once, with NumPy where it is installed and without it where not.

Knows: two ways to the same answer for a handful of plain array operations. Refuses to know: what the columns hold.
"""

from __future__ import annotations

from array import array
from itertools import islice
from operator import ne
from typing import Any

numpy: Any
try:
    import numpy
except ImportError:
    numpy = None

_WORTH_IT = 64  # below this length NumPy's fixed cost is larger than the work


def take(values: array[int], places: array[int]) -> array[int]:
    """values[place] for every place, in an array of the same type; a negative place is not allowed."""
    if numpy is not None and len(places) >= _WORTH_IT:
        return _array(values.typecode, _view(values)[_view(places)])
    return array(values.typecode, map(values.__getitem__, places))


def steps_other_than_one(values: array[int]) -> bytearray:
    """For every place but the last whether the next value is not exactly one more."""
    if numpy is not None and len(values) >= _WORTH_IT:
        seen = _view(values)
        return bytearray((seen[1:] - seen[:-1] != 1).view(numpy.uint8).tobytes())
    return bytearray(map(ne, islice(values, 1, None), map((1).__add__, values)))


def clear(marks: bytearray, places: array[int]) -> None:
    """Set the marks at these places to 0."""
    if numpy is not None and len(places) >= _WORTH_IT:
        numpy.frombuffer(marks, dtype=numpy.uint8)[_view(places)] = 0
        return
    for place in places:
        marks[place] = 0


def shifted(values: array[int], by: int) -> array[int]:
    """Every value plus `by`."""
    if numpy is not None and len(values) >= _WORTH_IT:
        return _array(values.typecode, _view(values) + _view(array(values.typecode, [by]))[0])
    return array(values.typecode, map(by.__add__, values))


def _view(values: array[int]) -> Any:
    return numpy.frombuffer(values, dtype=values.typecode)


def _array(typecode: str, values: Any) -> array[int]:
    made: array[int] = array(typecode)
    made.frombytes(values.tobytes())
    return made
