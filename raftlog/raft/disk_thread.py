"""The one place that touches a running quorum's journal: steps on the disk, one after the other, in their own thread.

A disk that answers within a fraction of a millisecond may take seconds now and then, when it writes back what others
left in the page cache. On the event loop such a step would silence the broker: it would be fenced, its clients wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from raftlog.histogram import Histogram

Step: TypeAlias = Callable[[], None]
Done: TypeAlias = Callable[[BaseException | None], None]

STEP_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class DiskThread:
    """Runs steps in the order in which they were given; `done` is told on the event loop how each ended."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.seconds = Histogram(STEP_SECONDS)
        """How long the steps took."""
        self._waiting: deque[tuple[Step, Done]] = deque()
        self._running = False
        self._began = 0.0
        self._idle: asyncio.Future[None] | None = None
        # Begun when it is needed. The loop's own threads may all be waiting for a name server.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="raftlog-journal")

    @property
    def busy(self) -> bool:
        """Whether a step has not ended."""
        return self._running

    def busy_for(self) -> float:
        """How long the present step has been running, in seconds."""
        return self._monotonic() - self._began if self._running else 0.0

    def submit(self, step: Step, done: Done) -> None:
        """Run `step` after those before it."""
        self._waiting.append((step, done))
        if not self._running:
            self._run()

    def _run(self) -> None:
        step, done = self._waiting.popleft()
        self._running = True
        self._began = self._monotonic()
        future = asyncio.get_running_loop().run_in_executor(self._thread, step)
        future.add_done_callback(lambda ended: self._ended(done, ended.exception()))

    def _ended(self, done: Done, error: BaseException | None) -> None:
        self._running = False
        self.seconds.observe(self._monotonic() - self._began)
        done(error)
        if self._waiting and not self._running:
            self._run()
        if self._idle is not None and not self._running:
            self._idle.set_result(None)
            self._idle = None

    async def drain(self) -> None:
        """Return when no step is left."""
        while self._running or self._waiting:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def close(self) -> None:
        """Let go of the thread; nothing may be submitted any more."""
        self._thread.shutdown(wait=False)
