"""An event loop beside code that has none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import uvloop

from raftlog.client.core.errors import Closed

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, and the way to run coroutines there."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._closed = False
        self._lock = threading.Lock()
        """Of what follows: nothing is begun that nobody would end."""
        self._under_way: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="raftlog-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. When the caller is interrupted, the coroutine is cancelled.

        Raises Closed, also for what is under way when another thread calls `close`.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a blocking call from the event loop's own thread would wait for itself")
        with self._lock:
            if self._closed:
                work.close()
                raise Closed("the client is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._under_way.add(future)
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            if isinstance(error, CancelledError) and self._closed:
                raise Closed("the client was closed meanwhile") from None
            raise
        finally:
            self._under_way.discard(future)

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function that has to run in the loop's thread."""

        async def run() -> T:
            return function()

        return self.run(run())

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for future in [*self._under_way]:
                future.cancel()
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
