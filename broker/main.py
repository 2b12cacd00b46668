"""Starts a broker and stops it: the one place that builds the graph of its parts.

Knows the order of things. Refuses to know how any of them works.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import logging
import os
import random
import signal
import time
from typing import TYPE_CHECKING

import uvloop

from raftlog.broker.api.context import Services
from raftlog.broker.core.fetch.session import FetchSessions
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.runtime.controller import Controller, open_controller, random_id
from raftlog.broker.runtime.fetching import FetchService
from raftlog.broker.runtime.group_coordinator import GroupCoordinator
from raftlog.broker.runtime.log_format import configure_logging
from raftlog.broker.runtime.partition_manager import PartitionManager
from raftlog.broker.server.dispatcher import Dispatcher
from raftlog.broker.server.limits import ServerLimits
from raftlog.broker.server.listener import Server
from raftlog.broker.store.log_manager import LogManager, LogManagerSettings
from raftlog.metadata.commands import NO_EPOCH, RegisterBroker
from raftlog.metadata.records import ResourceType
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.config import BrokerConfig
    from raftlog.broker.store.managed_log import ManagedLog

log = logging.getLogger("raftlog.broker")

# How long replies that are under way may take to leave after SIGTERM.
DRAIN_SECONDS_MAX = 2.0


class CannotStart(Exception):
    """The broker cannot start; the text says why and what to do."""


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)


def run(config: BrokerConfig, *, ready_fd: int | None = None, lifeline_fd: int | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the process's exit code.

    A line of JSON is written to `ready_fd` once clients are accepted; the broker stops when the other end of
    `lifeline_fd` is closed. Raises CannotStart, OSError, JournalDamaged.
    """
    configure_logging(config.node_id, os.environ.get("RAFTLOG_LOG_LEVEL", "INFO"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, ready_fd, lifeline_fd))


class RunningBroker:
    """The parts of a broker that has started."""

    def __init__(self, config: BrokerConfig, controller: Controller) -> None:
        self.config = config
        self.clock = SystemClock()
        self.loop = asyncio.get_running_loop()
        self.controller = controller
        self.stopping = asyncio.Event()
        self.failure: BaseException | None = None
        self._shared_values: object = None
        self._shared_config = LogConfig()
        self.logs = LogManager(
            config.data_dirs,
            self.clock,
            node_id=config.node_id,
            cluster_id=controller.image.cluster_id,
            topic_config=self.topic_config,
            settings=LogManagerSettings(
                retention_check_interval_ms=config["log.retention.check.interval.ms"],
                flush_offset_checkpoint_interval_ms=config["log.flush.offset.checkpoint.interval.ms"],
                flush_start_offset_checkpoint_interval_ms=config["log.flush.start.offset.checkpoint.interval.ms"],
                producer_expiration_ms=config["producer.id.expiration.ms"],
                high_watermark_checkpoint_interval_ms=config["replica.high.watermark.checkpoint.interval.ms"],
                cleaner_enable=config["log.cleaner.enable"],
                cleaner_backoff_ms=config["log.cleaner.backoff.ms"],
                cleaner_dedupe_buffer_size=config["log.cleaner.dedupe.buffer.size"],
            ),
            on_offline=self._log_offline,
        )
        self.partitions = PartitionManager(config.node_id, self.logs, self.topic_config)
        self.fetches = FetchService(
            self.loop,
            self.partitions,
            FetchSessions(
                config["max.incremental.fetch.session.cache.slots"],
                lambda: random.getrandbits(31),
                FetchService.release,
            ),
            config["fetch.max.bytes"],
        )

    def topic_config(self, topic: str) -> LogConfig:
        """A topic's resolved settings; topics without overrides share one object."""
        image = self.controller.image
        values = self.config.resolver.topic_values(image, topic)
        if image.configs_of(ResourceType.TOPIC, topic):
            return LogConfig.from_mapping(values)
        if values is not self._shared_values:
            self._shared_values, self._shared_config = values, LogConfig.from_mapping(values)
        return self._shared_config

    def _log_offline(self, partition_log: ManagedLog, reason: str) -> None:
        self.partitions.log_offline(partition_log, reason)

    def fail(self, error: BaseException) -> None:
        """Stop at once because of a bug: nothing more is answered."""
        self.failure = error
        self.stopping.set()


