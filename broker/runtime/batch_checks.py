"""What takes long with batches, in a thread: they are unpacked, looked at record by record and packed again.

One thread: what batches unfold to is there once at a time, and the event loop shares the interpreter with one alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.validation import BatchRules, BatchVerdict, check_batch

T = TypeVar("T")

Batch: TypeAlias = "tuple[memoryview, LogConfig]"
"""What a client sent, to be written into, and the settings of its log."""


class BatchChecks:
    """The thread is there from the first check on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do it when it is its turn."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="raftlog-checks")
        return self._loop.run_in_executor(self._thread, work)

    def check(
        self,
        batches: Sequence[Batch],
        now_ms: int,
        checked: Callable[[list[BatchVerdict]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`checked` gets a verdict for each batch, in a later turn; `failed` a fault of ours."""

        def work() -> list[BatchVerdict]:
            return [check_batch(records, BatchRules(config), now_ms) for records, config in batches]

        def done(future: asyncio.Future[list[BatchVerdict]]) -> None:
            if future.cancelled():
                return
            try:
                checked(future.result())
            except Exception as error:  # noqa: BLE001 - ends the connection
                failed(error)

        self.run(work).add_done_callback(done)
