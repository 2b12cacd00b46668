"""Lines of text that somebody else wrote, judged before they are kept: bytes to lines, lines to JSON objects.

Every step takes time linear in the line, whatever is in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import IO, Any, TypeAlias

from raftlog.linearizability.checker.history import HistoryError
from raftlog.linearizability.checker.values import show

MAX_LINE_BYTES = 16 << 20  # a poll of a few megabytes still fits, a file without newlines does not
MAX_DEPTH = 64  # deeper nesting is an attack on the stack, not a value
_CHUNK = 1 << 18
LONG = 1 << 20  # bytes of a line that is weighed before it is parsed
_LONGEST_TEXT_LINE = 4 << 20  # bytes of one that is parsed in Python, in a second or two
_LOOK_EVERY = 5_000  # lines
_LONG_TEXT_LINE = 1 << 16  # bytes, after which it is worth a look of its own
_TOGETHER = 32  # lines parsed by one call: what is left of more would be looked at by the collector, again and again

# Anything with `read(size)` and `readline(size)` answering bytes or text, or an iterable of lines.
Lines: TypeAlias = "IO[bytes] | IO[str] | Iterable[str] | Iterable[bytes]"
Source: TypeAlias = "str | Path | Lines"  # or the path of a file
Progress: TypeAlias = Callable[[int], None]  # told how many lines were read
Weigh: TypeAlias = Callable[[int], None]  # told how many bytes the values of a line may take


@contextmanager
def opened(source: Any) -> Iterator[Lines]:
    """The lines of a Source; a file is open for as long as it is read. Raises OSError."""
    if is_path(source):
        with Path(source).open("rb") as stream:
            yield stream
    else:
        yield source


def is_path(source: Source) -> bool:
    """Whether the lines are in a file of that path."""
    return isinstance(source, str) or hasattr(source, "__fspath__")


def name_of(source: Source, name: str | None) -> str | None:
    """What errors call the source: the name that it was given, else its path."""
    return str(source) if name is None and is_path(source) else name


class LineError(Exception):
    """What is wrong with the line being read; `ahead` lines further than the last one handed on."""

    def __init__(self, reason: str, ahead: int = 0) -> None:
        self.ahead = ahead
        super().__init__(reason)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number is too large")  # two such numbers would look equal
    return number


# A string that does not end goes on to the end of the line: were it no match, the search would begin again at each
# quote inside it. Nothing is ever given back, so nothing is kept to be given back.
_STRINGS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_TOO_DEEP = "[" * (MAX_DEPTH + 1)
_NO_BRACKETS = re.compile(r"[^\[\]{}]+")
_decoder: Any = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once  # spares decode()'s search for white space

# What stands between two lines that are parsed as one list: no JSON, so that nothing on a line can look the same.
_NOTHING = "NaN"
_MARK = object()
_BETWEEN = f",{_NOTHING},"
_list_decoder: Any = json.JSONDecoder(parse_constant={_NOTHING: _MARK}.__getitem__, parse_float=_finite)


def objects(lines: Iterable[str]) -> Iterable[dict[str, Any] | None]:
    """The JSON objects that the lines are, None for an empty one. Raises LineError, but at the line itself."""
    if not isinstance(lines, list):
        return _parse_each(lines)
    return chain.from_iterable(
        _parse_together(lines[first : first + _TOGETHER]) for first in range(0, len(lines), _TOGETHER)
    )


def _parse_together(lines: list[str]) -> Iterable[dict[str, Any] | None]:
    """Some lines by one call, which takes three quarters of the time, or one by one where that may not be the same."""
    marks = len(lines) - 1
    together = f"[{_BETWEEN.join(lines)}]"
    if not marks or together.count(_NOTHING) != marks or any(map(_is_too_deep, lines)):
        return _parse_each(lines)
    try:
        values, end = _list_decoder.scan_once(together, 0)
    except (StopIteration, ValueError, KeyError, RecursionError):
        return _parse_each(lines)
    # Where a mark is missing, it has become a part of what one line began and another ended.
    is_each_one = end == len(together) and len(values) == marks + len(lines) and values[1::2].count(_MARK) == marks
    found: list[dict[str, Any] | None] = values[::2]
    return found if is_each_one and all(type(fields) is dict for fields in found) else _parse_each(lines)


def _parse_each(lines: Iterable[str]) -> Iterator[dict[str, Any] | None]:
    for text in lines:
        try:
            yield parse_object(text) if text and not text.isspace() else None
        except LineError as error:
            error.ahead = 1
            raise


def _is_too_deep(text: str) -> bool:
    return len(text) > 2 * MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH < _depth(text)


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object that the line is. Raises LineError."""
    if _is_too_deep(text):
        raise LineError(f"nested deeper than {MAX_DEPTH}")
    try:
        fields, end = _scan(text, 0)
    except StopIteration:
        if text[0].isspace():
            return parse_object(text.lstrip())
        if text[0] == "\ufeff":
            raise LineError("not JSON: a byte order mark stands before the object") from None
        raise LineError("not JSON: no object begins at column 1") from None
    except json.JSONDecodeError as error:
        raise LineError(f"not JSON: {error.msg}, at column {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise LineError(f"not JSON: {error}") from None
    if end != len(text) and not text[end:].isspace():
        raise LineError(f"not JSON: something follows the object, at column {end + 1}")
    if type(fields) is not dict:
        raise LineError(f"a line must hold a JSON object, not {show(fields)}")
    return fields


def _depth(text: str) -> int:
    """How deep the brackets nest, those inside strings left out; beyond MAX_DEPTH any greater number.

    A line of a hundred records has hundreds of brackets, so they are not walked one by one: each pass takes away all
    the innermost pairs at once.
    """
    brackets = _NO_BRACKETS.sub("", _STRINGS.sub("", text)).replace("{", "[").replace("}", "]")
    depth = 0
    while brackets and depth <= MAX_DEPTH:
        if _TOO_DEEP in brackets:
            return depth + len(_TOO_DEEP)
        left = brackets.replace("[]", "")
        if len(left) == len(brackets):
            return depth + left.count("[")  # they do not match, and it is not JSON either
        depth, brackets = depth + 1, left
    return depth


def batches(source: Lines, weigh: Callable[[int], None] | None = None) -> Iterator[Iterable[str]]:
    """The lines, many at a time: a call a line would cost as much as parsing it.

    `weigh` is told before a long line is handed on how many bytes its values may take.
    """
    read = getattr(source, "read", None)
    if read is None:
        yield map(decoded, source)
        return
    rest: Any = None
    while chunk := read(_CHUNK):
        whole, newline, rest = (chunk if rest is None else rest + chunk).rpartition(_newline(chunk))
        if newline:
            if weigh is not None and len(whole) > LONG:
                weigh(weight(whole))
            yield _split(whole)
        if len(rest) > MAX_LINE_BYTES:
            raise LineError(f"longer than {MAX_LINE_BYTES} bytes", ahead=1)
    if rest:
        if weigh is not None and len(rest) > LONG:
            weigh(weight(rest))
        yield [decoded(rest)]


def text_lines(
    source: Source, name: str | None, progress: Progress | None = None, weigh: Weigh | None = None
) -> Iterator[str]:
    """The lines of a format that is parsed in Python. Raises HistoryError for a line too long or no text."""
    with opened(source) as lines:
        readline = getattr(lines, "readline", None)
        found = lines if readline is None else iter(lambda: readline(_LONGEST_TEXT_LINE + 1), readline(0))
        for number, line in enumerate(found, 1):
            if len(line) > _LONGEST_TEXT_LINE:
                raise HistoryError(f"longer than {_LONGEST_TEXT_LINE} bytes", number, name)
            if weigh is not None and len(line) > LONG:
                weigh(weight(line))
            if progress is not None and (number % _LOOK_EVERY == 0 or len(line) > _LONG_TEXT_LINE):
                progress(number)
            yield _text_at(line, number, name)


def _text_at(line: str | bytes, number: int, name: str | None) -> str:
    try:
        return decoded(line)
    except LineError as error:
        raise HistoryError(str(error), number, name) from None


def weight(text: str | bytes) -> int:
    """About how many bytes the values in the text take once they are parsed: fifteen megabytes of `[],` become 400."""
    commas, lists, maps, quotes = (
        text.count(sign) if isinstance(text, str) else text.count(sign.encode()) for sign in (",", "[", "{", '"')
    )
    numbers = max(0, commas - lists - maps - quotes // 2)
    return 2 * len(text) + 8 * commas + 72 * lists + 200 * maps + 28 * quotes + 32 * numbers


def _newline(chunk: Any) -> Any:
    return b"\n" if isinstance(chunk, bytes) else "\n"


def _split(whole: Any) -> Iterable[str]:
    if isinstance(whole, str):
        return whole.split("\n")
    try:
        return str(whole, "utf-8").split("\n")
    except UnicodeDecodeError:
        return map(decoded, whole.split(b"\n"))  # line by line, so that the error comes at the right one


def decoded(line: Any) -> str:
    """The text of a line of bytes; text as it is. Raises LineError."""
    if isinstance(line, str):
        return line
    try:
        return str(line, "utf-8")
    except (UnicodeDecodeError, TypeError):
        raise LineError(_no_text(line), ahead=1) from None


def _no_text(line: Any) -> str:
    if isinstance(line, bytes) and line.startswith(b"\x1f\x8b"):
        return "compressed with gzip, not UTF-8 text"
    if isinstance(line, bytes) and line.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16, not UTF-8 text"
    return "not UTF-8 text"
