"""A broker's membership in its cluster: registration, heartbeats, and controlled shutdown.

```
 registering ──registered──▶ fenced ◀──────▶ serving ──controlled_shutdown()──▶ controlled shutdown ──▶ stopped
      ▲                        │                │
      └── the epoch is stale: somebody forgot or replaced us
```
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from raftlog.broker.runtime.cannot_start import CannotStart
from raftlog.broker.runtime.controller import Controller
from raftlog.metadata.cluster_commands import BrokerHeartbeat, HeartbeatAnswer
from raftlog.metadata.commands import NO_EPOCH, RegisterBroker
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerEpoch

log = logging.getLogger("raftlog.lifecycle")

REGISTRATION_RETRY_SECONDS = 0.1
DUPLICATE_SECONDS_MAX = 10.0
"""A broker that was cut off may count as alive until its session ends. After this time somebody really has our id."""

ANSWER_SECONDS_MAX = 1.0
"""A heartbeat that is not answered by then is followed by the next one."""

CONTROLLED_SHUTDOWN_SECONDS_MAX = 5.0
"""A broker that cannot hand over by then (nobody leads the quorum) stops all the same: it is fenced for its silence."""

ALONE_SECONDS = 0.25
"""A broker that is to stop, and has no connection with most voters for so long, goes: nobody can take over from it."""

LOOK_SECONDS = 0.05


class State(Enum):
    """Where a broker is in its life."""

    REGISTERING = "registering"
    FENCED = "fenced"
    SERVING = "serving"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    STOPPED = "stopped"


class LifecycleSettings(NamedTuple):
    """Times in seconds."""

    heartbeat_seconds: float = 0.3
    duplicate_seconds_max: float = DUPLICATE_SECONDS_MAX


class BrokerLifecycle:
    """One broker's way through its states.

    Invariant: after `left`, and while `registering`, no heartbeat asks to be unfenced. While `wants_fence()` the broker
    asks to be fenced, whatever it has caught up with.
    """

    def __init__(
        self,
        controller: Controller,
        registration: RegisterBroker,
        settings: LifecycleSettings,
        offline_directories: Callable[[], tuple[bytes, ...]],
    ) -> None:
        """`registration`: what this broker says of itself, also when it has to register again."""
        self._controller = controller
        self._registration = registration
        self._settings = settings
        self._offline_directories = offline_directories
        self._loop = asyncio.get_running_loop()
        self.state = State.REGISTERING
        self._serving = asyncio.Event()
        self._wake = asyncio.Event()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._task: asyncio.Task[None] | None = None
        self.on_registered: Callable[[BrokerEpoch], None] | None = None
        self.wants_fence: Callable[[], bool] = _never
        self.cordoned_directories: Callable[[], tuple[bytes, ...]] = tuple

    # -- joining -----------------------------------------------------------------------------------

    async def register(self) -> BrokerEpoch:
        """Register until the cluster takes this broker; its epoch. Raises CannotStart."""
        deadline: float | None = None
        logged = ""
        while True:
            cordoned = self.cordoned_directories()
            answer = await self._controller.register(
                dataclasses.replace(self._registration, cordoned_directories=cordoned)
            )
            match answer.error:
                case ErrorCode.NONE:
                    self.state = State.FENCED
                    # What was true of the last stop is not true of the next registration.
                    self._registration = _without_previous(self._registration)
                    if self.on_registered is not None:
                        self.on_registered(answer.broker_epoch)
                    return answer.broker_epoch
                case ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                    deadline = deadline or self._loop.time() + self._settings.duplicate_seconds_max
                    if self._loop.time() > deadline:
                        raise CannotStart(answer.message or answer.error.message)
                case ErrorCode.INCONSISTENT_CLUSTER_ID | ErrorCode.INVALID_REGISTRATION | ErrorCode.UNSUPPORTED_VERSION:
                    raise CannotStart(answer.message or answer.error.message)
                case _:
                    pass  # the cluster cannot take it yet: it is asked again
            if logged != answer.error.name:
                logged = answer.error.name
                log.info("not registered yet: %s: %s", logged, answer.message)
            await asyncio.sleep(REGISTRATION_RETRY_SECONDS)

    def start(self) -> None:
        """Begin to send heartbeats; call it when the broker can serve."""
        self._task = self._loop.create_task(self._run())

    async def wait_until_serving(self) -> None:
        """Return when the cluster counts on this broker for the first time. Raises what ended its membership."""
        assert self._task is not None
        serving = self._loop.create_task(self._serving.wait())
        await asyncio.wait([serving, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            serving.cancel()
            await self._task

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The heartbeats. It ends by itself only when the cluster refuses the broker (CannotStart)."""
        return self._task

    # -- heartbeats ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._stopped.done():
            answer = await self._controller.execute(self._heartbeat(), ANSWER_SECONDS_MAX)
            if answer.error is ErrorCode.STALE_BROKER_EPOCH and self.state is not State.CONTROLLED_SHUTDOWN:
                await self._register_again(answer)
                continue
            self._handle_answer(answer)
            if not self._stopped.done():
                await self._pause(answer)

    def _heartbeat(self) -> BrokerHeartbeat:
        image, epoch = self._controller.image, self._controller.broker_epoch
        own = image.brokers.get(self._registration.broker_id)
        caught_up = own is not None and own.epoch == epoch
        return BrokerHeartbeat(
            broker_id=self._registration.broker_id,
            broker_epoch=epoch,
            metadata_offset=image.version,
            want_fence=not caught_up or self.wants_fence(),
            want_shut_down=self.state is State.CONTROLLED_SHUTDOWN,
            offline_directories=self._offline_directories(),
            cordoned_directories=self.cordoned_directories(),
        )

    def _handle_answer(self, answer: HeartbeatAnswer) -> None:
        if answer.error is ErrorCode.STALE_BROKER_EPOCH:
            # We are leaving, and nobody counts on us any more.
            self._stop()
            return
        if answer.error is not ErrorCode.NONE:
            return
        if answer.should_shut_down and self.state is State.CONTROLLED_SHUTDOWN:
            self._stop()
        elif self.state is State.FENCED and not answer.is_fenced:
            self.state = State.SERVING
            self._serving.set()
            log.info("serving as epoch %d of broker %d", self._controller.broker_epoch, self._registration.broker_id)
        elif self.state is State.SERVING and answer.is_fenced:
            self.state = State.FENCED
            log.warning("fenced by the controller; %s", "as asked" if self.wants_fence() else "asking to come back")

    def _stop(self) -> None:
        self.state = State.STOPPED
        if not self._stopped.done():
            self._stopped.set_result(None)

    async def _register_again(self, answer: HeartbeatAnswer) -> None:
        log.warning("registering again: %s", answer.message)
        self.state = State.REGISTERING
        await self.register()

    async def _pause(self, answer: HeartbeatAnswer) -> None:
        # Fenced, or leaving: every round counts.
        waiting = self.state is not State.SERVING and answer.error is ErrorCode.NONE and not self.wants_fence()
        seconds = self._settings.heartbeat_seconds / (10 if waiting else 1)
        timer = self._loop.call_later(seconds, self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        timer.cancel()

    def heartbeat_now(self) -> None:
        """Send the next heartbeat now: a directory failed or is cordoned, or the broker is to leave."""
        self._wake.set()

    # -- leaving ------------------------------------------------------------------------------------

    async def controlled_shutdown(self, seconds_max: float = CONTROLLED_SHUTDOWN_SECONDS_MAX) -> bool:
        """Have the controller move all leaders away; whether it did so in time. Serve on until this returns."""
        if self.state not in (State.SERVING, State.FENCED) or self._task is None:
            return False
        self.state = State.CONTROLLED_SHUTDOWN
        self.heartbeat_now()
        began = self._loop.time()
        alone_since: float | None = None
        while not self._stopped.done():
            await asyncio.wait([self._stopped], timeout=LOOK_SECONDS)
            now = self._loop.time()
            alone_since = None if not self.is_alone() else now if alone_since is None else alone_since
            if alone_since is not None and now - alone_since >= ALONE_SECONDS:
                log.warning("leaders are not handed over: most voters of the quorum are gone, and nobody can take them")
                return False
            if now - began >= seconds_max and not self._stopped.done():
                log.warning("leaders could not be handed over in %.1f s: nobody leads the quorum", seconds_max)
                return False
        return True

    def is_alone(self) -> bool:
        """Whether this broker has no connection with a majority of the voters, so that nothing can be decided."""
        status = self._controller.log.status()
        here = sum(voter.connected or voter.node_id == status.node_id for voter in status.voters)
        return 2 * here <= len(status.voters)

    async def close(self) -> None:
        """Stop the heartbeats."""
        self._stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _never() -> bool:
    return False


def _without_previous(registration: RegisterBroker) -> RegisterBroker:
    return dataclasses.replace(registration, previous_broker_epoch=NO_EPOCH, log_survived=True)
