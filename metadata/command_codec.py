"""Commands and answers to bytes and back: what a broker sends to the leader of the metadata quorum, and gets.

A message is a msgpack array: `[FORMAT, name, field, …]` with the class's name and its fields in order; the last ones
are left out by an older sender, which does not have them, and where they are at their defaults. What cannot be read
raises MalformedCommand, whatever the bytes are: the types of all fields are checked, so that a decision never meets a
value of a wrong type. The classes' own annotations say what they hold.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgpack

from raftlog.metadata import cluster_commands, commands
from raftlog.metadata.commands import Command

FORMAT = 1
R = TypeVar("R")
Reader = Callable[[Any], Any]


class MalformedCommand(ValueError):
    """Bytes that no version of this code wrote for a command or an answer, or that a newer one wrote."""


# -- reading by annotation -------------------------------------------------------------------------


def _plain(kind: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise MalformedCommand(f"{type(value).__name__} where {kind.__name__} belongs")
        return value

    return read


def _enum(kind: type[IntEnum]) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not int or value not in kind._value2member_map_:
            raise MalformedCommand(f"{value!r} is no {kind.__name__}")
        return kind._value2member_map_[value]

    return read


def _union(options: Sequence[Any]) -> Reader:
    readers = [_reader(option) for option in options if option is not type(None)]
    optional = type(None) in options

    def read(value: Any) -> Any:
        if value is None and optional:
            return None
        for one in readers[:-1]:
            try:
                return one(value)
            except MalformedCommand:
                continue
        return readers[-1](value)

    return read


def _array(value: Any) -> Sequence[Any]:
    if not isinstance(value, tuple):
        raise MalformedCommand(f"{type(value).__name__} where an array belongs")
    return value


def _tuple(arguments: Sequence[Any]) -> Reader:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        element = _reader(arguments[0])
        return lambda value: tuple([element(part) for part in _array(value)])
    readers = [_reader(argument) for argument in arguments]

    def read(value: Any) -> Any:
        parts = _array(value)
        if len(parts) != len(readers):
            raise MalformedCommand(f"{len(parts)} parts where {len(readers)} belong")
        return tuple([one(part) for one, part in zip(readers, parts, strict=True)])

    return read


def _mapping(arguments: Sequence[Any]) -> Reader:
    key, item = _reader(arguments[0]), _reader(arguments[1])

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise MalformedCommand(f"{type(value).__name__} where a map belongs")
        return {key(k): item(v) for k, v in value.items()}

    return read


def _fields(kind: type) -> Reader:
    """Reads an array into a class with fields: a NamedTuple or a dataclass."""
    hints = get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        required = sum(field.default is dataclasses.MISSING for field in dataclasses.fields(kind))
    else:
        names = list(kind._fields)  # type: ignore[attr-defined]
        required = len(names) - len(kind._field_defaults)  # type: ignore[attr-defined]
    readers = [_reader(hints[name]) for name in names]

    def read(value: Any) -> Any:
        parts = _array(value)
        if not required <= len(parts) <= len(readers):
            raise MalformedCommand(f"{kind.__name__} with {len(parts)} fields")
        return kind(*[one(part) for one, part in zip(readers, parts, strict=False)])

    return read


def _reader(annotation: Any) -> Reader:
    annotation = getattr(annotation, "__supertype__", annotation)  # what a NewType is made of
    origin = get_origin(annotation)
    if origin in (types.UnionType, Union):
        return _union(get_args(annotation))
    if origin is tuple:
        return _tuple(get_args(annotation))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(get_args(annotation))
    if annotation in (int, str, bytes, bool):
        return _plain(annotation)
    if isinstance(annotation, type) and issubclass(annotation, IntEnum):
        return _enum(annotation)
    return _known(annotation)


_READERS: dict[type, Reader] = {}


def _known(kind: type) -> Reader:
    found = _READERS.get(kind)
    if found is None:
        found = _READERS[kind] = _fields(kind)
    return found


# -- names -----------------------------------------------------------------------------------------


def _classes() -> dict[str, type]:
    return {
        name: kind
        for module in (commands, cluster_commands)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"))
    }


_NAMED = _classes()


def _pack(value: Any) -> Any:
    """msgpack knows tuples, maps and numbers; only dataclasses are foreign to it, and maps that are not dicts."""
    if isinstance(value, Mapping):
        return dict(value)
    raise MalformedCommand(f"{type(value).__name__} cannot be sent")


def _encode(kind: type, fields: Sequence[Any]) -> bytes:
    if _NAMED.get(kind.__name__) is not kind:
        raise MalformedCommand(f"{kind.__name__} is neither a command nor an answer")
    return cast(bytes, msgpack.packb((FORMAT, kind.__name__, *fields), default=_pack))


def encode_command(command: Command[Any]) -> bytes:
    """A command as bytes. An older reader understands it unless it says what that one does not know."""
    kind = type(command)
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]  # every Command is a dataclass
    values = [getattr(command, field.name) for field in fields]
    while values and values[-1] == fields[len(values) - 1].default:
        values.pop()
    return _encode(kind, values)


def encode_answer(answer: Any) -> bytes:
    """An answer (a NamedTuple) as bytes."""
    return _encode(type(answer), answer)


def _decode(data: bytes | memoryview) -> Any:
    try:
        message = msgpack.unpackb(data, use_list=False, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise MalformedCommand(f"not a message: {error}") from error
    if not isinstance(message, tuple) or len(message) < 2 or message[0] != FORMAT:
        raise MalformedCommand("not a message of this format: is another version of raftlog running there?")
    kind = _NAMED.get(message[1]) if isinstance(message[1], str) else None
    if kind is None:
        raise MalformedCommand(
            f"unknown message {str(message[1])[:80]!r}: is a newer version of raftlog running there?"
        )
    return _known(kind)(message[2:])


def decode_command(data: bytes | memoryview) -> Command[Any]:
    """The command in a message. Raises MalformedCommand, and nothing else."""
    decoded = _decode(data)
    if not isinstance(decoded, Command):
        raise MalformedCommand(f"{type(decoded).__name__} is no command")
    return decoded


def decode_answer(data: bytes | memoryview, command: Command[R]) -> R:
    """The answer to a command. Raises MalformedCommand, and nothing else."""
    decoded = _decode(data)
    expected = answer_type(type(command))
    if not isinstance(decoded, expected):
        raise MalformedCommand(f"{type(decoded).__name__} answers no {type(command).__name__}")
    return cast(R, decoded)


def answer_type(command: type) -> type:
    """The class of a command's answers, as its base `Command["Answer"]` says."""
    (base,) = command.__orig_bases__  # type: ignore[attr-defined]
    (answer,) = get_args(base)
    return _NAMED[answer.__forward_arg__]
