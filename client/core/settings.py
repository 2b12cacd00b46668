"""Settings of producers and consumers: Kafka's names in snake_case, times in seconds, unknown ones refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, NamedTuple, TypedDict, TypeVar

from raftlog.wire.compression import Compression, compress

Settings = TypeVar("Settings", bound="ProducerSettings | ConsumerSettings")


class Kind(NamedTuple):
    types: tuple[type, ...]
    words: str


class BadSetting(ValueError):
    """A setting that does not exist, or a value that it cannot have."""


class ProducerOptions(TypedDict, total=False):
    """What `Client.producer` takes; the meaning of each is told in ProducerSettings."""

    acks: str | int
    linger: float
    batch_size: int
    buffer_memory: int
    max_request_size: int
    compression: str
    compression_level: int | None
    enable_idempotence: bool
    max_in_flight: int
    request_timeout: float
    delivery_timeout: float
    retry_backoff: float
    metadata_max_age: float
    transactional_id: str | None
    transaction_timeout: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ProducerSettings:
    acks: str | int = "all"
    """Who must have a record before it counts as stored: "all" in-sync replicas, the leader (1), nobody (0)."""
    linger: float = 0.005
    """How long a batch waits for more records."""
    batch_size: int = 128 * 1024
    buffer_memory: int = 32 * 1024 * 1024
    """Bytes of records without an outcome; who sends more waits for room."""
    max_request_size: int = 1024 * 1024
    compression: str = "none"
    """none, gzip, snappy, lz4 or zstd."""
    compression_level: int | None = None
    enable_idempotence: bool = True
    """Each record is stored once and in order, also when replies are lost. Needs acks="all"."""
    max_in_flight: int = 5
    """Requests without a reply, by broker."""
    request_timeout: float = 15.0
    delivery_timeout: float = 120.0
    """After so long, records that no broker took fail with TimedOut."""
    retry_backoff: float = 0.1
    metadata_max_age: float = 60.0
    """How often to look for new partitions, while something is sent."""
    transactional_id: str | None = None
    transaction_timeout: float = 60.0
    """After so long without an end, the coordinator aborts a transaction."""

    @property
    def acks_code(self) -> int:
        return -1 if self.acks in ("all", -1, "-1") else int(self.acks)

    @property
    def codec(self) -> Compression:
        return Compression.parse(self.compression)

    @property
    def is_idempotent(self) -> bool:
        return self.enable_idempotence and self.acks_code == -1


class ConsumerOptions(TypedDict, total=False):
    """What `Client.consumer` takes; the meaning of each is told in ConsumerSettings."""

    group: str | None
    protocol: str
    assignors: tuple[str, ...]
    group_instance_id: str | None
    server_assignor: str | None
    client_rack: str | None
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval: float
    isolation_level: str
    session_timeout: float
    heartbeat_interval: float
    rebalance_timeout: float
    max_poll_interval: float
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait: float
    max_partition_fetch_bytes: int
    check_crcs: bool
    request_timeout: float
    metadata_max_age: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerSettings:
    group: str | None = None
    protocol: str = "classic"
    """Of the group: classic, or consumer (KIP-848), where the brokers assign."""
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """For the classic protocol, the preferred one first: range, roundrobin, sticky, cooperative-sticky."""
    group_instance_id: str | None = None
    """A static member (KIP-345) keeps its partitions over a restart."""
    server_assignor: str | None = None
    """For the consumer protocol: uniform or range; None leaves it to the group."""
    client_rack: str | None = None
    """Read from a replica in this rack if there is one (KIP-392)."""
    auto_offset_reset: str = "latest"
    """Where to begin without a committed offset: earliest, latest, or none, which raises NoOffset."""
    enable_auto_commit: bool = True
    """Commit what is done every `auto_commit_interval`, when partitions are given up, and at the end."""
    auto_commit_interval: float = 5.0
    isolation_level: str = "read_committed"
    session_timeout: float = 45.0
    heartbeat_interval: float = 3.0
    rebalance_timeout: float = 60.0
    """How long the group waits for a member that still works on what it has to give up."""
    max_poll_interval: float = 300.0
    """Who asks for no records for so long leaves the group."""
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    fetch_max_wait: float = 0.5
    max_partition_fetch_bytes: int = 1024 * 1024
    check_crcs: bool = True
    request_timeout: float = 30.0
    metadata_max_age: float = 60.0
    """How often to look for new partitions, and topics of a pattern."""

    @property
    def is_read_committed(self) -> bool:
        return self.isolation_level == "read_committed"


CHOICES: Mapping[str, tuple[Any, ...]] = {
    "acks": ("all", -1, "-1", 0, "0", 1, "1"),
    "compression": tuple(codec.name.lower() for codec in Compression),
    "protocol": ("classic", "consumer"),
    "auto_offset_reset": ("earliest", "latest", "none"),
    "isolation_level": ("read_committed", "read_uncommitted"),
}
KINDS = {
    "bool": Kind((bool,), "True or False"),
    "int": Kind((int,), "a whole number"),
    "float": Kind((int, float), "a number of seconds"),
    "str": Kind((str,), "text"),
    "tuple[str, ...]": Kind((tuple, list), "a list of names"),
}
LOWEST = {"max_in_flight": 1}
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
KAFKA_NAMES = {
    "group_id": "group",
    "group_protocol": "protocol",
    "group_remote_assignor": "server_assignor",
    "partition_assignment_strategy": "assignors",
    "compression_type": "compression",
    "max_in_flight_requests_per_connection": "max_in_flight",
    "bootstrap_servers": "the first argument of Client",
}


def make_settings(cls: type[Settings], given: Mapping[str, Any]) -> Settings:
    """Raises BadSetting, which says what was meant perhaps."""
    kinds = {field.name: str(field.type) for field in fields(cls)}
    names = [*kinds]
    for name, value in given.items():
        if name not in names:
            raise BadSetting(_advice(name, names))
        if name in CHOICES and value not in CHOICES[name]:
            known = ", ".join(dict.fromkeys(str(choice) for choice in CHOICES[name]))
            raise BadSetting(f"{name}={value!r} is none of {known}")
        if name not in CHOICES:
            _check(name, value, kinds[name])
    settings = cls(**given)
    if isinstance(settings, ConsumerSettings):
        unknown = [name for name in settings.assignors if name not in ASSIGNORS]
        if unknown or not settings.assignors:
            raise BadSetting(f"assignors={settings.assignors!r}: choose from {', '.join(ASSIGNORS)}")
        if settings.protocol == "classic" and settings.heartbeat_interval >= settings.session_timeout:
            raise BadSetting(
                f"heartbeat_interval={settings.heartbeat_interval!r} is not below"
                f" session_timeout={settings.session_timeout!r}: the group would forget a member between two heartbeats"
            )
        return settings
    if settings.transactional_id is not None and not settings.is_idempotent:
        raise BadSetting("transactional_id needs acks='all' and enable_idempotence")
    if settings.compression_level is not None:
        try:
            compress(settings.codec, b"", settings.compression_level)
        except (ValueError, TypeError, OverflowError, RuntimeError) as error:
            level = f"compression_level={settings.compression_level}"
            raise BadSetting(f"{settings.compression} has no {level}: {error}") from error
    return settings


def check_topics(settings: ConsumerSettings, topics: Sequence[object], pattern: str | None) -> None:
    """Raises TypeError for topics that are not named one by one, and BadSetting for a pattern that is none."""
    for topic in topics:
        if not isinstance(topic, str):
            raise TypeError(f"topics are given one by one, as text, and this is {topic!r}: consumer('a', 'b')")
    if pattern is None or settings.protocol != "classic":
        return  # with the other protocol the brokers read it
    try:
        re.compile(pattern)
    except re.error as error:
        raise BadSetting(f"pattern={pattern!r} is not a regular expression: {error}") from error


def _check(name: str, value: object, kind: str) -> None:
    wanted = KINDS[kind.removesuffix(" | None")]
    if value is None and kind.endswith("None"):
        return
    if not isinstance(value, wanted.types) or (isinstance(value, bool) and bool not in wanted.types):
        raise BadSetting(f"{name}={value!r} is not {wanted.words}")
    if isinstance(value, int | float) and not value >= (low := LOWEST.get(name, 0)) and kind != "int | None":
        raise BadSetting(f"{name}={value!r} is below {low}")


def _advice(name: str, names: list[str]) -> str:
    plain = name.replace(".", "_").lower()
    text = f"there is no setting {name!r}"
    for meant in (plain, KAFKA_NAMES.get(plain, ""), plain.removesuffix("_ms")):
        if meant in names or meant == KAFKA_NAMES["bootstrap_servers"]:
            return f"{text}; it is {meant}" + (", in seconds" if plain.endswith("_ms") else "")
    close = get_close_matches(plain.removesuffix("_ms"), names, n=1)
    return f"{text}; did you mean {close[0]}?" if close else f"{text}; there are {', '.join(names)}"
