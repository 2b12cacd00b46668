"""The options of the source, by the names of Spark's Kafka source, and what each stands for."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from raftlog.pipeline.given import (
    CONNECTION_SETTINGS,
    PASSIVE_SETTINGS,
    REFUSED_SETTINGS,
    BadOption,
    Connection,
    Given,
    Settings,
    connection,
)
from raftlog.pipeline.source.offsets import (
    EARLIEST,
    LATEST,
    Partition,
    Position,
    parse_assign,
    parse_numbers,
    parse_position,
)

_logger = logging.getLogger(__name__)

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""In this order, and the last only with includeHeaders."""
DDL = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}
FETCH_BYTES = 8 * 1024 * 1024
"""What is asked of a broker at once, unless kafka.max.partition.fetch.bytes says otherwise."""

OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "groupIdPrefix",
    "commitOffsets",
    "columns",
    "pushFilters",
    # Spark's own source has its ways to wait and try again; there is nothing to be set for ours.
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "path",
)
SETTINGS = Settings(
    used=(
        *CONNECTION_SETTINGS,
        "check.crcs",
        "client.rack",
        "group.id",
        "isolation.level",
        "max.partition.fetch.bytes",
    ),
    # Most concern members of a group, and polling: this source is no member, and does not poll.
    without_effect=(
        *PASSIVE_SETTINGS,
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "partition.assignment.strategy",
        "request.timeout.ms",
        "session.timeout.ms",
        "share.acknowledgement.mode",
        "share.acquire.mode",
    ),
    refused={
        **REFUSED_SETTINGS,
        "auto.offset.reset": "use startingOffsets instead",
        "enable.auto.commit": "Spark keeps the offsets in its checkpoint; commitOffsets=true shows them as a group",
        "exclude.internal.topics": "a pattern matches no internal topic: name it with subscribe or assign",
        "key.deserializer": "keys are binary; cast them with DataFrame operations",
        "value.deserializer": "values are binary; cast them with DataFrame operations",
    },
    harmless={"exclude.internal.topics": "true"},
)
REFUSED: Mapping[str, str] = {
    "continuous": "continuous processing and real-time mode cannot be done by a source in Python",
}


class SourceOptions(NamedTuple):
    """Checked. Exactly one of `topics`, `pattern` and `assigned` is given."""

    connection: Connection
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[Partition, ...]
    starting: Position
    ending: Position
    end_when_no_match: bool
    """For a starting timestamp that nothing is as late as: begin at the end, or raise."""
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay_ms: int
    columns: tuple[str, ...]
    push_filters: bool
    group: str | None
    commit_offsets: bool
    read_committed: bool
    fetch_bytes: int
    check_crcs: bool
    rack: str | None

    @property
    def where(self) -> str:
        """What is read, for messages."""
        if self.pattern is not None:
            return f"subscribePattern={self.pattern}"
        names = self.topics or tuple(f"{topic}[{index}]" for topic, index in self.assigned)
        return ", ".join(names)


