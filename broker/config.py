"""What a broker is told when it starts: Kafka's settings from a file and from the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from raftlog.metadata.broker_configs import REPLICA_SELECTORS, SUPPORTED_BROKER_CONFIGS
from raftlog.metadata.config_definition import InvalidConfig, Value
from raftlog.metadata.configs import ConfigResolver, broker_definition, check_directories
from raftlog.metadata.group_configs import GROUP_CONFIGS, broker_synonym, limits_of
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import Endpoint
from raftlog.wire.ids import BrokerId

METADATA_DIRECTORY = "__cluster_metadata"
"""Where the metadata log lies in a data directory. Without a number at the end it is the name of no partition."""


class ConfigError(Exception):
    """A broker cannot start with these settings; one line for each thing that is wrong."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class Voter(NamedTuple):
    """A node of the metadata quorum."""

    node_id: int
    host: str
    port: int


class BrokerConfig(Mapping[str, Any]):
    """All supported broker settings by Kafka's names, as values of their types, defaults filled in.

    `static` holds the texts of those that were given, for the settings' descriptions. `without_effect`: names of those
    that were given and change nothing, by the reason why.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        """`given`: texts by name. Raises ConfigError."""
        problems: list[str] = []
        self.static: dict[str, str] = {}
        self.without_effect: dict[str, list[str]] = {}
        self._values: dict[str, Value] = {name: d.default for name, d in SUPPORTED_BROKER_CONFIGS.items()}
        for spelling, text in given.items():
            name = spelling if "." in spelling else spelling.replace("_", ".")
            try:
                definition = broker_definition(name)
                value = definition.parse(text)
            except InvalidConfig as error:
                problems.append(str(error))
                continue
            if definition.unsupported is not None and value != definition.default:
                self.without_effect.setdefault(definition.unsupported, []).append(name)
            if definition.unsupported is None:
                self._values[name] = value
                self.static[name] = text.strip()
        self.endpoints: tuple[Endpoint, ...] = ()
        self.peer_endpoints: tuple[Endpoint, ...] = ()
        self.advertised: Mapping[str, tuple[str, int]] = {}
        self.voters: tuple[Voter, ...] = ()
        self.peer_listen: tuple[str, int] | None = None
        steps = (
            self._read_node,
            self._read_directories,
            self._read_listeners,
            self._read_memory,
            self._read_voters,
            self._read_times,
            self._read_groups,
            self._read_disk_limits,
            self._read_replica_selector,
        )
        for step in steps:
            try:
                step()
            except InvalidConfig as error:
                problems.append(str(error))
        if problems:
            raise ConfigError(problems)
        self.resolver = ConfigResolver(self.node_id, self.static)

    # -- the settings as a mapping ---------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    # -- what follows from several of them --------------------------------------------------------

    def _read_node(self) -> None:
        node_id, broker_id = self["node.id"], self["broker.id"]
        if node_id is None and broker_id >= 0:
            node_id = broker_id
        if node_id is None:
            raise InvalidConfig("node.id is missing: every broker of a cluster needs a number of its own")
        if broker_id >= 0 and broker_id != node_id:
            raise InvalidConfig(f"node.id is {node_id} and broker.id is {broker_id}: set only node.id")
        self.node_id = BrokerId(node_id)
        self._values["node.id"] = node_id
        if "broker" not in self["process.roles"]:
            raise InvalidConfig("process.roles must have broker in it: every raftlog node is one")

    def _read_directories(self) -> None:
        directories = self["log.dirs"] or self["log.dir"]
        if not directories:
            raise InvalidConfig("log.dirs is missing: name a directory for the data (or use --data-dir)")
        if len(set(directories)) != len(directories):
            raise InvalidConfig(f"log.dirs names a directory twice: {','.join(directories)}")
        self.data_dirs: tuple[str, ...] = directories
        self._values["log.dirs"] = directories
        check_directories(self["cordoned.log.dirs"], directories)
        own = self["metadata.log.dir"]
        self.metadata_directory: str = f"{own or directories[0]}/{METADATA_DIRECTORY}"

    def _read_listeners(self) -> None:
        protocols = _protocols(self["listener.security.protocol.map"])
        listeners = [_endpoint(text, "listeners", protocols) for text in self["listeners"]]
        _refuse_repetition(listeners)
        for name in self["controller.listener.names"]:
            if all(listener.listener_name != name for listener in listeners):
                raise InvalidConfig(f"controller.listener.names has {name}, which is not among the listeners")
        peers = set(self["controller.listener.names"])
        self.peer_endpoints = tuple(listener for listener in listeners if listener.listener_name in peers)
        self.endpoints = tuple(listener for listener in listeners if listener.listener_name not in peers)
        if not self.endpoints:
            raise InvalidConfig("listeners has no listener for clients")
        names = [endpoint.listener_name for endpoint in self.endpoints]
        self.inter_broker_listener = self["inter.broker.listener.name"] or names[0]
        if self.inter_broker_listener not in names:
            raise InvalidConfig(
                f"inter.broker.listener.name is {self.inter_broker_listener}: no listener has that name"
            )
        if self["security.inter.broker.protocol"] != "PLAINTEXT":
            raise InvalidConfig("security.inter.broker.protocol must be PLAINTEXT: raftlog has no TLS and no SASL yet")
        advertised = [_endpoint(text, "advertised.listeners", protocols) for text in self["advertised.listeners"] or ()]
        for endpoint in advertised:
            _check_advertised(endpoint, [*names, *peers])
        self.advertised = {endpoint.listener_name: (endpoint.host, endpoint.port) for endpoint in advertised}

    def _read_memory(self) -> None:
        queued, largest = self["queued.max.request.bytes"], self["socket.request.max.bytes"]
        if 0 < queued < largest:
            raise InvalidConfig(
                f"queued.max.request.bytes is {queued}, and one request may have {largest} (socket.request.max.bytes):"
                " it must be as much or more"
            )

    def _read_replica_selector(self) -> None:
        selector = self["replica.selector.class"]
        if selector is not None and selector not in REPLICA_SELECTORS:
            known = ", ".join(REPLICA_SELECTORS)
            raise InvalidConfig(f"replica.selector.class is {selector}: raftlog has only {known}")

    def _read_voters(self) -> None:
        self.voters = tuple(_voter(text) for text in self["controller.quorum.voters"])
        _refuse_repeated_voters(self.voters)
        own = next((voter for voter in self.voters if voter.node_id == self.node_id), None)
        votes = "controller" in self["process.roles"]
        if not votes and own is not None:
            raise InvalidConfig(
                f"controller.quorum.voters names node {self.node_id}, and process.roles lacks controller: a node that"
                " votes is both; to follow without a vote, leave it out of controller.quorum.voters on all nodes"
            )
        if not votes and not self.voters:
            raise InvalidConfig("process.roles lacks controller: say in controller.quorum.voters who decides then")
        for endpoint in self.endpoints:
            if own is not None and endpoint.port == own.port and endpoint.host in (own.host, "", "0.0.0.0", "::"):
                raise InvalidConfig(
                    f"controller.quorum.voters has {own.host}:{own.port} for this node, where its listener"
                    f" {endpoint.listener_name} is: other brokers need a port of their own"
                )
        peer = self.peer_endpoints[0] if self.peer_endpoints else None
        if peer is not None:
            self.peer_listen = (peer.host, peer.port)
        elif own is not None:
            self.peer_listen = (own.host, own.port)
        self._check_bootstrap_servers()

    def _check_bootstrap_servers(self) -> None:
        """Kafka's own file for one node names that node."""
        known = {(voter.host, voter.port) for voter in self.voters}
        known |= {self.advertised[e.listener_name] for e in self.peer_endpoints if e.listener_name in self.advertised}
        for endpoint in self.peer_endpoints:
            hosts = _THIS_MACHINE if endpoint.host in ("", "0.0.0.0", "::") else (endpoint.host,)
            known |= {(host, endpoint.port) for host in hosts}
        for text in self["controller.quorum.bootstrap.servers"]:
            match = _ADDRESS.fullmatch(text)
            if match is None or (match[1] or match[2], int(match[3])) not in known:
                raise InvalidConfig(
                    f"controller.quorum.bootstrap.servers has {text}, which is neither this node nor one of"
                    " controller.quorum.voters: raftlog asks nobody who is in the quorum, so name all its nodes in"
                    " controller.quorum.voters (or --peers) and leave this setting out"
                )

    def _read_groups(self) -> None:
        for name in GROUP_CONFIGS:
            lowest, highest = limits_of(name)
            own = broker_synonym(name)
            for larger, smaller in ((highest, lowest), (own, lowest), (highest, own)):
                if self[larger] < self[smaller]:
                    raise InvalidConfig(f"{larger} must be greater than or equal to {smaller}")
        session, heartbeat = "group.consumer.session.timeout.ms", "group.consumer.heartbeat.interval.ms"
        if self[heartbeat] >= self[session]:
            raise InvalidConfig(f"{heartbeat} must be less than {session}")

    def _read_disk_limits(self) -> None:
        warning, critical = "raftlog.disk.free.warning.percent", "raftlog.disk.free.critical.percent"
        if self[warning] < self[critical]:
            raise InvalidConfig(f"{warning} must be greater than or equal to {critical}")

    def _read_times(self) -> None:
        heartbeat, session = self["broker.heartbeat.interval.ms"], self["broker.session.timeout.ms"]
        if heartbeat < 1 or session < 2 * heartbeat:
            raise InvalidConfig(
                f"broker.session.timeout.ms is {session} and broker.heartbeat.interval.ms is {heartbeat}: a session has"
                " to have room for two heartbeats, or a broker is fenced for one that is late"
            )

    @property
    def has_peers(self) -> bool:
        """Whether this broker is one of a cluster; else it is the whole cluster."""
        return bool(self.voters)

    def with_dynamic(self, image: MetadataImage) -> Mapping[str, Any]:
        """The settings as they are with those that were changed while brokers run."""
        given = self.resolver.dynamic_broker_configs(image)
        changed = [name for name in given if broker_definition(name).unsupported is None]
        return {**self._values, **{name: self.resolver.broker_value(image, name) for name in changed}}

    def is_given(self, name: str) -> bool:
        """Whether somebody set this, rather than leaving it at its default."""
        return name in self.static

    def registered_endpoints(self, bound_ports: Mapping[str, int] | None = None) -> tuple[Endpoint, ...]:
        """What other brokers and their clients are told. `bound_ports`: by listener name, where port 0 was asked for.

        An empty host: the address that the client connected to. Only a broker alone may say that of itself, or one that
        listens everywhere.
        """
        return tuple(self._registered(endpoint, bound_ports or {}) for endpoint in self.endpoints)

    def _registered(self, endpoint: Endpoint, bound_ports: Mapping[str, int]) -> Endpoint:
        own_host = endpoint.host if self.has_peers and endpoint.host not in ("0.0.0.0", "::") else ""
        port = endpoint.port or bound_ports.get(endpoint.listener_name, 0)
        host, port = self.advertised.get(endpoint.listener_name, (own_host, port))
        return endpoint._replace(host=host, port=port)


