"""A broker whose disk is full: others go on without it until there is room.

A leader would refuse every record for as long as the disk is full, and a follower in sync would let the leader's
producers wait until it lags. When the broker has no other directory, it asks the controller to fence it, which moves
its leaderships, takes it out of every ISR and leaves all it has readable: it comes back by itself. When it has others,
the full one goes offline as soon as something cannot be appended that is led there, as in Kafka, and only what lies
there moves; the broker takes it up again at its next start. A partition without another in-sync replica stays where it
is, and is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raftlog.broker.store.log_manager import LogManager
    from raftlog.broker.store.store import UnavailableLog

log = logging.getLogger("raftlog.broker")


class FullDisk:
    """`wants_fence` is asked with every heartbeat."""

    def __init__(
        self,
        logs: LogManager,
        is_full: Callable[[str], bool],
        others_can_lead: Callable[[UnavailableLog], bool],
        others_wait: Callable[[UnavailableLog], bool],
        heartbeat_now: Callable[[], None],
    ) -> None:
        """`is_full`: whether the data directory of that path has no room; `others_can_lead`: whether this broker leads
        the log's partition and another replica is in sync; `others_wait`: whether another one leads it and this one is
        in sync; `heartbeat_now` has the next heartbeat sent now.
        """
        self._logs = logs
        self._is_full = is_full
        self._others_can_lead = others_can_lead
        self._others_wait = others_wait
        self._heartbeat_now = heartbeat_now
        self._yielding = False

    def log_full(self, full: UnavailableLog, reason: str) -> None:
        """A log took no append for want of room. Called again with every append that is tried."""
        leads = self._others_can_lead(full)
        if self._yielding or not (leads or self._others_wait(full)):
            return
        if sum(directory.offline_reason is None for directory in self._logs.directories) > 1:
            if not leads:
                return
            self._logs.fail_directory_of(full, reason)
            return
        self.no_room(reason)

    def no_room(self, reason: str) -> None:
        """Nothing can be written in any directory, and others wait for this broker."""
        if not self._yielding:
            log.error("the disk is full: others go on without this broker until there is room: %s", reason)
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
        return not any(self._is_full(each.path) for each in directories if each.offline_reason is None)
