"""The small text files beside the segments: checkpoints, partition.metadata, meta.properties, in Kafka's form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from raftlog.wire.ids import LeaderEpoch

VERSION: Final = "0"


class CorruptCheckpoint(ValueError):
    """The text is not a checkpoint; the message is the reason."""


def _entries(text: str, width: int) -> list[list[str]]:
    lines = text.splitlines()
    if len(lines) < 2 or lines[0].strip() != VERSION or not lines[1].strip().isdigit():
        raise CorruptCheckpoint("the first two lines are not version 0 and a count")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]) or any(len(row) != width for row in rows):
        raise CorruptCheckpoint(f"{len(rows)} lines of {width} words where {lines[1].strip()} were expected")
    return rows


def _format(rows: Iterable[str]) -> str:
    lines = list(rows)
    return "\n".join([VERSION, str(len(lines)), *lines, ""])


def parse_offsets(text: str) -> dict[tuple[str, int], int]:
    """Offsets by (topic, partition): a recovery-point, log-start or replication checkpoint."""
    try:
        return {(topic, int(index)): int(offset) for topic, index, offset in _entries(text, 3)}
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from None


def format_offsets(offsets: Mapping[tuple[str, int], int]) -> str:
    return _format(f"{topic} {index} {offset}" for (topic, index), offset in offsets.items())


def parse_epochs(text: str) -> list[tuple[LeaderEpoch, int]]:
    """(leader epoch, start offset), oldest first: a leader-epoch-checkpoint."""
    try:
        return [(LeaderEpoch(int(epoch)), int(offset)) for epoch, offset in _entries(text, 2)]
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from None


def format_epochs(epochs: Iterable[tuple[LeaderEpoch, int]]) -> str:
    return _format(f"{epoch} {offset}" for epoch, offset in epochs)


def parse_partition_metadata(text: str) -> str:
    """The topic id, as Kafka writes one (22 characters of base 64)."""
    values = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if values.get("version") != VERSION or not values.get("topic_id"):
        raise CorruptCheckpoint("no version 0 with a topic_id")
    return values["topic_id"].strip()


def format_partition_metadata(topic_id: str) -> str:
    return f"version: {VERSION}\ntopic_id: {topic_id}"


def parse_properties(text: str) -> dict[str, str]:
    """A Java properties file of plain `name=value` lines."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {name.strip(): value.strip() for name, _, value in pairs}


def format_properties(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())
