"""The search breadth first where it leaves out much, goes back, and lets unknown outcomes happen again and again."""

from __future__ import annotations

from random import Random

import pytest

from raftlog.linearizability.checker.budget import Budget, Meter
from raftlog.linearizability.checker.search import breadth_first
from raftlog.linearizability.checker.search.search import Search
from tests.linearizability.checker.objects import WORLDS, record


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """One configuration is kept, and each return is a place to go back to."""
    monkeypatch.setattr(Search, "_depth_first", lambda self: iter(()))
    monkeypatch.setattr(breadth_first, "_FRUGAL", breadth_first._Effort(1, True, 0))
    for name, value in (("_WIDTH", 1), ("_ACCOUNT_EVERY", 1), ("_NEAR", 0), ("_SNAPSHOT_EVERY", 2)):
        monkeypatch.setattr(breadth_first, name, value)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(("name", "seed"), [("cas-register", 72), ("cas-register", 144), ("set", 31), ("set", 78)])
def test_an_attempt_that_got_further_than_the_next_one_is_to_go_stays_where_it_is(name: str, seed: int) -> None:
    history = record(WORLDS[name], Random(seed), count=60, clients=5, unknown=0.1, wrong=0.1)
    narrow_search = Search(WORLDS[name].model, history.operations)
    status = narrow_search.run(Meter(Budget()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(breadth_first, "_FRUGAL", breadth_first._Effort(1 << 20, False))
        assert Search(WORLDS[name].model, history.operations).run(Meter(Budget())) is status
