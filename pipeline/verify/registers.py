"""Registers by key as columns: the zones of `exact.zones`, over all keys of a parcel at once.

Only what is plainly right is settled here. Every other key goes to the library, which says what is wrong with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.models.register import Register
from raftlog.pipeline.verify.columns import Flags, Ints

ALGORITHM = "zones"
_NEVER = np.iinfo(np.int64)


def suits(model: Model[Any]) -> bool:
    """Whether the model is a register that holds null at first; a subclass may promise something else."""
    return type(model) is Register and model.initial is None


class Zones(NamedTuple):
    """Of each value of a key, those of one key together: `first` return and `last` call of its write and its reads."""

    keys: Ints
    first: Ints
    last: Ints


def right_keys(rows: pa.RecordBatch, keys: Ints, count: int) -> Flags:
    """Which of the keys (numbers below `count`, one for each row) have operations that some order explains.

    Others may have one, too. Raises Unlike.
    """
    right = np.ones(count, bool)
    function = rows.column("function")
    is_write = pc.equal(function, "write").to_numpy(zero_copy_only=False)
    is_read = pc.equal(function, "read").to_numpy(zero_copy_only=False)
    right[keys[(rows.column("outcome").to_numpy() != 0) | ~(is_write | is_read)]] = False
    given, answers = _alike(rows.column("input"), rows.column("output"))
    values = _numbered(pc.if_else(pa.array(is_write), given, answers), (1 << 62) // max(count, 1))
    right[keys[is_write & (values == 0)]] = False  # the initial value is written
    call, returned = rows.column("call").to_numpy(), rows.column("returned").to_numpy()
    span = int(values.max(initial=0)) + 1
    order = np.argsort(keys * span + values)
    by_value = (keys * span + values)[order]
    begins = np.flatnonzero(np.diff(by_value, prepend=-1))
    if not len(begins):
        return right
    key, value = np.divmod(by_value[begins], span)
    writes = np.add.reduceat(is_write[order].astype(np.int64), begins)
    written = np.maximum.reduceat(np.where(is_write, call, _NEVER.min)[order], begins)
    first = np.minimum.reduceat(returned[order], begins)
    first[value == 0] = _NEVER.min
    last = np.maximum.reduceat(call[order], begins)
    right[key[(writes != (value != 0)) | (first < written) & (value != 0)]] = False
    right[_excluded(Zones(key, first, last))] = False
    return right


def _excluded(zones: Zones) -> Ints:
    """Keys with two forward zones that overlap, or with a backward one inside a forward one."""
    order = np.lexsort((zones.first, zones.keys))
    keys, first, last = (column[order] for column in zones)
    is_forward = first < last
    # Before each zone the last forward one that begins before it: as long as none overlap, no other can matter.
    latest = np.maximum.accumulate(np.where(is_forward, np.arange(len(keys)), -1))
    before = np.concatenate(([-1], latest[:-1]))
    inside = (before >= 0) & (keys[before] == keys) & (first < last[before])
    found: Ints = keys[inside & (is_forward | (first[before] < last))]
    return found


def _alike(given: pa.Array, answers: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Both as one type: columns without a value have any."""
    if given.type == answers.type:
        return given, answers
    if answers.null_count == len(answers):
        return given, pa.nulls(len(answers), given.type)
    if given.null_count == len(given):
        return pa.nulls(len(given), answers.type), answers
    raise Unlike


class Unlike(Exception):
    """Some values are whole numbers and some are text."""


def _numbered(values: pa.Array, limit: int) -> Ints:
    """A number below `limit` for each value, 0 for null: the value less the smallest one, if that is small enough."""
    if values.null_count == len(values):
        return np.zeros(len(values), np.int64)
    if pa.types.is_integer(values.type):
        low, high = pc.min_max(values).as_py().values()
        if high - low + 1 < limit and low > _NEVER.min:
            found: Ints = np.asarray(values.fill_null(low), np.int64) - (low - 1)
            found[np.asarray(values.is_null())] = 0
            return found
    numbers = values.dictionary_encode().indices
    return np.asarray(numbers.cast(pa.int64()).fill_null(-1), np.int64) + 1
