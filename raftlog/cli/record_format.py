"""How a record is printed: kcat's format string, or a line of JSON that loses nothing.

Both ways (what `consume --json` writes, `produce --json-in` reads).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

from raftlog.cli.failure import UsageError
from raftlog.client.core.fetched import ConsumerRecord
from raftlog.wire.batch import NO_TIMESTAMP, Headers, Record, TimestampType

Part = Callable[[ConsumerRecord], bytes]

DIRECTIVES_HELP = """\
format string (kcat's):
  %s value          %k key            %t topic       %T timestamp (ms since 1970)
  %S value length   %K key length     %p partition   %h headers, as k=v,k=v
  %R value length as 4 bytes          %o offset      %% a percent sign
  A length is -1 when there is no value or key. \\n \\r \\t \\\\ and \\x0a are the usual escapes.
"""
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0", "e": b"\x1b"}
_TOKEN = re.compile(r"%(.?)|\\x([0-9a-fA-F]{2})|\\(.?)|([^%\\]+)", re.DOTALL)


def typed(text: str) -> bytes:
    """A word of the command line as it was typed, also where it is no UTF-8: Python keeps such bytes as surrogates."""
    return text.encode(errors="surrogateescape")


def unescape(text: str) -> bytes:
    """Delimiters and formats as people type them in a shell: `\\t`, `\\n`, `\\x1f`."""
    found = b""
    for match in re.finditer(r"\\x([0-9a-fA-F]{2})|\\(.)|(.)", text, re.DOTALL):
        if match[1] is not None:
            found += bytes.fromhex(match[1])
        elif match[2] is not None:
            found += ESCAPES.get(match[2], typed(match[2]))
        else:
            found += typed(match[3])
    return found


def compile_format(text: str, *, null: bytes = b"") -> Part:
    """A function from a record to the bytes to print. `null` stands for a value or key that is not there.

    Raises UsageError for a directive that does not exist.
    """
    directives = directives_table(null)
    parts: list[Part] = []
    for directive, code, escape, literal in _TOKEN.findall(text):
        if literal:
            parts.append(constant(typed(literal)))
        elif code:
            parts.append(constant(bytes.fromhex(code)))
        elif escape:
            parts.append(constant(ESCAPES.get(escape, typed(escape))))
        elif directive in directives:
            parts.append(directives[directive])
        elif not directive:
            raise UsageError("the format ends with a lone % or \\", "write it twice to print it: %% or \\\\")
        else:
            raise UsageError(
                f"the format has no directive %{directive}", f"it knows {' '.join('%' + each for each in directives)}"
            )
    return lambda fetched: b"".join([part(fetched) for part in parts])


def constant(text: bytes) -> Part:
    return lambda _: text


def directives_table(null: bytes) -> dict[str, Part]:
    return {
        "s": lambda it: null if it.value is None else it.value,
        "S": lambda it: b"%d" % length_of(it.value),
        "R": lambda it: length_of(it.value).to_bytes(4, "big", signed=True),
        "k": lambda it: null if it.key is None else it.key,
        "K": lambda it: b"%d" % length_of(it.key),
        "T": lambda it: b"%d" % it.timestamp,
        "h": lambda it: headers_text(it.headers),
        "t": lambda it: it.topic.encode(),
        "p": lambda it: b"%d" % it.partition,
        "o": lambda it: b"%d" % it.offset,
        "%": constant(b"%"),
    }


def length_of(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def headers_text(headers: Headers) -> bytes:
    # A name that is no UTF-8 was decoded like that.
    named = [(name.encode(errors="surrogateescape"), value) for name, value in headers]
    return b",".join(name + b"=" + (b"NULL" if value is None else value) for name, value in named)


def to_json(record: ConsumerRecord) -> bytes:
    """One line; bytes that are not text appear as {"base64": ...}."""
    import json

    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "log_append" if record.timestamp_type is TimestampType.LOG_APPEND_TIME else "create",
        "key": readable(record.key),
        "value": readable(record.value),
        "headers": [[name, readable(value)] for name, value in record.headers],
    }
    # What is no text in a header's name comes out as JSON's own escape, for the line has to be UTF-8.
    return json.dumps(document, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def readable(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def from_json(line: bytes, now_ms: int) -> tuple[Record, int | None]:
    """A record and the partition it asks for, from what `to_json` wrote or a person did. Raises ValueError.

    Fields are all optional: key, value (or kcat's payload), headers, timestamp, partition.
    A value that is neither text nor {"base64": ...} is stored as its JSON text.
    """
    import json

    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("it is not an object with key and value")
    timestamp = document.get("timestamp", now_ms)
    partition = document.get("partition")
    if not is_whole(timestamp, NO_TIMESTAMP, INT64_MAX) or not (partition is None or is_whole(partition, 0, INT32_MAX)):
        raise ValueError("timestamp (ms since 1970, -1 for none) and partition are whole numbers")
    value = document["value"] if "value" in document else document.get("payload")
    record = Record(
        offset=0,
        timestamp=timestamp,
        key=stored(document.get("key")),
        value=stored(value),
        headers=headers_from(document.get("headers") or []),
    )
    return record, partition


def is_whole(value: Any, least: int, most: int) -> bool:
    # True and false are numbers to Python.
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def headers_from(document: Any) -> Headers:
    """From a list of pairs, or from an object."""
    pairs = list(document.items()) if isinstance(document, dict) else document
    if not isinstance(pairs, list) or not all(isinstance(each, list | tuple) and len(each) == 2 for each in pairs):
        raise ValueError("headers are a list of [name, value] or an object")
    headers = tuple((str(name), stored(value)) for name, value in pairs)
    for name, _ in headers:
        name.encode(errors="surrogateescape")  # what `to_json` wrote of a name that is no UTF-8, and nothing else
    return headers


def stored(value: Any) -> bytes | None:
    import json

    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str() as packed} if len(value) == 1:
            return base64.b64decode(packed, validate=True)
    return json.dumps(value, ensure_ascii=False).encode()