# -- parts of settings -----------------------------------------------------------------------------

_ENDPOINT = re.compile(r"([^:/]+)://(?:\[([0-9a-fA-F:.%a-z]*)\]|([0-9a-zA-Z\-._]*)):([0-9]+)")
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.%a-z]+)\]|([0-9a-zA-Z\-._]+)):([0-9]+)")
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_VOTER = re.compile(r"([0-9]+)@(?:\[([0-9a-fA-F:.%a-z]+)\]|([0-9a-zA-Z\-._]+)):([0-9]+)")
_PORT_MAX = 65535


def _protocols(text: str) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = pair.partition(":")
        if not colon or protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise InvalidConfig(f"listener.security.protocol.map has {pair}: expected NAME:PROTOCOL")
        protocols[name.strip()] = protocol
    return protocols


def _endpoint(text: str, setting: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[4]) > _PORT_MAX:
        raise InvalidConfig(f"{setting} has {text}: expected NAME://host:port, such as PLAINTEXT://127.0.0.1:9092")
    name = match[1].upper()
    # A name without a protocol is what `--listen` gives and what CONTROLLER mostly is: plain.
    protocol = protocols.get(name, "PLAINTEXT" if name == "CONTROLLER" else None)
    if protocol is None:
        raise InvalidConfig(f"{setting} has {text}: listener.security.protocol.map says nothing about {name}")
    if protocol != "PLAINTEXT":
        raise InvalidConfig(f"{setting} has {text}: {protocol} is not supported, raftlog has no TLS and no SASL yet")
    return Endpoint(name, match[2] or match[3] or "", int(match[4]), protocol)


