"""A machine on which one broker at a time keeps its logs, for the tests of everything that has several of them."""

from __future__ import annotations

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.store.disk import OsDisk
from raftlog.broker.store.log_manager import LogManager
from raftlog.broker.store.log_manager_settings import LogManagerSettings
from raftlog.broker.store.log_places import PlaceOf
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.scheduled_tasks import ScheduledTasks
from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from raftlog.wire.errors import ErrorCode
from tests.broker.store.log_world import AtOnce, FakeClock, batch_of

TOPIC_ID = bytes(range(16))
CONFIG = LogConfig(segment_bytes=1000, file_delete_delay_ms=1000, retention_ms=5000)


class Host:
    """A machine with one broker on it at a time."""

    def __init__(self, *directories: str, disk: FaultyDisk | OsDisk | None = None) -> None:
        self.directories = directories or ("/a",)
        self.disk = disk or FaultyDisk()
        self.clock = FakeClock()
        self.offline: list[str] = []
        self.config = CONFIG
        self.manager = self.start()

    def start(
        self, *, node_id: int = 1, cluster_id: str = "c", recover: bool = True, place_of: PlaceOf = lambda *_: None
    ) -> LogManager:
        self.manager = AtOnce(
            self.directories,
            self.clock,
            node_id=node_id,
            cluster_id=cluster_id,
            topic_config=lambda _: self.config,
            settings=LogManagerSettings(),
            disk=self.disk,
            on_offline=lambda log, reason: self.offline.append(f"{log.topic}-{log.index}: {reason}"),
        )
        self.tasks = ScheduledTasks(self.manager)
        self.manager.start(place_of)
        if recover:
            for _ in self.manager.recover():
                pass
        return self.manager

    def kill(self) -> None:
        """The broker's process dies."""
        assert isinstance(self.disk, FaultyDisk)
        for log in self.manager:
            log.storage.abandon()
        self.disk.kill()

    def open(self, topic: str = "t", index: int = 0, topic_id: bytes = TOPIC_ID) -> PartitionLog:
        return self.manager.open(topic, index, topic_id, self.config)

    def append(self, count: int = 1, topic: str = "t", index: int = 0, *, topic_id: bytes = TOPIC_ID) -> PartitionLog:
        log = self.open(topic, index, topic_id)
        for _ in range(count):
            result = log.append_as_leader(batch_of([b"x" * 50], self.clock.ms), 0, self.clock.ms)
            assert result.error is ErrorCode.NONE, result
            log.update_high_watermark(log.log_end_offset)
        return log

    def text(self, path: str) -> str:
        assert isinstance(self.disk, FaultyDisk)
        return bytes(self.disk.names[path].content).decode()

    def names(self, part: str = "") -> list[str]:
        assert isinstance(self.disk, FaultyDisk)
        return sorted(name for name in self.disk.names if part in name)
