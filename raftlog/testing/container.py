"""The shape of `testcontainers.kafka.KafkaContainer`, without a container: a conftest changes its import."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from raftlog.testing.kafka import Kafka

_LAYOUT = ("listeners", "advertised.", "controller.", "process.", "node.", "broker.id", "inter.broker.", "log.dirs")
"""Settings that say how a container is wired: raftlog wires its brokers itself."""
_LAYOUT_ALSO = ("listener.security.", "zookeeper.")
_OF_JAVA = ("heap.", "jmx.", "jvm.", "log4j.", "tools.log4j.", "opts", "gc.log.", "version", "confluent.")
"""What the images keep for themselves, and what only Confluent's broker has."""


class KafkaContainer:
    """One broker. What is said about images, networks and volumes is accepted and has no effect.

        with KafkaContainer() as kafka:
            kafka.get_bootstrap_server()
    """

    def __init__(self, image: str = "", port: int = 9093, **options: Any) -> None:
        self.image = image
        self.port = port
        self.host_port = 0
        self.env: dict[str, str] = {}
        self.kafka: Kafka | None = None

    def with_env(self, key: str, value: str) -> Self:
        """KAFKA_NUM_PARTITIONS sets num.partitions, as in Kafka's images: `_` is a dot, `__` a `_`, `___` a `-`."""
        self.env[key] = str(value)
        return self

    def with_envs(self, **values: str) -> Self:
        for key, value in values.items():
            self.with_env(key, value)
        return self

    def with_kraft(self) -> Self:
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        return self

    def with_name(self, name: str) -> Self:
        return self

    def with_network(self, network: object) -> Self:
        return self

    def with_network_aliases(self, *aliases: str) -> Self:
        return self

    def with_exposed_ports(self, *ports: object) -> Self:
        return self

    def with_bind_ports(self, container: int | str, host: int | str | None = None) -> Self:
        """The broker listens at the port `host` (None: any that is free). Raises NotImplementedError for another port
        of the container than that of clients.
        """
        if _port(container) != self.port:
            raise NotImplementedError(
                f"port {container} of a container: there is one listener, that of clients, which is port {self.port};"
                f" bind that one, or say KafkaContainer(port={container})"
            )
        self.host_port = 0 if host is None else _port(host)
        return self

    def with_command(self, command: str | list[str]) -> Self:
        """Raises NotImplementedError."""
        raise NotImplementedError(
            f"{command!r} has no container to run in: the broker's settings are given as"
            " with_env('KAFKA_NUM_PARTITIONS', '3'), and a broker of its own command is `raftlog broker`"
        )

    def exec(self, command: str | list[str]) -> Any:
        """Raises NotImplementedError."""
        raise NotImplementedError(
            f"{command!r} has no container to run in: `.kafka.admin` does what Kafka's scripts do (docs/CLIENT.md), as"
            " `.kafka.topic`, `.kafka.seed` and `.kafka.records` do, and so does `raftlog topic`, `raftlog group`, …"
            " on the command line with get_bootstrap_server()"
        )

    def with_volume_mapping(self, host: str, container: str, mode: str = "ro") -> Self:
        return self

    def with_kwargs(self, **options: Any) -> Self:
        return self

    def start(self, timeout: float = 30) -> Self:
        """Return when a record was stored and read."""
        if self.kafka is None:
            self.kafka = Kafka(settings=settings_of(self.env), port=self.host_port).start(timeout)
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        kafka, self.kafka = self.kafka, None
        if kafka is not None:
            kafka.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def get_bootstrap_server(self) -> str:
        """`host:port`."""
        return self._started().bootstrap_servers

    def get_container_host_ip(self) -> str:
        return self.get_bootstrap_server().rpartition(":")[0]

    def get_exposed_port(self, port: int) -> int:
        """Where the broker listens, whatever port of a container is asked for."""
        return int(self.get_bootstrap_server().rpartition(":")[2])

    def get_logs(self) -> tuple[bytes, bytes]:
        """What the broker has logged, and nothing."""
        return self._started().running.brokers[0].log().encode(), b""

    def _started(self) -> Kafka:
        if self.kafka is None:
            raise RuntimeError("it is not started: use `with`")
        return self.kafka


def _port(text: int | str) -> int:
    """Of 9093, "9093" and "9093/tcp"."""
    return int(str(text).partition("/")[0])


def settings_of(env: dict[str, str]) -> dict[str, str]:
    """The broker configs that these variables of a container stand for."""
    settings = {}
    for key, value in env.items():
        if not key.startswith("KAFKA_"):
            continue
        name = key.removeprefix("KAFKA_").lower()
        name = name.replace("___", "\0").replace("__", "\1").replace("_", ".").replace("\0", "-").replace("\1", "_")
        if not name.startswith((*_LAYOUT, *_LAYOUT_ALSO, *_OF_JAVA)) and name != "log.dir":
            settings[name] = value
    return settings
