"""Names of files and directories of the store, in Kafka's form."""

from __future__ import annotations

from typing import Final

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
SNAPSHOT_SUFFIX: Final = ".snapshot"

DELETE_DIRECTORY_SUFFIX: Final = "-delete"
STRAY_DIRECTORY_SUFFIX: Final = "-stray"
FUTURE_DIRECTORY_SUFFIX: Final = "-future"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANED_OFFSETS: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
LOCK: Final = ".lock"

_OFFSET_DIGITS: Final = 20
_DIRECTORY_NAME_MAX: Final = 255


def offset_of(name: str) -> int | None:
    """The offset that a file name begins with; None if it is the name of something else."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and len(digits) == _OFFSET_DIGITS and digits.isdigit() else None


def snapshot_name(offset: int) -> str:
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def partition_directory(topic: str, index: int) -> str:
    return f"{topic}-{index}"


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a live partition's directory; None for any other name."""
    topic, dash, digits = name.rpartition("-")
    if not dash or not topic or not digits.isdigit():
        return None
    return topic, int(digits)


def doomed_directory(name: str, unique: str) -> str:
    """What a partition's directory is renamed to when it is deleted; unique, and not too long for a file system."""
    suffix = f".{unique}{DELETE_DIRECTORY_SUFFIX}"
    return name[: _DIRECTORY_NAME_MAX - len(suffix)] + suffix


def future_directory(topic: str, index: int, unique: str) -> str:
    """Where a partition's log is copied that is to lie in another data directory; 40 characters more than its name."""
    return f"{partition_directory(topic, index)}.{unique}{FUTURE_DIRECTORY_SUFFIX}"


def parse_future_directory(name: str) -> tuple[str, int] | None:
    """(topic, partition) of such a directory; None for any other name."""
    return parse_partition_directory(name.removesuffix(FUTURE_DIRECTORY_SUFFIX).rpartition(".")[0])
