"""Commands and answers as bytes: what was sent arrives, and what nobody sent is refused and breaks nothing."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.metadata import cluster_commands, commands
from raftlog.metadata.cluster_commands import BrokerHeartbeat, HeartbeatAnswer
from raftlog.metadata.command_codec import (
    FORMAT,
    MalformedCommand,
    answer_type,
    decode_answer,
    decode_command,
    encode_answer,
    encode_command,
)
from raftlog.metadata.commands import Command, CreateTopics, DeleteTopics
from raftlog.wire.errors import ErrorCode
from tests.effort import examples

COMMANDS: list[Any] = [
    kind
    for module in (commands, cluster_commands)
    for kind in vars(module).values()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and issubclass(kind, Command)
]


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of an annotated type, numbers within 64 bits."""
    annotation = getattr(annotation, "__supertype__", annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*(st.none() if a is type(None) else values(a) for a in arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(a) for a in arguments))
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-(2**63), 2**63 - 1),
        str: st.text(max_size=5),
        bytes: st.binary(max_size=5),
        bool: st.booleans(),
    }
    if annotation in plain:
        return plain[annotation]
    if issubclass(annotation, IntEnum):
        return st.sampled_from(annotation)
    hints = typing.get_type_hints(annotation)
    names = getattr(annotation, "_fields", None) or [field.name for field in dataclasses.fields(annotation)]
    return st.tuples(*(values(hints[name]) for name in names)).map(lambda made: annotation(*made))


@settings(max_examples=examples(100))
@given(st.sampled_from(COMMANDS).flatmap(values))
def test_commands_survive_their_bytes(command: Command[Any]) -> None:
    found = decode_command(encode_command(command))
    assert found == command and type(found) is type(command)


@settings(max_examples=examples(100))
@given(st.sampled_from(COMMANDS).flatmap(lambda kind: st.tuples(st.just(kind), values(answer_type(kind)))))
def test_answers_survive_their_bytes(pair: tuple[Any, Any]) -> None:
    kind, answer = pair
    command = kind.__new__(kind)
    found = decode_answer(encode_answer(answer), command)
    assert found == answer and type(found) is type(answer)


@settings(max_examples=examples(100))
@given(st.binary(max_size=60) | st.sampled_from(COMMANDS).flatmap(values).map(encode_command), st.randoms())
def test_damaged_bytes_are_refused_or_read_and_nothing_else(data: bytes, rng: Any) -> None:
    damaged = bytearray(data)
    for _ in range(rng.randrange(3)):
        if damaged:
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    try:
        command = decode_command(bytes(damaged))
    except MalformedCommand:
        return
    assert isinstance(command, Command)


@pytest.mark.parametrize(
    "message",
    [
        (FORMAT, "BrokerHeartbeat", 1, 2),
        (FORMAT, "BrokerHeartbeat", 1, 2, "3"),
        (FORMAT, "BrokerHeartbeat", 1, 2, True),
        (FORMAT, "BrokerHeartbeat", 1, 2, 3, False, False, (1,)),
        (FORMAT, "BrokerHeartbeat", 1, 2, 3, False, False, (), "one too many"),
        (FORMAT, "HeartbeatAnswer", 0),
        (FORMAT, "NoSuchThing"),
        (FORMAT, 7),
        (FORMAT + 1, "BrokerHeartbeat", 1, 2, 3),
        (FORMAT, "ElectLeaders", 9, None),
        {},
        "text",
    ],
)
def test_what_is_no_command_is_refused(message: Any) -> None:
    with pytest.raises(MalformedCommand):
        decode_command(msgpack.packb(message))


def test_fields_that_an_older_sender_lacks_have_their_defaults() -> None:
    assert decode_command(msgpack.packb((FORMAT, "BrokerHeartbeat", 1, 2, 3))) == BrokerHeartbeat(1, 2, 3)


def test_an_older_reader_understands_what_says_nothing_new() -> None:
    """A leader of the last version refused every heartbeat of a broker whose version had one field more."""
    assert msgpack.unpackb(encode_command(BrokerHeartbeat(1, 2, 3))) == [FORMAT, "BrokerHeartbeat", 1, 2, 3]
    cordoned = BrokerHeartbeat(1, 2, 3, cordoned_directories=(b"1" * 16,))
    assert len(msgpack.unpackb(encode_command(cordoned))) == 2 + len(dataclasses.fields(BrokerHeartbeat))


def test_an_answer_to_something_else_is_refused() -> None:
    answer = encode_answer(HeartbeatAnswer(ErrorCode.NONE))
    with pytest.raises(MalformedCommand, match="answers no DeleteTopics"):
        decode_answer(answer, DeleteTopics(()))


def test_every_command_is_among_those_that_mypy_sees_decided() -> None:
    named = {*typing.get_args(commands.BasicCommand), *typing.get_args(cluster_commands.ClusterCommand)}
    assert named == set(COMMANDS)


@settings(max_examples=examples(100))
@given(st.sampled_from(COMMANDS).flatmap(values))
def test_a_refused_command_has_an_answer_of_its_kind(command: Command[Any]) -> None:
    refusal = command.refused(ErrorCode.NOT_CONTROLLER, "nobody leads")
    assert isinstance(refusal, answer_type(type(command)))
    assert getattr(refusal, "error", ErrorCode.NOT_CONTROLLER) is ErrorCode.NOT_CONTROLLER


def test_brokers_commands_may_be_repeated_and_clients_may_not() -> None:
    repeatable = {kind.__name__ for kind in COMMANDS if kind is not CreateTopics and kind.__new__(kind).repeatable}
    assert repeatable == {
        "AllocateProducerIds",
        "AlterPartitions",
        "AssignDirectories",
        "BrokerHeartbeat",
        "FenceBrokers",
        "InitializeCluster",
        "RebalanceLeaders",
        "RegisterBroker",
    }
    assert CreateTopics((), internal=True).repeatable and not CreateTopics(()).repeatable
    assert BrokerHeartbeat(1, 2, 3).liveness_only and not BrokerHeartbeat(1, 2, 3, want_shut_down=True).liveness_only
