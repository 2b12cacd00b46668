"""What a failing test is told beside its assertion: the brokers' logs of its time and what clients asked
last, its faults, how to run it again.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from weakref import WeakKeyDictionary

from raftlog.testing.faults.directory import FaultDirectory
from raftlog.testing.faults.faults import SEED_VARIABLE
from raftlog.testing.kafka import Kafka

LINES_MAX = 40
"""Of each broker's log; what is older is in the file."""

_TOPIC_ID = re.compile(r"(?<![\w-])[\w-]{22}(?![\w])")
_begun: dict[Path, int] = {}
"""By log file: how long it was when the test began."""
_began = 0.0
"""When that was, in Unix seconds."""


_left: WeakKeyDictionary[Kafka, list[tuple[str, str]]] = WeakKeyDictionary()
"""Of those that have stopped since: what their brokers told."""


def begin(running: Sequence[Kafka], others: Sequence[Kafka]) -> None:
    """A test begins: what is in the logs is not its own, nor are the faults that were made, but those of `others`."""
    global _began
    _begun.clear()
    _left.clear()
    _began = time.time()
    for kafka in (*running, *others):
        for file in _logs(kafka):
            _begun[file] = file.stat().st_size if file.exists() else 0
    for kafka in running:
        if (faults := kafka.faults_made) is not None:
            faults.forget()


def sections(running: Sequence[Kafka], test: str) -> list[tuple[str, str]]:
    """Title and text of each, for pytest's report."""
    found = []
    seeds = []
    for kafka in running:
        found += _left.get(kafka, [])
        found += _of_brokers(kafka)
        faults = kafka.faults_made
        if faults is None:
            continue
        if faults.made:
            found.append(("faults", faults.report()))
        found += [(f"schedule of seed {each.seed}", each.lines) for each in faults.schedules]
        if faults.made or faults.schedules:
            seeds.append(faults.seed)
    if seeds:
        again = f"{SEED_VARIABLE}={seeds[0]} python -m pytest {shlex.quote(test)}"
        found.append(("run it again with the same faults", again))
    return found


def keep(kafka: Kafka) -> None:
    """It is about to stop: have its brokers tell now what a failure would be told."""
    _left[kafka] = [*_left.get(kafka, []), *_of_brokers(kafka)]


def _of_brokers(kafka: Kafka) -> Iterator[tuple[str, str]]:
    for file in _logs(kafka):
        if text := _since_begin(file):
            yield f"{file.stem} logged", text
    for broker in kafka.cluster.brokers if kafka.cluster is not None else ():
        if broker.returncode is not None:
            yield f"broker-{broker.node_id} is down", f"it {broker.how_it_ended()}"
    yield from _last_requests(kafka)


def _logs(kafka: Kafka) -> list[Path]:
    cluster = kafka.cluster
    return [] if cluster is None else [broker.log_file for broker in cluster.brokers if broker.log_file is not None]


def _last_requests(kafka: Kafka) -> Iterator[tuple[str, str]]:
    """What clients asked of each broker since the test began; of equal ones that follow each other the last."""
    if kafka.cluster is None or not kafka.cluster.has_faults:
        return
    topics = _topics(kafka.cluster.directory)
    for broker, told in FaultDirectory(kafka.cluster.directory).last_requests().items():
        own = [
            (at, _TOPIC_ID.sub(lambda found: topics.get(found[0], found[0]), text)) for at, text in told if at >= _began
        ]
        lines = []
        for _, group in groupby(own, key=itemgetter(1)):
            *before, (at, text) = group
            moment = datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]
            lines.append(f"{moment}Z {text}" + (f", {len(before) + 1} times" if before else ""))
        if lines:
            yield f"the last requests of clients to {broker}", "\n".join(lines)


def _topics(directory: Path) -> dict[str, str]:
    """The names of topics by their ids, from the brokers' files."""
    found = {}
    for file in directory.glob("*/*/partition.metadata"):
        try:
            stored = _TOPIC_ID.search(file.read_text(errors="replace"))
        except FileNotFoundError:
            continue  # deleted meanwhile
        if stored is not None:
            found[stored[0]] = file.parent.name.rpartition("-")[0]
    return found


def _since_begin(file: Path) -> str:
    if not file.exists():
        return ""
    with file.open("rb") as opened:
        opened.seek(_begun.get(file, 0))
        lines = opened.read().decode(errors="replace").splitlines()
    left_out = [f"… {len(lines) - LINES_MAX} lines before these"] if len(lines) > LINES_MAX else []
    return "\n".join(left_out + lines[-LINES_MAX:])