def _refuse_repetition(listeners: Iterable[Endpoint]) -> None:
    names: set[str] = set()
    addresses: set[tuple[str, int]] = set()
    for listener in listeners:
        address = (listener.host, listener.port)
        if listener.listener_name in names:
            raise InvalidConfig(f"listeners has the name {listener.listener_name} twice")
        if listener.port and address in addresses:
            raise InvalidConfig(f"listeners has the address {listener.host}:{listener.port} twice")
        names.add(listener.listener_name)
        addresses.add(address)


def _check_advertised(endpoint: Endpoint, names: Iterable[str]) -> None:
    if endpoint.listener_name not in names:
        raise InvalidConfig(f"advertised.listeners has {endpoint.listener_name}, which is not among the listeners")
    if endpoint.host in ("", "0.0.0.0", "::") or endpoint.port == 0:
        raise InvalidConfig(
            f"advertised.listeners has {endpoint.host}:{endpoint.port}, which no client can connect to:"
            " give a host and a port, or leave it out to advertise the address that the client connected to"
        )


def _refuse_repeated_voters(voters: Iterable[Voter]) -> None:
    ids: set[int] = set()
    addresses: set[tuple[str, int]] = set()
    for voter in voters:
        if voter.node_id in ids:
            raise InvalidConfig(f"controller.quorum.voters names node {voter.node_id} twice")
        if (voter.host, voter.port) in addresses:
            raise InvalidConfig(f"controller.quorum.voters has the address {voter.host}:{voter.port} twice")
        ids.add(voter.node_id)
        addresses.add((voter.host, voter.port))


def _voter(text: str) -> Voter:
    match = _VOTER.fullmatch(text)
    if match is None or not 0 < int(match[4]) <= _PORT_MAX:
        raise InvalidConfig(f"controller.quorum.voters has {text}: expected id@host:port, such as 1@127.0.0.1:9093")
    return Voter(int(match[1]), match[2] or match[3], int(match[4]))


# -- files -----------------------------------------------------------------------------------------

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*(\s*[=:]\s*|\s+)")


def parse_properties(text: str) -> dict[str, str]:
    """The settings in a Java properties file such as Kafka's server.properties; the last of equal names wins."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _SEPARATOR.search(line)
        key, value = (line[: match.start(1)], line[match.end(1) :]) if match else (line, "")
        values[_unescape(key)] = _unescape(value)
    return values


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        backslashes = len(pending) - len(pending.rstrip("\\"))
        if backslashes % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replaced, text)