def parse_source(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Raises BadOption."""
    given = Given(options)
    given.check_known(OPTIONS, SETTINGS, REFUSED)
    topics, pattern, assigned = _subscription(given)
    starting, ending = _starting(given, streaming), _ending(given, streaming)
    isolation = given.choice("kafka.isolation.level", ("read_committed", "read_uncommitted"), "read_committed")
    group = given.text("kafka.group.id")
    commit_offsets = given.flag("commitOffsets", False)
    prefix = given.text("groupIdPrefix")
    if commit_offsets and not streaming:
        raise BadOption("commitOffsets is for streams: a batch read has a beginning and an end of its own")
    if (commit_offsets or starting.kind == "committed") and not (group or prefix):
        raise BadOption("commitOffsets and startingOffsets=committed need kafka.group.id (or groupIdPrefix): "
                        "the group that stands for this query")
    push_filters = given.flag("pushFilters", False)
    if push_filters and streaming:
        raise BadOption("pushFilters is for batch reads: Spark gives a stream no filters")
    strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    delay = given.milliseconds("maxTriggerDelay")
    least, most = given.number("minOffsetsPerTrigger"), given.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise BadOption(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}")
    for name in ("minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxTriggerDelay"):
        if not streaming and given.text(name) is not None:
            _logger.warning("%s has no effect in a batch read, which has no triggers", name)
    return SourceOptions(
        connection=connection(given),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=ending,
        end_when_no_match=strategy == "latest",
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        min_partitions=given.number("minPartitions"),
        max_records_per_partition=given.number("maxRecordsPerPartition"),
        max_offsets=most,
        min_offsets=least,
        max_trigger_delay_ms=900_000 if delay is None else delay,
        columns=_columns(given),
        push_filters=push_filters,
        group=group or prefix,
        commit_offsets=commit_offsets,
        read_committed=isolation == "read_committed",
        fetch_bytes=given.number("kafka.max.partition.fetch.bytes") or FETCH_BYTES,
        check_crcs=given.flag("kafka.check.crcs", True),
        rack=given.text("kafka.client.rack"),
    )


def parse_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of the rows. Raises BadOption."""
    return _columns(Given(options))


def ddl(columns: Sequence[str]) -> str:
    """The columns as Spark writes a schema."""
    return ", ".join(f"{name} {DDL[name]}" for name in columns)


def check_schema(names: Sequence[str], columns: Sequence[str]) -> None:
    """Rows have the columns that the options say. Raises BadOption for a schema of somebody's own."""
    if tuple(names) != tuple(columns):
        raise BadOption(f"the columns are {', '.join(columns)}, and not {', '.join(names)}: leave out .schema(…), "
                        "choose with the options columns and includeHeaders, and take values apart with from_json")


def _columns(given: Given) -> tuple[str, ...]:
    headers = given.flag("includeHeaders", False)
    offered = COLUMNS if headers else COLUMNS[:-1]
    text = given.text("columns")
    if text is None:
        return offered
    by_name = {name.lower(): name for name in COLUMNS}
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        if by_name.get(name.lower()) == "headers" and not headers:
            raise BadOption("columns names headers: set includeHeaders=true, too")
        if name.lower() not in by_name:
            raise BadOption(f"columns={text!r}: there is no {name!r}, there are {', '.join(offered)}")
    chosen = {by_name[name.lower()] for name in wanted}
    return tuple(name for name in offered if name in chosen)


def _subscription(given: Given) -> tuple[tuple[str, ...], str | None, tuple[Partition, ...]]:
    names = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name) is not None]
    if len(names) != 1:
        found = " and ".join(names) if names else "none of them"
        raise BadOption(f"exactly one of subscribe, subscribePattern and assign says what to read; given: {found}")
    text = (given.text(names[0]) or "").strip()
    if not text:
        raise BadOption(f"{names[0]} is empty")
    if names[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise BadOption(f"subscribe={text!r} names no topic")
        return topics, None, ()
    if names[0] == "assign":
        return (), None, parse_assign(text)
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption(f"subscribePattern={text!r}: {error}") from None
    return (), text, ()


def _by_time(given: Given, edge: str) -> Position | None:
    """Where to begin ("starting") or to end ("ending"), if it is told as a time."""
    stamp = given.number(f"{edge}Timestamp", least=0)
    if stamp is not None:
        return Position("timestamp", stamp)
    name = f"{edge}OffsetsByTimestamp"
    text = given.text(name)
    return None if text is None else Position("timestamps", values=parse_numbers(name, text, least=0))


def _starting(given: Given, streaming: bool) -> Position:
    if (by_time := _by_time(given, "starting")) is not None:
        return by_time
    text = given.text("startingOffsets")
    if text is None:
        return Position("latest" if streaming else "earliest")
    words = ("earliest", "latest", "committed") if streaming else ("earliest", "committed")
    if not streaming and text.strip().lower() == "latest":
        raise BadOption("startingOffsets=latest would read nothing: a batch read ends at the end it finds")
    position = parse_position("startingOffsets", text, words)
    if not streaming and LATEST in (position.values or {}).values():
        raise BadOption("startingOffsets with -1 (latest) would read nothing of that partition in a batch read")
    return position


def _ending(given: Given, streaming: bool) -> Position:
    for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
        if streaming and given.text(name) is not None:
            raise BadOption(f"{name} is for batch reads: a stream has no end (or ends by trigger(availableNow=True))")
    if (by_time := _by_time(given, "ending")) is not None:
        return by_time
    text = given.text("endingOffsets")
    if text is None:
        return Position("latest")
    if text.strip().lower() == "earliest":
        raise BadOption("endingOffsets=earliest would read nothing")
    position = parse_position("endingOffsets", text, ("latest",))
    if EARLIEST in (position.values or {}).values():
        raise BadOption("endingOffsets with -2 (earliest) would read nothing of that partition")
    return position
