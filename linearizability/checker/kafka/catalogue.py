"""Every anomaly the Kafka analysis knows: its name, what it is, and how grave it is.

The names that Jepsen's Kafka workload has for an anomaly are kept, so that reports can be compared.
docs/CHECKER_KAFKA.md has this catalogue as a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How grave an anomaly is where it is an error, the gravest first."""

    CRITICAL = "critical"  # acknowledged data is lost, doubled or replaced, or somebody fenced off still writes
    MAJOR = "major"  # a promise about order or visibility is broken
    MINOR = "minor"  # something to look at: a bound that the caller set, or a shaky observation
    NOTICE = "notice"  # says something about the check itself


SEVERITY_ORDER = {severity: place for place, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Definition:
    """One kind of anomaly. `error_when` says when it makes a history invalid; `shown` examples are kept of it.

    What the caller allows or forbids by name goes before `error_when`.
    """

    name: str
    severity: Severity
    text: str
    shown: int = 8
    error_when: str = "always"


_CRITICAL = Severity.CRITICAL
_MAJOR = Severity.MAJOR
_MINOR = Severity.MINOR
_NOTICE = Severity.NOTICE
MANY = 32

_DEFINITIONS = (
    # The log
    Definition(
        "inconsistent-offsets",
        _CRITICAL,
        "One offset of a key holds two or more values, across all sends that must have committed and all polls.",
        MANY,
    ),
    Definition("duplicate", _CRITICAL, "One value stands at two or more offsets of a key.", MANY),
    Definition(
        "lost-write",
        _CRITICAL,
        "A value whose send must have committed was read by nobody, although a later place of the same key was read.",
        MANY,
    ),
    Definition("unseen", _CRITICAL, "A value whose send was acknowledged is in no ok poll of the whole history.", 1024),
    Definition(
        "unwritten-read",
        _MINOR,
        "A poll returned a value that no operation of the history sent: data from before the history, or corruption.",
        MANY,
        error_when="only when forbidden",
    ),
    Definition(
        "realtime-append",
        _CRITICAL,
        "A send began after its own offset, or a higher one of the same key, had been acknowledged or polled.",
    ),
    # Isolation
    Definition(
        "G1a",
        _CRITICAL,
        "Aborted read: an ok poll returned a value whose send certainly failed.",
        MANY,
        error_when="unless the reader is read_uncommitted and the sender a transaction",
    ),
    Definition(
        "precommitted-read",
        _MAJOR,
        "A transaction polled a value that it sent itself, before it committed.",
        MANY,
        error_when="unless it is read_uncommitted",
    ),
    Definition(
        "torn-transaction",
        _CRITICAL,
        "At one read point a decided transaction is visible in one of its keys and not in another.",
        error_when="unless the reader is read_uncommitted, or the read point came within transaction_visibility",
    ),
    # Order within one operation
    Definition(
        "int-poll-skip",
        _MAJOR,
        "Inside one operation, two values polled next to each other from one key have known records between them.",
        error_when="unless the key is in the operation's rebalance log",
    ),
    Definition(
        "int-nonmonotonic-poll",
        _MAJOR,
        "Inside one operation, polls of one key repeat a record or go backwards.",
        error_when="unless the key is in the operation's rebalance log",
    ),
    Definition(
        "int-send-skip",
        _NOTICE,
        "Inside one operation, others' records lie between two of its sends to one key: writes are not isolated.",
        error_when="only when forbidden",
    ),
    Definition(
        "int-nonmonotonic-send",
        _MAJOR,
        "Inside one operation, a later send to a key got the same place or a lower one.",
    ),
    # Order within one process
    Definition(
        "poll-skip",
        _MAJOR,
        "A process's poll of a key starts beyond known records that follow where its last ok poll ended.",
        error_when="unless the process may have subscribed",
    ),
    Definition(
        "nonmonotonic-poll",
        _MAJOR,
        "A process's poll of a key starts at or before the place where its last ok poll ended.",
        error_when="unless the process may have subscribed",
    ),
    Definition(
        "nonmonotonic-send",
        _MAJOR,
        "A process's send to a key got the same place as, or a lower one than, the send it made before.",
    ),
    # Cycles
    Definition(
        "G0",
        _NOTICE,
        "A cycle of write-write dependencies: each sent something before the next in some key.",
        error_when="only when forbidden",
    ),
    Definition(
        "G0-process",
        _NOTICE,
        "A cycle of write-write dependencies and the order of single processes.",
        error_when="only when forbidden",
    ),
    Definition(
        "G0-realtime", _NOTICE, "A cycle of write-write dependencies and real time.", error_when="only when forbidden"
    ),
    Definition(
        "G1c",
        _MAJOR,
        "A cycle of dependencies with at least one write-read: one polled what the other sent.",
        error_when="without inferred write order, unless uncommitted data was read",
    ),
    Definition(
        "G1c-process",
        _MAJOR,
        "A cycle with at least one write-read dependency and the order of a process.",
        error_when="without inferred write order, unless uncommitted data was read",
    ),
    Definition(
        "G1c-realtime",
        _MAJOR,
        "A cycle with at least one write-read dependency and real time.",
        error_when="without inferred write order, unless uncommitted data was read",
    ),
    Definition(
        "PL-1-cycle-exists",
        _NOTICE,
        "Write-write cycles exist that the budget did not allow to extract (see G0).",
        error_when="only when forbidden",
    ),
    Definition(
        "strong-PL-1-cycle-exists",
        _NOTICE,
        "Write-write cycles with process or real-time order exist that the budget did not allow to extract.",
        error_when="only when forbidden",
    ),
    Definition(
        "PL-2-cycle-exists",
        _MAJOR,
        "Cycles with write-read dependencies exist that the budget did not allow to extract.",
        error_when="without inferred write order",
    ),
    Definition(
        "strong-PL-2-cycle-exists",
        _MAJOR,
        "Cycles with write-read dependencies and process or real-time order exist that were not extracted.",
        error_when="without inferred write order",
    ),
    # Consumer groups
    Definition(
        "nonmonotonic-commit",
        _MAJOR,
        "A group's commit was acknowledged below one that had been acknowledged before it began.",
        error_when="where generations, subscription, transactions or one process order the commits",
    ),
    Definition(
        "nonmonotonic-committed-read",
        _MAJOR,
        "A fetch of a group's committed offset answered an older state than an earlier fetch.",
    ),
    Definition(
        "lost-commit",
        _CRITICAL,
        "A fetch of a group's committed offset does not reflect a commit that had been acknowledged before it began.",
    ),
    Definition(
        "commit-past-processed",
        _MAJOR,
        "A group's committed offset lies beyond a committed record that no member had polled (or processed) by then.",
    ),
    Definition(
        "fenced-commit",
        _CRITICAL,
        "A commit by a member of an older generation took effect after a newer generation was known.",
    ),
    Definition(
        "aborted-commit-read", _CRITICAL, "A fetch answered a committed offset whose only commits certainly failed."
    ),
    Definition("two-owners", _CRITICAL, "Two members of a group own the same key in the same generation."),
    # Metadata
    Definition("nonmonotonic-high-watermark", _MAJOR, "A key's high watermark went back in real time."),
    Definition("nonmonotonic-last-stable-offset", _MAJOR, "A key's last stable offset went back in real time."),
    Definition("nonmonotonic-list-offsets", _MAJOR, "The answer to one ListOffsets question went back in real time."),
    Definition("two-leaders", _CRITICAL, "Two brokers are the leader of one key in the same leader epoch."),
    # Producers
    Definition(
        "fenced-producer",
        _CRITICAL,
        "A producer's older epoch succeeded after a newer one, in real time or by its place in the log.",
    ),
    Definition("epoch-reused", _CRITICAL, "Two initialisations of one producer were answered the same epoch."),
    # Exactly once
    Definition(
        "consumed-twice",
        _CRITICAL,
        "Two committed transactions of one group consumed the same record.",
        MANY,
        error_when="for transactions that commit their group's offsets; with exactly_once for all subscribed consumers",
    ),
    Definition(
        "consumed-never",
        _CRITICAL,
        "A group's transactions committed offsets beyond a committed record that none of them consumed.",
        MANY,
        error_when="unless exactly_once is False",
    ),
    # Bounds that the caller gives
    Definition(
        "stale-read",
        _MINOR,
        "A poll's process was further behind the newest known record than the bound says.",
        error_when="beyond max_staleness",
    ),
    Definition(
        "stale-watermark",
        _MINOR,
        "A high watermark or newest ListOffsets answer lay behind a known record for longer than the bound allows.",
        error_when="beyond max_staleness",
    ),
    # The check itself
    Definition(
        "cycle-search-timeout",
        _NOTICE,
        "The budget of time or memory ran out before everything was looked for.",
        error_when="never: the verdict is unknown",
    ),
    Definition(
        "empty-transaction-graph",
        _NOTICE,
        "No operation of the history can be judged.",
        error_when="never: the verdict is unknown",
    ),
)

CATALOGUE: dict[str, Definition] = {definition.name: definition for definition in _DEFINITIONS}
