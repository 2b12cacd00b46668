"""Writes the source of one Python function, and remembers which message field each line is about.

The two compilers write straight-line functions with it; that a line knows its field costs nothing at run time, and
turns a traceback into "topics.partitions.leader_id".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct as Packing
from types import TracebackType
from typing import Any

_PATHS = "__raftlog_paths__"
ELEMENTS_PER_STEP = 500
"""How many elements of arrays a function that works in steps reads or writes in one."""


class Source:
    """A function being written. `path` is the field that the lines added next are about."""

    def __init__(self, signature: str, names: dict[str, Any]) -> None:
        self.names = dict(names)
        self.path: tuple[str, ...] = ()
        self._lines = [f"def {signature}:"]
        self._paths = [""]
        self._depth = 1
        self._counter = 0

    def line(self, text: str, path: str | None = None) -> None:
        self._lines.append("    " * self._depth + text)
        self._paths.append(".".join(self.path) if path is None else path)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Lines below `opening`, one level in."""
        self.line(opening)
        self._depth += 1
        lines = len(self._lines)
        yield
        if len(self._lines) == lines:
            self.line("pass")
        self._depth -= 1

    @contextmanager
    def field(self, name: str) -> Iterator[None]:
        """Lines about the field `name` of the struct at hand."""
        outer = self.path
        self.path = (*outer, name)
        yield
        self.path = outer

    def fresh(self, prefix: str) -> str:
        """A local variable that is not used yet."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def constant(self, prefix: str, value: object) -> str:
        """A global name of the function for `value`."""
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def packing(self, method: str, format: str) -> str:
        """A global name for the method of a precompiled, big-endian struct."""
        name = f"{method}_{format.replace('?', 'Z')}"
        self.names.setdefault(name, getattr(Packing(">" + format), method))
        return name

    def begin_steps(self) -> None:
        """The function is a generator, and gives way with a bare `yield` at one `step` in so many."""
        self.line(f"steps = {ELEMENTS_PER_STEP}")
        self.line("if False: yield")

    def step(self) -> None:
        """An element is done."""
        self.line("steps -= 1")
        with self.block("if not steps:"):
            self.line(f"steps = {ELEMENTS_PER_STEP}")
            self.line("yield")

    def build(self, name: str, title: str) -> Callable[..., Any]:
        """The function. `title` takes the place of a file name in tracebacks."""
        self.names[_PATHS] = tuple(self._paths)
        exec(compile("\n".join(self._lines), f"<{title}>", "exec"), self.names)
        function: Callable[..., Any] = self.names[name]
        return function

    def text(self) -> str:
        return "\n".join(self._lines)


def join_paths(paths: list[str]) -> str:
    """What a line is about that handles several fields at once: "brokers.port to brokers.rack"."""
    distinct = list(dict.fromkeys(path for path in paths if path))
    if len(distinct) < 2:
        return "".join(distinct)
    return f"{distinct[0]} to {distinct[-1]}"


def field_path(traceback: TracebackType | None) -> str:
    """The field that a generated function was at when an exception passed through it, or ""."""
    found = ""
    while traceback is not None:
        paths = traceback.tb_frame.f_globals.get(_PATHS)
        if paths is not None:
            found = paths[traceback.tb_lineno - 1]
        traceback = traceback.tb_next
    return found
