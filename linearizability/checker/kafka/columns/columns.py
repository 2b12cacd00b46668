"""A Kafka history as columns of numbers: small enough for millions of operations, and quick to walk.

    operation --> its sends (rows)            --> element --> key, value, writer, offset
              --> its segments (key, rows)    --> element of each polled record

An element's `offset` is the first at which it was seen; further ones are in `extra_offsets`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from raftlog.linearizability.checker.history import Annotation, Process, TimeUnit

NEVER = 2**63 - 1
NOBODY = -1
NOWHERE = -1

# Functions, as numbers in `Columns.function`.
SEND, POLL, TXN, ASSIGN, SUBSCRIBE, SEEK, CRASH, OTHER = range(8)
FUNCTION_NAME = ("send", "poll", "txn", "assign", "subscribe", "seek", "crash", "other")
# Outcomes, as numbers in `Columns.outcome`.
OK, FAIL, INFO = range(3)
OUTCOME_NAME = ("ok", "fail", "info")

# Bits of `Columns.flags`.
TRANSACTIONAL = 1
READ_UNCOMMITTED = 2  # the process reads uncommitted data at the time of this operation
SUBSCRIBED = 4  # the process gets its keys from its group
ASSIGNED = 8  # the process chose its keys


@dataclass(slots=True)
class Subscription:
    """What an assign or subscribe asked for; `keys` None keeps what there is (never so by these two)."""

    keys: frozenset[int]
    group: str | None = None
    isolation: str | None = None
    position: str | None = None  # "beginning", "end" or "committed"; None goes on where the process was


@dataclass(slots=True)
class Names:
    """Things by number, and numbers by thing."""

    names: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """The number of a name, a new one for a new name."""
        known = self.numbers.get(name)
        if known is None:
            known = self.numbers[name] = len(self.names)
            self.names.append(name)
        return known


class Facts:
    """The rarer facts beside sends and polls: subscriptions, groups, producers, metadata."""

    def __init__(self) -> None:
        # By operation.
        self.errors: dict[int, str] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.seeks: dict[int, tuple[tuple[int, int], ...]] = {}  # (key, offset); none: all keys
        self.rebalanced: dict[int, frozenset[int]] = {}
        self.ends: dict[int, dict[int, int]] = {}  # key -> the visible end that the read met
        self.processed: dict[int, tuple[tuple[int, int], ...]] = {}
        self.own_isolation: dict[int, str] = {}
        # Offsets committed to groups: one row per (operation, key).
        self.commit_operation = array("i")
        self.commit_group = array("i")
        self.commit_key = array("i")
        self.commit_offset = array("q")
        self.commit_member = array("i")
        self.commit_generation = array("q")
        self.resets: set[int] = set()  # operations that set offsets back on purpose
        # Committed offsets fetched: one row per (operation, key); NOWHERE where there was none.
        self.fetch_operation = array("i")
        self.fetch_group = array("i")
        self.fetch_key = array("i")
        self.fetch_offset = array("q")
        # Who owns what: (operation, group, generation, member, keys).
        self.assignments: list[tuple[int, int, int, int, tuple[int, ...]]] = []
        self.member_epochs: set[int] = set()  # groups in which a generation is a member's own epoch (KIP-848)
        # Initialised producers: (operation, producer, epoch).
        self.initialised: list[tuple[int, int, int]] = []
        # Metadata read: one row per (operation, key, kind of question).
        self.questions = Names()
        self.metadata_operation = array("i")
        self.metadata_key = array("i")
        self.metadata_question = array("i")
        self.metadata_offset = array("q")
        self.leaders: list[tuple[int, int, str, int]] = []  # (operation, key, leader, epoch)
        # Acknowledged offsets of operations of unknown outcome: (element, offset), settled at the end.
        self.unsure: list[tuple[int, int]] = []


class Columns(Facts):
    """The columns. Everything is public: the analyses are loops over these arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.time_unit = TimeUnit.NANOSECONDS
        self.source: str | None = None
        self.annotations: list[Annotation] = []
        # One row per operation.
        self.process = array("i")
        self.call = array("q")
        self.returned = array("q")  # NEVER where no answer came
        self.outcome = bytearray()
        self.function = bytearray()
        self.flags = bytearray()
        self.line = array("i")  # 0: not known
        self.send_start = array("i")
        self.segment_start = array("i")
        self.producer = array("i")  # NOBODY where none was named; filled up by `name_producer` and `finish`
        self.epoch = array("q")
        # Names.
        self.processes: list[Process] = []
        self.keys = Names()
        self.groups = Names()
        self.members = Names()
        self.producers = Names()
        self.functions: dict[int, str] = {}  # the names of those that share a number with others
        # One row per send of an operation.
        self.send_element = array("i")
        self.send_ack: dict[int, int] = {}  # acknowledged offsets, of an ok operation only if not the element's
        # One row per key of a poll, and one per record polled.
        self.segment_key = array("i")
        self.segment_row = array("i")  # the first of its rows
        self.polled = array("i")  # elements
        self.polled_offset: dict[int, int | None] = {}  # where it is not the element's offset
        # One row per element.
        self.element_key = array("i")
        self.values: list[Any] | array[int] = []
        self.writer = array("i")
        self.offset = array("q")
        self.extra_offsets: dict[int, set[int]] = {}
        # Filled by `order.settle`: whether an operation must have committed, the first ok operation that polled an
        # element, whether there is one, and the first that reads committed data only.
        self.committed = bytearray()
        self.first_reader = array("i")
        self.read_ok = bytearray()
        self.first_clean_reader = array("i")

    def __len__(self) -> int:
        return len(self.process)

    def estimated_bytes(self) -> int:
        """About how much memory the columns hold; values and dictionaries are estimated."""
        return (
            49 * len(self.process)
            + 12 * len(self.segment_key)
            + 4 * len(self.polled)
            + 4 * len(self.send_element)
            + 210 * len(self.values)
            + 40 * len(self.commit_operation)
            + 20 * len(self.fetch_operation)
            + 20 * len(self.metadata_operation)
            + 120 * (len(self.polled_offset) + len(self.send_ack) + len(self.unsure) + len(self.errors))
            + 400 * (len(self.ends) + len(self.rebalanced) + len(self.subscriptions) + len(self.assignments))
        )

    def any_flag(self, flag: int) -> bool:
        """Whether some operation has this flag."""
        return any(flags in self.flags for flags in range(2 * ASSIGNED) if flags & flag)

    def finish(self) -> None:
        """Close the last rows, so that every range ends where the next begins."""
        self.name_producer(len(self.process), NOBODY, 0)
        self.send_start.append(len(self.send_element))
        self.segment_start.append(len(self.segment_key))
        self.segment_row.append(len(self.polled))

    def name_producer(self, number: int, producer: int, epoch: int) -> None:
        """Set an operation's producer; those since the last one named have none."""
        gap = number - len(self.producer)
        if gap > 0:
            self.producer.extend(array("i", [NOBODY]) * gap)
            self.epoch.extend(array("q", [0]) * gap)
        if number == len(self.producer) and producer != NOBODY:
            self.producer.append(producer)
            self.epoch.append(epoch)
        elif producer != NOBODY:
            self.producer[number] = producer
            self.epoch[number] = epoch

    def sure_reader(self, element: int) -> int:
        """The first ok operation whose poll of the element proves that its sender's operation took effect."""
        sender = self.writer[element]
        if sender != NOBODY and self.flags[sender] & TRANSACTIONAL:
            return self.first_clean_reader[element]
        return self.first_reader[element]

    def sends_of(self, operation: int) -> array[int]:
        """The elements an operation sent, in order."""
        return self.send_element[self.send_start[operation] : self.send_start[operation + 1]]

    def segments_of(self, operation: int) -> Iterator[tuple[int, int, int]]:
        """(key, first row, row after the last) of every key in each poll of the operation, in order."""
        for segment in range(self.segment_start[operation], self.segment_start[operation + 1]):
            yield self.segment_key[segment], self.segment_row[segment], self.segment_row[segment + 1]

    def polled_by(self, operation: int) -> array[int]:
        """The elements of all records that an operation polled, in order."""
        first = self.segment_row[self.segment_start[operation]]
        return self.polled[first : self.segment_row[self.segment_start[operation + 1]]]

    def operation_of_row(self, row: int) -> int:
        """The operation that a row of `polled` belongs to."""
        segment = bisect_right(self.segment_row, row) - 1
        return bisect_right(self.segment_start, segment) - 1

    def sender_of_row(self, row: int) -> int:
        """The operation that a row of `send_element` belongs to."""
        return bisect_right(self.send_start, row) - 1
