"""How a row's rounds are chosen: by what the machine's host took, never by what came out."""

from __future__ import annotations

from benchmarks.measure import Sample, quietest


def test_of_more_rounds_than_asked_for_those_with_the_least_stolen_count_in_their_order() -> None:
    rounds = [(stolen, {"raftlog": Sample(value)}) for value, stolen in enumerate([0.3, 0.0, 0.2, 0.019, 0.1])]

    chosen = [round_["raftlog"].value for round_ in quietest(rounds, 3)]

    assert chosen == [1, 3, 4]


def test_among_rounds_that_were_quiet_enough_the_first_ones_count() -> None:
    rounds = [(stolen, {"raftlog": Sample(value)}) for value, stolen in enumerate([0.015, 0.01, 0.0])]

    chosen = [round_["raftlog"].value for round_ in quietest(rounds, 2)]

    assert chosen == [0, 1]
