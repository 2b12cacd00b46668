"""Subscriptions by regular expression (SubscribedTopicRegex of KIP-848), in RE2's syntax, which matches in linear time.

The library is imported with the first such subscription.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

REFRESH_MIN_INTERVAL_MS = 10_000
"""A group's expressions are not resolved more often, whatever its members and the topics do."""

COMPILED_MAX_BYTES = 256 << 10
"""A longer program is refused: about 10,000 instructions, or characters of names. Kafka has no such limit. With this
one an expression is compiled in 5 ms, and the slowest one found takes 30 ms for its first name, and then 0.4 ms."""

MATCHING_MAX_BYTES = 8 << 20
"""What the automaton may take while names are matched; it is thrown away after that."""

NAMES_A_SLICE = 200
SLOW_PROGRAM = 1_000
"""Names of a common expression between two yields: 0.2 ms. From so many instructions on it is one name."""

_REASONS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "no argument for repetition operator": "missing argument to repetition operator",
}
"""RE2's words, and those of the library that Kafka uses."""


class InvalidRegularExpression(ValueError):
    """It is not of RE2's syntax, or too large; the text is for the client."""


def check_regular_expression(pattern: str) -> None:
    """Raise InvalidRegularExpression for one that no topics can be looked for with."""
    _program_size(pattern)


def resolve_regular_expressions(
    patterns: Iterable[str], names: Sequence[str]
) -> Generator[None, None, dict[str, frozenset[str]]]:
    """Which names each pattern matches as a whole, in steps of a millisecond or less. An invalid one matches none."""
    resolved = {}
    for pattern in sorted(set(patterns)):
        resolved[pattern] = yield from _matching(pattern, names)
    return resolved


def _matching(pattern: str, names: Sequence[str]) -> Generator[None, None, frozenset[str]]:
    try:
        size = _program_size(pattern)
    except InvalidRegularExpression:
        return frozenset()
    yield
    import re2

    # A set of one: unlike re2.compile it does not look for groups, and is kept in no cache.
    matcher = re2.Set.FullMatchSet(_options(MATCHING_MAX_BYTES))
    matcher.Add(pattern)
    matcher.Compile()
    yield
    length = 1 if size >= SLOW_PROGRAM else NAMES_A_SLICE
    found = []
    for start in range(0, len(names), length):
        found += [name for name in names[start : start + length] if matcher.Match(name)]
        yield
    return frozenset(found)


def refresh_is_due(
    now_ms: int, last_refresh_ms: int, *, has_unresolved: bool, has_new_topics: bool, interval_ms: int
) -> bool:
    """Whether a group's expressions are to be resolved again, as Kafka decides at a heartbeat of the group.

    `has_unresolved`: some of those that members have now were never resolved; `has_new_topics`: topics were created
    since the last time; `interval_ms`: group.consumer.regex.refresh.interval.ms. A last time in the future is of a
    clock that was ahead, and puts nothing off.
    """
    since_ms = now_ms - last_refresh_ms
    if 0 <= since_ms <= REFRESH_MIN_INTERVAL_MS:
        return False
    return has_unresolved or has_new_topics or not 0 <= since_ms <= interval_ms


def _program_size(pattern: str) -> int:
    """How many instructions it is compiled to. Raises InvalidRegularExpression."""
    import re2

    try:
        compiled = re2.compile(pattern, _options(COMPILED_MAX_BYTES))
    except re2.error as error:
        refused = error.args[0]
        reason = refused.decode(errors="replace") if isinstance(refused, bytes) else str(refused)
        kind, _, what = reason.partition(": ")
        if kind == "pattern too large - compile failed":
            kind = f"its program would take more than {COMPILED_MAX_BYTES >> 10} KiB"
        elif kind == "invalid perl operator" and what.startswith("(?<"):
            kind = "invalid named capture"
        raise _invalid(pattern, _REASONS.get(kind, kind)) from error
    except UnicodeEncodeError as error:
        raise _invalid(pattern, "invalid UTF-8") from error
    finally:
        # It keeps the last 128, with all that they grow to.
        re2.purge()
    return int(compiled.programsize)


def _invalid(pattern: str, reason: str) -> InvalidRegularExpression:
    return InvalidRegularExpression(f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.")


def _options(max_bytes: int) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = max_bytes
    options.log_errors = False
    options.never_capture = True
    return options
