"""Entries of the Raft log, and the envelope around what they hold.

An entry of the application is `0xC1 | 0 | proposer u64 | number u64 | payload`; proposer and number are the command's
id. One that begins a term is `0xC1 | 1`, a configuration `0xC1 | 2 | msgpack`. 0xC1 begins no msgpack value, so the
bare entries of a broker that ran without peers are told apart: they are the application's, without an id.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from raftlog.raft.core.errors import NewerVersion
from raftlog.raft.core.ids import Term

MARK = 0xC1
_APPLICATION = Struct(">BBQQ")
APPLICATION_OVERHEAD = _APPLICATION.size


class Kind(IntEnum):
    """What an entry is for."""

    APPLICATION = 0
    NEW_TERM = 1
    CONFIGURATION = 2


class Entry(NamedTuple):
    """One entry of the log."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: Term
    data: bytes


class Command(NamedTuple):
    """What an application entry holds. (0, 0): it has no id."""

    proposer: int
    number: int
    payload: bytes


NEW_TERM_DATA = bytes((MARK, Kind.NEW_TERM))


def application_data(proposer: int, number: int, payload: bytes) -> bytes:
    """The data of an application entry with this id."""
    return _APPLICATION.pack(MARK, Kind.APPLICATION, proposer, number) + payload


def configuration_data(encoded: bytes) -> bytes:
    """The data of a configuration entry."""
    return bytes((MARK, Kind.CONFIGURATION)) + encoded


def kind_of(data: bytes) -> Kind:
    """What kind of entry this is. Raises NewerVersion for one that no version so far has written."""
    if not data or data[0] != MARK:
        return Kind.APPLICATION
    kind = _KINDS.get(data[1:2])
    if kind is None:
        raise NewerVersion(f"an entry of an unknown kind ({data[:2].hex()})")
    return kind


_KINDS = {bytes((kind,)): kind for kind in Kind}


def command_of(data: bytes) -> Command:
    """The command in an application entry."""
    if not data or data[0] != MARK:
        return Command(0, 0, data)
    _, _, proposer, number = _APPLICATION.unpack_from(data)
    return Command(proposer, number, data[APPLICATION_OVERHEAD:])
