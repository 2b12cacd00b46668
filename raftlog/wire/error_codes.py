"""Which errors a response tells, wherever in it they stand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from raftlog.wire.schema import Kind, Struct

ERROR_CODE = "error_code"


class _Inner(NamedTuple):
    """A field whose structs have error codes. `is_flat`: an array of structs that have one each and no other."""

    name: str
    is_array: bool
    is_flat: bool


class _Places(NamedTuple):
    """Where a struct has error codes: of its own, and in the structs of which fields."""

    own: bool
    inner: tuple[_Inner, ...]


@cache
def has_one_error_code(kind: type[Struct]) -> bool:
    """Whether responses of a kind have `error_code` of their own and no other; most are so."""
    places = _places(kind)
    return places.own and not places.inner


def error_codes(response: Struct) -> Iterator[int]:
    """The error codes of a response that are not 0, in order."""
    places = _places(type(response))
    if places.own and (code := getattr(response, ERROR_CODE)):
        yield code
    for name, is_array, is_flat in places.inner:
        value = getattr(response, name)
        if is_flat:
            # There may be thousands, of which none is an error.
            yield from [code for struct in value or () if (code := struct.error_code)]
            continue
        for struct in (value or ()) if is_array else (value,) if value is not None else ():
            yield from error_codes(struct)


@cache
def _places(kind: type[Struct]) -> _Places:
    inner = []
    for field in kind.__fields__:
        if field.struct is not None and _has_some(field.struct):
            is_array = field.kind is Kind.ARRAY
            inner.append(_Inner(field.name, is_array, is_array and has_one_error_code(field.struct)))
    return _Places(any(field.name == ERROR_CODE for field in kind.__fields__), tuple(inner))


def _has_some(kind: type[Struct]) -> bool:
    places = _places(kind)
    return places.own or bool(places.inner)
