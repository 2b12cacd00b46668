"""Histories as JSON Lines: what is written is read again, and every bad line is named."""

from __future__ import annotations

import io
import json
import time
from random import Random
from typing import Any

import pytest

from raftlog.linearizability.checker.formats.jsonl import JsonLinesReader, read_events, read_history, write_history
from raftlog.linearizability.checker.history import (
    INFO,
    Annotation,
    EventType,
    History,
    HistoryError,
    Operation,
    TimeUnit,
)
from tests.linearizability.checker.objects import WORLDS, record


def written(history: History) -> str:
    stream = io.StringIO()
    write_history(history, stream)
    return stream.getvalue()


def facts(operation: Operation) -> tuple[Any, ...]:
    given, output = json.loads(json.dumps([operation.input, operation.output]))
    return (operation.process, operation.function, given, output, operation.call, operation.returned, operation.outcome)


@pytest.mark.parametrize("name", sorted(WORLDS))
@pytest.mark.parametrize("as_bytes", [False, True])
def test_what_is_written_is_read_again(name: str, as_bytes: bool) -> None:
    for seed in range(20):
        history = record(WORLDS[name], Random(seed), count=30, clients=4, unknown=0.1)
        history.annotations.append(Annotation("kill -9 broker 1", 3, 7, "faults", details="leader"))
        text = written(history)
        again = read_history(io.BytesIO(text.encode()) if as_bytes else io.StringIO(text), name="h")
        again.check_invariants()
        assert sorted(map(repr, map(facts, again))) == sorted(map(repr, map(facts, history)))
        assert again.annotations == history.annotations
        assert written(again) == text


def test_a_client_with_several_calls_in_flight_has_them_told_apart_by_an_id() -> None:
    first = Operation("c", "write", 1, call=1)
    second = Operation("c", "write", 2, call=2)
    first.returned, second.returned = 3, 4
    lines = [json.loads(line) for line in written(History.of([first, second])).splitlines()]
    assert [line.get("id") for line in lines[1:]] == [None, 1, None, 1]


def test_a_file_is_read_as_a_stream_that_holds_only_what_is_open() -> None:
    def lines() -> Any:
        for number in range(100_000):
            yield f'{{"type":"invoke","process":0,"function":"read","time":{2 * number}}}\n'
            yield f'{{"type":"ok","process":0,"output":null,"time":{2 * number + 1}}}\n'

    reader = JsonLinesReader(lines())
    for count, (kind, _operation) in enumerate(reader.events(), 1):
        assert kind in (EventType.INVOKE, EventType.OK)
        assert count <= 200_000 and len(reader._open) <= 1
    assert reader.line == 200_000


def test_whole_operations_may_come_in_any_order() -> None:
    text = (
        '{"type": "history", "version": 1, "time_unit": "step"}\n'
        '{"type": "operation", "process": 2, "function": "read", "output": 1, "call": 5, "return": 6}\n\n'
        '{"type": "operation", "process": 1, "function": "write", "input": 1, "call": 1, "outcome": "info"}\n'
    )
    history = read_history(io.StringIO(text))
    assert history.time_unit is TimeUnit.STEPS
    assert [operation.function for operation in history.by_call()] == ["write", "read"]
    assert history.by_call()[0].outcome is INFO
    with pytest.raises(HistoryError, match="cannot be streamed"):
        list(read_events(io.StringIO(text)))


CALL = '{"type": "invoke", "process": 1, "function": "read", "time": 5}'

