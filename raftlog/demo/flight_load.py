"""The demo's producer: idempotent, unmodified, and what it has heard back."""

from __future__ import annotations

import time
from typing import Any

from raftlog.demo.flights import Flight
from raftlog.demo.group_reader import CLIENT


class Load:
    """Sends flights, and counts acknowledgements and the pauses between them (seconds)."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        self.acknowledged = 0
        self.failed = 0
        self.longest_pause = 0.0
        self.pause_since_mark = 0.0
        self._topic = topic
        self._last = 0.0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 10,
                "compression.type": "lz4",
                **CLIENT,
            }
        )

    def mark(self) -> None:
        """Measure `pause_since_mark` anew from here on."""
        self.pause_since_mark = 0.0

    def _delivered(self, error: Any, _message: Any) -> None:
        now = time.monotonic()
        if error is not None:
            self.failed += 1
            return
        if self.acknowledged:
            pause = now - self._last
            self.longest_pause = max(self.longest_pause, pause)
            self.pause_since_mark = max(self.pause_since_mark, pause)
        self.acknowledged += 1
        self._last = now

    def send(self, flights: list[Flight]) -> int:
        """Queue as many as the client takes now; says how many."""
        for count, flight in enumerate(flights):
            try:
                self._producer.produce(self._topic, key=flight.key, value=flight.value, on_delivery=self._delivered)
            except BufferError:
                return count
        return len(flights)

    def listen(self, seconds: float = 0.0) -> None:
        self._producer.poll(seconds)

    @property
    def waiting(self) -> int:
        return len(self._producer)
