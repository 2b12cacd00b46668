"""Values in EDN, as Clojure programs print them: numbers, strings, keywords, nil, booleans, vectors, lists, maps, sets.

Keywords come as strings without their colon, symbols and characters as their text, tagged values as the value; what has
to be hashed is frozen.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

from raftlog.linearizability.checker.values import freeze

MAX_DEPTH = 64

_TOKEN = re.compile(
    r"""(?:[\s,]|;[^\n]*)*+(?:
        (?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
      | (?P<integer>[+-]?\d{1,400}N?(?![\w./]))
      | (?P<float>[+-]?\d+(?:\.\d*(?:[eE][+-]?\d+)?|[eE][+-]?\d+)M?(?![\w./]))
      | \\(?P<character>\S\w*)
      | :(?P<keyword>[^\s,()\[\]{}"]+)
      | (?P<open>\#\{|[\[({])
      | (?P<close>[\])}])
      | \#(?P<tag>[^\s,()\[\]{}"]+)
      | (?P<symbol>[^\s,()\[\]{}":\#]+)
    )""",
    re.VERBOSE,
)
_SPACE = re.compile(r"(?:[\s,]|;[^\n]*)*+")
_CLOSES = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_NAMES = {"nil": None, "true": True, "false": False}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class EdnError(ValueError):
    """Text that is not EDN."""


def parse(text: str) -> Any:
    """The one value in the text. Raises EdnError."""
    value, place = _value(text, 0, 0)
    if not is_blank(text, place):
        raise EdnError(f"something follows the value, at column {place + 1}")
    return value


def is_blank(text: str, place: int = 0) -> bool:
    """Whether nothing but space and comments stands from there on."""
    space = _SPACE.match(text, place)
    return space is not None and space.end() == len(text)


def _value(text: str, place: int, depth: int) -> tuple[Any, int]:
    match = _TOKEN.match(text, place)
    if match is None:
        what = "the text ends" if is_blank(text, place) else "nothing that can be read"
        raise EdnError(f"{what} at column {place + 1}")
    kind = match.lastgroup
    token = match[kind] if kind else ""
    place = match.end()
    if kind == "string":
        return _ESCAPE.sub(_unescaped, token[1:-1]), place
    if kind == "integer":
        return int(token.rstrip("N")), place
    if kind == "float":
        number = float(token.rstrip("M"))
        if not isfinite(number):
            raise EdnError(f"the number at column {match.start(kind) + 1} is too large")
        return number, place
    if kind in ("keyword", "character"):
        return token, place
    if kind == "symbol":
        return _NAMES.get(token, token), place
    if kind == "close":
        raise EdnError(f"{token!r} closes nothing, at column {place}")
    if depth >= MAX_DEPTH:
        raise EdnError(f"nested deeper than {MAX_DEPTH}")
    if kind == "tag":
        if token[0] in "_#":
            raise EdnError(f"#{token} at column {match.start(kind)} is nothing that can be read")
        return _value(text, place, depth + 1)
    return _collection(text, place, token, depth + 1)


def _collection(text: str, place: int, opening: str, depth: int) -> tuple[Any, int]:
    items: list[Any] = []
    while True:
        match = _TOKEN.match(text, place)
        if match is not None and match["close"]:
            if match["close"] != _CLOSES[opening]:
                raise EdnError(f"{match['close']!r} closes {opening!r}, at column {match.end()}")
            break
        item, place = _value(text, place, depth)
        items.append(item)
    if opening != "{":
        return (tuple(items) if opening != "#{" else frozenset(map(freeze, items))), match.end()
    if len(items) % 2:
        raise EdnError(f"a map with a key and no value, before column {match.end()}")
    return dict(zip(map(freeze, items[::2]), items[1::2], strict=True)), match.end()


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)
