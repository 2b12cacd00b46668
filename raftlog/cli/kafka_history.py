"""The options of `raftlog check --model kafka`: what the test promised, and so what is an error."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from raftlog.cli.failure import UsageError

if TYPE_CHECKING:
    from raftlog.linearizability.checker.budget import Budget
    from raftlog.linearizability.checker.kafka import KafkaOptions

_NANOSECONDS = 1_000_000  # in a millisecond
_EXACTLY_ONCE = {"claimed": None, "always": True, "never": False}


def add_kafka_options(parser: argparse.ArgumentParser) -> None:
    """The options, in a group of their own. Unless given they are None, so that other models can refuse them."""
    group = parser.add_argument_group("with --model kafka (docs/CHECKER_KAFKA.md)")
    group.add_argument("--isolation", metavar="LEVEL", help="read_committed (default) or read_uncommitted")
    group.add_argument("--subscription-modes", metavar="MODES", help="assign, subscribe or both; else as recorded")
    group.add_argument("--transactions", action="store_const", const=True, help="each send and poll is a transaction")
    group.add_argument("--group", metavar="NAME", help="the group of consumers that name none")
    group.add_argument("--max-staleness-ms", type=_milliseconds, metavar="MS", help="judge stale reads by this bound")
    group.add_argument(
        "--transaction-visibility-ms",
        type=_visibility,
        metavar="MS",
        help="how long a committed transaction may be visible in part (default 0), or `any`",
    )
    group.add_argument("--exactly-once", choices=[*_EXACTLY_ONCE], help="where each record may be consumed once only")
    group.add_argument("--allow", metavar="NAMES", help="anomalies that are no error here")
    group.add_argument("--forbid", metavar="NAMES", help="anomalies that are errors here")


def kafka_options(options: argparse.Namespace, budget: Budget) -> KafkaOptions:
    """The options of the analysis. Raises UsageError for those that make no sense."""
    from raftlog.linearizability.checker.kafka import KafkaOptions

    given = _given(options)
    made: dict[str, Any] = {name: given[name] for name in ("isolation", "transactions", "group") if name in given}
    for name in ("subscription_modes", "allow", "forbid"):
        if name in given:
            made[name] = frozenset(word.strip() for word in given[name].split(","))
    if "max_staleness_ms" in given:
        made["max_staleness"] = given["max_staleness_ms"]
    if "transaction_visibility_ms" in given:
        made["transaction_visibility"] = (
            None if given["transaction_visibility_ms"] < 0 else given["transaction_visibility_ms"]
        )
    if "exactly_once" in given:
        made["exactly_once"] = _EXACTLY_ONCE[given["exactly_once"]]
    try:
        return KafkaOptions(budget=budget, **made)
    except ValueError as error:
        raise UsageError(str(error), "docs/CHECKER_KAFKA.md has the table of anomalies and options") from None


def refuse_kafka_options(options: argparse.Namespace) -> None:
    """Raise UsageError if any was given with another model."""
    given = _given(options)
    if given:
        name = "--" + next(iter(given)).replace("_", "-")
        raise UsageError(f"{name} has no meaning with --model {options.model}", "it goes with --model kafka")


_NAMES = (
    "isolation",
    "subscription_modes",
    "transactions",
    "group",
    "max_staleness_ms",
    "transaction_visibility_ms",
    "exactly_once",
    "allow",
    "forbid",
)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in _NAMES if getattr(options, name) is not None}


def _milliseconds(text: str) -> int:
    """Nanoseconds of so many milliseconds."""
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of milliseconds")
    return round(amount * _NANOSECONDS)


def _visibility(text: str) -> int:
    """The same, or -1 for any time at all."""
    return -1 if text == "any" else _milliseconds(text)
