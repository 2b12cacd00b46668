"""Histories as Jepsen and Porcupine write them."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlog.linearizability.checker.formats import edn
from raftlog.linearizability.checker.formats.jepsen import read_jepsen
from raftlog.linearizability.checker.formats.jsonl import read_events, read_history
from raftlog.linearizability.checker.formats.porcupine import read_porcupine
from raftlog.linearizability.checker.history import FAIL, INFO, OK, EventType, History, HistoryError, TimeUnit
from raftlog.linearizability.checker.values import freeze

LOG = """\
INFO  jepsen.core - Worker 1 starting
INFO  jepsen.util - 1\t:invoke\t:write\t3
INFO  jepsen.util - 2\t:invoke\t:cas\t[3 4]
INFO  jepsen.util - 1\t:ok\t:write\t3
INFO  jepsen.util - :nemesis\t:info\t:start\t"Cut off [:n1]"
INFO  jepsen.util - 2\t:fail\t:cas\t[3 4]
INFO  jepsen.util - 3\t:invoke\t:read\tnil
INFO  jepsen.util - 3\t:fail\t:read\t:timed-out
INFO  jepsen.util - 4\t:invoke\t:write\t5
INFO  jepsen.util - 4\t:info\t:write\t:timed-out
"""


def test_a_jepsen_log_is_read_with_refused_compare_and_sets_as_answers() -> None:
    history = read_jepsen(LOG.splitlines(), name="log")
    assert history.time_unit is TimeUnit.STEPS
    write, cas, read, lost = history.by_call()
    assert (write.outcome, write.input, write.call, write.returned, write.line) == (OK, 3, 2, 4, 2)
    assert (cas.outcome, cas.input, cas.output) == (OK, (3, 4), False)
    assert read.outcome is FAIL
    assert (lost.outcome, lost.error) == (INFO, "timed-out")
    assert [note.label for note in history.annotations] == ["start"]


def test_maps_with_times_are_read_in_nanoseconds() -> None:
    history = read_jepsen(
        ["{:process 4, :type :invoke, :f :cas, :value [2 4], :time 10}", "{:process 4, :type :ok, :f :cas, :time 12}"]
    )
    (operation,) = history
    assert (operation.call, operation.returned, operation.output) == (10, 12, True)
    assert history.time_unit is TimeUnit.NANOSECONDS


def test_a_porcupine_file_has_one_map_a_line() -> None:
    history = read_porcupine(
        [
            '{:process 9, :type :invoke, :f :append, :key "0", :value "x 9 0 y"}',
            '{:process 9, :type :ok, :f :append, :key "0", :value "x 9 0 y"}',
            '{:process 9, :type :invoke, :f :get, :key "0", :value nil}',
            '{:process 9, :type :ok, :f :get, :key "0", :value "x 9 0 y"}',
        ]
    )
    append, get = history
    assert (append.key, append.input, append.output) == ("0", "x 9 0 y", None)
    assert (get.input, get.output) == (None, "x 9 0 y")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{:process 1", "h:2: the text ends"),
        ("{:process 1}", "h:2: :type is None"),
        ("{:process 1, :type :begin, :f :read}", "h:2: :type is 'begin'"),
        ("{:process 1, :type :ok, :f :read}", "h:2: a completion without a call"),
        ("{:process 0, :type :invoke, :f :read}", "h:2: process 0 calls while its call of line 1 is open"),
        ("{:process 1 :type}", "h:2: a map with a key and no value"),
        ("{:process 1, :type :invoke, :f :read, :value " + "[" * 200, "h:2: nested deeper"),
        ("42", "h:2: a line must hold a map"),
        ("#a " * 5000 + "1", "h:2: nested deeper"),
        ("{:process 1, :type :invoke, :f :read, :value ##NaN}", "##NaN at column 46 is nothing that can be read"),
        ("{:process 1, :type :invoke, :f :read, #_ :value :value 1}", "#_ at column 39 is nothing that can be read"),
        ("{:process 1, :type {:a 1}, :f :read}", "h:2: :type is {'a': 1}"),
        ("{:type :invoke, :f :read}", "h:2: :process is missing"),
        ("{:process 1, :type :invoke, :f :read, :time 9999999999999999999}", "h:2: :time is no integer of 64 bits"),
        ("{:process 1, :type :invoke, :f :write, :value 1e999}", "h:2: the number at column"),
        ('{:process 0, :type :ok, :f :read, :key "b"}', "h:2: :key is 'b', but None in the call of line 1"),
    ],
)
def test_a_bad_line_is_named(line: str, complaint: str) -> None:
    with pytest.raises(HistoryError) as caught:
        read_porcupine(["{:process 0, :type :invoke, :f :read}", line], name="h")
    assert complaint in str(caught.value)


def test_a_file_without_operations_is_no_jepsen_log() -> None:
    with pytest.raises(HistoryError, match="h:2: no line up to this one is an operation"):
        read_jepsen(["hello", "world"], name="h")
    for lines in (
        [],
        ["INFO  jepsen.util - :nemesis\t:info\t:start\tnil"],
        ["{:process :nemesis, :type :info, :f :start}"],
    ):
        with pytest.raises(HistoryError, match="h:1: no operation of a client is in it"):
            read_jepsen(lines, name="h")


def test_records_comments_and_exceptions_are_read_as_clojure_prints_them() -> None:
    history = read_jepsen(
        [
            ";; a comment",
            "#jepsen.history.Op{:process 1, :type :invoke, :f :write, :value #{{:a 1} 2e3}, :key {:k 1}} ; and another",
            "{:process 1, :type :info, :f :write, :exception {:type java.net.SocketException, :at [a.b$c invoke 12]}}",
        ]
    )
    (write,) = history
    assert write.input == frozenset({freeze({"a": 1}), 2000.0}) and write.key == freeze({"k": 1})


def test_a_log_line_is_looked_at_in_linear_time() -> None:
    began = time.process_time()
    with pytest.raises(HistoryError, match="no line up to this one"):
        read_jepsen(["jepsen.util" + " " * 1_000_000 + "!"])
    assert time.process_time() - began < 5  # with two runs of space in one pattern it would be an hour


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nil", None),
        ("[1 -2 3N]", (1, -2, 3)),
        ("1.5M", 1.5),
        (':a/b "c\\n\\""', None),
        ("{:a #{1 2}}", {"a": frozenset({1, 2})}),
        ('#inst "2020"', "2020"),
        ("(true false)", (True, False)),
        ("1e3", 1000.0),
        ('"\\u00e9"', "é"),
        ("[\\a java.lang.Thread]", ("a", "java.lang.Thread")),
        ("#{#{{:a 1}}}", frozenset({frozenset({freeze({"a": 1})})})),
        ("{{:a 1} 2} ; two", {freeze({"a": 1}): 2}),
    ],
)
def test_edn_values(text: str, value: object) -> None:
    if value is None and text != "nil":
        with pytest.raises(edn.EdnError, match="something follows"):
            edn.parse(text)
        return
    assert edn.parse(text) == value


PORCUPINE = '{:process 0, :type :invoke, :f :put, :key "k", :value "v"}\n{:process 0, :type :ok, :f :put, :key "k"}\n'
JSON_LINES = (
    '{"type":"invoke","process":0,"function":"write","input":3,"time":1}\n{"type":"ok","process":0,"time":2}\n'
)


@pytest.mark.parametrize(
    ("reader", "text"), [(read_jepsen, LOG), (read_porcupine, PORCUPINE), (read_history, JSON_LINES)]
)
def test_a_reader_takes_a_path_as_well_as_an_open_file_and_lines(
    reader: Callable[..., History], text: str, tmp_path: Path
) -> None:
    path = tmp_path / "history"
    path.write_text(text)

    def told(history: History) -> list[tuple[object, ...]]:
        return [(one.process, one.function, one.input, one.output, one.outcome, one.line) for one in history]

    expected = told(reader(text.splitlines()))
    assert expected
    assert told(reader(path)) == told(reader(str(path))) == told(reader(io.BytesIO(text.encode()))) == expected
    assert told(reader(io.StringIO(text))) == expected
    assert reader(path).source == str(path)
    assert reader(path, name="it").source == "it"


@pytest.mark.parametrize("reader", [read_jepsen, read_porcupine, read_history])
def test_a_bad_line_of_a_path_is_named_with_the_path(reader: Callable[..., History], tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b"\xff\n")
    with pytest.raises(HistoryError) as failure:
        reader(path)
    assert str(failure.value) == f"{path}:1: not UTF-8 text"
    with pytest.raises(FileNotFoundError):
        reader(tmp_path / "nowhere")


def test_events_are_streamed_from_a_path(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text(JSON_LINES)
    assert [kind for kind, _ in read_events(path)] == [EventType.INVOKE, EventType.OK]
