"""What a setting's value is and where it comes from: topic override, then broker, then all brokers, then file, then
default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from raftlog.metadata.broker_configs import BROKER_SYNONYMS, DIFFERENT_DEFAULTS, SUPPORTED_BROKER_CONFIGS
from raftlog.metadata.config_definition import (
    ALL,
    ConfigDefinition,
    ConfigType,
    InvalidConfig,
    UpdateMode,
    Value,
    nearest,
    value_text,
)
from raftlog.metadata.group_configs import (
    GROUP_CONFIGS,
    ConsumerGroupSettings,
    broker_synonym,
    consumer_group_settings,
)
from raftlog.metadata.image import EMPTY_CONFIGS, MetadataImage
from raftlog.metadata.records import ResourceType
from raftlog.metadata.topic_configs import SYNONYMS, TOPIC_CONFIGS, Synonym, check_together
from raftlog.wire.ids import BrokerId

__all__ = [
    "DEFAULT_BROKER",
    "DIFFERENT_DEFAULTS",
    "MIN_ISR",
    "SUPPORTED_BROKER_CONFIGS",
    "TOPIC_CONFIGS",
    "ConfigDefinition",
    "ConfigEntry",
    "ConfigResolver",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "InvalidConfig",
    "broker_definition",
    "check_directories",
    "check_dynamic_broker_configs",
    "check_topic_configs",
]

DEFAULT_BROKER = ""
"""The resource name of the settings that all brokers share."""

ONE_LISTENER = "listener.name."
"""How the names begin of what Kafka takes for one listener: its name, and that of a setting, come next."""

LISTENER_CONFIGS = ("max.connection.creation.rate",)
"""Settings that a listener may have for itself."""

MIN_ISR = "min.insync.replicas"
"""A setting that all brokers share: of topics and of the cluster, never of one broker."""


class ConfigSource(IntEnum):
    """Where a value was set, with the codes that DescribeConfigs tells; smaller numbers win, but that a
    group's own are before all brokers'."""

    TOPIC = 1
    BROKER = 2
    DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """One place that gives a value to a setting; `value` is None where it is not to be shown."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting's value and all the places it could come from, the winning one first."""

    definition: ConfigDefinition
    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]


def of_one_listener(listener: str, name: str) -> str:
    """The name of a setting for one listener, whose own name Kafka has in small letters there."""
    return f"{ONE_LISTENER}{listener.lower()}.{name}"


def broker_definition(name: str) -> ConfigDefinition:
    """The broker setting of that name, supported or not. Raises InvalidConfig with the nearest known name."""
    found = _known_definition(name)
    if found is not None:
        return found
    from raftlog.metadata.unsupported_broker_configs import UNSUPPORTED_BROKER_CONFIGS

    if name.startswith(ONE_LISTENER):
        allowed = ", ".join(LISTENER_CONFIGS)
        raise InvalidConfig(f"{name} is not supported by raftlog: of one listener among several it takes {allowed}")
    close = nearest(name, [*SUPPORTED_BROKER_CONFIGS, *UNSUPPORTED_BROKER_CONFIGS])
    hint = f" (did you mean {close}?)" if close else ""
    raise InvalidConfig(f"Unknown broker config name: {name}{hint}")


def _known_definition(name: str) -> ConfigDefinition | None:
    found = SUPPORTED_BROKER_CONFIGS.get(name)
    if found is not None:
        return found
    if name.startswith(ONE_LISTENER):
        general = next((each for each in LISTENER_CONFIGS if name.endswith(f".{each}")), None)
        return None if general is None else SUPPORTED_BROKER_CONFIGS[general]._replace(name=name)
    from raftlog.metadata.unsupported_broker_configs import UNSUPPORTED_BROKER_CONFIGS

    return UNSUPPORTED_BROKER_CONFIGS.get(name)


def check_topic_configs(values: Mapping[str, str], inherited: Mapping[str, Value]) -> None:
    """Raise InvalidConfig unless these overrides of one topic are known, supported, and go together with each other
    and with what the topic has from its brokers.
    """
    parsed = dict(inherited)
    for name, text in values.items():
        definition = TOPIC_CONFIGS.get(name)
        if definition is None:
            close = nearest(name, list(TOPIC_CONFIGS))
            raise InvalidConfig(f"Unknown topic config name: {name}" + (f" (did you mean {close}?)" if close else ""))
        parsed[name] = definition.parse(text)
    check_together(parsed)


