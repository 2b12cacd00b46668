"""Brokers that belong together, for as long as a `with` block lasts.

Knows where each broker's data and log lie and the settings that suit tests and development; refuses to know what
is done with the brokers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from raftlog.testing.process import START_TIMEOUT_SECONDS, BrokerDied, BrokerProcess

# What a laptop or a test wants: no wait for more group members, few partitions to create for the first commit.
DEVELOPMENT_SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
}
BROKERS_MAX = 1  # until brokers form a quorum


class Cluster:
    """Brokers 1..n in one directory: `broker-<id>` holds the data of each, `broker-<id>.log` what it logs."""

    def __init__(
        self,
        n: int,
        directory: Path | str,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        log_to_stderr: bool = False,
    ) -> None:
        """`port` is the first broker's, 0 lets the operating system choose; `settings` are added to
        DEVELOPMENT_SETTINGS. Raises ValueError for a number of brokers that cannot be."""
        if not 1 <= n <= BROKERS_MAX:
            raise ValueError(f"{n} brokers: this version runs {BROKERS_MAX} broker, clusters come next")
        self.directory = Path(directory)
        self.brokers = [
            BrokerProcess(
                node_id,
                self.directory / f"broker-{node_id}",
                port=port + node_id - 1 if port else 0,
                settings={**DEVELOPMENT_SETTINGS, **(settings or {})},
                log_file=None if log_to_stderr else self.directory / f"broker-{node_id}.log",
            )
            for node_id in range(1, n + 1)
        ]

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,host:port`, as every Kafka client takes it."""
        return ",".join(broker.address for broker in self.brokers)

    def start(self, timeout: float = START_TIMEOUT_SECONDS) -> None:
        """Start all brokers at once and return when all serve; when one does not, stop the others and raise."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            for broker in self.brokers:
                broker.start(wait=False)
            for broker in self.brokers:
                broker.wait_until_ready(timeout)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop all brokers in order; raise BrokerDied when one of them ended badly."""
        for broker in self.brokers:
            if broker.running:
                broker.terminate()
        codes = [broker.stop() for broker in self.brokers]
        bad = [broker for broker, code in zip(self.brokers, codes, strict=True) if code > 0]
        if bad:
            raise BrokerDied(f"broker {bad[0].node_id} {bad[0].how_it_ended()}{bad[0].last_words()}")

    def kill(self) -> None:
        """kill -9 for all."""
        for broker in self.brokers:
            broker.kill()


@contextmanager
def cluster(
    n: int = 1,
    *,
    directory: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
    log_to_stderr: bool = False,
) -> Iterator[Cluster]:
    """Brokers that serve when the block begins and are gone when it ends.

    `n`: how many. `directory`: where their data lies and stays; a throw-away one by default. `settings`: Kafka's
    broker configs, for example {"num.partitions": "3"}. Raises BrokerDied, with the broker's log, when one does not
    start.
    """
    with data_directory(directory) as path:
        brokers = Cluster(n, path, settings=settings, log_to_stderr=log_to_stderr)
        brokers.start()
        try:
            yield brokers
        except BaseException:
            brokers.kill()
            raise
        brokers.stop()


@contextmanager
def data_directory(given: Path | str | None) -> Iterator[Path]:
    """The directory that was asked for, or a fresh one that is removed at the end."""
    if given is not None:
        yield Path(given)
        return
    # Not tempfile: it costs a tenth of the time in which a broker starts.
    path = Path(os.environ.get("TMPDIR") or "/tmp") / f"raftlog-{os.getpid()}-{os.urandom(4).hex()}"
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        import shutil

        shutil.rmtree(path, ignore_errors=True)