BAD = {
    "cut off": ('{"type": "invoke", "pro', "not JSON"),
    "no object": ("[1, 2]", "a line must hold a JSON object"),
    "no type": ('{"process": 1}', 'the field "type" is missing'),
    "unknown type": ('{"type": "begin"}', 'type is "begin", not one of "invoke"'),
    "type of a wrong kind": ('{"type": ["ok"]}', "not one of"),
    "no time": ('{"type": "invoke", "process": 2, "function": "read"}', 'the field "time" is missing'),
    "time as text": ('{"type": "invoke", "process": 2, "function": "read", "time": "5"}', '"time" is "5", not an int'),
    "time true": ('{"type": "invoke", "process": 2, "function": "read", "time": true}', "not an integer"),
    "time too large": ('{"type": "invoke", "process": 2, "function": "read", "time": 99999999999999999999}', "64 bits"),
    "time goes back": ('{"type": "invoke", "process": 2, "function": "read", "time": 4}', "time 4 is before 5"),
    "no process": ('{"type": "invoke", "function": "read", "time": 6}', 'the field "process" is missing'),
    "process a list": ('{"type": "invoke", "process": [], "function": "read", "time": 6}', "neither an integer nor"),
    "function a number": ('{"type": "invoke", "process": 2, "function": 3, "time": 6}', '"function" is 3, not a str'),
    "busy process": ('{"type": "invoke", "process": 1, "function": "cas", "time": 6}', "read of line 1 is still open"),
    "nothing open": ('{"type": "ok", "process": 2, "time": 6}', "a completion without a call: process 2"),
    "unknown id": ('{"type": "ok", "process": 1, "id": 7, "time": 6}', "a completion without a call: id 7"),
    "another function": (
        '{"type": "ok", "process": 1, "function": "write", "time": 6}',
        'function is "write", but "read"',
    ),
    "another key": (
        '{"type": "ok", "process": 1, "key": "x", "time": 6}',
        'key is "x", but null in the call of line 1',
    ),
    "unknown field": ('{"type": "ok", "process": 1, "time": 6, "value": 3}', 'no field "value"'),
    "not a number": ('{"type": "ok", "process": 1, "time": 6, "output": NaN}', "NaN is not JSON"),
    "too large a number": ('{"type": "ok", "process": 1, "time": 6, "output": 1e999}', "a number is too large"),
    "two objects": ('{"type": "ok", "process": 1, "time": 6} {}', "something follows the object"),
    "deep nesting": ('{"type": "ok", "process": 1, "time": 6, "output": ' + "[" * 5000, "nested deeper than 64"),
    "backwards": ('{"type": "operation", "process": 2, "function": "x", "call": 9, "return": 8}', "before it was"),
    "bad outcome": ('{"type": "operation", "process": 2, "function": "x", "call": 1, "outcome": 3}', "outcome is 3"),
    "no return": ('{"type": "operation", "process": 2, "function": "x", "call": 1}', 'needs a "return" time'),
    "annotation ends early": ('{"type": "annotation", "label": "x", "time": 9, "until": 8}', "before it starts"),
    "another version": ('{"type": "history", "version": 2}', "version 2 is not known"),
    "another unit": ('{"type": "history", "time_unit": "ms"}', 'time_unit is "ms"'),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_named_with_what_is_wrong(name: str) -> None:
    line, complaint = BAD[name]
    for text in (f"{CALL}\n{line}\n", f"{CALL}\n{line}"):
        for source in (io.StringIO(text), io.BytesIO(text.encode()), text.splitlines(keepends=True)):
            with pytest.raises(HistoryError) as caught:
                read_history(source, name="h.jsonl")
            assert str(caught.value).startswith("h.jsonl:2: ")
            assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            '{"type": "invoke", "process": 9, "function": "cas", "id": 4, "time": 6}',
            "that id, the read of line 1, is still",
        ),
        ('{"type": "ok", "process": 9, "id": 4, "time": 6}', "process is 9, but 1 in the call of line 1"),
        ('{"type": "ok", "process": 1, "id": null, "time": 6}', "process 1 has nothing open"),
    ],
)
def test_an_id_is_of_one_open_call(line: str, complaint: str) -> None:
    call = CALL.replace('"time"', '"id": 4, "time"')
    with pytest.raises(HistoryError, match=f"h:2: .*{complaint}"):
        read_history(io.StringIO(f"{call}\n{line}\n"), name="h")


def test_a_completion_may_say_again_what_its_call_said() -> None:
    call = CALL.replace('"time"', '"key": [1], "id": 4, "time"')
    answer = '{"type": "ok", "process": 1, "function": "read", "key": [1], "id": 4, "time": 6}'
    (operation,) = read_history(io.StringIO(f"{call}\n{answer}\n"))
    assert (operation.key, operation.returned) == ((1,), 6)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"\xff\xfe{\x00", "UTF-16, not UTF-8 text"),
        (b"{\xff}", "not UTF-8 text"),
        (b"\x1f\x8b\x08\x00", "compressed with gzip"),
        (b"\xef\xbb\xbf{}", "a byte order mark stands before the object"),
    ],
)
def test_bytes_that_are_no_text_are_named_by_their_line(line: bytes, complaint: str) -> None:
    with pytest.raises(HistoryError, match=f"h:2: .*{complaint}"):
        read_history(io.BytesIO(f"{CALL}\n".encode() + line + b"\n"), name="h")


def test_a_line_is_refused_in_time_and_memory_linear_in_its_length() -> None:
    escapes = (
        '{"input": ' + "[" * 70 + "]" * 70 + ', "x": "' + '\\"' * 1_000_000
    )  # quotes in a string that does not end
    began = time.process_time()
    with pytest.raises(HistoryError, match="h:1: nested deeper than 64"):
        read_history(io.StringIO(escapes), name="h")
    assert time.process_time() - began < 5  # tried anew at every quote it would be hours


NOTE = '{"type": "annotation", "label": "x", "time": 5, "details": "%s"}'
APART = '{"type": "annotation", "label": "x", "time": 5, "details": [{}'  # an object that the next line ends
AGAIN = "{}]}"


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ([APART, AGAIN], 2),
        ([APART, AGAIN, f"{CALL},NaN,{CALL}"], 2),
        ([f"{CALL} , NaN , {CALL}", APART, AGAIN], 2),
        ([f"{CALL},{CALL}", APART, AGAIN], 2),
        ([f"{CALL},NaN"], 2),
        ([NOTE % "NaN", APART], 3),
        (["", APART], 3),
    ],
)
def test_lines_that_are_json_only_together_are_no_history(lines: list[str], line: int) -> None:
    text = "\n".join([NOTE % "", *lines, NOTE % ""])
    for source in (io.StringIO(text), io.BytesIO(text.encode())):
        with pytest.raises(HistoryError, match=f"h:{line}: not JSON"):
            read_history(source, name="h")


def test_a_file_without_a_line_is_no_history_and_one_with_a_first_line_is() -> None:
    for text in ("", "\n\n"):
        with pytest.raises(HistoryError, match="no line is in it"):
            read_history(io.StringIO(text))
    assert len(read_history(io.StringIO('{"type": "history"}\n'))) == 0


def test_a_value_without_a_json_form_cannot_be_written() -> None:
    with pytest.raises(HistoryError, match="a value has no JSON form"):
        written(History.of([Operation(1, "write", {1, 2}, call=1)]))
