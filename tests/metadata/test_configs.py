"""Settings: what Kafka has, what raftlog takes, where a value comes from, and what is refused in which words."""

from __future__ import annotations

import difflib
import json
import time
from typing import Any

import pytest

from raftlog.metadata.broker_configs import BROKER_SYNONYMS
from raftlog.metadata.commands import AlterConfigs, AlterResource, ConfigChange, InitializeCluster, NewTopic
from raftlog.metadata.config_definition import ConfigDefinition, UpdateMode
from raftlog.metadata.configs import (
    DIFFERENT_DEFAULTS,
    MIN_ISR,
    SUPPORTED_BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigSource,
    InvalidConfig,
    broker_definition,
    check_topic_configs,
)
from raftlog.metadata.records import ResourceType
from raftlog.metadata.topic_configs import SYNONYMS
from raftlog.metadata.unsupported_broker_configs import UNSUPPORTED_BROKER_CONFIGS
from raftlog.wire.errors import ErrorCode
from tests.metadata.world import APPEND, DELETE, SET, SUBTRACT, World
from tests.paths import KAFKA_PROTOCOL

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def reference(name: str) -> dict[str, dict[str, Any]]:
    path = KAFKA_PROTOCOL / name
    if not path.exists():
        pytest.skip(f"the reference data are not here: {path}")
    return {entry["name"]: entry for entry in json.loads(path.read_text())}


def shown(default: object) -> object:
    """A reference default in the form in which a definition has it."""
    return default if not isinstance(default, list) else ",".join(default)


def check_against_kafka(definition: ConfigDefinition, entry: dict[str, Any], default: object) -> None:
    assert definition.type.name.lower() == entry["type"]
    ours = ",".join(default) if isinstance(default, tuple) else default
    assert ours == shown(entry["default"]), definition.name


def test_every_topic_setting_of_kafka_is_there_with_its_type_default_and_condition() -> None:
    kafka = reference("topic-configs.json")
    assert set(TOPIC_CONFIGS) == set(kafka)
    for name, entry in kafka.items():
        definition = TOPIC_CONFIGS[name]
        check_against_kafka(definition, entry, definition.default)
        assert (definition.validator.description if definition.validator else None) == entry["valid"], name


def test_every_broker_setting_of_kafka_is_supported_or_refused_by_name() -> None:
    kafka = reference("broker-configs.json")
    assert not set(SUPPORTED_BROKER_CONFIGS) & set(UNSUPPORTED_BROKER_CONFIGS)
    # Kafka has the rates of throttled replication and of moves between directories as dynamic settings only, and leaves
    # them out of its list, and one of groups as an internal setting.
    own = {name for name in SUPPORTED_BROKER_CONFIGS if name.startswith("raftlog.") or name.endswith(".throttled.rate")}
    own.add("group.consumer.regex.refresh.interval.ms")
    own.add("replica.alter.log.dirs.io.max.bytes.per.second")
    assert {*SUPPORTED_BROKER_CONFIGS, *UNSUPPORTED_BROKER_CONFIGS} - own == set(kafka)
    for name, entry in kafka.items():
        definition = broker_definition(name)
        different = DIFFERENT_DEFAULTS.get(name)
        default = definition.default if different is None else different.kafka
        check_against_kafka(definition, entry, default)
        if definition.validator is not None:
            assert definition.validator.description == entry["valid"], name


def test_differing_defaults_do_differ_and_have_a_reason() -> None:
    for name, different in DIFFERENT_DEFAULTS.items():
        assert SUPPORTED_BROKER_CONFIGS[name].default != different.kafka
        assert different.reason


def test_every_definition_has_words_of_its_own_and_a_default_that_it_takes() -> None:
    for definition in (*TOPIC_CONFIGS.values(), *SUPPORTED_BROKER_CONFIGS.values()):
        assert len(definition.documentation) > 10
        if definition.default_text is not None:
            assert definition.parse(definition.default_text) == definition.default
    for definition in UNSUPPORTED_BROKER_CONFIGS.values():
        assert definition.unsupported
        if definition.default_text is not None:
            assert definition.parse(definition.default_text) == definition.default


