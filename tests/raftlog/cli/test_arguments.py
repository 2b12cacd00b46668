from __future__ import annotations

import pytest

from raftlog.cli.arguments import broker_list, key_values, partition_list
from raftlog.cli.failure import UsageError, nearest
from raftlog.cli.main import main
from raftlog.cli.output import plural, table


def test_a_value_may_hold_equal_signs_and_may_be_empty() -> None:
    assert key_values(["a=b=c", "empty=", " spaced = out "], "--set") == {"a": "b=c", "empty": "", "spaced": "out"}


@pytest.mark.parametrize("pair", ["novalue", "=value", ""])
def test_a_pair_without_key_or_equal_sign_is_refused(pair: str) -> None:
    with pytest.raises(UsageError, match="key=value"):
        key_values([pair], "--set")


def test_partitions_are_written_as_numbers_and_ranges() -> None:
    assert partition_list("3-5,0,4") == [0, 3, 4, 5]


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "9" * 5000])
def test_what_is_no_list_of_partitions_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="list of partitions"):
        partition_list(text)


def test_a_range_that_goes_backwards_is_refused_and_not_taken_for_no_choice() -> None:
    with pytest.raises(UsageError, match="'4-2' is no range of brokers"):
        broker_list("4-2")


def test_brokers_are_written_alike_and_called_brokers() -> None:
    assert broker_list("1,2-4") == [1, 2, 3, 4]
    with pytest.raises(UsageError, match="list of brokers"):
        broker_list("a")
    with pytest.raises(UsageError, match="there is no broker 99999999999"):
        broker_list("99999999999")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--dta", None),  # as near to --id as to --data-dir, if the dashes counted
        ("--port", None),
        ("--data", "--data-dir"),
        ("--heath-listen", "--health-listen"),
    ],
)
def test_an_option_is_only_suggested_when_its_name_is_near(
    capsys: pytest.CaptureFixture[str], given: str, meant: str | None
) -> None:
    assert main(["broker", given, "x"]) == 2
    said = capsys.readouterr().err
    assert f"did you mean {meant}?" in said if meant else "did you mean" not in said


def test_a_range_of_partitions_that_no_topic_has_is_refused_before_it_is_counted_out() -> None:
    with pytest.raises(UsageError, match="there is no partition 99999999999"):
        partition_list("0-99999999999")


@pytest.mark.parametrize("words", ["cluster unregister 99999999999", "produce t -p 99999999999"])
def test_numbers_that_the_protocol_has_no_room_for_are_refused(
    capsys: pytest.CaptureFixture[str], words: str
) -> None:
    assert main(words.split()) == 2
    assert "to 2147483647" in capsys.readouterr().err


def test_the_nearest_word_is_only_offered_when_it_is_near() -> None:
    assert nearest("retention.sm", ["retention.ms", "segment.ms"]) == "retention.ms"
    assert nearest("orders", ["payments", "users"]) is None


def test_the_beginning_of_a_word_is_enough_when_it_begins_one() -> None:
    assert nearest("reset", ["list", "delete", "reset-offsets"]) == "reset-offsets"
    assert nearest("re", ["reset-offsets", "delete"]) is None


@pytest.mark.parametrize("command", ["broker", "dev", "check", "produce", "consume", "partition reassign"])
def test_help_is_as_wide_as_the_terminal_but_for_its_examples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command.split(), "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80 and not line.startswith("  ")] == []


def test_a_table_aligns_numbers_to_the_right_and_leaves_empty_columns_out() -> None:
    text = table(["NAME", "COUNT", "NOTE"], [["a", 5, ""], ["bc", None, ""], ["d", 1000, ""]])
    assert text.splitlines() == ["NAME  COUNT", "a         5", "bc        -", "d      1000"]


def test_one_is_not_many() -> None:
    assert [plural(1, "record"), plural(0, "record"), plural(1234, "record")] == [
        "1 record",
        "0 records",
        "1,234 records",
    ]
