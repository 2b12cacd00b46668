"""What a broker among others has beside the parts of a broker alone: its place in the cluster, and replication."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from raftlog.broker.runtime.cannot_start import CannotStart
from raftlog.broker.runtime.controller_duties import ControllerDuties, DutySettings
from raftlog.broker.runtime.directory_reports import DirectoryReports
from raftlog.broker.runtime.failure_detector import PeerSilence
from raftlog.broker.runtime.full_disk import FullDisk
from raftlog.broker.runtime.last_run import LastRun, forget_last_run, read_last_run, write_last_run
from raftlog.broker.runtime.lifecycle import BrokerLifecycle, LifecycleSettings
from raftlog.broker.runtime.opening import random_id
from raftlog.broker.runtime.replication.replication import Replication
from raftlog.broker.runtime.replication.settings import ReplicationSettings
from raftlog.broker.store.data_directory import cluster_of_directory
from raftlog.metadata.commands import NO_EPOCH, RegisterBroker
from raftlog.metadata.feature_levels import SUPPORTED_FEATURES
from raftlog.metadata.records import FeatureRange
from raftlog.raft.seam import ProposalFailed
from raftlog.wire.ids import BrokerEpoch, BrokerId

if TYPE_CHECKING:
    from raftlog.broker.config import BrokerConfig
    from raftlog.broker.platform import Platform
    from raftlog.broker.runtime.controller import Controller
    from raftlog.broker.runtime.disk_room import DiskRoom
    from raftlog.broker.runtime.partition_manager import PartitionManager
    from raftlog.broker.store.log_manager import LogManager

log = logging.getLogger("raftlog.broker")

LINGER_SECONDS = 0.25
"""After the handover the broker goes on answering for so long, with NOT_LEADER_OR_FOLLOWER: clients learn from that
where to go, at once; a connection that just closes costs them their back-off.
"""

HAND_OVER_SECONDS_MAX = 1.0
NOTE_RETRY_SECONDS = 5.0
"""How long a full disk has before the note of this run is tried again."""


class Membership:
    """The cluster's side of a running broker."""

    def __init__(
        self, config: BrokerConfig, platform: Platform, controller: Controller, stop: Callable[[], None]
    ) -> None:
        """`stop` is called when the cluster refuses this broker while it runs."""
        self._config = config
        self._platform = platform
        self._controller = controller
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._duties: ControllerDuties | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self._replication: Replication | None = None
        self._silence = PeerSilence(controller.log.status)
        self._reports: DirectoryReports | None = None
        # What was acknowledged may be missing from the disk.
        self._distrusted = False
        self._noting: asyncio.TimerHandle | None = None

    # -- joining -----------------------------------------------------------------------------------

    def set_known_cluster_id(self) -> None:
        """Tell the quorum to which cluster the data directories belong, if to any: nodes of another cluster then refuse
        this broker, and are refused.
        """
        for directory in self._config.data_dirs:
            found = cluster_of_directory(self._platform.disk, directory)
            if found:
                self._controller.log.set_cluster_id(found)
                return

    async def find_cluster(self, proposed: str) -> str:
        """The cluster's id: the one in the log, or `proposed` when the cluster is new. Waits for a quorum."""
        while not (found := await self._controller.initialize(proposed)):
            await asyncio.sleep(0)
        self._controller.log.set_cluster_id(found)
        return found

    def replication(self) -> Replication:
        """What the partition manager replicates with."""
        config = self._config
        settings = ReplicationSettings.from_config(config, config.inter_broker_listener)
        self._replication = Replication(
            self._loop,
            config.node_id,
            settings,
            self._controller.alter_partitions,
            registered_epoch=lambda: self._controller.broker_epoch,
            silent_peers=self._silence.peers,
        )
        self._controller.log.on_peer(self._peer_changed)
        return self._replication

    def _peer_changed(self, node_id: int, connected: bool) -> None:
        self._silence.on_peer(node_id, connected)
        if connected and self._replication is not None:
            self._replication.in_contact(BrokerId(node_id))

    async def join(
        self,
        logs: LogManager,
        partitions: PartitionManager,
        cluster_id: str,
        ports: Mapping[str, int],
        room: DiskRoom,
    ) -> None:
        """Register. `ports`: bound ones by listener name. Raises CannotStart."""
        config = self._config
        self._duties = ControllerDuties(self._controller, self._duty_settings(), self._keep)
        last = LastRun() if self._distrusted else read_last_run(self._platform.disk, config.metadata_directory)
        # What is found missing until here is told with the registration, and nothing counts on it afterwards.
        self._distrusted = False
        stopped_in_order = all(directory.clean for directory in logs.directories)
        boot_id = self._platform.boot_id
        registration = RegisterBroker(
            broker_id=config.node_id,
            incarnation_id=random_id(),
            endpoints=config.registered_endpoints(ports),
            rack=config["broker.rack"],
            directories=logs.online_directories(),
            cluster_id=cluster_id,
            fenced=True,
            previous_broker_epoch=last.broker_epoch if stopped_in_order else NO_EPOCH,
            log_survived=bool(boot_id) and last.boot_id == boot_id,
            features=tuple(FeatureRange(name, *levels) for name, levels in sorted(SUPPORTED_FEATURES.items())),
        )
        heartbeat = LifecycleSettings(config["broker.heartbeat.interval.ms"] / 1000)
        self._lifecycle = BrokerLifecycle(self._controller, registration, heartbeat, logs.offline_directories)
        self._lifecycle.on_registered = self._remember
        self._lifecycle.cordoned_directories = logs.placement.cordoned_ids
        full_disk = FullDisk(
            logs, room.is_full, partitions.others_can_lead, partitions.others_wait, self._lifecycle.heartbeat_now
        )
        self._lifecycle.wants_fence = full_disk.wants_fence
        room.on_full, room.on_no_room = full_disk.log_full, full_disk.no_room
        self._reports = DirectoryReports(self._controller, logs, config.node_id)
        await self._lifecycle.register()

    def _remember(self, broker_epoch: BrokerEpoch) -> None:
        """Note under which epoch this run serves; or take away all notes, when they would prove too much.

        Until that succeeds it is tried again. Meanwhile the note of an earlier run may be there: it proves what it
        says, that nothing was lost since that start of the machine, and its epoch is no longer this broker's.
        """
        self._stop_noting()
        disk, directory = self._platform.disk, self._config.metadata_directory
        try:
            if self._distrusted:
                forget_last_run(disk, directory)
            else:
                write_last_run(disk, directory, LastRun(broker_epoch, self._platform.boot_id))
        except OSError as error:
            what = "will trust a disk that failed" if self._distrusted else "will not know that nothing was lost"
            log.error("trying again to note how this run went; as it is, the next start %s: %s", what, error)
            self._noting = self._loop.call_later(NOTE_RETRY_SECONDS, self._remember, broker_epoch)

    def _stop_noting(self) -> None:
        if self._noting is not None:
            self._noting.cancel()
            self._noting = None

    def _duty_settings(self) -> DutySettings:
        config = self._config
        rebalances = config["auto.leader.rebalance.enable"]
        return DutySettings(
            session_ms=config["broker.session.timeout.ms"],
            rebalance_seconds=config["leader.imbalance.check.interval.seconds"] if rebalances else 0,
        )

    async def begin(self) -> None:
        """Ask to be counted on, and return when that is so. Raises CannotStart."""
        assert self._lifecycle is not None and self._reports is not None
        self._lifecycle.start()
        await self._lifecycle.wait_until_serving()
        self._reports.begin()
        self._keep(self._loop.create_task(self._stop_when_refused()))

    async def _stop_when_refused(self) -> None:
        assert self._lifecycle is not None and self._lifecycle.task is not None
        try:
            await asyncio.shield(self._lifecycle.task)
        except CannotStart as error:
            log.critical("stopping: the cluster refuses this broker: %s", error)
            self._stop()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- while it runs -----------------------------------------------------------------------------

    def storage_failed(self, *, intact: bool) -> None:
        """A log or a directory went offline. Unless it is `intact`, as after a full disk, the next start must not
        count on what it finds.
        """
        if not intact:
            self._distrusted = True
            self._remember(NO_EPOCH)
        self.heartbeat_now()

    def heartbeat_now(self) -> None:
        """What the controller is told of this broker has changed."""
        if self._lifecycle is not None:
            self._lifecycle.heartbeat_now()

    # -- leaving -----------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Have others lead what this broker leads, the quorum included. Bounded in time."""
        hands_over = self._lifecycle is not None and self._config["controlled.shutdown.enable"]
        if hands_over and self._lifecycle is not None and await self._lifecycle.controlled_shutdown():
            await asyncio.sleep(LINGER_SECONDS)
        is_alone = self._lifecycle is not None and self._lifecycle.is_alone()
        if self._controller.log.is_leader and not is_alone:
            try:
                async with asyncio.timeout(HAND_OVER_SECONDS_MAX):
                    to = await self._controller.log.transfer_leadership()
                log.info("node %d leads the metadata quorum now", to)
            except (ProposalFailed, TimeoutError) as error:
                log.info("the metadata quorum elects a leader by itself: %s", error)

    async def close(self) -> None:
        """Stop what it does in the background."""
        self._stop_noting()
        if self._duties is not None:
            self._duties.close()
        if self._reports is not None:
            await self._reports.end()
        if self._lifecycle is not None:
            await self._lifecycle.close()
        if self._replication is not None:
            self._replication.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
