"""What the node that leads the metadata quorum does unasked: fence who is silent, give leaders back."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from raftlog.broker.runtime.controller import Controller
from raftlog.metadata.cluster_commands import BrokerHeartbeat, FenceBrokers, RebalanceLeaders
from raftlog.metadata.commands import Command, RegisterBroker
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.liveness import DEFAULT_SESSION_MS, TICK_MS, Liveness, Silence
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId

log = logging.getLogger("raftlog.controller")


class DutySettings(NamedTuple):
    """Settings of the broker that leads. `rebalance_seconds`: 0 switches the automatic rebalance off."""

    session_ms: int = DEFAULT_SESSION_MS
    rebalance_seconds: float = 300.0


class ControllerDuties:
    """Runs on every node and works where the quorum's leader is.

    Invariant: while this node leads, every broker that is not fenced in the image is watched.
    """

    def __init__(
        self, controller: Controller, settings: DutySettings, on_task: Callable[[asyncio.Task[None]], None]
    ) -> None:
        """`on_task` is given every task that is started, and has to hold it."""
        self._controller = controller
        self._settings = settings
        self._on_task = on_task
        self._loop = asyncio.get_running_loop()
        self._liveness = Liveness(settings.session_ms)
        self._connected: dict[BrokerId, bool] = {}
        self._leads = False
        self._ticking: asyncio.TimerHandle | None = None
        self._rebalancing: asyncio.TimerHandle | None = None
        controller.before_deciding = self._before_deciding
        controller.subscribe(self._publish)
        controller.log.on_peer(self._peer_changed)
        controller.log.on_leadership(self._leadership_changed)

    def close(self) -> None:
        """Do nothing more."""
        self._leadership_changed(False)

    def silent_ms(self, broker_id: BrokerId) -> int:
        """For how long the leader has not heard a broker; 0 when this node does not lead."""
        return self._liveness.silent_ms(broker_id, self._now_ms())

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # -- what happens ------------------------------------------------------------------------------

    def _leadership_changed(self, leads: bool) -> None:
        for timer in (self._ticking, self._rebalancing):
            if timer is not None:
                timer.cancel()
        self._ticking = self._rebalancing = None
        self._leads = leads
        if not leads:
            return
        now_ms = self._now_ms()
        self._liveness.begin(now_ms)
        for node_id, connected in self._connected.items():
            if not connected:
                self._liveness.connection(node_id, False, now_ms)
        silent_ms = self._silence_by_node()
        for broker in self._controller.image.brokers.values():
            if not broker.fenced:
                silent = silent_ms.get(broker.broker_id, 0)
                self._liveness.watch(broker.broker_id, broker.epoch, now_ms, silent, heard=False)
        log.info("this node decides on metadata now")
        self._ticking = self._loop.call_later(TICK_MS / 1000, self._tick)
        if self._settings.rebalance_seconds > 0:
            self._rebalancing = self._loop.call_later(self._settings.rebalance_seconds, self._rebalance)

    def _silence_by_node(self) -> dict[int, int]:
        """For how many milliseconds each node is known to have been silent: a leader that was stopped was not heard
        long before another one was elected.
        """
        status = self._controller.log.status()
        members = (*status.voters, *status.observers)
        return {m.node_id: int(m.last_contact_seconds * 1000) for m in members if m.last_contact_seconds >= 0}

    def _peer_changed(self, node_id: int, connected: bool) -> None:
        broker_id = BrokerId(node_id)  # a node of the quorum is the broker of that number
        self._connected[broker_id] = connected
        if self._leads:
            self._liveness.connection(broker_id, connected, self._now_ms())

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not self._leads:
            return
        for broker_id in delta.changed_brokers:
            broker = image.brokers.get(broker_id)
            if broker is None or broker.fenced:
                self._liveness.forget(broker_id)
            else:
                self._liveness.watch(broker_id, broker.epoch, self._now_ms())

    def _before_deciding(self, command: Command[Any]) -> Command[Any]:
        if isinstance(command, BrokerHeartbeat):
            self._liveness.heard(command.broker_id, command.broker_epoch, self._now_ms())
        elif isinstance(command, RegisterBroker):
            alive = self._liveness.is_alive(command.broker_id, self._now_ms())
            if alive != command.previous_is_alive:
                return dataclasses.replace(command, previous_is_alive=alive)
        return command

    # -- what is done ------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._ticking = self._loop.call_later(TICK_MS / 1000, self._tick)
        silent = self._liveness.tick(self._now_ms())
        if silent:
            self._on_task(self._loop.create_task(self._fence(silent)))

    async def _fence(self, silent: tuple[Silence, ...]) -> None:
        for one in silent:
            broker = self._controller.image.brokers.get(one.broker_id)
            has_left = broker is not None and broker.in_controlled_shutdown
            level = logging.INFO if has_left else logging.WARNING
            log.log(level, "broker=%d epoch=%d is fenced: %s", one.broker_id, one.broker_epoch, one.reason)
        brokers = tuple((one.broker_id, one.broker_epoch) for one in silent)
        began = self._loop.time()
        answer = await self._controller.execute_as_leader(FenceBrokers(brokers))
        if answer.error is ErrorCode.NONE:
            seconds = self._loop.time() - began
            log.info("brokers=%s fenced, %d partitions changed in %.3f s", answer.fenced, answer.partitions, seconds)
            return
        # Another node decides by now, and watches them itself.
        level = logging.INFO if answer.error is ErrorCode.NOT_CONTROLLER else logging.ERROR
        log.log(level, "brokers could not be fenced: %s", answer.error.name)
        for broker_id, epoch in brokers:
            self._liveness.watch(broker_id, epoch, self._now_ms())

    def _rebalance(self) -> None:
        self._rebalancing = self._loop.call_later(self._settings.rebalance_seconds, self._rebalance)
        self._on_task(self._loop.create_task(self._give_back_leaders()))

    async def _give_back_leaders(self) -> None:
        answer = await self._controller.execute_as_leader(RebalanceLeaders())
        if answer.results:
            log.info("%d partitions given back to their preferred leaders", len(answer.results))
