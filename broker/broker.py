"""A running broker: builds the graph of its parts, starts them in order, and stops them in order.

What it runs on (`Platform`) and where clients come in (`Listeners`) are given to it.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from functools import partial
from typing import TYPE_CHECKING

from raftlog.broker.api.context import Services
from raftlog.broker.api.dispatcher import Dispatcher
from raftlog.broker.core.fetch.session import FetchSessions
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.descriptors import shares
from raftlog.broker.runtime.batch_checks import BatchChecks
from raftlog.broker.runtime.broker_requests import BrokerRequests
from raftlog.broker.runtime.cannot_start import CannotStart
from raftlog.broker.runtime.cordons import Cordons
from raftlog.broker.runtime.disk_room import CRITICAL_PERCENT, WARNING_PERCENT, DiskRoom
from raftlog.broker.runtime.dynamic_configs import DynamicConfigs
from raftlog.broker.runtime.failure_detector import QuorumWatch, Suspects
from raftlog.broker.runtime.fetching import FetchService
from raftlog.broker.runtime.group_coordinator import GroupCoordinator
from raftlog.broker.runtime.group_lag import TIMEOUT_SECONDS as LAG_TIMEOUT_SECONDS
from raftlog.broker.runtime.group_lag import GroupLags
from raftlog.broker.runtime.metadata_reserve import MetadataReserve
from raftlog.broker.runtime.opening import open_controller, random_id
from raftlog.broker.runtime.partition_manager import PartitionManager
from raftlog.broker.runtime.timer_wheel import TimerWheel
from raftlog.broker.runtime.transaction_coordinator import TransactionCoordinator
from raftlog.broker.runtime.transaction_verifier import TransactionVerifier
from raftlog.broker.server.listeners import KafkaListeners, Listeners
from raftlog.broker.store.log_manager import LogManager
from raftlog.broker.store.log_manager_settings import LogManagerSettings
from raftlog.broker.store.log_places import Place
from raftlog.broker.store.scheduled_tasks import ScheduledTasks
from raftlog.metadata.broker_configs import RACK_AWARE_SELECTOR
from raftlog.metadata.codec import UnsupportedRecord
from raftlog.metadata.commands import NO_EPOCH, RegisterBroker
from raftlog.metadata.configs import MIN_ISR
from raftlog.metadata.elections import directory_of
from raftlog.metadata.feature_levels import unsupported_features
from raftlog.metadata.records import ResourceType
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId
from raftlog.wire.uuids import uuid_to_text

if TYPE_CHECKING:
    from raftlog.broker.config import BrokerConfig
    from raftlog.broker.metrics.monitoring import Monitoring
    from raftlog.broker.platform import Platform
    from raftlog.broker.runtime.clock_check import NodeClock
    from raftlog.broker.runtime.directory_reports import DirectoryReports
    from raftlog.broker.runtime.membership import Membership
    from raftlog.broker.store.store import UnavailableLog

log = logging.getLogger("raftlog.broker")

# How long replies that are under way may take to leave after SIGTERM.
DRAIN_SECONDS_MAX = 2.0


class Broker:
    """One broker. `start` once, then `stop` once; `stopping` is set when it has to be stopped."""

    def __init__(self, config: BrokerConfig, platform: Platform, listeners: Listeners | None = None) -> None:
        """Needs a running event loop. Raises JournalDamaged, JournalLocked, OSError."""
        self.config = config
        self.platform = platform
        self.clock = platform.clock
        self.loop = asyncio.get_running_loop()
        self.controller = open_controller(config, platform)
        if self.controller.forwarding is not None:
            self.controller.forwarding.own_clock = self._own_clock
        self.listeners = listeners or KafkaListeners(config)
        self.stopping = asyncio.Event()
        self.failure: BaseException | None = None
        self.cluster_id = ""
        self.addresses: list[tuple[str, str, int]] = []
        self.membership: Membership | None = None
        self.has_logs = False
        """Whether `logs`, `partitions` and `fetches` are there."""
        self.groups: GroupCoordinator | None = None
        self.transactions: TransactionCoordinator | None = None
        """Like `groups`, once clients are served."""
        self._shared_values: object = None
        self._shared_config = LogConfig()
        self._background: asyncio.Task[None] | None = None
        self._timers = TimerWheel(self.loop)
        self._requests = BrokerRequests(self.loop, self._timers, config.node_id, self._address_of)
        self._verifier = TransactionVerifier(self.loop, self._requests, lambda: self.controller.image)
        self._verifier.reconfigure(config)
        self._monitoring: Monitoring | None = None
        self._room: DiskRoom | None = None
        self._suspects = Suspects(self.loop.time, self.controller.log.disconnected_peers)
        self._quorum_watch: QuorumWatch | None = None
        self._clock_check: asyncio.Task[None] | None = None
        self._reports: DirectoryReports | None = None
        self._cordons: Cordons | None = None

    # -- starting ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Return when clients are served. Raises CannotStart, DataDirectoryInUse, OSError, JournalDamaged,
        NewerVersion, UnsupportedRecord.
        """
        if self.config.has_peers:
            # Imported here: a broker alone starts without what only several brokers need.
            from raftlog.broker.runtime.membership import Membership

            self.membership = Membership(self.config, self.platform, self.controller, self.stopping.set)
            self.membership.set_known_cluster_id()
        # Before anything is decided: who finds a port taken leaves a directory that can be used in any way.
        self.addresses = self.listeners.bind()
        if self.config["raftlog.health.listener"] or self.config["raftlog.metrics.listener"]:
            # Imported here, as all that is needed for it.
            from raftlog.broker.metrics.monitoring import Monitoring

            self._monitoring = Monitoring(self.config, self.controller, self.listeners, self.clock)
            await self._monitoring.open()
        await self.controller.start()
        self.cluster_id = await self._find_cluster_id()
        if unsupported := unsupported_features(self.controller.image.features):
            raise UnsupportedRecord(f"{', '.join(unsupported)} in the metadata log")
        self._warn_of_another_min_isr()
        self._build()
        self.has_logs = True
        self.logs.start(self._place_of)
        self.logs.on_last_directory_failed = self._last_directory_failed
        assert self._room is not None
        self._room.begin()
        if self._monitoring is not None:
            self._monitoring.has_logs(self.logs, self._room)
        if self.membership is None:
            # Among others it is only known later that the metadata are current.
            image = self.controller.image
            self.logs.set_aside_strays(lambda topic, index: image.partition(topic, index) is not None)
        for waiting in self.logs.recover():
            await (asyncio.sleep(0) if waiting is None else asyncio.wait([asyncio.wrap_future(waiting)]))
        self.controller.subscribe(self.partitions.publish)
        if self.membership is not None:
            ports = {name: port for name, _, port in self.addresses}
            await self.membership.join(self.logs, self.partitions, self.cluster_id, ports, self._room)
        else:
            await self._register_alone()
        self._serve()
        if self.membership is not None:
            await self.membership.begin()
            self._watch_contact()

    def _place_of(self, name: str, index: int) -> Place | None:
        topic, state = self.controller.image.topics.get(name), self.controller.image.partition(name, index)
        if topic is None or state is None:
            return None
        return Place(topic.topic_id, directory_of(state, self.config.node_id))

    def _address_of(self, broker_id: BrokerId) -> tuple[str, int] | None:
        return self.controller.image.address_of(broker_id, self.config.inter_broker_listener)

    def _watch_contact(self) -> None:
        self.controller.log.on_peer(self._suspects.on_peer)
        session_seconds = self.config["broker.session.timeout.ms"] / 1000
        listeners = self.listeners
        watch = QuorumWatch(
            self.loop, self.controller.log.status, session_seconds, listeners.disconnect_all, listeners.tell_again
        )
        self._quorum_watch = watch
        self.controller.log.on_peer(watch.on_peer)
        self.partitions.is_in_contact = watch.is_in_contact
        watch.begin()
        forwarding = self.controller.forwarding
        if forwarding is not None:
            from raftlog.broker.runtime.clock_check import ClockCheck

            check = ClockCheck(self._own_clock, forwarding.leaders_clock, self.loop.time)
            self._clock_check = self.loop.create_task(check.run())

    def _own_clock(self) -> NodeClock:
        from raftlog.broker.runtime.clock_check import NodeClock

        return NodeClock(self.config.node_id, self.clock.now_ms())

    def _warn_of_another_min_isr(self) -> None:
        of_cluster = self.config.resolver.broker_value(self.controller.image, MIN_ISR)
        if self.config.is_given(MIN_ISR) and self.config[MIN_ISR] != of_cluster:
            log.warning(
                "min.insync.replicas is %s in the settings of this broker and %s in those of the cluster, which count:"
                " change them with `raftlog config set --broker default min.insync.replicas=…`",
                self.config[MIN_ISR],
                of_cluster,
            )

    async def _find_cluster_id(self) -> str:
        proposed = base64.urlsafe_b64encode(random_id()).decode().rstrip("=")
        if self.membership is not None:
            return await self.membership.find_cluster(proposed)
        return await self.controller.initialize(proposed)

    def _build(self) -> None:
        config = self.config
        self.logs = LogManager(
            config.data_dirs,
            self.clock,
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            topic_config=self.topic_config,
            open_files_max=shares().logs,
            settings=LogManagerSettings.from_config(config),
            disk=self.platform.disk,
            on_offline=self._log_offline,
        )
        self._room = DiskRoom(
            self.loop, self.logs, warning_percent=config[WARNING_PERCENT], critical_percent=config[CRITICAL_PERCENT]
        )
        self._room.reserve = MetadataReserve(config.metadata_directory, self.platform.disk)
        self.logs.store.on_full, self.logs.store.is_full = self._room.log_full, self._room.is_full
        replication = None
        if self.membership is not None:
            self.logs.store.before_loss = partial(self.membership.storage_failed, intact=False)
            replication = self.membership.replication()
        dynamic = DynamicConfigs(
            config,
            lambda values: self.logs.reconfigure(LogManagerSettings.from_config(values)),
            self.listeners.reconfigure,
            self._verifier.reconfigure,
            lambda _: self._tell_cordons(),
        )
        self.controller.subscribe(dynamic.publish)
        self.partitions = PartitionManager(config.node_id, self.logs, self.topic_config, replication)
        self._room.on_room = self._log_back
        self.partitions.on_no_room = self._room.no_room
        self.fetches = FetchService(
            self.loop,
            self._timers,
            self.partitions,
            FetchSessions(
                config["max.incremental.fetch.session.cache.slots"],
                lambda: random.getrandbits(31),
            ),
            config["fetch.max.bytes"],
        )
        if config["replica.selector.class"] == RACK_AWARE_SELECTOR:
            self.fetches.consumers.rack_of = self._rack_of

    def _rack_of(self, broker_id: BrokerId) -> str | None:
        """The rack of a broker that clients can use; None without one."""
        broker = self.controller.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.rack

    async def _register_alone(self) -> None:
        known = self.controller.image.brokers.get(self.config.node_id)
        directories = self.logs.online_directories()
        for missing in {*known.directories} - {*directories} if known is not None else ():
            log.error(
                "the data directory with directory.id=%s in its meta.properties is missing: what lies in it"
                " has no leader until it is back; topics whose data are gone for good must be deleted and made again",
                uuid_to_text(missing),
            )
        stopped_in_order = known is not None and all(directory.clean for directory in self.logs.directories)
        registered = await self.controller.register(
            RegisterBroker(
                broker_id=self.config.node_id,
                incarnation_id=random_id(),
                endpoints=self.config.registered_endpoints(),
                rack=self.config["broker.rack"],
                directories=directories,
                cordoned_directories=self.logs.placement.cordoned_ids(),
                cluster_id=self.cluster_id,
                # Nothing was lost, so the partitions that this broker leads keep their leader epochs (KIP-966).
                previous_broker_epoch=known.epoch if known is not None and stopped_in_order else NO_EPOCH,
            )
        )
        if registered.error is not ErrorCode.NONE:
            text = f"the controller refuses this broker: {registered.error.name}: {registered.message}"
            raise CannotStart(text)
        self._cordons = Cordons(self.controller, self.config.node_id, self.logs.placement.cordoned_ids)
        if len(directories) > 1:
            # Imported here: most brokers have one directory.
            from raftlog.broker.runtime.directory_reports import DirectoryReports

            self._reports = DirectoryReports(self.controller, self.logs, self.config.node_id)
            self._reports.begin()

    def _serve(self) -> None:
        self.groups = GroupCoordinator(
            self.config,
            metadata=self.controller,
            partitions=self.partitions,
            clock=self.clock,
            loop=self.loop,
            timers=self._timers,
        )
        self.transactions = TransactionCoordinator(
            self.config,
            metadata=self.controller,
            partitions=self.partitions,
            clock=self.clock,
            loop=self.loop,
            timers=self._timers,
            requests=self._requests,
            new_producer_id=partial(self.controller.next_producer_id, self.config.node_id),
        )
        services = Services(
            node_id=self.config.node_id,
            cluster_id=self.cluster_id,
            config=self.config,
            clock=self.clock,
            loop=self.loop,
            controller=self.controller,
            logs=self.logs,
            partitions=self.partitions,
            fetches=self.fetches,
            groups=self.groups,
            transactions=self.transactions,
            timers=self._timers,
            requests=self._requests,
            lags=GroupLags(
                lambda: self.controller.image, self._requests.sender("raftlog-lag", LAG_TIMEOUT_SECONDS), self.clock
            ),
            verifier=self._verifier,
            batch_checks=BatchChecks(self.loop),
            suspects=self._suspects,
        )
        dispatcher = Dispatcher(services, self.config.advertised)
        self._requests.serve_here = dispatcher.serve_here
        self.listeners.open(dispatcher.dispatch, self.fail)
        self.controller.subscribe(self._requests.publish)
        self.groups.start()
        self.transactions.start()
        tasks = ScheduledTasks(self.logs)
        self._background = self.loop.create_task(tasks.run())
        if self._monitoring is not None:
            self._monitoring.serves(services, tasks)
        self._background.add_done_callback(self._tasks_ended)

    # -- while it runs -----------------------------------------------------------------------------

    def _tell_cordons(self) -> None:
        """The controller places no partitions on a broker whose directories are all cordoned."""
        if self.membership is not None:
            self.membership.heartbeat_now()
        elif self._cordons is not None:
            self._cordons.changed()

    def topic_config(self, topic: str) -> LogConfig:
        """A topic's resolved settings; topics without overrides share one object."""
        image = self.controller.image
        values = self.config.resolver.topic_values(image, topic)
        if image.configs_of(ResourceType.TOPIC, topic):
            return LogConfig.from_mapping(values)
        if values is not self._shared_values:
            self._shared_values, self._shared_config = values, LogConfig.from_mapping(values)
        return self._shared_config

    def _log_offline(self, partition_log: UnavailableLog, reason: str) -> None:
        self.partitions.log_offline(partition_log, reason)
        if partition_log.intact and self._room is not None:
            self._room.refused(partition_log)
        if self.membership is not None:
            self.membership.storage_failed(intact=partition_log.intact)

    def _log_back(self, refused: UnavailableLog) -> None:
        self.partitions.log_back(refused)
        for coordinator in (self.groups, self.transactions):
            if coordinator is not None:
                coordinator.log_back(refused.topic, refused.index)

    def _last_directory_failed(self, error: OSError) -> None:
        """Nothing can be served here. Others can, if there are any: they take over when this process is gone."""
        if not self.stopping.is_set():
            self.fail(OSError(f"every data directory has failed, the last one with: {error}"))

    def _tasks_ended(self, task: asyncio.Task[None]) -> None:
        """Without it nothing is flushed or removed any more: whoever goes on must know."""
        if not task.cancelled() and (bug := task.exception()) is not None:
            self.loop.call_exception_handler({"message": "the upkeep of the logs", "exception": bug})

    def fail(self, error: BaseException) -> None:
        """Stop at once because of a bug: nothing more is answered."""
        self.failure = error
        self.stopping.set()

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what a part promises does not hold (tests and simulator)."""
        if self.has_logs:
            self.partitions.check_invariants()
            self.fetches.check_invariants()
        self.listeners.check_invariants()
        self._timers.check_invariants()
        if self.groups is not None:
            self.groups.check_invariants()
        if self.transactions is not None:
            self.transactions.check_invariants()

    # -- stopping ----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Hand over what this broker leads, answer what is under way, and bring everything to the disk."""
        began = self.loop.time()
        log.info("stopping")
        if self._quorum_watch is not None:
            self._quorum_watch.end()
        if self._clock_check is not None:
            self._clock_check.cancel()
        if self.membership is not None:
            await self.membership.leave()
        self.listeners.stop_accepting()
        if self.transactions is not None:
            self.transactions.stop()
        if self.groups is not None:
            self.groups.stop()
            self.fetches.answer_all()
        self._requests.close()
        await self.listeners.drain(DRAIN_SECONDS_MAX)
        self.listeners.close()
        if self.membership is not None:
            await self.membership.close()
        if self._cordons is not None:
            await self._cordons.close()
        if self._reports is not None:
            await self._reports.finish()
        if self._background is not None:
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)
        if self.has_logs:
            await self.logs.close()
        await self.controller.close()
        if self._room is not None:
            self._room.end()
        if self._monitoring is not None:
            self._monitoring.close()
        log.info("stopped after=%.3fs", self.loop.time() - began)