def check_dynamic_broker_configs(values: Mapping[str, str], *, of_all: bool = False) -> None:
    """Raise InvalidConfig unless these settings can be changed while brokers run (of all brokers together: `of_all`),
    and to these values.
    """
    definitions = {name: broker_definition(name) for name in values}
    fixed = [name for name, definition in definitions.items() if definition.update_mode is UpdateMode.READ_ONLY]
    if fixed:
        reason = definitions[fixed[0]].unsupported
        why = f"not supported by raftlog: {reason}" if reason else "a broker is given them when it is started"
        raise InvalidConfig(f"Cannot update these configs dynamically: [{', '.join(fixed)}]: {why}")
    own = [name for name, definition in definitions.items() if definition.update_mode is UpdateMode.PER_BROKER]
    if of_all and own:
        where = "at default cluster level, broker id must be specified"
        raise InvalidConfig(f"Cannot update these configs {where}: [{', '.join(own)}]")
    for name, definition in definitions.items():
        if definition.parse(values[name]) == 0 and name.endswith(("max.connections", "max.connection.creation.rate")):
            raise InvalidConfig(f"Invalid {name} 0: nobody could connect any more to change it")


def check_directories(cordoned: tuple[str, ...], directories: tuple[str, ...]) -> None:
    """Raise InvalidConfig unless the cordoned directories of a broker are among those that it has."""
    missing = [path for path in cordoned if path not in directories and path != ALL]
    if missing:
        text = "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "
        raise InvalidConfig(text + ", ".join(missing))


