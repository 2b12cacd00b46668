"""One operation of a Kafka history on one line, and the keys that it is about.

It never raises: what it cannot make sense of is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raftlog.linearizability.checker.history import Operation
from raftlog.linearizability.checker.kafka.columns.fields import BadField, key_name, show

_SHOWN_PARTS = 6
_SHOWN_RECORDS = 5
_DATA = ("send", "poll", "txn")
_GIVEN = ("assign", "subscribe", "seek", "process", "commit")  # what was asked for says it all


def describe(operation: Operation) -> str:
    """What the operation did: `send orders-0 "v7" at 12; poll orders-1: "v3" at 4`."""
    if operation.function in _DATA:
        parts = [_micro(one) for one in _micros(operation)]
    else:
        parts = _fact(operation)
    parts = [part for part in parts if part]
    text = "; ".join(parts[:_SHOWN_PARTS]) + ("; …" if len(parts) > _SHOWN_PARTS else "")
    if operation.function in ("send", "poll") and text:
        return text
    return f"{operation.function} {text}".rstrip()


def keys_of(operation: Operation) -> tuple[str, ...]:
    """The names of the keys that the operation is about, in the order in which it names them."""
    found = _micro_keys(operation) if operation.function in _DATA else _fact_keys(operation)
    return tuple(dict.fromkeys(found))


def records_of(operation: Operation) -> Iterator[tuple[bool, str, list[tuple[Any, Any]]]]:
    """Whether it wrote them, the key, and (offset, value) of the records of each send and of each polled key."""
    for micro in _micros(operation) if operation.function in _DATA else ():
        if micro[0] == "send" and len(micro) == 3 and isinstance(micro[2], list | tuple) and len(micro[2]) == 2:
            yield True, _name(micro[1]), [(micro[2][0], micro[2][1])]
        elif micro[0] == "poll" and len(micro) > 1:
            for key, records in _pairs(micro[1]):
                yield False, _name(key), _pairs(records)


def _micros(operation: Operation) -> list[Any]:
    """Its micro-operations, as answered where there was an answer."""
    for said in (operation.output, operation.input):
        listed = said.get("ops") if isinstance(said, Mapping) else said
        if isinstance(listed, list | tuple) and listed:
            return [one for one in listed if isinstance(one, list | tuple) and one]
    return []


def _name(key: Any) -> str:
    try:
        return key_name(key)
    except BadField:
        return show(key)


def _pairs(said: Any) -> list[tuple[Any, Any]]:
    if isinstance(said, Mapping):
        return list(said.items())
    if isinstance(said, list | tuple):
        return [(one[0], one[1]) for one in said if isinstance(one, list | tuple) and len(one) == 2]
    return []


# Sends, polls and transactions


def _micro(micro: Any) -> str:
    if micro[0] == "send" and len(micro) == 3:
        pair = micro[2]
        if isinstance(pair, list | tuple) and len(pair) == 2:
            place = "" if pair[0] is None else f" at {pair[0]}"
            return f"send {_name(micro[1])} {show(pair[1])}{place}"
        return f"send {_name(micro[1])} {show(pair)}"
    if micro[0] == "poll":
        return _poll(micro)
    if micro[0] == "commit" and len(micro) >= 3:
        return f"commit {_group(micro[1])}{_places(micro[2])}"
    return show(micro)


def _poll(micro: Any) -> str:
    records = _pairs(micro[1]) if len(micro) > 1 else []
    parts = [f"poll {_name(key)}: {_records(_pairs(found))}" for key, found in records if found]
    if len(micro) > 2 and micro[2]:
        parts.append(f"visible ends {_places(micro[2])}")
    return "; ".join(parts) or "poll: nothing"


def _records(records: list[tuple[Any, Any]]) -> str:
    shown = records if len(records) <= _SHOWN_RECORDS else [*records[:3], *records[-1:]]
    texts = [f"{show(value)} at {'?' if offset is None else offset}" for offset, value in shown]
    if len(shown) < len(records):
        texts.insert(3, f"… {len(records) - len(shown)} more …")
    return ", ".join(texts)


def _micro_keys(operation: Operation) -> Iterator[str]:
    for micro in _micros(operation):
        if micro[0] == "send" and len(micro) == 3:
            yield _name(micro[1])
        elif micro[0] == "poll":
            for said in micro[1:3]:
                yield from (_name(key) for key, _ in _pairs(said))
        elif micro[0] == "commit" and len(micro) >= 3:
            yield from (_name(key) for key, _ in _pairs(micro[2]))


# The other functions


def _group(name: Any) -> str:
    return f"group {name}: " if name not in (None, "") else ""


def _places(said: Any) -> str:
    return ", ".join(f"{_name(key)} {'none' if place is None else show(place)}" for key, place in _pairs(said))


def _fact(operation: Operation) -> list[str]:
    given, answer = operation.input, operation.output
    fields = given if isinstance(given, Mapping) else {}
    group = _group(fields.get("group"))
    if operation.function in ("assign", "subscribe"):
        more = [f"{name} {fields[name]}" for name in ("isolation", "position") if fields.get(name)]
        return [", ".join([group + (", ".join(_listed(given)) or "nothing"), *more])]
    if operation.function == "commit":
        of = [f"{name} {fields[name]}" for name in ("member", "generation") if fields.get(name) is not None]
        return [group + _places(fields.get("offsets")) + (f" ({', '.join(of)})" if of else "")]
    if operation.function in _GIVEN:
        return [_places(given)]
    if operation.function in ("join", "describe-group") and isinstance(answer, Mapping):
        members = _pairs(answer.get("members")) or [(answer.get("member"), answer.get("keys"))]
        owners = [f"member {member} owns {', '.join(map(_name, keys or ())) or 'nothing'}" for member, keys in members]
        return [f"{group}generation {answer.get('generation')}", *owners]
    if operation.function == "init-producer":
        fields = {**fields, **(answer if isinstance(answer, Mapping) else {})}
        return [f"{name} {fields[name]}" for name in ("producer", "producer_id", "epoch") if name in fields]
    return [group + _places(answer)] if answer else []


def _listed(given: Any) -> list[str]:
    keys = given.get("keys") if isinstance(given, Mapping) else given
    return [_name(key) for key in keys] if isinstance(keys, list | tuple) else []


def _fact_keys(operation: Operation) -> Iterator[str]:
    given, answer = operation.input, operation.output
    yield from _listed(given) if operation.function not in ("seek", "process") else ()
    said = given.get("offsets") if isinstance(given, Mapping) else given
    if operation.function in _GIVEN:
        yield from (_name(key) for key, _ in _pairs(said))
    elif isinstance(answer, Mapping) and ("keys" in answer or "members" in answer):
        yield from _listed(answer)
        for _, keys in _pairs(answer.get("members")):
            yield from _listed(keys)
    elif operation.function != "init-producer":
        yield from (_name(key) for key, _ in _pairs(answer))
