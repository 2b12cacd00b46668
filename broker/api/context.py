"""What a request handler is given: the broker's services, and the facts of one request.

Knows names only; builds nothing. `broker/main.py` puts the services together.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raftlog.broker.runtime.contact import Suspects
from raftlog.broker.server.limits import NAME_LENGTH_IN_LOGS_MAX

if TYPE_CHECKING:
    import asyncio

    from raftlog.broker.config import BrokerConfig
    from raftlog.broker.ports import Clock
    from raftlog.broker.runtime.controller import Controller
    from raftlog.broker.runtime.fetching import FetchService
    from raftlog.broker.runtime.group_coordinator import GroupCoordinator
    from raftlog.broker.runtime.partition_manager import PartitionManager
    from raftlog.broker.server.connection import Connection
    from raftlog.broker.store.log_manager import LogManager

log = logging.getLogger("raftlog.changes")

CHANGES_IN_A_LINE_MAX = 10
"""How many things that one request changed are named in the log."""


@dataclass(slots=True)
class Services:
    """The parts of a running broker that handlers use. One owner each; handlers hold no state of their own."""

    node_id: int
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    loop: asyncio.AbstractEventLoop
    controller: Controller
    logs: LogManager
    partitions: PartitionManager
    fetches: FetchService
    groups: GroupCoordinator
    suspects: Suspects = field(default_factory=Suspects)


class RawRequest:
    """A request of the data path, not decoded: `frame` is valid only during the call."""

    __slots__ = ("connection", "correlation_id", "frame", "offset", "version")

    def __init__(self, connection: Connection, version: int, correlation_id: int, frame: memoryview) -> None:
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.frame = frame
        # Where the body begins; set by the dispatcher.
        self.offset = 0


@dataclass(slots=True)
class RequestContext:
    """One decoded request's surroundings. `advertised` is the address to tell this client about this broker."""

    services: Services
    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    listener_name: str
    advertised: tuple[str, int]
    connection: Connection

    def log_change(self, what: str, changed: Sequence[str]) -> None:
        """Log what this client has changed, if anything: an operator wants to know who did that."""
        if changed:
            more = len(changed) - CHANGES_IN_A_LINE_MAX
            named = ", ".join(changed[:CHANGES_IN_A_LINE_MAX]) + (f" and {more} more" if more > 0 else "")
            client_id = (self.client_id or "")[:NAME_LENGTH_IN_LOGS_MAX]
            log.info("client=%s name=%r %s: %s", self.client_host, client_id, what, named)
