"""What nodes say to each other: Raft's messages as values, and as plain lists for the wire.

Every message carries its sender's term; what a leader sends also carries a sequence number that only grows in its term,
and the answer repeats it, so that a late answer is known for what it is. Who sent it is for the transport to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from raftlog.raft.core.entries import Entry
from raftlog.raft.core.errors import PeerViolation
from raftlog.raft.core.ids import Term

NO_REPLY = 0
"""The sequence number of a heartbeat that only tells a commit index and wants no answer."""


class RequestVote(NamedTuple):
    """`term`: the one to be elected in. `pre`: would you vote for me (§9.6)? It binds and changes nothing."""

    term: Term
    pre: bool
    last_index: int
    last_term: Term


class RequestVoteReply(NamedTuple):
    """`term`: the voter's own; `for_term`: the one that was asked for."""

    term: Term
    for_term: Term
    pre: bool
    granted: bool


class AppendEntries(NamedTuple):
    """Entries after `previous_index`; none: a probe."""

    term: Term
    sequence: int
    previous_index: int
    previous_term: Term
    committed: int
    entries: tuple[Entry, ...]


class AppendEntriesReply(NamedTuple):
    """Success: durable and equal to the leader's log up to `index`. Else `index` and `hint_term` say where the logs
    may agree, and `previous_index` what did not fit.
    """

    term: Term
    sequence: int
    success: bool
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    hint_term: Term
    previous_index: int


class Heartbeat(NamedTuple):
    """The leader is there. `committed` is no more than what the receiver is known to have."""

    term: Term
    sequence: int
    committed: int


class HeartbeatReply(NamedTuple):
    """The sender followed this leader when it answered."""

    term: Term
    sequence: int


class InstallSnapshot(NamedTuple):
    """Bytes of a snapshot from `offset` on, of `total`."""

    term: Term
    sequence: int
    index: int  # type: ignore[assignment]
    index_term: Term
    total: int
    offset: int
    data: bytes


class InstallSnapshotReply(NamedTuple):
    """`offset` bytes of the snapshot at `index` have arrived."""

    term: Term
    sequence: int
    index: int  # type: ignore[assignment]
    offset: int


class TimeoutNow(NamedTuple):
    """Stand for election at once: the leader hands over (§3.10)."""

    term: Term


Message = (
    RequestVote
    | RequestVoteReply
    | AppendEntries
    | AppendEntriesReply
    | Heartbeat
    | HeartbeatReply
    | InstallSnapshot
    | InstallSnapshotReply
    | TimeoutNow
)

_SHAPES: tuple[tuple[type[Any], tuple[type, ...]], ...] = (
    (RequestVote, (int, bool, int, int)),
    (RequestVoteReply, (int, int, bool, bool)),
    (AppendEntries, (int, int, int, int, int, tuple)),
    (AppendEntriesReply, (int, int, bool, int, int, int)),
    (Heartbeat, (int, int, int)),
    (HeartbeatReply, (int, int)),
    (InstallSnapshot, (int, int, int, int, int, int, bytes)),
    (InstallSnapshotReply, (int, int, int, int)),
    (TimeoutNow, (int,)),
)
"""A message's number on the wire is its place here."""
_NUMBERS = {kind: number for number, (kind, _) in enumerate(_SHAPES)}


def to_wire(message: Message) -> tuple[Any, ...]:
    """The message as a tuple of plain values. Entries go without their indexes: they follow `previous_index`."""
    if isinstance(message, AppendEntries):
        return (_NUMBERS[AppendEntries], *message[:-1], [(entry.term, entry.data) for entry in message.entries])
    return (_NUMBERS[type(message)], *message)


def from_wire(values: Sequence[Any]) -> Message:
    """What `to_wire` was given (sequences as tuples). Raises PeerViolation when it is no message."""
    try:
        number, *fields = values
        kind, types = _SHAPES[number]
        if kind is AppendEntries:
            fields[-1] = _entries(fields[2], fields[-1])
    except (TypeError, ValueError, IndexError) as error:
        raise PeerViolation(f"not a message: {str(values)[:100]}") from error
    if len(fields) != len(types) or any(type(value) is not wanted for value, wanted in zip(fields, types, strict=True)):
        raise PeerViolation(f"not a {kind.__name__}: {str(values)[:100]}")
    if any(type(value) is int and value < 0 for value in fields):
        raise PeerViolation(f"a negative number in a {kind.__name__}: {str(values)[:100]}")
    message: Message = kind(*fields)
    if isinstance(message, AppendEntries):
        _check_terms(message)
    return message


def _entries(previous_index: int, pairs: Sequence[Any]) -> tuple[Entry, ...]:
    entries = tuple(Entry(index, term, data) for index, (term, data) in enumerate(pairs, previous_index + 1))
    if any(type(entry.term) is not int or type(entry.data) is not bytes for entry in entries):
        raise ValueError("entries are pairs of a term and bytes")
    return entries


def _check_terms(message: AppendEntries) -> None:
    """They never fall in a log, and none is later than its leader's."""
    before = message.previous_term
    for entry in message.entries:
        if not before <= entry.term <= message.term:
            raise PeerViolation(f"terms {before} and {entry.term} one after the other, from a leader of {message.term}")
        before = entry.term
