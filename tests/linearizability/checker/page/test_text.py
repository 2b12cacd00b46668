"""The timeline in characters, and the report in plain text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.linearizability.checker.history import FAIL, INFO, OK, Operation
from raftlog.linearizability.checker.page import render_text, report_of, timeline
from tests.effort import examples
from tests.linearizability.checker.page import samples
from tests.linearizability.checker.page.samples import operation


def lines_of(*operations: Operation, width: int = 100) -> list[str]:
    return timeline(operations, lambda op: f"{op.function}", str, width=width)


def test_bars_lie_one_after_the_other_when_the_operations_did() -> None:
    assert lines_of(operation(0, "write", 1, None, (0, 4)), operation(1, "read", None, 1, (5, 9))) == [
        "0  ├ write ┤",
        "1            ├ read ┤",
    ]


def test_bars_overlap_when_the_operations_did() -> None:
    assert lines_of(operation(0, "write", 1, None, (0, 6)), operation(1, "read", None, 1, (5, 9))) == [
        "0  ├ write ┤",
        "1    ├ read ─┤",
    ]


def test_equal_stamps_are_drawn_as_overlap() -> None:
    first, second = lines_of(operation(0, "write", 1, None, (0, 5)), operation(1, "read", None, 1, (5, 9)))
    assert second.index("├") < first.index("┤")


def test_an_unknown_outcome_never_ends_and_a_failure_is_dotted() -> None:
    lost, refused, later = lines_of(
        operation(0, "write", 1, None, (0, 3), outcome=INFO),
        operation(1, "cas", 1, None, (1, 9), outcome=FAIL),
        operation(2, "read", 1, None, (4, 8)),
    )
    assert lost.startswith("0  ├ write ╌╌╌") and "┤" not in lost
    assert "├ cas ···" in refused and refused.endswith("┤")
    assert later.endswith("┤")


def test_a_client_with_two_calls_at_once_has_two_lines_and_one_name() -> None:
    lines = lines_of(operation("app", "one", 1, None, (0, 9)), operation("app", "two", 1, None, (1, 8)))
    assert [line[:5] for line in lines] == ["app  ", "     "]


def test_what_is_too_wide_goes_on_below_and_leaves_out_idle_clients() -> None:
    operations = [operation(place, f"call-{place}", 0, None, (place * 10, place * 10 + 5)) for place in range(12)]
    lines = lines_of(*operations, width=60)
    assert "" in lines
    assert max(map(len, lines)) <= 60
    drawn = "\n".join(lines)
    assert all(f"├ call-{place} ┤" in drawn for place in range(12)), "no label is torn"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 9), st.sampled_from([OK, FAIL, INFO]))),
    st.integers(24, 120),
)
@settings(max_examples=examples(100))
def test_any_operations_can_be_drawn_within_the_width(rows: list[tuple[int, int, int, object]], width: int) -> None:
    operations = [
        Operation(process, "read", None, None, None, call, call + took, outcome)  # type: ignore[arg-type]
        for process, call, took, outcome in rows
    ]
    lines = timeline(operations, lambda op: op.function, str, width=width)
    assert all(len(line) <= width for line in lines)
    assert bool(lines) == bool(operations)


def test_the_report_tells_the_reason_the_picture_and_the_order() -> None:
    verdict, history = samples.stale_read()
    text = render_text(report_of(verdict, history))
    assert text == (
        "INVALID  stale-read.jsonl  model cas-register, 9 operations, 5 processes, 1 part, checked in 420 µs\n"
        "The read by process 4 returned 2, although the write of 3 by process 0 had been acknowledged 3 ms\n"
        "before it began, and nothing wrote 2 again.\n"
        "\n"
        "process 0  ├ 1 write(1) ┤                           ├ 3 write(3) ┤\n"
        "process 2                 ├ 2 cas([1, 2]) -> True ┤\n"
        "process 3                                                          ├ 4 read() -> 3 ┤\n"
        "process 4                                                            ├ ✕ read() -> 2 ┤\n"
        "(leader: leader is node 2, +0.000 ms to +8.000 ms)\n"
        "(leader: election, +8.000 ms to +16.000 ms)\n"
        "(leader: leader is node 3, +16.000 ms to +40.000 ms)\n"
        "(faults: node 2 cut off, +7.000 ms to +24.000 ms)\n"
        "(client: connection lost, +9.000 ms)\n"
        "\n"
        "The object holds 3 after this order:\n"
        "  1  process 0  write(1)             holds 1\n"
        "  2  process 2  cas([1, 2]) -> True  holds 2\n"
        "  3  process 0  write(3)             holds 3\n"
        "  4  process 3  read() -> 3          holds 3\n"
        "  ✕  process 4  read() -> 2          answered 2, but the register holds 3\n"
    )


def test_no_operation_can_steer_a_terminal() -> None:
    for sample in (samples.hostile, samples.stale_read):
        text = render_text(report_of(*sample()))
        assert all(character.isprintable() or character == "\n" for character in text)
    hostile = samples.findings()
    assert "\x1b" not in render_text(hostile)


def test_a_terminal_without_unicode_gets_ascii() -> None:
    text = render_text(report_of(*samples.stale_read()), ascii_only=True)
    assert text.isascii() and "| X read() -> 2 |" in text


def test_findings_are_told_one_by_one_with_their_operations() -> None:
    text = render_text(samples.findings())
    assert "1. error: A transaction was visible in one of its partitions only" in text
    assert "2. note: Nothing polled after a rebalance" in text
    assert "├ 3 poll() ┤" in text


@pytest.mark.parametrize("sample", [samples.undecided, samples.with_wrong_read])
def test_verdicts_without_a_long_story_are_short(sample: object) -> None:
    verdict = samples.undecided() if sample is samples.undecided else samples.with_wrong_read(500)
    text = render_text(report_of(*verdict))
    assert len(text.splitlines()) < 12


def test_later_states_tell_only_where_their_order_parts() -> None:
    verdict, history = samples.stale_read()
    text = render_text(report_of(samples.with_possible(verdict, 5), history))
    assert text.count("4 steps as in 1") == 2
    assert "… and 2 more possible states, none of which explains it." in text
