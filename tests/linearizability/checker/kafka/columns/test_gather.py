"""Steps over whole columns give the same with NumPy and without."""

from __future__ import annotations

import random
from array import array

import pytest

from raftlog.linearizability.checker.kafka import KafkaOptions, analyze
from raftlog.linearizability.checker.kafka.analysis import lag
from raftlog.linearizability.checker.kafka.columns import gather
from tests.linearizability.checker.kafka.service import Service


def both(monkeypatch: pytest.MonkeyPatch, step: str, *arguments: object) -> tuple[object, object]:
    """The answers of one step with NumPy, if it is installed, and without."""
    first = getattr(gather, step)(*arguments)
    with monkeypatch.context() as patch:
        patch.setattr(gather, "numpy", None)
        return first, getattr(gather, step)(*arguments)


def tables(draw: random.Random, typecode: str) -> list[array[int]]:
    """Three tables of ascending numbers, one of them empty."""
    return [array(typecode, sorted(draw.randrange(4) for _ in range(length))) for length in (9, 0, 1)]


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 1000])
def test_every_step_gives_the_same(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(gather, "_CHUNK", 50)
    draw = random.Random(count)
    places = array("i", [draw.randrange(max(count, 1)) for _ in range(count)])
    for typecode, limit in (("i", 2**31 - 2), ("q", 2**62)):
        values = array(
            typecode, [draw.randrange(-limit, limit) if draw.random() < 0.5 else draw.randrange(3) for _ in places]
        )
        for step, arguments in (
            ("take", (values, places)),
            ("take", (values, array("i", [-1 - place for place in places]))),
            ("steps_other_than_one", (values,)),
            ("shifted", (values, 1)),
            ("shifted", (values, -1)),
            ("rises", (values, array("i", [place % 3 for place in places]), 3)),
            ("chosen", (values, array("B", [place & 1 for place in places]))),
            ("owners", (array("i", [0, *sorted(places)]),)),
            ("previous", (array("i", [place % 5 for place in places]), array("i", [place % 3 for place in places]))),
            ("previous", (places, array("i", reversed(places)))),
            ("differing", (values, array(typecode, reversed(values)))),
            ("alike", (values, array(typecode, reversed(values)))),
            ("below", (values, array(typecode, reversed(values)))),
            ("ascending", (values,)),
            ("ascending", (places,)),
            ("known", (values,)),
            ("tally", (places, count + 3)),
            ("sizes", (array("i", [0, *sorted(places)]),)),
            ("counting", (range(5, count, 3),)),
            ("ranks", (tables(draw, typecode), array("i", [place % 3 for place in places]), values)),
            ("peaks", (values, array("i", [0, count // 3, count // 2, count]))),
            ("greatest", (array("q", values), array("i", [0, *sorted(places), count]))),
            ("greater", (values, array(typecode, reversed(values)))),
            ("plus", (array(typecode, [value // 2 for value in values]), array(typecode, map(int.__neg__, places)))),
            ("gaps", (array("q", map(max, values, reversed(values))), array("q", map(min, values, reversed(values))))),
            ("not_above", (values, array(typecode, reversed(values)))),
            ("rises", (values, array("i", [2 + 3 * (place % 2) for place in places]), 7)),
            ("least", (values, 5)),
            ("most", (values, 5)),
            ("starts_of", (array(typecode, [place % 4 for place in places]),)),
            ("peaks_of", (places, array("i", sorted(place // 3 for place in places)))),
            ("previous", (array("i", [place % 2 for place in places]), array("i", [40_000] * count))),
        ):
            one, other = both(monkeypatch, step, *arguments)
            assert one == other, step
            assert getattr(one, "typecode", None) == getattr(other, "typecode", None)
    starts = array("i", [0, *sorted(places)])
    for order in (range(count), array("i", draw.sample(range(count), count)), array("i", range(0, count, 3))):
        one, other = both(monkeypatch, "spread", starts, order)
        assert one == other == array("i", [row for n in order for row in range(starts[n], starts[n + 1])])
    marks, plain = bytearray(b"\1" * count), bytearray(b"\1" * count)
    gather.clear(marks, places)
    first, alike = array("i", [-1]) * count, array("i", [-1]) * count
    gather.put_first(first, places, array("i", range(count)))
    monkeypatch.setattr(gather, "numpy", None)
    gather.clear(plain, places)
    assert marks == plain
    gather.put_first(alike, places, array("i", range(count)))
    assert first == alike
    assert all(places.index(place) == number for place, number in enumerate(first) if number >= 0)


def test_a_value_rises_when_it_is_higher_than_all_before_it_of_its_key() -> None:
    marks = gather.rises(array("q", [5, 4, 4, 6, 4, 7]), array("i", [0, 1, 0, 0, 1, 1]), 2)
    assert list(marks) == [1, 1, 0, 1, 0, 1]


def test_the_place_before_is_the_last_one_with_the_same_pair() -> None:
    assert list(gather.previous(array("i", [1, 2, 1, 1, 2]), array("i", [0, 0, 0, 1, 0]))) == [-1, -1, 0, -1, 1]


def test_ranks_count_what_is_not_greater_or_what_is_less() -> None:
    steps, zeros, values = [array("q", [1, 3, 3, 7])], array("i", bytes(16)), array("q", [0, 3, 7, 9])
    assert list(gather.ranks(steps, zeros, values)) == [0, 3, 4, 4]
    assert list(gather.ranks(steps, zeros, values, left=True)) == [0, 1, 3, 4]


def test_the_greatest_value_of_nothing_is_nothing() -> None:
    found = gather.greatest(array("q", [4, -7, 2]), array("i", [0, 0, 2, 3, 3]))
    assert list(found) == [gather.NOTHING, 4, 2, gather.NOTHING]


def test_peaks_begin_anew_at_each_start() -> None:
    assert list(gather.peaks(array("q", [4, -7, 2, 5]), array("i", [0, 1, 1, 4]))) == [4, -7, 2, 5]


def test_peaks_of_groups_begin_anew_with_each_group() -> None:
    for length in (1, 40):  # as often as it takes for NumPy to be worth it, and less often
        values = array("i", [4, 0, 7, 2, 0, 1] * length)
        groups = array("i", sorted([0, 0, 3, 3, 3, 2**31 - 1] * length))
        found = gather.peaks_of(values, groups)
        starts = [0, *(place for place in range(1, len(groups)) if groups[place] != groups[place - 1]), len(groups)]
        assert found == gather.peaks(values, array("i", starts))


def test_the_widest_gap_fits() -> None:
    ends = array("q", [2**63 - 1] * 100), array("q", [-(2**63)] * 100)
    assert list(gather.gaps(*ends)) == [2**64 - 1] * 100


def test_the_analysis_gives_the_same_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    history = Service(2, mode="mixed").run(600)
    expected = analyze(history).to_json()
    monkeypatch.setattr(gather, "numpy", None)
    assert analyze(history).to_json() == expected


def test_lags_measured_in_small_windows_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    history = Service(3, mode="mixed").run(400)
    options = KafkaOptions(max_staleness=3_000_000)
    expected = analyze(history, options).to_json()
    assert expected["measurements"]["realtime_lag"]["by_key"]
    monkeypatch.setattr(lag, "_WINDOW", 7)
    assert analyze(history, options).to_json() == expected
