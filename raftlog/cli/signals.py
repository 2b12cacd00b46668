"""Being told to stop: SIGINT and SIGTERM as one exception, raised once.

Knows which signals mean stop; refuses to know what has to be cleaned up.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequested(BaseException):
    """Somebody wants this process to end; not an Exception, so nothing on the way swallows it."""


@contextmanager
def stop_signals_raise() -> Iterator[None]:
    """Within the block the first stop signal raises StopRequested in the main thread; later ones are ignored,
    so that they cannot interrupt the cleaning up that the first one caused."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise StopRequested

    before = {each: signal.signal(each, stop) for each in STOP_SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
