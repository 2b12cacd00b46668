from __future__ import annotations

import pytest

from raftlog.cli.failure import UsageError
from raftlog.cli.positions import Range, Start, parse_duration, parse_offsets, parse_time


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start("beginning")),
        ("earliest", Start("beginning")),
        ("end", Start("end")),
        ("latest", Start("end")),
        ("stored", Start("stored")),
        ("17", Start("offset", 17)),
        ("-5", Start("tail", 5)),
        ("s@1700000000000", Start("time", 1_700_000_000_000)),
        ("s@2023-11-14T22:13:20Z", Start("time", 1_700_000_000_000)),
        ("s@2023-11-14T23:13:20+01:00", Start("time", 1_700_000_000_000)),
    ],
)
def test_a_start_is_written_as_in_kcat(text: str, start: Start) -> None:
    assert parse_offsets([text]) == Range(start, None)


def test_a_start_and_a_stop_can_be_given_together() -> None:
    assert parse_offsets(["s@1000", "e@2000"]) == Range(Start("time", 1000), 2000)


def test_two_starts_are_refused() -> None:
    with pytest.raises(UsageError, match="two places"):
        parse_offsets(["5", "end"])


@pytest.mark.parametrize("text", ["begin", "5.0", "--5", "s@yesterday", "e@", ""])
def test_what_is_no_offset_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(UsageError) as failure:
        parse_offsets([text])
    assert failure.value.hint


@pytest.mark.parametrize("text", ["9" * 19, "9" * 5000])
def test_a_time_that_kafka_has_no_room_for_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        parse_time(text)


def test_times_before_1970_are_the_beginning_and_none_of_kafkas_special_ones() -> None:
    assert parse_time("1969-12-31T23:59:59.999Z") == parse_time("1960-01-01") == 0


def test_a_time_without_zone_is_utc() -> None:
    assert parse_time("1970-01-01T00:00:01") == 1000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90m", 5_400_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("1500ms", 1500),
        ("P1DT2H", 93_600_000),
        ("PT30S", 30_000),
        ("P99999999999D", 99_999_999_999 * 86_400_000),
    ],
)
def test_durations_are_short_or_iso(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["P", "PT", "2 hours", "", "-1h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="duration"):
        parse_duration(text)


LONG = "9" * 5000
"""Python refuses to make a number of so many digits."""


@pytest.mark.parametrize("text", [LONG, f"-{LONG}", f"s@{LONG}"])
def test_an_offset_that_kafka_has_no_room_for_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not an? (offset|time)"):
        parse_offsets([text])


@pytest.mark.parametrize("text", [f"{LONG}s", f"P{LONG}D"])
def test_a_duration_that_nobody_lives_to_see_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        parse_duration(text)
