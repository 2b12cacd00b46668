"""The one place that touches a running quorum's journal: steps on the disk, one after the other, in a thread when the
disk is slow.

Knows in what order steps run and who waits for them. Refuses to know what a step writes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from raftlog.raft.journal import JournalDamaged, JournalFailed

INLINE_STEP_SECONDS_MAX = 0.002
"""A step that took longer sends the next one to a thread, so that a slow disk does not hold up the event loop; a thread
costs 0.1 ms, which a quick disk (0.2 ms for a write and its fsync) should not have to pay.
"""

Step: TypeAlias = Callable[[], None]
Done: TypeAlias = Callable[[BaseException | None], None]


class DiskSteps:
    """Runs steps in the order in which they were given; `done` is told on the event loop how each ended."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: deque[tuple[Step, Done, bool]] = deque()
        self._running = False
        self._slow = False
        self._began = 0.0
        self._idle: asyncio.Future[None] | None = None
        # A thread of its own, begun when it is needed: the loop's threads may all be waiting for a name server.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="raftlog-journal")

    @property
    def busy(self) -> bool:
        """Whether a step has not ended."""
        return self._running

    def busy_for(self) -> float:
        """How long the present step has been running, in seconds."""
        return self._monotonic() - self._began if self._running else 0.0

    def submit(self, step: Step, done: Done, *, large: bool = False) -> None:
        """Run `step` after those before it. `large`: surely slow, and never on the event loop."""
        self._waiting.append((step, done, large))
        if not self._running:
            self._run()

    def _run(self) -> None:
        while self._waiting and not self._running:
            step, done, large = self._waiting.popleft()
            self._running = True
            self._began = self._monotonic()
            if self._slow or large:
                future = asyncio.get_running_loop().run_in_executor(self._thread, step)
                future.add_done_callback(lambda ended, done=done: self._ended(done, ended.exception()))  # type: ignore[misc]
                return
            self._end(done, _outcome(step))

    def _ended(self, done: Done, error: BaseException | None) -> None:
        self._end(done, error)
        self._run()

    def _end(self, done: Done, error: BaseException | None) -> None:
        self._slow = self._monotonic() - self._began > INLINE_STEP_SECONDS_MAX
        self._running = False
        done(error)
        if self._idle is not None and not self._running and not self._waiting:
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


def _outcome(step: Step) -> BaseException | None:
    try:
        step()
    except (OSError, JournalFailed, JournalDamaged) as error:
        return error
    return None
