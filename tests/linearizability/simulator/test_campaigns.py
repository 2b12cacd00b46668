"""What a campaign has to show before its silence means something."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence

import pytest

from raftlog.linearizability.simulator import swarm
from raftlog.linearizability.simulator.catalogue import maker
from raftlog.linearizability.simulator.faults import REST, Fault, printed, read_schedule
from raftlog.linearizability.simulator.properties import never_reached, properties, watched
from raftlog.linearizability.simulator.runs import execute
from raftlog.linearizability.simulator.shrink import shrink_operations
from raftlog.linearizability.simulator.swarm import as_regression, campaign, run_seed


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


@pytest.mark.long
def test_each_canary_is_noticed_by_the_kind_of_run_it_is_for() -> None:
    for part, name in swarm.CANARIES.items():
        assert any(run_seed(part, seed, name).failed for seed in range(swarm.CANARY_SEEDS_MAX))


def test_watching_for_properties_changes_nothing_that_a_run_does() -> None:
    reached: Counter[str] = Counter()
    with watched("core", reached):
        seen = execute(maker("core"), 3)
    assert seen.digest == execute(maker("core"), 3).digest
    assert len(never_reached("core", reached)) < len(properties("core"))


def test_what_clients_do_is_left_out_where_a_failure_does_not_need_it() -> None:
    needed = Fault(1.0, "kill", 1, 1.0)

    def fails(faults: Sequence[Fault]) -> bool:
        """As long as client 2 works in the third second of six."""
        rests = [each for each in faults if each.kind == REST and each.node == 2]
        return needed in faults and not any(each.at <= 2.5 < each.at + each.seconds for each in rests)

    kept, _ = shrink_operations([needed], 3, 6.0, fails)
    assert [str(each) for each in kept] == [
        str(needed),
        "0.000 rest 1 for=6.000 n=0",
        "0.000 rest 2 for=2.000 n=0",
        "3.000 rest 2 for=3.000 n=0",
        "0.000 rest 3 for=6.000 n=0",
    ]


def test_a_client_that_rests_does_nothing_and_the_run_repeats() -> None:
    rests = [Fault(0.0, REST, client, 3.0) for client in (1, 2, 3, 4, 5)]
    with_rests = execute(maker("core"), 7, rests)
    assert not with_rests.failed
    assert with_rests.counts["acknowledged"] < execute(maker("core"), 7, []).counts["acknowledged"]
    assert with_rests.digest == execute(maker("core"), 7, read_schedule(printed(rests).splitlines())).digest


def test_a_seed_that_failed_is_told_as_the_entry_that_keeps_it() -> None:
    kept = [Fault(0.1, "kill", 1, 0.2), Fault(0.0, REST, 2, 3.0)]
    result = run_seed("core", 0, "truncate-on-overlap")
    entry = ast.literal_eval("{" + "\n".join(as_regression("core", 4, kept, result)) + "}")
    ((part, seed, schedule),) = entry.values()
    assert (part, seed, read_schedule(schedule.splitlines())) == ("core", 4, kept)