class ConfigResolver:
    """Resolves settings for one broker, whose file and command line gave `static` (texts by name).

    Values that no topic overrides are resolved once and shared until the brokers' own settings change.
    """

    def __init__(self, broker_id: BrokerId, static: Mapping[str, str]) -> None:
        self._broker_id = broker_id
        self._static = static
        self._shared_from: tuple[Mapping[str, str], Mapping[str, str]] | None = None
        self._shared: Mapping[str, Value] = EMPTY_CONFIGS
        self._groups_from: tuple[Mapping[str, str], Mapping[str, str]] = (EMPTY_CONFIGS, EMPTY_CONFIGS)
        self._groups: ConsumerGroupSettings | None = None

    # -- values ----------------------------------------------------------------------------------

    def topic_values(self, image: MetadataImage, topic: str) -> Mapping[str, Value]:
        """Every topic setting's effective value. Topics without overrides get one and the same mapping."""
        return self.with_overrides(image, image.configs_of(ResourceType.TOPIC, topic))

    def with_overrides(self, image: MetadataImage, overrides: Mapping[str, str]) -> Mapping[str, Value]:
        """The same for a topic with these overrides, whether it exists or not."""
        shared = self._topic_defaults(image)
        if not overrides:
            return shared
        values = dict(shared)
        for name, text in overrides.items():
            # An override that a newer version wrote and this one does not know changes nothing here.
            if name in TOPIC_CONFIGS:
                values[name] = TOPIC_CONFIGS[name].read(text)
        return values

    def broker_value(self, image: MetadataImage, name: str) -> Value:
        """One setting of this broker, synonyms not considered."""
        for synonym in self._broker_levels(image, name, self._broker_id):
            return None if synonym.value is None else broker_definition(name).read(synonym.value)
        return None

    def group_settings(self, image: MetadataImage, group_id: str) -> ConsumerGroupSettings:
        """A consumer group's settings; groups without overrides get one and the same value until brokers' change."""
        overrides = image.configs_of(ResourceType.GROUP, group_id)
        if overrides:
            return consumer_group_settings(overrides, lambda name: self.broker_value(image, name))
        own = image.configs_of(ResourceType.BROKER, str(self._broker_id))
        everybody = image.configs_of(ResourceType.BROKER, DEFAULT_BROKER)
        if self._groups is None or self._groups_from[0] is not own or self._groups_from[1] is not everybody:
            self._groups = consumer_group_settings(overrides, lambda name: self.broker_value(image, name))
            self._groups_from = (own, everybody)
        return self._groups

    def dynamic_broker_configs(self, image: MetadataImage) -> Mapping[str, str]:
        """What was set for this broker or for all of them while they ran, but for what only a newer version knows."""
        everybody = image.configs_of(ResourceType.BROKER, DEFAULT_BROKER)
        given = {**everybody, **image.configs_of(ResourceType.BROKER, str(self._broker_id))}
        return {name: text for name, text in given.items() if _known_definition(name) is not None}

    def _topic_defaults(self, image: MetadataImage) -> Mapping[str, Value]:
        own = image.configs_of(ResourceType.BROKER, str(self._broker_id))
        everybody = image.configs_of(ResourceType.BROKER, DEFAULT_BROKER)
        if self._shared_from is None or self._shared_from[0] is not own or self._shared_from[1] is not everybody:
            values = {name: self._topic_default(image, name) for name in TOPIC_CONFIGS}
            self._shared = MappingProxyType(values)
            self._shared_from = (own, everybody)
        return self._shared

    def _topic_default(self, image: MetadataImage, name: str) -> Value:
        for synonym in SYNONYMS.get(name, ()):
            value = self.broker_value(image, synonym.name)
            if value is not None:
                return _scaled(value, synonym)
        return TOPIC_CONFIGS[name].default

    # -- descriptions ------------------------------------------------------------------------------

    def describe_topic(self, image: MetadataImage, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
        """Every setting of a topic with these overrides."""
        for name, definition in TOPIC_CONFIGS.items():
            places: list[ConfigSynonym] = []
            text = overrides.get(name)
            if text is not None:
                text = _as_read(definition, text)
                places.append(ConfigSynonym(name, text, ConfigSource.TOPIC))
            for number, synonym in enumerate(SYNONYMS.get(name, ())):
                levels = self._broker_levels(image, synonym.name, self._broker_id)
                # Kafka tells the default of the first name alone.
                places.extend(level for level in levels if number == 0 or level.source is not ConfigSource.DEFAULT)
            value = text if text is not None else value_text(self._topic_defaults(image)[name])
            source = places[0].source if places else ConfigSource.DEFAULT
            yield ConfigEntry(definition, name, value, source, is_read_only=False, synonyms=tuple(places))

    def describe_group(self, image: MetadataImage, group_id: str) -> Iterator[ConfigEntry]:
        """Every setting of a group, whether there is such a group or not."""
        overrides = image.configs_of(ResourceType.GROUP, group_id)
        for name, definition in GROUP_CONFIGS.items():
            places = list(self._broker_levels(image, broker_synonym(name), self._broker_id))
            text = overrides.get(name)
            if text is not None:
                places.insert(0, ConfigSynonym(name, _as_read(definition, text), ConfigSource.GROUP))
            first = places[0]
            yield ConfigEntry(
                definition,
                name,
                _as_read(definition, first.value),
                first.source,
                is_read_only=False,
                synonyms=tuple(places),
            )

    def describe_broker(self, image: MetadataImage) -> Iterator[ConfigEntry]:
        """Every supported setting of this broker, and others that were set while it ran."""
        set_later = {*self.dynamic_broker_configs(image)} - SUPPORTED_BROKER_CONFIGS.keys()
        for name in (*SUPPORTED_BROKER_CONFIGS, *sorted(set_later)):
            definition = broker_definition(name)
            own = list(self._broker_levels(image, name, self._broker_id))
            places = [
                place
                for synonym in BROKER_SYNONYMS.get(name, (name,))
                for place in self._broker_levels(image, synonym, self._broker_id)
            ]
            yield ConfigEntry(
                definition,
                name,
                _as_read(definition, own[0].value) if own else None,
                own[0].source if own else ConfigSource.DEFAULT,
                is_read_only=definition.update_mode is UpdateMode.READ_ONLY,
                synonyms=tuple(_concealed(definition, place) for place in places),
            )

    def describe_default_broker(self, image: MetadataImage) -> Iterator[ConfigEntry]:
        """The settings that were set for all brokers together."""
        for name, text in image.configs_of(ResourceType.BROKER, DEFAULT_BROKER).items():
            place = ConfigSynonym(name, text, ConfigSource.DEFAULT_BROKER)
            definition = _known_definition(name)
            if definition is not None:
                yield ConfigEntry(definition, name, text, place.source, is_read_only=False, synonyms=(place,))

    def _broker_levels(self, image: MetadataImage, name: str, broker_id: BrokerId) -> Iterator[ConfigSynonym]:
        own = image.configs_of(ResourceType.BROKER, str(broker_id)).get(name)
        if own is not None:
            yield ConfigSynonym(name, own, ConfigSource.BROKER)
        everybody = image.configs_of(ResourceType.BROKER, DEFAULT_BROKER).get(name)
        if everybody is not None:
            yield ConfigSynonym(name, everybody, ConfigSource.DEFAULT_BROKER)
        static = self._static.get(name)
        if static is not None:
            yield ConfigSynonym(name, static, ConfigSource.STATIC_BROKER)
        default = broker_definition(name).default_text
        if default is not None:
            yield ConfigSynonym(name, default, ConfigSource.DEFAULT)


def _as_read(definition: ConfigDefinition, text: str | None) -> str | None:
    """What a text is understood as: 5 for `+5`, true for `TRUE`. Kafka shows values so, and a broker's synonyms as they
    were set.
    """
    return None if text is None else value_text(definition.read(text))


def _scaled(value: Value, synonym: Synonym) -> Value:
    if isinstance(value, int) and synonym.factor != 1:
        return value * synonym.factor if value >= 0 else -1
    return value


def _concealed(definition: ConfigDefinition, place: ConfigSynonym) -> ConfigSynonym:
    return place._replace(value=None) if definition.is_sensitive else place
