"""One data directory (log.dirs): its lock, its identity, its checkpoints and the partitions in it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final, NamedTuple

from raftlog.broker.core.log.checkpoint_text import (
    CorruptCheckpoint,
    format_offsets,
    format_partition_metadata,
    format_properties,
    parse_offsets,
    parse_partition_metadata,
    parse_properties,
)
from raftlog.broker.ports import Disk
from raftlog.broker.store.delayed_deletions import remove_emptied
from raftlog.broker.store.files import read_whole, replace_whole, write_new
from raftlog.broker.store.names import (
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    DELETE_DIRECTORY_SUFFIX,
    FUTURE_DIRECTORY_SUFFIX,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    STRAY_DIRECTORY_SUFFIX,
    doomed_directory,
    parse_partition_directory,
    partition_directory,
)
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.store import Store
from raftlog.wire.uuids import uuid_from_text, uuid_to_text

logger = logging.getLogger("raftlog.store")

CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED_OFFSETS)
METADATA_LOG: Final = "__cluster_metadata-0"


class DataDirectoryInUse(Exception):
    """Another process has the directory, or it belongs to another broker or cluster. The message says which."""


def cluster_of_directory(disk: Disk, path: str) -> str:
    """The id of the cluster that a data directory belongs to; "" for a new one, or one that cannot be read now."""
    try:
        found = parse_properties(read_whole(disk, f"{path}/{META_PROPERTIES}").decode(errors="replace"))
    except OSError:
        return ""
    return found.get("cluster.id", "")


class Checkpoint(NamedTuple):
    """The text of one checkpoint file, and its number: a later one has a higher number."""

    name: str
    number: int
    text: str


class DataDirectory:
    """`logs` by (topic, partition). `offline_reason` is why none of them is served. `arriving` are about to lie here.
    `recovery_points_lost`: a directory has the file from its beginning. `found_futures` are the names of copies that a
    move had not finished when the broker started.
    """

    __slots__ = (
        "_checkpoints",
        "_lock",
        "_renamed",
        "_store",
        "_writing",
        "_written",
        "arriving",
        "clean",
        "directory_id",
        "found_futures",
        "logs",
        "offline_reason",
        "path",
        "recovery_points_lost",
        "stale",
        "unrecovered",
    )

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self.path = os.path.abspath(path)
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.arriving: dict[tuple[str, int], PartitionLog] = {}
        self.found_futures: list[str] = []
        # Partitions that are gone, of which the checkpoint files may still tell.
        self.stale: set[tuple[str, int]] = set()
        self.clean = self.recovery_points_lost = False
        self.directory_id = bytes(16)
        self.offline_reason: str | None = None
        # Logs that have yet to be recovered.
        self.unrecovered = 0
        self._lock = -1
        # Whether a directory may have a new name that is not on stable storage; one may come from an earlier life.
        self._renamed = True
        # What each checkpoint held when it was last written: an idle broker writes nothing.
        self._written: dict[str, Checkpoint] = {}
        self._checkpoints = 0
        self._writing = Lock()

    # Starting and stopping ---------------------------------------------------------------------------

    @property
    def disk(self) -> Disk:
        return self._store.disk

    def open(self, node_id: int, cluster_id: str) -> None:
        """Take the directory, making it if it is absent. Raises OSError, DataDirectoryInUse."""
        disk = self._store.disk
        disk.make_directory(self.path, durable=True)
        try:
            self._lock = disk.lock(f"{self.path}/{LOCK}")
        except BlockingIOError:
            raise DataDirectoryInUse(
                f"{self.path} is locked: another broker is running on it. Stop that one, or use another data directory."
            ) from None
        self._identify(node_id, cluster_id)
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        self.clean = disk.exists(marker)
        if self.clean:
            # From here on a crash must be seen as one.
            disk.remove(marker)
            disk.sync_directory(self.path)

    def _identify(self, node_id: int, cluster_id: str) -> None:
        path = f"{self.path}/{META_PROPERTIES}"
        wanted = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id)}
        try:
            found = parse_properties(read_whole(self._store.disk, path).decode(errors="replace"))
        except FileNotFoundError:
            found = {}
        for name in ("cluster.id", "node.id"):
            _refuse_another(path, name, found.get(name, wanted[name]), wanted[name])
        try:
            self.directory_id = uuid_from_text(found["directory.id"])
        except (KeyError, ValueError):
            points = f"{self.path}/{RECOVERY_POINTS}"
            if self.find_partitions() == ([], []) and not self._store.disk.exists(points):
                # Before the id: whoever has one and no such file has lost it.
                replace_whole(self._store.disk, points, format_offsets({}).encode(), sync=True)
            self.directory_id = os.urandom(16)
            text = format_properties({**wanted, "directory.id": uuid_to_text(self.directory_id)})
            replace_whole(self._store.disk, path, text.encode(), sync=True)

    def close(self) -> None:
        """Give up the lock."""
        if self._lock >= 0:
            self._store.disk.close(self._lock)
            self._lock = -1

    def sync_filesystem(self) -> bool:
        """Return when all that was written since the directory was opened is on stable storage; False where the disk
        cannot do that at once. Partitions lie on the file system of the directory. Raises OSError.
        """
        return self._store.disk.sync_filesystem(self._lock)

    def mark_clean(self) -> None:
        """Everything is on stable storage and the checkpoints say so. Raises OSError."""
        text = json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":"))
        replace_whole(self._store.disk, f"{self.path}/{CLEAN_SHUTDOWN}", text.encode(), sync=True)

    # Partitions --------------------------------------------------------------------------------------

    def find_partitions(self) -> tuple[list[tuple[str, int]], list[str]]:
        """(partitions that live here, names of directories of deleted ones). Raises OSError."""
        live, doomed, self.found_futures = [], [], []
        for name in self._store.disk.list_directory(self.path):
            if name.endswith(DELETE_DIRECTORY_SUFFIX):
                doomed.append(name)
            elif name.endswith(FUTURE_DIRECTORY_SUFFIX):
                self.found_futures.append(name)
            elif (partition := parse_partition_directory(name)) is not None and name != METADATA_LOG:
                live.append(partition)
        return live, doomed

    def partition_path(self, topic: str, index: int) -> str:
        return f"{self.path}/{partition_directory(topic, index)}"

    def create_partition(self, topic: str, index: int, topic_id: bytes) -> bool:
        """Make the directory of a new partition; whether it is empty. Synced with the first flush of the log. Raises
        OSError, and leaves nothing that was not there.
        """
        disk, path = self._store.disk, self.partition_path(topic, index)
        is_new = not disk.exists(path)
        text = format_partition_metadata(uuid_to_text(topic_id))
        try:
            disk.make_directory(path)
            write_new(disk, f"{path}/{PARTITION_METADATA}", text.encode(), sync=False, replacing=not is_new)
        except OSError:
            if is_new:
                disk.remove_directory(path)
            raise
        return is_new

    def topic_id_of(self, path: str) -> bytes | None:
        """The topic id that a partition's directory was made for; None if it does not say. Raises OSError."""
        try:
            text = read_whole(self._store.disk, f"{path}/{PARTITION_METADATA}").decode(errors="replace")
            return uuid_from_text(parse_partition_metadata(text))
        except FileNotFoundError:
            return None
        except (CorruptCheckpoint, ValueError) as error:
            logger.warning("log=%s partition.metadata cannot be read: %s", path, error)
            return None

    def set_aside(self, path: str, *, doomed: bool) -> str:
        """Rename a partition's directory, so that its name is free; the new path. Raises OSError.

        A doomed one is removed by a restart; a stray one is kept until a person removes it.
        """
        name = doomed_directory(path.rpartition("/")[2], os.urandom(16).hex())
        if not doomed:
            name = name.removesuffix(DELETE_DIRECTORY_SUFFIX) + STRAY_DIRECTORY_SUFFIX
        new_path = f"{self.path}/{name}"
        self._store.disk.rename(path, new_path)
        self._renamed = True
        return new_path

    def sync_names(self) -> None:
        """To be called before a file in a directory that was set aside is touched. Raises OSError.

        After a power cut the directory might have its old name again, and be a log with a hole in it.
        """
        if self._renamed:
            self._store.disk.sync_directory(self.path)
            self._renamed = False

    def remove_doomed(self, path: str) -> None:
        """Remove a directory that was set aside, whose files may be open still. Raises OSError."""
        self.sync_names()
        remove_emptied(self._store.disk, path)

    # Checkpoints -------------------------------------------------------------------------------------

    def read_checkpoint(self, name: str) -> dict[tuple[str, int], int]:
        """Offsets by (topic, partition); empty, and the stop counts as unclean, if it cannot be read."""
        try:
            return parse_offsets(read_whole(self._store.disk, f"{self.path}/{name}").decode(errors="replace"))
        except FileNotFoundError:
            pass
        except CorruptCheckpoint as error:
            logger.error("directory=%s %s cannot be read, every log is checked: %s", self.path, name, error)
            self.clean = False
        self.recovery_points_lost |= name == RECOVERY_POINTS
        return {}

    def checkpoint(self, name: str) -> Checkpoint:
        """What a checkpoint should say now."""
        # Also of those that come: what they are not to forget is safe here before they are.
        logs = (self.logs | self.arriving).items()
        if name == RECOVERY_POINTS:
            offsets = {key: log.recovery_point for key, log in logs}
        elif name == LOG_STARTS:
            offsets = {key: log.log_start_offset for key, log in logs if log.log_start_offset > 0}
        elif name == CLEANED_OFFSETS:
            offsets = {key: log.cleaned_offset for key, log in logs if log.cleaned_offset > 0}
        else:
            offsets = {key: log.high_watermark for key, log in logs}
        self._checkpoints += 1
        return Checkpoint(name, self._checkpoints, format_offsets(offsets))

    def has_changed(self, checkpoint: Checkpoint) -> bool:
        """Whether it says something else than what was written last."""
        written = self._written.get(checkpoint.name)
        return written is None or written.text != checkpoint.text

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Replace the file, from a thread perhaps, unless a later one was written meanwhile. Raises OSError."""
        with self._writing:
            written = self._written.get(checkpoint.name)
            if written is not None and written.number >= checkpoint.number:
                return
            if written is None or written.text != checkpoint.text:
                path = f"{self.path}/{checkpoint.name}"
                replace_whole(self._store.disk, path, checkpoint.text.encode(), sync=True)
            # Also when it was there: one that was made in between, and waits for its thread, comes too late.
            self._written[checkpoint.name] = checkpoint

    def forget_stale(self, key: tuple[str, int]) -> None:
        """If the partition is one of those, bring to stable storage that partitions are gone: their names, and every
        checkpoint without them. Raises OSError.

        It is made again, here or in another directory: after a crash what was safe in the old log would be
        missed in the new one, or both would be found.
        """
        if key not in self.stale:
            return
        self._store.disk.sync_directory(self.path)
        self._renamed = False
        for name in CHECKPOINTS:
            self.write_checkpoint(self.checkpoint(name))
        self.stale.clear()


def read_all_checkpoints(directory: DataDirectory) -> tuple[Mapping[tuple[str, int], int], ...]:
    """(recovery points, log starts, high watermarks, offsets up to which logs are compacted)."""
    return tuple(directory.read_checkpoint(name) for name in CHECKPOINTS)


def refuse_another_nodes(path: str, node_id: int) -> None:
    """Raise DataDirectoryInUse when a data directory on this machine's disk belongs to another node, or to Kafka.

    The same is found when the directory is opened; among peers that is only after the quorum was joined, under a wrong
    name. Nothing has been written into it when this raises.
    """
    if os.path.isdir(f"{path}/{METADATA_LOG}"):
        raise DataDirectoryInUse(
            f"{path} is a data directory of Apache Kafka: the metadata in {METADATA_LOG} are of a form that only Kafka"
            " reads. Use another directory, and bring the records over with a client."
        )
    found = _identity(path)
    _refuse_another(f"{path}/{META_PROPERTIES}", "node.id", found.get("node.id", str(node_id)), str(node_id))


def refuse_without_metadata(paths: Sequence[str], metadata_directory: str) -> None:
    """Raise DataDirectoryInUse when data directories belong to a cluster whose metadata are not where they should be.

    For a broker alone: nobody else has them, and on new ones it would know none of its topics.
    """
    if os.path.exists(metadata_directory):
        return
    for path in paths:
        cluster_id = _identity(path).get("cluster.id")
        if cluster_id:
            raise DataDirectoryInUse(
                f"{path} belongs to cluster {cluster_id}, whose metadata are missing: there is no {metadata_directory}."
                " Restore it, or say with metadata.log.dir where it lies; to begin anew use another directory."
            )


def _identity(path: str) -> dict[str, str]:
    try:
        with open(f"{path}/{META_PROPERTIES}", errors="replace") as properties:
            return parse_properties(properties.read())
    except OSError:
        return {}  # it is not there yet, or the opening tells why it cannot be read


def _refuse_another(file: str, name: str, found: str, wanted: str) -> None:
    if found != wanted:
        way_out = f", or start with {name}={found}" if name == "node.id" else ""
        raise DataDirectoryInUse(
            f"{file} says {name}={found}, but this broker has {wanted}. Use the data directory of this broker{way_out}."
        )
