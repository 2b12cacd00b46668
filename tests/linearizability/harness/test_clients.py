"""Client processes as the runner sees them: one that dies, that says nonsense, or that does not come to its end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from raftlog.linearizability.harness import clients as module
from raftlog.linearizability.harness.clients import Clients
from raftlog.linearizability.harness.run import unread
from raftlog.linearizability.harness.session import Assignment
from raftlog.testing.waiting import wait_until


def clients_that(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> tuple[Clients, list[dict[str, Any]]]:
    """One client, which does this after it has heard what it is for; and the history."""
    words = [sys.executable, "-c", "import os, sys\nsys.stdin.readline()\n" + code]
    monkeypatch.setattr(module, "python", lambda mutant: words)
    history: list[dict[str, Any]] = []
    clients = Clients(folder, history.append)
    clients.start(Assignment(7, 1, "append", "raftlog", "", 1, 1.0, {"append": 1}))
    return clients, history


def test_a_client_that_died_is_told_also_when_the_others_were_told_to_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clients, _ = clients_that(monkeypatch, tmp_path, "sys.exit(1)")
    wait_until(lambda: not clients.all[0].is_alive, 30.0, lambda: "it has ended")
    clients.stop()
    assert clients.dead == ["client 7 died: see its log"]
    assert clients.idle == ["7 (raftlog)"]


def test_a_client_that_is_told_to_end_did_not_die(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clients, _ = clients_that(monkeypatch, tmp_path, "sys.stdin.readline()")
    clients.stop()
    assert clients.dead == []


def test_what_is_not_understood_is_told_and_ends_the_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = "print('a warning', flush=True)\nsys.stdin.read()"
    clients, _ = clients_that(monkeypatch, tmp_path, code)
    wait_until(lambda: not clients.all[0].is_alive, 30.0, lambda: "it has ended")
    clients.stop()
    assert len(clients.dead) == 1
    assert "'a warning\\n'" in clients.dead[0]


def test_a_client_that_is_killed_in_the_middle_of_a_line_is_understood(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call = '{"e": "invoke", "id": 1, "process": 7000000, "function": "send", "time": 5}'
    code = f"print('{call}')\nprint('{{\"e\": \"ok\", ', end='', flush=True)\nsys.stdin.read()"
    clients, history = clients_that(monkeypatch, tmp_path, code)
    wait_until(lambda: bool(clients.all[0].open), 30.0, lambda: "it has called")
    clients.stop()
    assert clients.dead == []
    assert [each["outcome"] for each in history] == ["info"]


def test_a_history_is_whole_up_to_what_the_last_of_the_clients_has_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    note = '{"e": "note", "name": "seen", "value": 1, "time": %d}'
    clients, _ = clients_that(monkeypatch, tmp_path, f"print('{note % 5}', flush=True)\nsys.stdin.readline()")
    code = f"import sys\nprint('{note % 9}\\n{note % 8}', flush=True)\nsys.stdin.read()"
    monkeypatch.setattr(module, "python", lambda mutant: [sys.executable, "-c", code])
    clients.start(Assignment(8, 1, "append", "raftlog", "", 1, 1.0, {"append": 1}))
    slow, _ = clients.all
    wait_until(lambda: [each.notes["seen"] for each in clients.all] == [1, 2], 30.0, lambda: "both have told")
    assert clients.told_until() == 5
    slow.tell({"do": "stop"})
    wait_until(lambda: slow.has_told_all, 30.0, lambda: "it has ended")
    assert clients.told_until() == 9
    clients.stop()


def test_final_reads_that_do_not_end_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clients, _ = clients_that(monkeypatch, tmp_path, "sys.stdin.read()")
    clients.read_back(0.0)
    clients.stop()
    assert (clients.unfinished, clients.dead) == ([7], [])


def test_what_is_acknowledged_while_others_read_back_must_be_read_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call = {"e": "invoke", "id": 1, "process": 7, "function": "send", "time": 5, "input": [["send", "a-0", "v"]]}
    answer = {"e": "ok", "id": 1, "time": 9, "output": [["send", "a-0", [4, "v"]]]}
    notes = [{"e": "note", "name": name, "value": value} for name, value in (("final-read", {}), ("final-done", 1))]
    said = [f"print({json.dumps(line)!r}, flush=True)" for line in (call, answer, *notes)]
    code = "\n".join([said[0], "sys.stdin.readline()", *said[1:], "sys.stdin.read()"])
    clients, _ = clients_that(monkeypatch, tmp_path, code)
    clients.read_back(30.0)
    clients.stop()
    assert (clients.goals, clients.unfinished) == ({"a-0": 4}, [])
    assert unread(clients) == ["a-0"]


def test_who_was_fenced_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    note = json.dumps({"e": "note", "name": "fenced", "value": 1})
    clients, _ = clients_that(monkeypatch, tmp_path, f"print({note!r}, flush=True)")
    monkeypatch.setattr(module, "python", lambda mutant: [sys.executable, "-c", ""])
    other = clients.start(Assignment(8, 1, "append", "raftlog", "", 1, 1.0, {"append": 1}))
    wait_until(lambda: not any(each.is_alive for each in clients.all), 30.0, lambda: "they have ended")
    clients.stop()
    assert (clients.all[0].notes["fenced"], other.notes["fenced"]) == (1, 0)


def test_a_call_of_unknown_outcome_has_the_time_at_which_its_client_gave_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call = json.dumps({"e": "invoke", "id": 1, "process": 7, "function": "send", "time": 5})
    end = json.dumps({"e": "info", "id": 1, "time": 9, "error": "timed out"})
    clients, history = clients_that(monkeypatch, tmp_path, f"print({call!r})\nprint({end!r}, flush=True)")
    wait_until(lambda: not clients.all[0].is_alive, 30.0, lambda: "it has ended")
    clients.stop()
    assert [(each["call"], each["return"], each["outcome"]) for each in history] == [(5, 9, "info")]
