"""Options as Spark hands them over: text by name, names in any case. What is wrong with one is said by its name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

KAFKA = "kafka."


class BadOption(ValueError):
    """An option that does not exist, or a value that it cannot have; the text says what to do."""


class Given:
    """The options of one source or sink."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in choices:
            raise BadOption(f"{name}={value!r}: it can be {' or '.join(choices)}")
        return value.lower()

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str, *, least: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise BadOption(f"{name}={value!r} is no whole number") from None
        if number < least:
            raise BadOption(f"{name}={value}: it has to be at least {least}")
        return number

    def milliseconds(self, name: str) -> int | None:
        """A length of time as Spark writes it, such as 15m, 30s or 500 (ms)."""
        value = self.text(name)
        if value is None:
            return None
        number = value.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
        unit = value.strip()[len(number) :].strip().lower() or "ms"
        if unit not in UNITS or not number.isdigit():
            raise BadOption(f"{name}={value!r} is no length of time: write it like 15m, 30s or 500ms")
        return int(number) * UNITS[unit]

    def check_known(self, known: Iterable[str], kafka: Settings, refused: Mapping[str, str]) -> None:
        """Raises BadOption for the first option that is refused, or that nobody knows."""
        taken = (*kafka.used, *kafka.without_effect)
        names = {each.lower(): each for each in (*known, *(KAFKA + one for one in (*taken, *kafka.refused)))}
        reasons = {**refused, **{KAFKA + one: reason for one, reason in kafka.refused.items()}}
        for name, value in self._values.items():
            if name.startswith(SECURITY):
                raise BadOption(f"{name}: {NO_SECURITY}")
            if name in reasons and value.lower() != kafka.harmless.get(name.removeprefix(KAFKA)):
                raise BadOption(f"{name}: {reasons[name]}")
            if name not in names and name not in reasons:
                close = get_close_matches(name, names, n=1)
                hint = f"did you mean {names[close[0]]}?" if close else "leave it out"
                raise BadOption(f"there is no option {name!r} here: {hint}")


UNITS = {"us": 0, "ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Connection(NamedTuple):
    """How to reach the brokers. `timeout` in seconds."""

    bootstrap: str
    client_id: str
    timeout: float


class Settings(NamedTuple):
    """What Kafka's settings for one kind of client come to here, by their names without `kafka.`."""

    used: tuple[str, ...]
    without_effect: tuple[str, ...]
    """There is nothing to do for them here: they are taken and change nothing."""
    refused: Mapping[str, str]
    """They would change something that cannot be had, with what to say."""
    harmless: Mapping[str, str]
    """The one value, in small letters, with which a refused setting asks for what is done anyway."""


CONNECTION_SETTINGS = ("bootstrap.servers", "client.id", "default.api.timeout.ms", "security.protocol")
PASSIVE_SETTINGS = (
    "client.dns.lookup",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
"""Settings of all of Kafka's clients that there is nothing to do for here."""
NO_SECURITY = "only PLAINTEXT is spoken; SASL and TLS are not there yet"
SECURITY = (KAFKA + "sasl.", KAFKA + "ssl.", KAFKA + "security.providers")
NO_JAVA = "it names classes in Java, and it is no Java client that works here"
REFUSED_SETTINGS: Mapping[str, str] = {
    "config.providers": "values are taken as they are written; put in what the provider would give",
    "interceptor.classes": NO_JAVA,
    "metric.reporters": NO_JAVA,
}


def connection(given: Given) -> Connection:
    """Raises BadOption."""
    bootstrap = given.text("kafka.bootstrap.servers")
    if not bootstrap:
        raise BadOption("kafka.bootstrap.servers is missing: say where the brokers are, such as 'localhost:9092'")
    protocol = given.text("kafka.security.protocol")
    if protocol is not None and protocol.upper() != "PLAINTEXT":
        raise BadOption(f"kafka.security.protocol={protocol}: {NO_SECURITY}")
    milliseconds = given.number("kafka.default.api.timeout.ms") or 60_000
    return Connection(bootstrap, given.text("kafka.client.id") or "raftlog-spark", milliseconds / 1000)
