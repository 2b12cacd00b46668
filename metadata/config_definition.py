"""What a configuration setting is: name, type, default, what values it takes, and whether raftlog supports
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple, assert_never

Value = str | int | float | bool | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308


class ConfigType(IntEnum):
    """Types of settings, with the codes that DescribeConfigs tells."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """Whether a broker setting can be changed while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class InvalidConfig(ValueError):
    """A setting has a name or a value that cannot be; the text is for the person who set it."""


class Validator(NamedTuple):
    """A condition on a value. `check` gives what is wrong or None; `description` is the condition as Kafka writes it,
    if it does.

    `by_element`: the condition is on each element of a list.
    """

    check: Callable[[Value], str | None]
    description: str | None
    by_element: bool = False


class ConfigDefinition(NamedTuple):
    """One setting. `unsupported` says why raftlog refuses any value but the default; None: it is supported.

    `without_effect`: any value passes all the same, for it asks for nothing that could be missed.
    """

    name: str
    type: ConfigType
    default: Value
    documentation: str
    validator: Validator | None = None
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    unsupported: str | None = None
    without_effect: bool = False

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is never shown."""
        return self.type is ConfigType.PASSWORD

    def read(self, text: str) -> Value:
        """The value of a text that was accepted once, perhaps by a version with other conditions."""
        return parse_value(self.name, self.type, text)

    def parse(self, text: str) -> Value:
        """The value that a text stands for. Raises InvalidConfig."""
        value = self.read(text)
        if self.unsupported is not None and not self.without_effect and value != self.default:
            raise InvalidConfig(f"{self.name} is not supported by raftlog: {self.unsupported}")
        if isinstance(value, tuple) and any(not element for element in value):
            raise InvalidConfig(f"Configuration '{self.name}' values must not be empty.")
        if self.validator is not None:
            each = value if self.validator.by_element and isinstance(value, tuple) else (value,)
            for checked in each:
                problem = self.validator.check(checked)
                if problem is not None:
                    raise InvalidConfig(f"Invalid value {_shown(checked)} for configuration {self.name}: {problem}")
        return value

    @property
    def default_text(self) -> str | None:
        """The default as DescribeConfigs shows it."""
        return value_text(self.default)


def fixed(
    name: str, kind: ConfigType, default: Value, validator: Validator | None, documentation: str
) -> ConfigDefinition:
    """A setting that a broker is given when it is started."""
    return ConfigDefinition(name, kind, default, documentation, validator)


def dynamic(
    name: str, kind: ConfigType, default: Value, validator: Validator | None, documentation: str
) -> ConfigDefinition:
    """One that can be changed while it runs."""
    return ConfigDefinition(name, kind, default, documentation, validator, UpdateMode.CLUSTER_WIDE)


def own_dynamic(
    name: str, kind: ConfigType, default: Value, validator: Validator | None, documentation: str
) -> ConfigDefinition:
    """One that can be changed while it runs, for itself only: never for all brokers."""
    return ConfigDefinition(name, kind, default, documentation, validator, UpdateMode.PER_BROKER)


# -- texts and values ----------------------------------------------------------------------------

_INTEGER = re.compile(r"[+-]?[0-9]{1,4300}", re.ASCII)
"""Python's `int` raises for more digits, leading zeros among them."""
# No text may match in two ways: of a long one that does not match, all of them would be tried.
_DOUBLE = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(Infinity|NaN)", re.ASCII)
_LIMITS = {ConfigType.SHORT: 2**15 - 1, ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX}


