"""Values in EDN, as Clojure programs print them: numbers, strings, keywords, nil, booleans, vectors, lists, maps, sets.

Knows: the text form. Keywords come as strings without their colon, tagged values as the value. Refuses to know:
what a map means.
"""

from __future__ import annotations

import re
from typing import Any

MAX_DEPTH = 64

_TOKEN = re.compile(
    r"""[\s,]*(?:
        (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<integer>[+-]?\d{1,400}N?(?![\w./]))
      | (?P<float>[+-]?\d+\.\d*(?:[eE][+-]?\d+)?M?(?!\w))
      | :(?P<keyword>[^\s,()\[\]{}"]+)
      | (?P<open>\#\{|[\[({])
      | (?P<close>[\])}])
      | \#(?P<tag>[^\s,()\[\]{}"]+)
      | (?P<symbol>[^\s,()\[\]{}":\#]+)
    )""",
    re.VERBOSE,
)
_CLOSES = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_NAMES = {"nil": None, "true": True, "false": False}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class EdnError(ValueError):
    """Text that is not EDN."""


def parse(text: str) -> Any:
    """The one value in the text. Raises EdnError."""
    value, place = _value(text, 0, 0)
    if text[place:].strip(" \t\r\n,"):
        raise EdnError(f"something follows the value, at column {place + 1}")
    return value


def _value(text: str, place: int, depth: int) -> tuple[Any, int]:
    match = _TOKEN.match(text, place)
    if match is None:
        what = "the text ends" if not text[place:].strip() else "nothing that can be read"
        raise EdnError(f"{what} at column {place + 1}")
    kind = match.lastgroup
    token = match[kind] if kind else ""
    place = match.end()
    if kind == "string":
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), token[1:-1]), place
    if kind == "integer":
        return int(token.rstrip("N")), place
    if kind == "float":
        return float(token.rstrip("M")), place
    if kind == "keyword":
        return token, place
    if kind == "symbol":
        if token not in _NAMES:
            raise EdnError(f"{token!r} is no value, at column {match.start(kind) + 1}")
        return _NAMES[token], place
    if kind == "tag":
        return _value(text, place, depth)
    if kind == "close":
        raise EdnError(f"{token!r} closes nothing, at column {place}")
    if depth >= MAX_DEPTH:
        raise EdnError(f"nested deeper than {MAX_DEPTH}")
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
        return (tuple(items) if opening != "#{" else frozenset(items)), match.end()
    if len(items) % 2:
        raise EdnError(f"a map with a key and no value, before column {match.end()}")
    return dict(zip(items[::2], items[1::2], strict=True)), match.end()
