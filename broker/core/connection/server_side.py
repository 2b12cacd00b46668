"""What all connections of a server share, and how they give away what they receive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from raftlog.broker.core.connection.memory import ReceiveMemory

Dispatch: TypeAlias = Callable[[Any, memoryview], None]
"""Serves one frame of a Connection, or raises RemoteProtocolError, or NotYet. The frame is valid only during the call.
"""


class NotYet(Exception):
    """It is not this frame's turn: the connection keeps it, and gives it again when it is resumed."""


class ServerSide:
    """What all connections of a server share. `now` tells seconds, forward only; `is_turn_over`, whether this turn has
    taken so long that others should have theirs."""

    __slots__ = ("dispatch", "is_turn_over", "memory", "now", "request_bytes_max")

    def __init__(
        self,
        dispatch: Dispatch,
        memory: ReceiveMemory,
        now: Callable[[], float],
        request_bytes_max: int,
        is_turn_over: Callable[[], bool] = bool,
    ) -> None:
        self.dispatch = dispatch
        self.memory = memory
        self.now = now
        self.request_bytes_max = request_bytes_max
        self.is_turn_over = is_turn_over