def parse_value(name: str, kind: ConfigType, text: str) -> Value:
    """Read a text as Kafka does: surrounding blanks do not count. Raises InvalidConfig."""
    trimmed = text.strip()
    match kind:
        case ConfigType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise _not_a(name, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        case ConfigType.INT | ConfigType.LONG | ConfigType.SHORT:
            limit = _LIMITS[kind]
            if _INTEGER.fullmatch(trimmed) is None or not -limit - 1 <= int(trimmed) <= limit:
                raise _not_a(name, text, f"Not a number of type {kind.name}")
            return int(trimmed)
        case ConfigType.DOUBLE:
            if _DOUBLE.fullmatch(trimmed) is None:
                raise _not_a(name, text, "Not a number of type DOUBLE")
            return float(trimmed)
        case ConfigType.LIST:
            return tuple(element.strip() for element in trimmed.split(",")) if trimmed else ()
        case ConfigType.STRING | ConfigType.CLASS | ConfigType.PASSWORD:
            return trimmed
        case _:
            assert_never(kind)


def _not_a(name: str, text: str, problem: str) -> InvalidConfig:
    return InvalidConfig(f"Invalid value {text} for configuration {name}: {problem}")


def value_text(value: Value) -> str | None:
    """A value as DescribeConfigs shows it; None for no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return repr(value).replace("e+", "E").replace("e", "E")
    return str(value)


def _shown(value: Value) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return value_text(value) or ""


# -- conditions ------------------------------------------------------------------------------------


def _number(value: Value) -> float:
    assert isinstance(value, (int, float))
    return value


def at_least(low: float) -> Validator:
    """A number no smaller than `low`."""

    def check(value: Value) -> str | None:
        return None if _number(value) >= low else f"Value must be at least {low}"

    return Validator(check, f"[{low},...]")


def between(low: float, high: float) -> Validator:
    """A number from `low` to `high`, both included."""

    def check(value: Value) -> str | None:
        number = _number(value)
        if number < low:
            return f"Value must be at least {low}"
        return None if number <= high else f"Value must be no more than {high}"

    return Validator(check, f"[{low},...,{high}]")


def between_or(low: int, high: int, other: int) -> Validator:
    """A number from `low` to `high`, or `other`."""

    def check(value: Value) -> str | None:
        if value == other or low <= _number(value) <= high:
            return None
        return f"Value must be between {low} and {high} or equal to {other}"

    return Validator(check, f"[{low},...,{high}] or {other}")


def _forever_or_positive(value: Value) -> str | None:
    return "Value must be unlimited (-1) or, greater than or equal to 1" if value == 0 else None


FOREVER_OR_POSITIVE = Validator(_forever_or_positive, None)
"""A time that is not 0; Kafka checks it apart from its definition, and takes every negative number for -1."""


def one_of(*choices: str) -> Validator:
    """A text among these."""

    def check(value: Value) -> str | None:
        return None if value in choices else f"String must be one of: {', '.join(choices)}"

    return Validator(check, f"[{', '.join(choices)}]")


def one_of_any_case(*choices: str) -> Validator:
    """A text among these, in capitals or not."""

    def check(value: Value) -> str | None:
        known = isinstance(value, str) and value.upper() in choices
        return None if known else f"String must be one of (case insensitive): {', '.join(choices)}"

    return Validator(check, f"(case insensitive) [{', '.join(choices)}]")


def elements_of(*choices: str) -> Validator:
    """A list whose elements are all among these."""
    return one_of(*choices)._replace(by_element=True)


ALL = "*"
"""In place of a list: each that there is."""


def _all_or_some(value: Value) -> str | None:
    assert isinstance(value, tuple)
    return "with * it must not contain other values" if ALL in value and len(value) > 1 else None


ALL_OR_SOME = Validator(_all_or_some, "")
"""A list in which * stands alone."""

REPLICA = re.compile(r"([0-9]{1,10}):([0-9]{1,10})", re.ASCII)
"""A replica in a list of throttled ones: the number of its partition, and its broker's."""


def _throttled_replicas(value: Value) -> str | None:
    assert isinstance(value, tuple)
    if value == ("*",) or all(REPLICA.fullmatch(element) for element in value):
        return None
    return "must be '*' or a list of replicas in the format [partitionId]:[brokerId],[partitionId]:[brokerId],..."


THROTTLED_REPLICAS = Validator(_throttled_replicas, "[partitionId]:[brokerId],[partitionId]:[brokerId],...")


_HOST_COUNT = re.compile(r"(.+):([0-9]+)", re.ASCII)


def counts_by_host(text: str) -> dict[str, int]:
    """`host:count,host:count` as a mapping. Raises ValueError."""
    counts = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        match = _HOST_COUNT.fullmatch(pair)
        if match is None:
            raise ValueError(pair)
        counts[match[1].strip("[] ")] = int(match[2])
    return counts


def _connections_by_host(value: Value) -> str | None:
    try:
        counts_by_host(str(value))
    except ValueError as error:
        return f"expected host:count, and not {error}"
    return None


CONNECTIONS_BY_HOST = Validator(_connections_by_host, None)


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name that looks most like `name`, if any is close: for "did you mean" in errors."""
    if len(name) > 2 * max(map(len, known)):
        return None  # none is close, and looking would take milliseconds
    # Imported here: needed once, when somebody made a mistake.
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, known, n=1, cutoff=0.7)), None)
