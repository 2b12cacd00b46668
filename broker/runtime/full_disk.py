"""A leader whose disk is full: others lead until there is room.

A follower on a full disk falls out of the ISR by itself, and catches up when there is room. A leader would refuse every
record for as long as the disk is full. When the broker has other directories, the full one goes offline, as in Kafka,
and only what lies there moves; the broker takes it up again at its next start. When it has no other, the broker asks
the controller to fence it, which moves its leaderships and leaves all it has readable: it comes back by itself. A
partition without another in-sync replica stays where it is, and is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.broker.runtime.disk_room import has_room

if TYPE_CHECKING:
    from raftlog.broker.store.log_manager import LogManager
    from raftlog.broker.store.store import UnavailableLog

log = logging.getLogger("raftlog.broker")

class FullDisk:
    """`wants_fence` is asked with every heartbeat."""

    def __init__(
        self, logs: LogManager, others_can_lead: Callable[[UnavailableLog], bool], heartbeat_now: Callable[[], None]
    ) -> None:
        """`others_can_lead`: whether this broker leads the log's partition and another replica is in sync;
        `heartbeat_now` has the next heartbeat sent now.
        """
        self._logs = logs
        self._others_can_lead = others_can_lead
        self._heartbeat_now = heartbeat_now
        self._yielding = False

    def log_full(self, full: UnavailableLog, reason: str) -> None:
        """A log took no append for want of room. Called again with every append that is tried."""
        if self._yielding or not self._others_can_lead(full):
            return
        if sum(directory.offline_reason is None for directory in self._logs.directories) > 1:
            self._logs.fail_directory_of(full, reason)
            return
        log.error("the disk is full: others lead, and this broker is out of every ISR, until there is room: %s", reason)
        self._yielding = True
        self._heartbeat_now()

    def wants_fence(self) -> bool:
        """Whether the broker should lead nothing now."""
        if self._yielding and self._has_room():
            log.warning("there is room on the disk again: asking to come back")
            self._yielding = False
        return self._yielding

    def _has_room(self) -> bool:
        directories = self._logs.directories
        return all(has_room(self._logs, each.path) for each in directories if each.offline_reason is None)
