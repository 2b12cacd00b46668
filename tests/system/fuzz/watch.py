"""Watches a broker while it is attacked: that it lives, how much memory it takes, what it logs, and that others are
served meanwhile.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raftlog.testing import BrokerProcess
from raftlog.testing.waiting import wait_until
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.errors import ErrorCode
from tests.system.traps.raw import Closed, RawConnection, create_topic
from tests.system.traps.sensible import Names, fetch, produce

MIB = 1 << 20
RSS_BYTES_MAX = 200 * MIB
"""What a broker may take while it is fed nonsense by a few clients. After start it has some 35 MiB; one request of
lies may cost DECODED_REQUEST_BYTES_MAX times what its elements grow by when they are decoded (about 16)."""

BYSTANDER_SECONDS_MAX = 20.0
"""How long somebody else's request may take meanwhile, on a machine that others use, too."""

BYSTANDER_PAUSE_SECONDS = 0.05
CLOSED_LINES_SECONDS = 10.0
_CLOSED = re.compile(r"(WARNING|DEBUG) .* closed by a fault of the peer reason=")
_WRONG = re.compile(r"Traceback|CRITICAL| a bug|InvariantViolation|Task exception|never retrieved|ERROR ")


def resident_bytes(pid: int) -> int:
    """The memory of a process."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024
    output = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=True, text=True).stdout
    return int(output) * 1024


class LogReader:
    """Reads what a broker has logged since the last look."""

    def __init__(self, process: BrokerProcess) -> None:
        assert process.log_file is not None
        self._path = process.log_file
        self._position = self._path.stat().st_size
        self.closed_lines = 0

    def look(self) -> list[str]:
        """The new lines. Raises AssertionError when one of them tells of a bug of ours."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        lines = whole.decode(errors="replace").splitlines()
        self.closed_lines += sum(1 for line in lines if _CLOSED.search(line))
        for number, line in enumerate(lines):
            if _WRONG.search(line):
                shown = "\n".join(lines[max(0, number - 2) : number + 30])
                raise AssertionError(f"the broker logged what it should never have to:\n{shown}")
        return lines

    def wait_for_closed_lines(self, count: int, *, at_most: int | None = None) -> None:
        """Until so many closed connections were logged; fewer, or more than `at_most` (if left out, `count`), are an
        AssertionError. The broker writes the line after it has closed the connection: its peer may know before.
        """
        most = count if at_most is None else at_most

        def wrong() -> str:
            return f"{count} to {most} connections were closed, {self.closed_lines} lines tell of it"

        def are_there() -> bool:
            self.look()
            return self.closed_lines >= count

        wait_until(are_there, CLOSED_LINES_SECONDS, wrong)
        assert self.closed_lines <= most, wrong()


class Bystander(threading.Thread):
    """A well-behaved client: produces a record and reads it back, again and again, on a connection of its own."""

    def __init__(self, bootstrap_servers: str, names: Names) -> None:
        super().__init__(name="bystander", daemon=True)
        self._bootstrap_servers = bootstrap_servers
        self.names = names
        self._stopped = threading.Event()
        self.rounds = 0
        self.slowest_seconds = 0.0
        self.failure: str | None = None

    def run(self) -> None:
        try:
            with RawConnection(self._bootstrap_servers, deadline_seconds=BYSTANDER_SECONDS_MAX) as connection:
                while not self._stopped.wait(BYSTANDER_PAUSE_SECONDS):
                    self._round(connection)
        except (OSError, Closed, AssertionError) as error:
            self.failure = f"after {self.rounds} rounds: {type(error).__name__}: {error}"

    def _round(self, connection: RawConnection) -> None:
        began = time.monotonic()
        value = b"%d" % self.rounds
        batch = encode_batch([Record(0, time.time_ns() // 1_000_000, None, value)])
        produced = connection.ask(produce(9, self.names, records=batch), 9).responses[0].partition_responses[0]
        assert produced.error_code == ErrorCode.NONE, produced
        fetched = connection.ask(fetch(12, self.names, offset=produced.base_offset), 12).responses[0].partitions[0]
        assert value in bytes(fetched.records), "another record than the one that was written"
        self.rounds += 1
        self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)

    def stop(self) -> None:
        """End, and raise AssertionError when it was not served as it should have been."""
        self._stopped.set()
        self.join(2 * BYSTANDER_SECONDS_MAX)
        assert self.failure is None, f"a client that did nothing wrong was not served: {self.failure}"
        assert self.slowest_seconds <= BYSTANDER_SECONDS_MAX, f"a request took {self.slowest_seconds:.1f} s"


class Watch:
    """A broker that is watched; see `watched`."""

    def __init__(self, process: BrokerProcess, bystander: Bystander) -> None:
        self.process = process
        self.bystander = bystander
        self.log = LogReader(process)
        self.largest_bytes = 0

    @property
    def address(self) -> str:
        return self.process.address

    def check(self, rss_bytes_max: int = RSS_BYTES_MAX) -> None:
        """Raise AssertionError with what is wrong with the broker."""
        assert self.process.running, f"the broker {self.process.how_it_ended()}{self.process.last_words()}"
        resident = resident_bytes(self.process.pid)
        self.largest_bytes = max(self.largest_bytes, resident)
        assert resident <= rss_bytes_max, f"the broker takes {resident // MIB} MiB, more than {rss_bytes_max // MIB}"
        assert self.bystander.failure is None, self.bystander.failure
        self.log.look()

    def wait_for_rounds(self, rounds: int = 2, rss_bytes_max: int = RSS_BYTES_MAX) -> None:
        """Until the bystander was served so many more times."""
        goal = self.bystander.rounds + rounds
        wait_until(
            lambda: self.bystander.rounds >= goal or self.bystander.failure is not None,
            2 * BYSTANDER_SECONDS_MAX,
            lambda: "a client that did nothing wrong is served",
        )
        self.check(rss_bytes_max)


@contextmanager
def watched(process: BrokerProcess) -> Iterator[Watch]:
    """Watch a broker during a block, which fails when the broker did anything that it should not."""
    name = f"bystander-{time.monotonic_ns()}"
    bystander = Bystander(process.address, Names(name, create_topic(process.address, name), name))
    watch = Watch(process, bystander)
    bystander.start()
    try:
        yield watch
    except BaseException:
        print(process.last_words(), file=sys.stderr)
        bystander._stopped.set()
        raise
    watch.wait_for_rounds()
    bystander.stop()
    watch.check()
