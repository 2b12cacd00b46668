"""What a campaign has to show before its silence means something."""

from __future__ import annotations

from collections import Counter

import pytest

from raftlog.linearizability.simulator import swarm
from raftlog.linearizability.simulator.properties import never_reached, properties, watched
from raftlog.linearizability.simulator.swarm import campaign, run_seed


def test_a_campaign_in_which_something_never_happened_fails() -> None:
    told: list[str] = []
    whole = campaign("core", 0, minutes=None, seeds=1, tell=told.append)
    assert not whole.failing
    assert whole.failed
    assert any(line.startswith("core: never: ") for line in told)


def test_a_campaign_whose_canary_lives_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm, "CANARIES", {"core": "late-ack"})
    monkeypatch.setattr(swarm, "CANARY_SEEDS_MAX", 1)
    monkeypatch.setattr(swarm, "never_reached", lambda part, reached: [])
    told: list[str] = []
    whole = campaign("core", 0, minutes=None, seeds=1, tell=told.append)
    assert whole.missing == ["the canary lives: late-ack was not noticed"]
    assert whole.failed


def test_each_canary_is_noticed_by_the_kind_of_run_it_is_for() -> None:
    for part, name in swarm.CANARIES.items():
        assert run_seed(part, 0, name).failed


def test_watching_for_properties_changes_nothing_that_a_run_does() -> None:
    from raftlog.linearizability.simulator.catalogue import maker
    from raftlog.linearizability.simulator.runs import execute

    reached: Counter[str] = Counter()
    with watched("core", reached):
        seen = execute(maker("core"), 3)
    assert seen.digest == execute(maker("core"), 3).digest
    assert len(never_reached("core", reached)) < len(properties("core"))