async def _serve(config: BrokerConfig, ready_fd: int | None, lifeline_fd: int | None) -> int:
    began = time.monotonic()
    for directory in config.data_dirs:
        os.makedirs(directory, exist_ok=True)
    controller = open_controller(config)
    await controller.start()
    cluster_id = await controller.initialize(base64.urlsafe_b64encode(random_id()).decode().rstrip("="))
    broker = RunningBroker(config, controller)
    broker.logs.start()
    controller.subscribe(broker.partitions.publish)
    known = controller.image.brokers.get(config.node_id)
    stopped_in_order = known is not None and all(directory.clean for directory in broker.logs.directories)
    registered = await controller.register(
        RegisterBroker(
            broker_id=config.node_id,
            incarnation_id=random_id(),
            endpoints=config.registered_endpoints(),
            rack=config["broker.rack"],
            cluster_id=cluster_id,
            # Nothing was lost, so the partitions that this broker leads keep their leader epochs (KIP-966).
            previous_broker_epoch=known.epoch if known is not None and stopped_in_order else NO_EPOCH,
        )
    )
    if registered.error is not ErrorCode.NONE:
        raise CannotStart(f"the controller refuses this broker: {registered.error.name}: {registered.error.message}")
    groups = GroupCoordinator(config, controller, broker.partitions, broker.clock, broker.loop)
    services = Services(
        node_id=config.node_id,
        cluster_id=cluster_id,
        config=config,
        clock=broker.clock,
        loop=broker.loop,
        controller=controller,
        logs=broker.logs,
        partitions=broker.partitions,
        fetches=broker.fetches,
        groups=groups,
    )
    server = Server(broker.loop, ServerLimits.from_config(config), Dispatcher(services, config.advertised).dispatch)
    server.on_fatal = broker.fail
    addresses = [server.listen(e.host or "0.0.0.0", e.port, e.listener_name) for e in config.endpoints]
    groups.start()
    background = broker.loop.create_task(broker.logs.run())
    _watch_for_the_end(broker, lifeline_fd)
    for host, port in addresses:
        log.info("serving address=%s:%d cluster=%s start=%.3fs", host, port, cluster_id, time.monotonic() - began)
    # What is here now stays: the collector need not walk it again. Requests make no cycles worth looking for often.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    _tell_ready(ready_fd, config.node_id, addresses[0])
    await broker.stopping.wait()
    return await _stop(broker, server, groups, background)


def _watch_for_the_end(broker: RunningBroker, lifeline_fd: int | None) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        broker.loop.add_signal_handler(number, broker.stopping.set)
    if lifeline_fd is not None:
        broker.loop.add_reader(lifeline_fd, broker.stopping.set)

    def bug(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        trace = error if isinstance(error, Exception) else None
        log.critical("a bug, stopping: %s", context.get("message"), exc_info=trace)
        broker.fail(error if isinstance(error, BaseException) else RuntimeError(str(context.get("message"))))

    broker.loop.set_exception_handler(bug)


def _tell_ready(ready_fd: int | None, node_id: int, address: tuple[str, int]) -> None:
    if ready_fd is None:
        return
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    line = json.dumps({"id": node_id, "pid": os.getpid(), "address": f"{host}:{address[1]}"})
    os.write(ready_fd, line.encode() + b"\n")
    os.close(ready_fd)


async def _stop(
    broker: RunningBroker, server: Server, groups: GroupCoordinator, background: asyncio.Task[None]
) -> int:
    """Answer what is under way, bring everything to the disk, and say so on it."""
    if broker.failure is not None:
        # Not in order: the next start recovers, as after a crash, and trusts nothing that this one concluded.
        log.critical("stopped because of a bug; the next start recovers the logs")
        return 70
    began = time.monotonic()
    log.info("stopping")
    server.stop_accepting()
    groups.stop()
    broker.fetches.answer_all()
    await server.drain(DRAIN_SECONDS_MAX)
    server.close()
    background.cancel()
    await asyncio.gather(background, return_exceptions=True)
    await broker.logs.close()
    await broker.controller.close()
    log.info("stopped after=%.3fs", time.monotonic() - began)
    return 0
