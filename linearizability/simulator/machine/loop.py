"""Virtual time and event loops for many simulated processes in one thread.

A `Scheduler` owns the time and the order of everything. Each simulated process has a `SimulatedLoop`, an asyncio event
loop as its code sees it: callbacks run first in, first out, timers by time and then by age. A process can be frozen
(nothing of it runs), busy (what it did took time, and the rest of it waits for that) or dead (nothing of it ever runs
again, not even its `finally` blocks: its objects are kept until the run is over, so that no garbage collection runs
them either).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any, Protocol, TypeVar

logger = logging.getLogger("raftlog.simulator")

T = TypeVar("T")
Callback = Callable[..., object]

THREAD_START_SECONDS = 0.000_05
"""How long a thread of a pool takes to begin its work, and its result to reach the loop, at the least."""

EVENTS_MAX = 20_000_000
"""A run of more events than this goes round in circles."""


class TooManyEvents(Exception):
    """A run does not end: something calls itself back without time passing, or without bound."""


class Sockets(Protocol):
    """What a loop makes connections with: a simulated network."""

    async def connect(self, loop: SimulatedLoop, factory: Callable[[], Any], address: tuple[str, int]) -> Any:
        """(transport, protocol) of a connection to who listens there."""

    def listen(self, loop: SimulatedLoop, factory: Callable[[], Any], address: tuple[str, int]) -> Any:
        """A server that makes a protocol for each connection."""


class Timer:
    """A callback that is due at `when`, or as soon as possible; what asyncio calls a handle."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_when", "loop")

    def __init__(
        self,
        loop: SimulatedLoop | None,
        callback: Callback,
        args: tuple[object, ...],
        context: Context | None = None,
        when: float = 0.0,
    ) -> None:
        self.loop = loop
        self._callback = callback
        self._args = args
        self._context = context
        self._when = when
        self._cancelled = False

    def cancel(self) -> None:
        """Not to be called any more."""
        self._cancelled = True

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._cancelled

    def when(self) -> float:
        """Virtual seconds."""
        return self._when

    def run(self) -> None:
        """Call back, unless cancelled."""
        if self._cancelled:
            return
        if self._context is None:
            self._callback(*self._args)
        else:
            self._context.run(self._callback, *self._args)


