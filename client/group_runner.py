"""Keeps a consumer in its group: does what the member's state machine says is next."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from raftlog.client.core.errors import KafkaError, TimedOut
from raftlog.client.core.membership import Assign, Fail, Learn, Lose, Member, Partitions, Revoke, Send, Wait
from raftlog.client.router import Router
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.leave_group import LeaveGroupRequest

LANE = "group"
ASK_AGAIN = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
LEAVE_SECONDS = 3.0

Handler = Callable[[Partitions], Awaitable[None]]
Listener = Callable[[Partitions], Awaitable[None] | None]
"""What a consumer calls when it gets partitions or loses them."""


class GroupRunner:
    """`on_assigned`, `on_revoked` and `on_lost` are awaited one after the other; heartbeats go on meanwhile.

    `on_gone` is called at once with what was lost, whatever else is under way: the member may be in the group again,
    under a new generation, long before it comes to `on_lost`.
    """

    def __init__(self, router: Router, group: str, member: Member) -> None:
        self.member = member
        self.on_assigned: Handler = _nothing
        self.on_revoked: Handler = _nothing
        self.on_lost: Handler = _nothing
        self.on_gone: Callable[[Partitions], None] = lambda partitions: None
        self.on_failure: Callable[[KafkaError], None] = lambda error: None
        self.failure: KafkaError | None = None
        """Why the member is out for good."""
        self.losses = 0
        """How often everything was lost."""
        self.leaving: Partitions = frozenset()
        """What is to be given up, once the handlers before have ended."""
        self._router = router
        self._group = group
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._beside: asyncio.Task[None] | None = None
        """Asks something for whose answer nothing waits."""
        self._handlers: asyncio.Queue[Coroutine[Any, Any, None]] = asyncio.Queue()
        self._handling: asyncio.Task[None] | None = None
        self._in_handler = False
        self._stopped = False

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._run())
            self._task.add_done_callback(self._ended)
        if self._handling is None:
            self._handling = loop.create_task(self._handle())
            self._handling.add_done_callback(self._ended)

    def wake(self) -> None:
        self._wake.set()

    async def stop(self, *, leave: bool = True) -> None:
        """End, and tell the coordinator, so that the others need not wait for the session to run out."""
        self._stopped = True
        tasks = [task for task in (self._task, self._beside, self._handling) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while not self._handlers.empty():
            self._handlers.get_nowait().close()
        farewell = self.member.leave() if leave else None
        if farewell is None:
            return
        # Brokers take nothing more from a connection on which they keep a join. A heartbeat of KIP-848 is not kept, and
        # would let the member in again if it came behind the farewell.
        lane = "" if isinstance(farewell.request, LeaveGroupRequest) else LANE
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._router.ask_coordinator(self._group, farewell.request, farewell.reply, lane=lane)
        except (KafkaError, TimeoutError):
            pass  # the session runs out by itself

    def member_now(self) -> tuple[int, str]:
        """Generation (or epoch) and member id, as the coordinator gave them last."""
        return self.member.generation, self.member.member_id

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failure = error if isinstance(error, KafkaError) else KafkaError(f"the group member failed: {error!r}")
            if failure is not error:
                failure.__cause__ = error
            self.failure = failure
            self.on_failure(failure)
        if task.cancelled() and not self._stopped:
            # Somebody cancels whatever tasks there are; what was under way is begun again.
            if task is self._handling:
                self._handling = None
                if self._in_handler:
                    self._in_handler = False
                    self.member.fenced(keeps_name=True)
                    self._wake.set()
            elif task in (self._task, self._beside):
                self._task = None if task is self._task else self._task
                self.member.unanswered(TimedOut("the group member's task was cancelled"), time.monotonic())
            self.start()
        if task is self._beside:
            self._beside = None
            self._wake.set()

    async def _run(self) -> None:
        while True:
            action = self.member.next(time.monotonic())
            match action:
                case Send():
                    self._forget_beside()
                    if not action.is_beside:
                        await self._send(action)
                        continue
                    self._beside = asyncio.get_running_loop().create_task(self._send(action))
                    self._beside.add_done_callback(self._ended)
                case Wait():
                    await self._sleep(action.until - time.monotonic())
                case Learn():
                    await self._learn(action)
                case Assign():
                    self._handlers.put_nowait(self._assign(action.partitions, self.losses))
                case Revoke():
                    self.leaving |= action.partitions
                    self._handlers.put_nowait(self._revoke(action.partitions, self.losses))
                case Lose():
                    self.losses += 1
                    self.leaving = frozenset()
                    self.on_gone(action.partitions)
                    self._handlers.put_nowait(self._lose(action.partitions))
                case Fail():
                    self.failure = action.error
                    self.on_failure(action.error)
                    return

    async def _handle(self) -> None:
        while True:
            handler = await self._handlers.get()
            self._in_handler = True
            await handler
            self._in_handler = False

    async def _assign(self, partitions: Partitions, losses: int) -> None:
        if losses == self.losses:
            await self.on_assigned(partitions)

    async def _revoke(self, partitions: Partitions, losses: int) -> None:
        if losses == self.losses:
            await self.on_revoked(partitions)
        if losses == self.losses:
            self.leaving -= partitions
            self.member.revoked()
            self._wake.set()

    async def _lose(self, partitions: Partitions) -> None:
        await self.on_lost(partitions)

    async def _send(self, action: Send) -> None:
        try:
            answer = await self._router.ask_coordinator(
                self._group,
                action.request,
                action.reply,
                lane=LANE,
                timeout=self._router.timeout + action.wait,
            )
        except KafkaError as error:
            self._router.forget_coordinator(self._group)
            self.member.unanswered(error, time.monotonic())
            return
        if getattr(answer, "error_code", 0) in ASK_AGAIN:
            self._router.forget_coordinator(self._group)
        self.member.answered(answer, time.monotonic())

    def _forget_beside(self) -> None:
        forgotten, self._beside = self._beside, None
        if forgotten is not None:
            forgotten.cancel()

    async def _learn(self, action: Learn) -> None:
        try:
            await self._router.retrying(lambda: self._router.metadata(list(action.topics) or None))
        except KafkaError as error:
            self.member.unanswered(error, time.monotonic())
            return
        known = self._router.known
        counts = {name: known.partition_count(name) for name in action.topics or known.topics}
        self.member.learned({name: count for name, count in counts.items() if count})

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()


async def _nothing(partitions: Partitions) -> None:
    return


async def tell(
    listener: Listener | None, partitions: Partitions, on_failure: Callable[[KafkaError], None]
) -> None:
    """Call a listener, if there is one. What it raises is told, and stops nothing."""
    if listener is None:
        return
    try:
        result = listener(partitions)
        if inspect.isawaitable(result):
            await result
    except Exception as error:  # noqa: BLE001 - it may raise anything
        failure = error if isinstance(error, KafkaError) else KafkaError(f"a listener failed: {error!r}")
        if failure is not error:
            failure.__cause__ = error
        on_failure(failure)
