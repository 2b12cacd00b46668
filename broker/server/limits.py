"""Bounds of the server and of requests, each with its name and its reason; one connection's are in core/connection.

Where Kafka has a configuration for a bound, the configuration's name is given and
`ServerLimits.from_config` reads it; the others are fixed here because no operator has a reason to turn them.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from raftlog.broker.core.connection.limits import ARRIVING_BYTES_MAX
from raftlog.metadata.config_definition import counts_by_host

log = logging.getLogger("raftlog.server")

KIB = 1024
MIB = 1024 * KIB

# A request of any API but Produce.
DECODED_REQUEST_BYTES_MAX = 8 * MIB

# A request of any API but Produce and Fetch that is larger is worked on in many turns, one of each address at a time.
LARGE_REQUEST_BYTES = 32 * KIB

# Elements of all arrays of one request, together: topics, partitions, replicas. Two hundred bytes are kept for each
# while it is served. Twenty thousand partitions, each in a topic of its own, are less than half.
REQUEST_ENTRIES_MAX = 100_000

# Templates of produce requests over all connections: one for each topic, version and acks that is written with. Each
# takes at most a kilobyte.
PRODUCE_TEMPLATES_MAX = 4_096

# Connections that may wait to be accepted, at least. Kafka's default for socket.listen.backlog.size, 50, fits a
# thread that does nothing but accept; one loop that has other work overflows it, and each client then loses a second.
ACCEPT_BACKLOG_MIN = 1024

# Connections accepted in one turn of the loop.
ACCEPTS_PER_TURN = 64

# When a turn of the loop has taken so long, no further request is served before the next turn (broker/server/turns.py).
TURN_SECONDS_MAX = 0.01

# What each connection that waited for a turn has of it at least, if it sent many requests: to be interrupted costs some
# 20 µs.
QUANTUM_SECONDS = 0.001

# Of how many connections that have something to read the kernel tells at once, and how often it is asked in a turn.
READY_AT_ONCE = 256
READY_ASKED_MAX = 64

# An idle consumer's poll that each connection remembers, to know the next one again: it has a hundred bytes or so.
REMEMBERED_POLL_BYTES_MAX = 1 * KIB

# A client id or software name that is longer is cut in log lines.
NAME_LENGTH_IN_LOGS_MAX = 80


class ServerLimits(NamedTuple):
    """The bounds that an operator sets, here or in the system."""

    request_bytes_max: int = 100 * MIB  # socket.request.max.bytes
    arriving_bytes_max: int = ARRIVING_BYTES_MAX  # queued.max.request.bytes
    connections_max: int = 2_147_483_647  # max.connections
    connections_per_address_max: int = 2_147_483_647  # max.connections.per.ip
    connections_by_address: Mapping[str, int] = MappingProxyType({})  # max.connections.per.ip.overrides
    idle_ms_max: int = 600_000  # connections.max.idle.ms
    backlog: int = 50  # socket.listen.backlog.size
    descriptors: int = 2_147_483_647  # for connections, of the limit of open files (broker/descriptors.py)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], by_address: Mapping[str, int]) -> ServerLimits:
        """Read from resolved broker configurations, by Kafka's names; see `connections_by_address`."""
        return cls(
            request_bytes_max=config["socket.request.max.bytes"],
            arriving_bytes_max=_arriving_bytes_max(config),
            connections_max=config["max.connections"],
            connections_per_address_max=config["max.connections.per.ip"],
            connections_by_address=by_address,
            idle_ms_max=config["connections.max.idle.ms"],
            backlog=config["socket.listen.backlog.size"],
        )


def _arriving_bytes_max(config: Mapping[str, Any]) -> int:
    given: int = config["queued.max.request.bytes"]
    return given if given > 0 else max(ARRIVING_BYTES_MAX, config["socket.request.max.bytes"])


def connections_by_address(overrides: str) -> Mapping[str, int]:
    """What max.connections.per.ip.overrides says. Host names stand for all their addresses, looked up now, which may
    take as long as a name server does."""
    found = {}
    for host, count in counts_by_host(overrides).items():
        try:
            addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        except (OSError, UnicodeError) as error:  # what is no name at all cannot even be asked for
            log.error("max.connections.per.ip.overrides: %s has no address (%s): no limit of its own", host, error)
            addresses = set()
        found.update(dict.fromkeys(addresses, count))
    return MappingProxyType(found)