def test_synonyms_lead_to_settings_that_are_there_and_can_change_as_topics_need() -> None:
    for name, synonyms in SYNONYMS.items():
        assert name in TOPIC_CONFIGS
        assert SUPPORTED_BROKER_CONFIGS[synonyms[0].name].update_mode is UpdateMode.CLUSTER_WIDE
        assert all(synonym.name in SUPPORTED_BROKER_CONFIGS for synonym in synonyms)
    for names in BROKER_SYNONYMS.values():
        assert all(name in SUPPORTED_BROKER_CONFIGS for name in names)


# -- values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 10 ", 10),
        ("retention.ms", "+5", 5),
        ("retention.ms", "-1", -1),
        ("retention.bytes", "-5", -5),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "compact,compact", ("compact", "compact")),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("compression.gzip.level", "-1", -1),
        ("remote.storage.enable", "false", False),
        ("local.retention.ms", "-2", -2),
        ("leader.replication.throttled.replicas", "", ()),
    ],
)
def test_values_are_read_as_kafka_reads_them(name: str, text: str, value: object) -> None:
    assert TOPIC_CONFIGS[name].parse(text) == value
    check_topic_configs({name: text}, {})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("retention.ms", "-5", "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "1_0", "Invalid value 1_0 for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "9" * 20, "Not a number of type LONG"),
        ("retention.ms", "١", "Not a number of type LONG"),
        ("segment.bytes", "3000000000", "Not a number of type INT"),
        ("segment.bytes", "10", "Invalid value 10 for configuration segment.bytes: Value must be at least 1048576"),
        ("cleanup.policy", "delete,foo", "Invalid value foo for configuration cleanup.policy: String must be one of"),
        ("cleanup.policy", "compact,", "Configuration 'cleanup.policy' values must not be empty."),
        ("compression.type", "GZIP", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("min.cleanable.dirty.ratio", "2", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "x", "Not a number of type DOUBLE"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("message.timestamp.type", "createtime", "String must be one of: CreateTime, LogAppendTime"),
        ("remote.storage.enable", "true", "not supported by raftlog: it has no tiered storage"),
        ("local.retention.ms", "10", "not supported by raftlog: it has no tiered storage"),
        ("follower.replication.throttled.replicas", "a", "must be '[*]' or a list of replicas"),
        # More digits than Python's `int` reads.
        ("retention.ms", "9" * 5000, "Not a number of type LONG"),
        ("min.insync.replicas", "0" * 5000 + "1", "Not a number of type INT"),
        ("leader.replication.throttled.replicas", "0:" + "1" * 5000, "must be '[*]' or a list of replicas"),
        ("retention.mss", "1", r"Unknown topic config name: retention.mss \(did you mean retention.ms\?\)"),
        ("message.format.version", "3.0", "Unknown topic config name: message.format.version"),
    ],
)
def test_values_that_cannot_be_are_refused_in_kafkas_words(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        check_topic_configs({name: text}, {})


@pytest.mark.parametrize("name", sorted(TOPIC_CONFIGS))
@pytest.mark.parametrize("text", ["1" * 32_000 + "x", "a:1," * 8_000 + ":", "1e" * 16_000, "," * 32_000])
def test_the_longest_text_is_refused_in_no_time(name: str, text: str) -> None:
    """32,000 digits and a letter took four minutes to be found no number, and the whole broker stood still."""
    began = time.process_time()
    with pytest.raises(InvalidConfig):
        check_topic_configs({name: text}, {})
    assert time.process_time() - began < 1.0


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"min.compaction.lag.ms \(100\) > max.compaction.lag.ms \(10\)"):
        check_topic_configs({"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "10"}, {})


MIN_LAG, MAX_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"


def test_settings_of_a_topic_must_not_contradict_what_it_has_from_its_brokers() -> None:
    """Kafka's answers, one by one: it looks at both together whenever a topic's own settings are set or changed."""
    world = World(log_cleaner_min_compaction_lag_ms="1000")
    words = f"conflict topic config setting {MIN_LAG} (1000) > {MAX_LAG} (%d)"
    refused = world.create(NewTopic("t", 1, 1, configs=((MAX_LAG, "5"),)))
    assert (refused.error, refused.message) == (ErrorCode.INVALID_CONFIG, words % 5)
    assert world.create(NewTopic("t", 1, 1, configs=((MAX_LAG, "5000"),))).error is ErrorCode.NONE
    assert world.alter(TOPIC, "t", (MAX_LAG, SET, "5")) == (ErrorCode.INVALID_CONFIG, words % 5)
    assert world.alter(TOPIC, "t", (MAX_LAG, SET, "5"), (MIN_LAG, SET, "2")) == (ErrorCode.NONE, None)
    assert world.alter(TOPIC, "t", (MIN_LAG, DELETE, None)) == (ErrorCode.INVALID_CONFIG, words % 5)
    assert world.alter(BROKER, "", (f"log.cleaner.{MAX_LAG}", SET, "300")) == (ErrorCode.NONE, None)
    assert world.create(NewTopic("u", 1, 1, configs=(("retention.ms", "5"),))).message == words % 300
    assert world.create("v").error is ErrorCode.NONE, "it has no settings that could be wrong"
    assert world.alter(TOPIC, "v", ("retention.ms", SET, "5")) == (ErrorCode.INVALID_CONFIG, words % 300)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("num.partition", r"Unknown broker config name: num.partition \(did you mean num.partitions\?\)"),
        ("zzz", "Unknown broker config name: zzz$"),
    ],
)
def test_unknown_broker_settings_are_refused_with_the_nearest_name(name: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        broker_definition(name)


def test_unsupported_broker_settings_are_refused_with_a_reason_unless_they_ask_for_the_default() -> None:
    definition = broker_definition("controller.quota.window.num")
    assert definition.parse("11") == 11
    with pytest.raises(InvalidConfig, match=r"quota\.window\.num is not supported by raftlog: it has no quotas yet"):
        definition.parse("16")
    assert broker_definition("num.io.threads").parse("16") == 16, "it sizes what is not there"


# -- where a value comes from --------------------------------------------------------------------------


def test_a_value_comes_from_topic_then_broker_then_all_brokers_then_file_then_default() -> None:
    world = World(log_retention_hours="2")
    world.create("t")

    def value() -> object:
        return world.resolver.topic_values(world.image, "t")["retention.ms"]

    assert world.resolver.topic_values(World().image, "t")["segment.bytes"] == 1 << 30
    assert value() == 2 * 3_600_000
    world.alter(BROKER, "", ("log.retention.ms", SET, "30"))
    assert value() == 30
    world.alter(BROKER, "1", ("log.retention.ms", SET, "20"))
    assert value() == 20
    world.alter(TOPIC, "t", ("retention.ms", SET, "10"))
    assert value() == 10
    for kind, name, key, following in (
        (TOPIC, "t", "retention.ms", 20),
        (BROKER, "1", "log.retention.ms", 30),
        (BROKER, "", "log.retention.ms", 2 * 3_600_000),
    ):
        assert world.alter(kind, name, (key, DELETE, None)) == (ErrorCode.NONE, None)
        assert value() == following


def test_minutes_and_hours_stand_in_for_milliseconds() -> None:
    for static, expected in (
        ({"log_retention_minutes": "3", "log_retention_hours": "9"}, 180_000),
        ({"log_retention_hours": "-1"}, -1),
        ({"log_retention_ms": "7", "log_retention_minutes": "3"}, 7),
        ({}, 168 * 3_600_000),
    ):
        world = World(**static)
        assert world.resolver.topic_values(world.image, "t")["retention.ms"] == expected
    world = World(log_roll_hours="1", log_roll_jitter_hours="2", log_flush_scheduler_interval_ms="9")
    values = world.resolver.topic_values(world.image, "t")
    assert (values["segment.ms"], values["segment.jitter.ms"], values["flush.ms"]) == (3_600_000, 7_200_000, 9)


def test_topics_without_overrides_share_their_values() -> None:
    world = World()
    world.create("a")
    world.create("b")
    first = world.resolver.topic_values(world.image, "a")
    assert world.resolver.topic_values(world.image, "b") is first
    world.alter(BROKER, "1", ("log.segment.bytes", SET, "2000000"))
    assert world.resolver.topic_values(world.image, "b")["segment.bytes"] == 2_000_000
    assert first["segment.bytes"] == 1 << 30


def test_min_insync_replicas_belongs_to_the_cluster_and_to_topics_and_to_no_broker() -> None:
    """Held against Kafka 4.3.1 with eligible leader replicas."""
    world = World()
    world.execute(InitializeCluster("c", {}))
    own = (ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
    shared = (ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
    assert world.alter(BROKER, "1", (MIN_ISR, SET, "1")) == own
    assert world.alter(BROKER, "1", (MIN_ISR, DELETE, None)) == own
    assert world.alter(BROKER, "", (MIN_ISR, DELETE, None)) == shared
    assert world.alter(BROKER, "", ("log.retention.ms", SET, "30"), replace=True) == shared
    assert world.alter(BROKER, "", (MIN_ISR, SET, "3")) == (ErrorCode.NONE, None)
    assert world.resolver.topic_values(world.image, "t")[MIN_ISR] == 3


def test_a_topics_settings_are_described_with_all_their_sources() -> None:
    world = World(log_retention_hours="2", min_insync_replicas="2")
    world.create("t")
    world.alter(BROKER, "", ("log.retention.ms", SET, "30"))
    world.alter(TOPIC, "t", ("retention.ms", SET, "10"), ("cleanup.policy", APPEND, "compact"))
    overrides = world.image.configs_of(TOPIC, "t")
    entries = {entry.name: entry for entry in world.resolver.describe_topic(world.image, overrides)}
    assert list(entries) == sorted(TOPIC_CONFIGS)
    retention = entries["retention.ms"]
    assert (retention.value, retention.source) == ("10", ConfigSource.TOPIC)
    assert [tuple(synonym) for synonym in retention.synonyms] == [
        ("retention.ms", "10", ConfigSource.TOPIC),
        ("log.retention.ms", "30", ConfigSource.DEFAULT_BROKER),
        ("log.retention.hours", "2", ConfigSource.STATIC_BROKER),
    ]
    # As Kafka 4.3.1 has it: the default of a second name is not told.
    assert entries["segment.ms"].synonyms == entries["remote.storage.enable"].synonyms == ()
    assert [tuple(synonym) for synonym in entries["segment.bytes"].synonyms] == [
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT)
    ]
    assert (entries["cleanup.policy"].value, entries["preallocate"].value) == ("delete,compact", "false")
    assert (entries["min.insync.replicas"].value, entries["min.insync.replicas"].source) == (
        "2",
        ConfigSource.STATIC_BROKER,
    )


def test_values_are_shown_as_they_are_understood_and_a_brokers_synonyms_as_they_were_set() -> None:
    """Held against Kafka 4.3.1."""
    world = World()
    world.create("t")
    world.alter(TOPIC, "t", ("segment.ms", SET, "+5000"), ("preallocate", SET, "TRUE"))
    world.alter(TOPIC, "t", ("cleanup.policy", SET, " compact ,delete"), ("min.cleanable.dirty.ratio", SET, "1"))
    world.alter(BROKER, "", ("log.segment.bytes", SET, "+5000000"))
    overrides = world.image.configs_of(TOPIC, "t")
    topic = {entry.name: entry for entry in world.resolver.describe_topic(world.image, overrides)}
    shown = [topic[name].value for name in ("segment.ms", "preallocate", "cleanup.policy", "min.cleanable.dirty.ratio")]
    assert shown == ["5000", "true", "compact,delete", "1.0"]
    assert topic["segment.ms"].synonyms[0].value == "5000"
    broker = {entry.name: entry for entry in world.resolver.describe_broker(world.image)}
    for entry in (topic["segment.bytes"], broker["log.segment.bytes"]):
        assert (entry.value, entry.synonyms[0].value) == ("5000000", "+5000000")


def test_a_brokers_settings_are_described_and_say_which_can_change() -> None:
    world = World(node_id="1", num_partitions="3")
    world.alter(BROKER, "1", ("log.retention.ms", SET, "10"))
    entries = {entry.name: entry for entry in world.resolver.describe_broker(world.image)}
    assert list(entries) == sorted(SUPPORTED_BROKER_CONFIGS)
    assert (entries["log.retention.ms"].value, entries["log.retention.ms"].source) == ("10", ConfigSource.BROKER)
    assert not entries["log.retention.ms"].is_read_only
    assert (entries["num.partitions"].value, entries["num.partitions"].source) == ("3", ConfigSource.STATIC_BROKER)
    assert entries["num.partitions"].is_read_only
    assert (entries["log.retention.minutes"].value, entries["log.retention.minutes"].source) == (
        None,
        ConfigSource.DEFAULT,
    )
    assert not list(world.resolver.describe_default_broker(world.image))


# -- changes -------------------------------------------------------------------------------------------


def policies(world: World) -> str | None:
    return world.image.configs_of(TOPIC, "t").get("cleanup.policy")


def test_lists_are_appended_to_and_subtracted_from() -> None:
    world = World()
    world.create("t")
    for operation, value, expected in (
        (APPEND, "compact,compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (DELETE, None, None),
        (SUBTRACT, "nothing", "delete"),
    ):
        assert world.alter(TOPIC, "t", ("cleanup.policy", operation, value)) == (ErrorCode.NONE, None)
        assert policies(world) == expected


def test_a_list_grows_no_longer_than_an_answer_can_hold() -> None:
    world = World()
    world.create("t")
    throttled = "leader.replication.throttled.replicas"
    lists = [",".join(f"{partition}:{broker}" for partition in range(4000)) for broker in (1, 2)]
    assert world.alter(TOPIC, "t", (throttled, APPEND, lists[0])) == (ErrorCode.NONE, None)
    error, message = world.alter(TOPIC, "t", (throttled, APPEND, lists[1]))
    assert error is ErrorCode.INVALID_CONFIG and message is not None and "exceeds 32767 bytes" in message
    assert world.image.configs_of(TOPIC, "t") == {throttled: lists[0]}
    assert world.alter(TOPIC, "t", (throttled, SUBTRACT, lists[0])) == (ErrorCode.NONE, None)
    assert world.image.configs_of(TOPIC, "t") == {throttled: ""}


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "")])
def test_nothing_near_a_name_that_is_much_too_long_is_looked_for(
    kind: ResourceType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred of them in one command took a second, in which nobody else was served."""
    looked_for: list[str] = []
    monkeypatch.setattr(difflib, "get_close_matches", lambda word, *_, **__: looked_for.append(word) or [])
    world = World()
    world.create("t")
    for unknown in ("retention." * 3000, "retention.mss"):
        error, message = world.alter(kind, name, (unknown, SET, "1"))
        assert error is not ErrorCode.NONE and message is not None and unknown in message
    assert looked_for == ["retention.mss"]


@pytest.mark.parametrize("replace", [True, False])
def test_a_resource_named_twice_is_refused_both_times_and_the_others_are_altered(replace: bool) -> None:
    world = World()
    named = [("t", "retention.ms"), ("u", "retention.ms"), ("t", "retention.bytes")]
    for topic in ("t", "u"):
        world.create(topic)
    resources = [AlterResource(TOPIC, name, (ConfigChange(key, SET, "5000"),), replace) for name, key in named]
    answers = world.execute(AlterConfigs(tuple(resources))).results
    assert [(name, error) for _, name, error, _ in answers] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
        ("t", ErrorCode.INVALID_REQUEST),
    ]
    assert set(world.image.configs) == {(TOPIC, "u")}


@pytest.mark.parametrize(
    ("kind", "name", "change", "error", "message"),
    [
        (TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, "Can't APPEND to key retention.ms"),
        (TOPIC, "t", ("cleanup.policy", APPEND, "x"), ErrorCode.INVALID_CONFIG, "String must be one of"),
        (TOPIC, "t", ("nope", SET, "1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "Null value not supported"),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST, "Unknown operation type 9"),
        (TOPIC, "x", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'x' does not exist"),
        (TOPIC, "a b", ("retention.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed"),
        (BROKER, "1", ("num.partitions", SET, "1"), ErrorCode.INVALID_REQUEST, "Cannot update these configs dynam"),
        (BROKER, "1", ("nope", SET, "1"), ErrorCode.INVALID_REQUEST, "Unknown broker config name: nope"),
        (BROKER, "1", ("log.retention.ms", SET, "x"), ErrorCode.INVALID_REQUEST, "Not a number of type LONG"),
        (BROKER, "1", ("ssl.key.password", SET, "x"), ErrorCode.INVALID_REQUEST, "Cannot update"),
        (BROKER, "7", ("log.retention.ms", SET, "1"), ErrorCode.BROKER_ID_NOT_REGISTERED, "No broker with id 7"),
        (BROKER, "01", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST, "must be an integer"),
        (BROKER, "²", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST, "must be an integer"),
        (BROKER, "7" * 5000, ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST, "must be an integer"),
        (ResourceType.BROKER_LOGGER, "1", ("a", SET, "DEBUG"), ErrorCode.INVALID_REQUEST, "log levels"),
        (ResourceType.CLIENT_METRICS, "m", ("a", SET, "1"), ErrorCode.INVALID_REQUEST, "CLIENT_METRICS"),
        (99, "g", ("a", SET, "1"), ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_changes_that_cannot_be_get_kafkas_code_and_change_nothing(
    kind: int, name: str, change: tuple[str, int, str | None], error: ErrorCode, message: str
) -> None:
    world = World()
    world.create("t")
    before = world.image
    found, text = world.alter(kind, name, ("retention.ms" if kind == TOPIC else "log.roll.ms", DELETE, None), change)
    if change[0] == "retention.ms":
        found, text = world.alter(kind, name, change)
    assert found is error
    assert text is not None and message in text
    assert world.image is before


def test_a_setting_named_twice_in_one_resource_is_refused() -> None:
    world = World()
    world.create("t")
    error, _ = world.alter(TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert error is ErrorCode.INVALID_REQUEST


def test_deleting_what_is_not_set_is_no_error_and_no_record() -> None:
    world = World()
    world.create("t")
    before = world.image
    assert world.alter(TOPIC, "t", ("nope", DELETE, None)) == (ErrorCode.NONE, None)
    assert world.image is before


def test_the_older_request_replaces_all_settings_of_a_resource() -> None:
    world = World()
    world.create("t")
    world.alter(TOPIC, "t", ("retention.ms", SET, "1"), ("flush.messages", SET, "5"))
    assert world.alter(TOPIC, "t", ("flush.messages", SET, "6"), replace=True) == (ErrorCode.NONE, None)
    assert world.image.configs_of(TOPIC, "t") == {"flush.messages": "6"}
    world.alter(TOPIC, "t", replace=True)
    assert (TOPIC, "t") not in world.image.configs
