"""The garbage collector rests while something is loaded, in a process whose start is frozen, and only there."""

from __future__ import annotations

import gc

import pytest

from raftlog.broker.runtime import loading_pause
from raftlog.broker.runtime.loading_pause import collector_paused


def test_the_collector_rests_until_the_last_one_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(loading_pause, "_is_frozen", True)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(gc.isenabled()))
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled() and not frozen
    assert gc.isenabled() and frozen == [False]


def test_elsewhere_nothing_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(loading_pause, "_is_frozen", False)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(gc.isenabled()))
    with collector_paused():
        assert gc.isenabled()
    assert gc.isenabled() and not frozen
