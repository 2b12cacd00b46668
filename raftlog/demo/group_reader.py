"""One consumer of a group, in a process of its own: counts each row it gets and commits what it has counted.

It runs in a fresh interpreter, so this module imports nothing that is slow.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from raftlog.demo.flights import row_of

BATCH = 2000
POLL_SECONDS = 0.1
COMMIT_SECONDS = 0.2
"""How often positions are committed: what a crashed consumer would read again is at most this much."""

CLIENT: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}
"""librdkafka by itself takes 0.1 to 10 s until it looks for a lost broker again, and when all are lost about a second
more to begin from the bootstrap list. With these it is there when the broker is, so that a pause is the broker's."""


class Tally:
    """What a reader has seen, in memory it shares with whoever started it. One writer, so no locks."""

    def __init__(self, context: SpawnContext, rows: int) -> None:
        self.seen: Any = context.RawArray("B", rows)
        self._numbers: Any = context.RawArray("d", 4)

    @property
    def count(self) -> int:
        """Records so far, those seen again included."""
        return int(self._numbers[0])

    @property
    def longest_pause(self) -> float:
        """Seconds between two batches, at most."""
        return float(self._numbers[1])

    @property
    def commits(self) -> int:
        return int(self._numbers[2])

    @property
    def assigned(self) -> bool:
        """Whether the group has given it partitions."""
        return bool(self._numbers[3])

    def add(self, rows: list[int], pause: float) -> None:
        for row in rows:
            self.seen[row] = min(255, self.seen[row] + 1)
        self._numbers[0] += len(rows)
        self._numbers[1] = max(self._numbers[1], pause)

    def committed(self) -> None:
        self._numbers[2] += 1

    def note_assignment(self) -> None:
        self._numbers[3] = 1


class GroupReader:
    """The process and its tally."""

    def __init__(self, context: SpawnContext, rows: int, bootstrap: str, topic: str, group: str) -> None:
        self.tally = Tally(context, rows)
        self._stop = context.Event()
        arguments = (self.tally, self._stop.is_set, bootstrap, topic, group)
        self._process: SpawnProcess = context.Process(target=read, args=arguments, daemon=True)

    def start(self) -> None:
        self._process.start()

    @property
    def failed(self) -> bool:
        return self._process.exitcode not in (None, 0)

    def stop(self, timeout: float) -> None:
        """Let it commit and leave; end it when that takes longer than `timeout` seconds."""
        self._stop.set()
        self._process.join(timeout)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def read(tally: Tally, stopped: Callable[[], bool], bootstrap: str, topic: str, group: str) -> None:
    """The process's life."""
    from confluent_kafka import Consumer

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started us
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 500,  # how soon a consumer hears that another one joined
            **CLIENT,
        }
    )
    consumer.subscribe([topic], on_assign=lambda _consumer, _partitions: tally.note_assignment())
    last_batch = last_commit = time.monotonic()
    uncommitted = began = False
    while True:
        messages = consumer.consume(BATCH, POLL_SECONDS)
        rows = [row_of(message.value() or b"") for message in messages if message.error() is None]
        now = time.monotonic()
        if rows:
            tally.add(rows, now - last_batch if began else 0.0)
            last_batch = now
            uncommitted = began = True
        leaving = stopped()
        if uncommitted and (leaving or now - last_commit > COMMIT_SECONDS):
            uncommitted = not commit(consumer, tally)
            last_commit = time.monotonic()
        if leaving and not uncommitted:  # a last commit that is refused is asked for again, until `stop` gives up
            break
    consumer.close()


def commit(consumer: Any, tally: Tally) -> bool:
    """Commit what was read; whether nothing of it is left to commit."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        # Without an offset the partitions went to the other reader, which commits for them. Otherwise the broker is
        # away: what was read stays counted, and the next commit covers it.
        return bool(error.args[0].code() == KafkaError._NO_OFFSET)
    tally.committed()
    return True
