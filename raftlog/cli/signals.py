"""Being told to stop: SIGINT and SIGTERM as one exception, raised once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequested(BaseException):
    """Somebody wants this process to end; not an Exception, so nothing on the way swallows it."""


def _never() -> bool:
    return False


class StopSignals:
    """What `stop_signals_raise` gives: a way to put the exception off while a step must not be cut in two."""

    def __init__(self, ends_early: Callable[[], bool] = _never) -> None:
        self._ends_early = ends_early
        self._held = False
        self._noted = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block a first signal is only noted, and raised at its end; a second one is raised at once,
        for the block may wait for somebody, such as the reader of a pipe."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._noted:
            self._raise()

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        if self._held and not self._noted:
            self._noted = True
        elif not self._ends_early():
            self._raise()

    def _raise(self) -> NoReturn:
        self._noted = False
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise StopRequested


@contextmanager
def stop_signals_raise(ends_early: Callable[[], bool] = _never) -> Iterator[StopSignals]:
    """Within the block the first stop signal raises StopRequested in the main thread; later ones are ignored,
    so that they cannot interrupt the cleaning up that the first one caused.

    `ends_early` is asked before: when what runs can come to its end by itself it does, and the signal raises nothing.
    """
    stops = StopSignals(ends_early)
    before = {each: signal.signal(each, stops.stop) for each in STOP_SIGNALS}
    try:
        yield stops
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