class Scheduler:
    """The time, in seconds since the beginning of the run, and everything that is going to happen.

    Invariants: `now` never goes back; what is due at the same time happens in the order in which it was asked for.
    `after_turn(loop)` is called after each turn of a loop.
    """

    def __init__(self, random: Random) -> None:
        self.now = 0.0
        self.random = random
        self.events = 0
        self.after_turn: Callable[[SimulatedLoop], None] | None = None
        self._sequence = 0
        self._heap: list[tuple[float, int, Timer]] = []
        self._turns: deque[SimulatedLoop] = deque()
        self._stopped = False

    def at(self, when: float, callback: Callback, *args: object) -> Timer:
        """Do something that belongs to no process (the network, a fault) at a time."""
        return self._push(Timer(None, callback, args, None, max(when, self.now)))

    def _push(self, timer: Timer) -> Timer:
        self._sequence += 1
        heapq.heappush(self._heap, (timer._when, self._sequence, timer))
        return timer

    def stop(self) -> None:
        """Let `run_until` return after the present turn."""
        self._stopped = True

    def run_until(self, end: float) -> None:
        """Let everything happen that is due before `end`. Raises TooManyEvents."""
        heap, turns = self._heap, self._turns
        self._stopped = False
        try:
            while not self._stopped:
                if turns:
                    turns.popleft()._turn()
                    continue
                if not heap or heap[0][0] > end:
                    break
                when, _, timer = heapq.heappop(heap)
                if when > self.now:
                    self.now = when
                self._fire(timer)
        finally:
            events._set_running_loop(None)
        if not self._stopped:
            self.now = max(self.now, end)

    def _fire(self, timer: Timer) -> None:
        self.events += 1
        if self.events > EVENTS_MAX:
            raise TooManyEvents(f"{self.events} events by {self.now:.3f} s")
        loop = timer.loop
        if loop is None:
            timer.run()
        elif not timer._cancelled:
            loop._enqueue(timer)


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process.

    `node` is who it is for others. `local_time` is ahead of the scheduler's while the process is busy.
    """

    def __init__(self, scheduler: Scheduler, sockets: Sockets, node: int, name: str) -> None:
        self.scheduler = scheduler
        self._sockets = sockets
        self.node = node
        self.name = name
        self.dead = False
        self.frozen = False
        self.local_time = 0.0
        self.failures: list[dict[str, Any]] = []
        self.on_failure: Callable[[dict[str, Any]], None] | None = None
        self._ready: deque[Timer] = deque()
        self._queued = False
        self._graveyard: list[object] = []
        self._thread_seconds: float | None = None
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._signal_handlers: dict[int, Timer] = {}

    def __repr__(self) -> str:
        return f"<{self.name}>"

    # What the world does to it -------------------------------------------------------------------------

    def kill(self) -> None:
        """The process is gone; `kept` objects live on so that nothing of it runs."""
        self.dead = True
        self._graveyard.append(list(self._ready))
        self._ready.clear()

    def keep(self, *objects: object) -> None:
        """Hold objects of a dead process until the run is over."""
        self._graveyard.extend(objects)

    def freeze(self) -> None:
        """SIGSTOP."""
        self.frozen = True

    def thaw(self) -> None:
        """SIGCONT."""
        self.frozen = False
        if self._ready:
            self._queue_turn()

    def spend(self, seconds: float) -> None:
        """What the process is doing now takes time; nothing else of this loop happens meanwhile."""
        if self._thread_seconds is not None:
            self._thread_seconds += seconds
        else:
            self.local_time = max(self.local_time, self.scheduler.now) + seconds

    def deliver_signal(self, number: int) -> bool:
        """As `kill -number`; False when nothing handles it."""
        handler = self._signal_handlers.get(number)
        if handler is not None:
            self._enqueue(Timer(self, handler.run, ()))
        return handler is not None

    # Turns -----------------------------------------------------------------------------------------------

    def _enqueue(self, timer: Timer) -> None:
        if self.dead:
            self._graveyard.append(timer)
            return
        self._ready.append(timer)
        if not self._queued and not self.frozen:
            self._queue_turn()

    def _queue_turn(self) -> None:
        if self._queued:
            return
        self._queued = True
        scheduler = self.scheduler
        if self.local_time > scheduler.now:
            scheduler._push(Timer(None, scheduler._turns.append, (self,), None, self.local_time))
        else:
            scheduler._turns.append(self)

    def _turn(self) -> None:
        """Call what was ready at the beginning, as one iteration of an asyncio loop does."""
        self._queued = False
        if self.dead or self.frozen:
            return
        scheduler = self.scheduler
        if self.local_time > scheduler.now:
            self._queue_turn()
            return
        ready = self._ready
        events._set_running_loop(self)
        left = len(ready)
        scheduler.events += left
        while left and ready:
            left -= 1
            timer = ready.popleft()
            if timer._cancelled:
                continue
            try:
                timer.run()
            except BaseException as error:
                if self.dead:
                    # The power went in the middle of an operation.
                    return
                if not isinstance(error, Exception):
                    raise
                self.call_exception_handler({"message": f"in {timer._callback!r}", "exception": error})
            if self.local_time > scheduler.now:
                break
        if ready and not self.dead:
            self._queue_turn()
        if scheduler.after_turn is not None:
            scheduler.after_turn(self)

    # What asyncio code sees -------------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds, as far as this process has come."""
        now = self.scheduler.now
        if self._thread_seconds is not None:
            return now + self._thread_seconds
        return self.local_time if self.local_time > now else now

    def call_soon(self, callback: Callback, *args: object, context: Context | None = None) -> Any:
        """See asyncio."""
        timer = Timer(self, callback, args, context)
        self._enqueue(timer)
        return timer

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callback, *args: object, context: Context | None = None) -> Any:
        """See asyncio."""
        return self.scheduler._push(Timer(self, callback, args, context, self.time() + max(delay, 0.0)))

    def call_at(self, when: float, callback: Callback, *args: object, context: Context | None = None) -> Any:
        """See asyncio."""
        return self.scheduler._push(Timer(self, callback, args, context, max(when, self.time())))

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None, eager_start: bool | None = None
    ) -> asyncio.Task[Any]:
        """See asyncio. In a dead process nothing begins, and nowhere before its turn."""
        if self.dead:
            self._graveyard.append(coro)
            coro = _never()
        return asyncio.Task(coro, loop=self, name=name or "task", context=context)

    def run_in_executor(  # type: ignore[override]  # typing has no name for the tuple in between
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """The function runs a little later, as in a thread, and its result comes when its time is over."""
        future: asyncio.Future[T] = self.create_future()
        delay = THREAD_START_SECONDS * (1 + 3 * self.scheduler.random.random())
        self.scheduler.at(self.time() + delay, self._run_in_thread, future, func, args)
        return future

    def _run_in_thread(self, future: asyncio.Future[Any], func: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self.dead:
            self._graveyard.append((future, func, args))
            return
        if self.frozen:
            self.scheduler.at(self.scheduler.now + 0.01, self._run_in_thread, future, func, args)
            return
        self._thread_seconds = 0.0
        result: object = None
        failure: Exception | None = None
        try:
            result = func(*args)
        except BaseException as error:
            if not self.dead and not isinstance(error, Exception):
                raise
            failure = error if isinstance(error, Exception) else None
        took, self._thread_seconds = self._thread_seconds, None
        when = self.scheduler.now + took + THREAD_START_SECONDS
        self.scheduler._push(Timer(self, _resolve, (future, result, failure), None, when))

    def set_default_executor(self, executor: object) -> None:
        """There are no threads."""

    async def shutdown_default_executor(self) -> None:
        """There are no threads."""

    async def shutdown_asyncgens(self) -> None:
        """Nothing of the kind is kept."""

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """See asyncio; over the simulated network."""
        return await self._sockets.connect(self, protocol_factory, (str(host), int(port)))

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """See asyncio; on the simulated network."""
        return self._sockets.listen(self, protocol_factory, (str(host), int(port)))

    def add_signal_handler(self, sig: int, callback: Callback, *args: object) -> None:
        """See asyncio, and `deliver_signal`."""
        self._signal_handlers[sig] = Timer(self, callback, args)

    def remove_signal_handler(self, sig: int) -> bool:
        """See asyncio."""
        return self._signal_handlers.pop(sig, None) is not None

    def set_exception_handler(self, handler: Any) -> None:
        """See asyncio."""
        self._exception_handler = handler

    def get_exception_handler(self) -> Any:
        """See asyncio."""
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """See asyncio."""
        logger.error("%s: %s", self.name, context.get("message"), exc_info=context.get("exception"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback or a forgotten task failed: the run hears of it, and then the process's own handler."""
        if self.dead:
            return
        self.failures.append(context)
        if self.on_failure is not None:
            self.on_failure(context)
        if self._exception_handler is not None:
            self._exception_handler(self, context)

    def get_debug(self) -> bool:
        """Never: it would make tracebacks for each future."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Never; see get_debug."""

    def is_running(self) -> bool:
        """Whether the process lives."""
        return not self.dead

    def is_closed(self) -> bool:
        """Whether the process is dead."""
        return self.dead

    def close(self) -> None:
        """Nothing to close."""

    def get_task_factory(self) -> None:
        """Tasks are plain ones."""


def _resolve(future: asyncio.Future[Any], result: object, failure: Exception | None) -> None:
    if future.done():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)


async def _never() -> None:
    """What a task of a dead process runs: nothing; its first step is never taken."""


def new_loop(scheduler: Scheduler, sockets: Sockets, node: int, name: str) -> SimulatedLoop:
    """The loop of a new process."""
    # What asyncio offers beyond this (pipes, subprocesses, raw sockets) is not there, and says so when it is called.
    return SimulatedLoop(scheduler, sockets, node, name)  # type: ignore[abstract]
