"""An event loop whose time is moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Timer:
    """A callback and its moment."""

    def __init__(self, when: float, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.when = when
        self.callback = callback
        self.arguments = arguments
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def run(self) -> None:
        if not self.cancelled:
            self.callback(*self.arguments)


class ManualLoop:
    """The part of a loop that knows timers; there is nothing else, so that whoever needs more is noticed."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []
        self.soon: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., Any], *arguments: Any, context: Any = None) -> Timer:
        self.timers.append(Timer(when, callback, arguments))
        return self.timers[-1]

    def call_later(self, seconds: float, callback: Callable[..., Any], *arguments: Any, context: Any = None) -> Timer:
        return self.call_at(self.now + seconds, callback, *arguments)

    def call_soon(self, callback: Callable[..., Any], *arguments: Any, context: Any = None) -> Timer:
        self.soon.append(Timer(self.now, callback, arguments))
        return self.soon[-1]

    def turn(self) -> None:
        """One turn of the loop."""
        ready, self.soon = self.soon, []
        due = [timer for timer in self.timers if timer.when <= self.now]
        self.timers = [timer for timer in self.timers if timer.when > self.now]
        for timer in (*ready, *due):
            timer.run()

    def advance_to(self, moment: float) -> None:
        """Let all timers until then run, and what follows from them."""
        while self.soon or any(timer.when <= moment for timer in self.timers):
            if not self.soon:
                self.now = max(self.now, min(timer.when for timer in self.timers))
            self.turn()
        self.now = moment
