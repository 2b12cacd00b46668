"""The options of the sink, by the names of Spark's Kafka sink and of Kafka's producer, and the columns it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from raftlog.client.core.settings import ProducerOptions
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
from raftlog.wire.compression import Compression

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
TASK, TWO_PHASE = "task", "two-phase"
TRANSACTION_SECONDS = 900.0
"""How long a task may write, and wait for the driver: Kafka's own limit (transaction.max.timeout.ms) unless changed."""
SINK_ID = re.compile(r"[A-Za-z0-9._-]{1,150}")

SPARKS_OWN = ("path", "checkpointLocation", "queryName")
"""Options of Spark's writers, which hand them on."""
OPTIONS = (
    "topic",
    "includeHeaders",
    "includeTimestamp",
    "deliveryGuarantee",
    "commitProtocol",
    "sinkId",
    "batchId",
    "offsetMapping",
    *SPARKS_OWN,
)
LEVELS = ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level")
"""Each for its own codec; `compression.level` is for whichever is chosen."""
SETTINGS = Settings(
    used=(
        *CONNECTION_SETTINGS,
        *LEVELS,
        "acks",
        "batch.size",
        "buffer.memory",
        "compression.level",
        "compression.type",
        "delivery.timeout.ms",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "metadata.max.age.ms",
        "request.timeout.ms",
        "transaction.timeout.ms",
    ),
    without_effect=(
        *PASSIVE_SETTINGS,
        "max.block.ms",
        "metadata.max.idle.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "retries",
    ),
    refused={
        **REFUSED_SETTINGS,
        "enable.idempotence": "it is always on",
        "key.serializer": "keys are binary or string columns",
        "partitioner.class": "give a column partition, or leave it to the key",
        "partitioner.ignore.keys": "give a column partition, or leave out the key",
        "transaction.two.phase.commit.enable": "use commitProtocol=two-phase",
        "transactional.id": "use sinkId: each task gets a transactional id of its own, which begins with it",
        "value.serializer": "values are binary or string columns",
    },
    harmless={
        "enable.idempotence": "true",
        "partitioner.ignore.keys": "false",
        "transaction.two.phase.commit.enable": "false",
    },
)
TYPES: Mapping[str, tuple[str, ...]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
ORIGIN: Mapping[str, tuple[str, ...]] = {
    "source_topic": ("string",),
    "source_partition": ("int",),
    "source_offset": ("bigint",),
}
"""Columns that say where a row was read, for the topic of the offset mapping."""


class SinkOptions(NamedTuple):
    """Checked. `batch` is the number that a batch write was given, for foreachBatch."""

    connection: Connection
    topic: str | None
    columns: tuple[str, ...]
    """Those of TYPES that the rows have and that are written, and of ORIGIN."""
    mapping: str | None
    """The topic that is told where each row was read and written."""
    exactly_once: bool
    two_phase: bool
    """Whether the driver decides over the transactions of all tasks, or each task over its own."""
    sink_id: str | None
    batch: int | None
    producer: ProducerOptions


def parse_sink(
    options: Mapping[str, str], columns: Sequence[tuple[str, str]], *, streaming: bool, overwrite: bool = False
) -> SinkOptions:
    """`columns` are names and types as Spark writes them. Raises BadOption."""
    given = Given(options)
    given.check_known(OPTIONS, SETTINGS, {})
    if overwrite:
        raise BadOption("a log is only appended to: use mode('append') for a batch, outputMode('append') for a stream")
    topic, mapping = given.text("topic"), given.text("offsetMapping")
    left_out = {"topic"} if topic is not None else set()
    for flag, name, default in (("includeHeaders", "headers", True), ("includeTimestamp", "timestamp", False)):
        left_out |= set() if given.flag(flag, default) else {name}
    found = _columns(columns, topic, left_out, mapping is not None)
    guarantee = given.choice("deliveryGuarantee", (EXACTLY_ONCE, AT_LEAST_ONCE), EXACTLY_ONCE)
    protocol = given.choice("commitProtocol", (TASK, TWO_PHASE), TASK)
    if given.text("commitProtocol") is not None and guarantee != EXACTLY_ONCE:
        raise BadOption("commitProtocol goes with deliveryGuarantee=exactly-once: leave it out with at-least-once")
    sink_id, batch = given.text("sinkId"), given.number("batchId", least=0)
    if mapping is not None and guarantee != EXACTLY_ONCE:
        raise BadOption("offsetMapping goes with deliveryGuarantee=exactly-once: rows and mapping are one transaction")
    if sink_id is not None and not SINK_ID.fullmatch(sink_id):
        raise BadOption(f"sinkId={sink_id!r}: it has 1 to 150 letters, digits, dots, dashes and underscores")
    if streaming and batch is not None:
        raise BadOption("batchId is for batch writes in foreachBatch: a stream numbers its batches by itself")
    if not streaming and (sink_id is None) != (batch is None):
        raise BadOption("sinkId and batchId belong together in a batch write: in foreachBatch they say which batch "
                        "was written already; elsewhere leave both out")
    acks = given.choice("kafka.acks", ("all", "-1", "1", "0"), "all")
    if guarantee == EXACTLY_ONCE and acks not in ("all", "-1"):
        raise BadOption(f"kafka.acks={acks} with deliveryGuarantee=exactly-once: leave it out, or use at-least-once")
    return SinkOptions(
        connection=connection(given),
        topic=topic,
        columns=found,
        mapping=mapping,
        exactly_once=guarantee == EXACTLY_ONCE,
        two_phase=protocol == TWO_PHASE,
        sink_id=sink_id,
        batch=batch,
        producer=_producer(given, acks),
    )


def _columns(
    columns: Sequence[tuple[str, str]], topic: str | None, left_out: set[str], with_origin: bool
) -> tuple[str, ...]:
    found = []
    types = {**TYPES, **ORIGIN} if with_origin else TYPES
    for name, kind in columns:
        if name.lower() not in types or name.lower() in left_out:
            continue  # such as the offset of rows that were read from another topic
        if kind not in types[name.lower()]:
            wanted = " or ".join(types[name.lower()])
            raise BadOption(f"the column {name} is of type {kind}: it has to be {wanted}; cast it")
        found.append(name.lower())
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise BadOption(f"there are two columns {twice[0]}, but for capital letters: leave out one, or rename it")
    if "value" not in found:
        names = ", ".join(name for name, _ in columns)
        raise BadOption(f"there is no column value among {names}: name the one that is written so")
    if topic is None and "topic" not in found:
        raise BadOption("say where to write: with the option topic, or in a column topic")
    if with_origin and not ORIGIN.keys() <= set(found):
        raise BadOption(f"offsetMapping needs the columns {', '.join(ORIGIN)}: where each row was read")
    return tuple(name for name in types if name in found)


def _producer(given: Given, acks: str) -> ProducerOptions:
    chosen: ProducerOptions = {"acks": acks, "linger": 0.02, "batch_size": 256 * 1024}
    codecs = tuple(codec.name.lower() for codec in Compression)
    chosen["compression"] = given.choice("kafka.compression.type", codecs, "none")
    if acks not in ("all", "-1"):
        chosen["enable_idempotence"] = False
    levels = ("kafka.compression.level", f"kafka.compression.{chosen['compression']}.level")
    for level in (given.number(name, least=-131072) for name in levels if given.text(name) is not None):
        chosen["compression_level"] = level
    if (size := given.number("kafka.batch.size")) is not None:
        chosen["batch_size"] = size
    if (memory := given.number("kafka.buffer.memory")) is not None:
        chosen["buffer_memory"] = memory
    if (largest := given.number("kafka.max.request.size")) is not None:
        chosen["max_request_size"] = largest
    if (in_flight := given.number("kafka.max.in.flight.requests.per.connection")) is not None:
        chosen["max_in_flight"] = in_flight
    if given.number("kafka.retries", least=0) == 0:
        raise BadOption("kafka.retries=0: records are sent again until kafka.delivery.timeout.ms; leave it out")
    if (linger := given.number("kafka.linger.ms", least=0)) is not None:
        chosen["linger"] = linger / 1000
    if (delivery := given.number("kafka.delivery.timeout.ms")) is not None:
        chosen["delivery_timeout"] = delivery / 1000
    if (request := given.number("kafka.request.timeout.ms")) is not None:
        chosen["request_timeout"] = request / 1000
    if (age := given.number("kafka.metadata.max.age.ms", least=0)) is not None:
        chosen["metadata_max_age"] = age / 1000
    transaction = given.number("kafka.transaction.timeout.ms")
    chosen["transaction_timeout"] = TRANSACTION_SECONDS if transaction is None else transaction / 1000
    return chosen
