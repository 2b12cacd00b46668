"""What the shipped client promises of itself, looked at between turns of the process that all clients run in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from raftlog.client.consumer import Consumer
from raftlog.client.producer import Producer

TURNS_BETWEEN = 4
"""Clients have many turns, and most of them belong to others."""

Shell = TypeVar("Shell", Producer, Consumer)


class ClientInvariants:
    """The producers and consumers that live."""

    def __init__(self) -> None:
        self._living: dict[Producer | Consumer, None] = {}
        self._turns = 0

    @asynccontextmanager
    async def watch(self, shell: Shell) -> AsyncIterator[Shell]:
        """Its life, from `async with` to its end, with its promises looked at."""
        self._living[shell] = None
        try:
            async with shell:
                yield shell
            shell.check_invariants()
        finally:
            del self._living[shell]

    def after_turn(self) -> None:
        """Raises InvariantViolation."""
        self._turns += 1
        if self._turns % TURNS_BETWEEN == 0:
            self.check()

    def check(self) -> None:
        """Raises InvariantViolation."""
        for shell in self._living:
            shell.check_invariants()
