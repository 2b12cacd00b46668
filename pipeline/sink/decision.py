"""The decision of a two-phase sink: which transactions of its tasks are a micro-batch. Without I/O.

It lies in the committed offsets of a group of its own, written by the driver in a transaction of its own: the offset is
the number of the next micro-batch, the metadata says whose it is and names the transactions. From then on they are to
be committed, by whoever comes; all others of the sink are to be aborted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import NamedTuple

from raftlog.pipeline.sink.marker import METADATA_BYTES_MAX, SinkInUse, check_query

VERSION = 1
PROTOCOL = "two-phase"
DRIVER, OWNER = "driver", "owner"
SLOTS = 100_000
"""A task's transactional id is used again by the task that is so many later: none of this age is still running."""
RUN_LENGTH = 8


class TooManyTasks(Exception):
    """The decision does not fit into the metadata of an offset."""


class TransactionLost(Exception):
    """A task's transaction was ended by somebody else than the driver."""


class ProtocolChanged(Exception):
    """A micro-batch that comes again was written under the other protocol."""


class Decision(NamedTuple):
    """`query` wrote micro-batch `batch` through these tasks of one run.

    `slots`: sorted. `version`: of transactions, that the tasks' producers speak.
    """

    query: str
    batch: int
    run: str
    slots: tuple[int, ...]
    version: int = 2

    @property
    def offset(self) -> int:
        return self.batch + 1

    def metadata(self) -> str:
        """Raises TooManyTasks."""
        whose = {"v": VERSION, "protocol": PROTOCOL, "query": self.query, "run": self.run}
        what = {"transactions": self.version, "slots": _ranges(self.slots)}
        text = json.dumps({**whose, **what}, separators=(",", ":"))
        if len(text.encode()) > METADATA_BYTES_MAX:
            raise TooManyTasks(
                f"batch {self.batch} was written by {len(self.slots)} tasks, and commitProtocol=two-phase keeps their "
                f"names in {METADATA_BYTES_MAX} bytes: bring the rows to fewer tasks, with coalesce(n) before the sink"
            )
        return text

    def ids(self, sink_id: str) -> list[str]:
        """The transactional ids of its tasks."""
        return [transactional_id(sink_id, self.run, slot) for slot in self.slots]


class Plan(NamedTuple):
    """What the driver does, in this order. Lists are of transactional ids."""

    commit_first: list[str]
    """Of the decision that was found, before another one takes its place."""
    decide: Decision | None
    """To be written; None if it was before."""
    commit: list[str]
    """Of the decision that holds then."""
    abort: list[str]


def group_of(sink_id: str) -> str:
    """Where the decision lies."""
    return f"raftlog-sink-{sink_id}-batch"


def driver_id(sink_id: str) -> str:
    """The transactional id of the driver; a newer driver takes it over, and fences this one."""
    return f"{sink_id}:{DRIVER}"


def owner_id(sink_id: str) -> str:
    """The transactional id of whoever writes down whom the sink belongs to (sink/owner.py)."""
    return f"{sink_id}:{OWNER}"


def transactional_id(sink_id: str, run: str, slot: int) -> str:
    """Of a task's attempt. No two that may be under way at a time have the same."""
    return f"{sink_id}:{run}:{slot}"


def is_task(sink_id: str, name: str) -> bool:
    """Whether a transactional id is that of a task of this sink, of whatever run."""
    parts = name.split(":")
    return len(parts) == 3 and parts[0] == sink_id and parts[2].isdigit()


def read_decision(found: Iterable[tuple[int, str]]) -> Decision | None:
    """The latest of a group's committed (offset, metadata). Raises SinkInUse for what is no decision."""
    latest: Decision | None = None
    for offset, metadata in found:
        try:
            content = json.loads(metadata)
            slots = tuple(slot for first, size in content["slots"] for slot in range(first, first + size))
            version = int(content["transactions"])
            decision = Decision(str(content["query"]), offset - 1, str(content["run"]), slots, version)
            is_known = (content["v"], content["protocol"]) == (VERSION, PROTOCOL)
        except (ValueError, KeyError, TypeError):
            is_known = False
        if not is_known:
            raise SinkInUse(f"the group of this sink has committed offset {offset} with metadata {metadata!r}, which "
                            "is no decision of a sink: give the sink another sinkId")
        if latest is None or decision.batch > latest.batch:
            latest = decision
    return latest


def is_decided(found: Decision | None, sink_id: str, query: str, batch: int) -> bool:
    """Whether this micro-batch was decided before. Raises SinkInUse."""
    if found is None:
        return False
    check_query(found.query, found.batch, sink_id, query, batch)
    return found.batch >= batch


def plan(found: Decision | None, wanted: Decision, sink_id: str, ongoing: Collection[str]) -> Plan:
    """What is to be done about `wanted`, which tasks have prepared. `ongoing`: transactional ids of open transactions.

    Raises SinkInUse.
    """
    mine = [name for name in ongoing if is_task(sink_id, name)]
    if found is not None and is_decided(found, sink_id, wanted.query, wanted.batch):
        kept = found.ids(sink_id)
        first: list[str] = []
        decide = None
    else:
        kept = wanted.ids(sink_id)
        first = sorted(set(mine) & set(found.ids(sink_id))) if found is not None else []
        decide = wanted if wanted.slots else None
    return Plan(first, decide, kept, sorted(set(mine) - set(kept) - set(first)))


def check_switch(other: int | None, batch: int, sink_id: str, protocol: str) -> None:
    """`other`: the last micro-batch that was written under the other protocol than this one. Raises ProtocolChanged."""
    if other is not None and other >= batch:
        raise ProtocolChanged(
            f"batch {batch} of sinkId {sink_id!r} was written, in part or whole, before commitProtocol became "
            f"{protocol!r}: start the query once with the option as it was, until this batch is done, then change it"
        )


def _ranges(slots: Iterable[int]) -> list[tuple[int, int]]:
    """First and size of each run of numbers that follow each other."""
    found: list[tuple[int, int]] = []
    for slot in slots:
        if found and slot == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((slot, 1))
    return found
