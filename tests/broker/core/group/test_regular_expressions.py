"""Subscriptions by regular expression: what matches, what is refused, and what a hostile one costs."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.broker.core.group.assignors.assignor import finish
from raftlog.broker.core.group.regular_expressions import (
    REFRESH_MIN_INTERVAL_MS,
    InvalidRegularExpression,
    check_regular_expression,
    refresh_is_due,
    resolve_regular_expressions,
)
from tests.effort import examples

NAMES = ["orders", "orders.eu", "orders_us", "payments", "__consumer_offsets"]


def matching(pattern: str, names: list[str] = NAMES) -> set[str]:
    return set(finish(resolve_regular_expressions([pattern], names))[pattern])


def test_the_whole_name_has_to_match() -> None:
    assert matching("orders") == {"orders"}
    assert matching("orders.*") == {"orders", "orders.eu", "orders_us"}
    assert matching("^orders$|pay.*") == {"orders", "payments"}
    assert matching("(?i)ORDERS[._](eu|us)") == {"orders.eu", "orders_us"}
    assert matching("order") == set()


def test_internal_topics_match_as_others_do_in_kafka() -> None:
    assert matching("__.*") == {"__consumer_offsets"}


@settings(max_examples=examples(50))
@given(st.lists(st.text("ab.", max_size=6), unique=True), st.lists(st.sampled_from(["a", "b", ".", "*", "|", "(b)"])))
def test_what_matches_is_what_pythons_own_expressions_match(names: list[str], parts: list[str]) -> None:
    pattern = "".join(parts)
    try:
        check_regular_expression(pattern)
    except InvalidRegularExpression:
        return
    assert matching(pattern, names) == {name for name in names if re.fullmatch(pattern, name)}


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing closing )"),
        ("[a", "missing closing ]"),
        ("a**", "invalid nested repetition operator"),
        ("(?<=a)b", "invalid named capture"),
        ("a{1001}", "invalid repeat count"),
        ("\\", "trailing backslash at end of expression"),
        ("a\\1", "invalid escape sequence"),
        ("(?z)", "invalid or unsupported Perl syntax"),
        ("*", "missing argument to repetition operator"),
    ],
)
def test_an_invalid_expression_is_refused_in_kafkas_words(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidRegularExpression) as refused:
        check_regular_expression(pattern)
    assert str(refused.value) == f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}."
    assert matching(pattern) == set()


@pytest.mark.parametrize(
    "pattern", ["(a{100}){100}", "(?i)(\\pL|\\pN){400}", "a|" * 50_000, "(.?){999}(.?){999}", "(" * 99_999]
)
def test_an_expression_that_would_grow_large_is_refused_quickly(pattern: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidRegularExpression):
        check_regular_expression(pattern)
    assert time.process_time() - began < 0.25


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)*c", "(.*){500}x", "(.?){300}(.?){300}z", ".*a.{400}"])
def test_a_hostile_expression_gives_way_after_each_of_its_steps(pattern: str) -> None:
    # Python's own engine would not come back from the first one.
    names = ["a" * 200 + str(number) * 49 for number in range(10)] * 30
    check_regular_expression(pattern)
    longest = 0.0
    steps = resolve_regular_expressions([pattern], names)
    while True:
        began = time.process_time()
        try:
            next(steps)
        except StopIteration:
            break
        longest = max(longest, time.process_time() - began)
    # Measured: 20 ms for the worst.
    assert longest < 0.25


def test_a_hundred_thousand_names_are_looked_through_in_short_steps() -> None:
    names = [f"topic-{number:06d}.events" for number in range(100_000)]
    steps = resolve_regular_expressions([r"topic-.*5\.events"], names)
    slices = []
    while True:
        began = time.process_time()
        try:
            next(steps)
        except StopIteration as end:
            assert len(end.value[r"topic-.*5\.events"]) == 10_000
            break
        slices.append(time.process_time() - began)
    assert len(slices) > 500
    assert sorted(slices)[len(slices) * 99 // 100] < 0.005


def test_expressions_are_resolved_again_for_new_topics_but_not_too_often() -> None:
    def is_due(since_ms: int, *, unresolved: bool = False, new_topics: bool = False) -> bool:
        return refresh_is_due(
            1_000_000 + since_ms,
            1_000_000,
            has_unresolved=unresolved,
            has_new_topics=new_topics,
            interval_ms=600_000,
        )

    assert not is_due(REFRESH_MIN_INTERVAL_MS, unresolved=True, new_topics=True)
    assert is_due(REFRESH_MIN_INTERVAL_MS + 1, unresolved=True)
    assert is_due(REFRESH_MIN_INTERVAL_MS + 1, new_topics=True)
    assert not is_due(600_000)
    assert is_due(600_001)
    # Another coordinator's clock was ahead.
    assert is_due(-1, unresolved=True)
    assert is_due(-3_600_000)


def test_the_library_is_imported_with_the_first_expression() -> None:
    program = (
        "import sys; from raftlog.broker.core.group.regular_expressions import check_regular_expression as check; "
        "assert 're2' not in sys.modules; check('a'); assert 're2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
