"""Command-line parsing: argparse with errors that name the nearest right word, and the options that commands share.

argparse and not click: it is in the standard library and loads in 14 ms (click takes 55 ms), which every command and
every start of a broker would pay. What it lacks, an error that helps, is here.
"""

from __future__ import annotations

import argparse
import os
import re
from typing import NoReturn

from raftlog.cli.failure import UsageError, nearest

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "RAFTLOG_BOOTSTRAP_SERVERS"
DEFAULT_TIMEOUT_SECONDS = 15.0
NUMBER_MAX = 2**31 - 1
"""Kafka has no partition and no broker above this."""
LONG_MAX = 2**63 - 1
PARTITION_MAX = 1_000_000
"""No topic has so many."""


class HelpFormat(argparse.RawDescriptionHelpFormatter):
    """Prose is as wide as the terminal; examples and tables, whose lines are indented, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap

        paragraphs = text.strip("\n").split("\n\n")
        filled = [each if "\n " in each else textwrap.fill(each, width) for each in paragraphs]
        return "\n\n".join(filled) + "\n"


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are UsageError with a suggestion instead of a usage dump."""

    def __init__(self, *, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=HelpFormat,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, self._hint(message))

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        """Parse, or raise UsageError. `--help` prints and raises SystemExit(0), as argparse does."""
        known, unknown = self.parse_known_args(arguments)
        if unknown:
            word = unknown[0]
            what = f"there is no option {word}" if word.startswith("-") else f"unexpected argument {word!r}"
            raise UsageError(what, self._hint(word))
        return known

    def _hint(self, message: str) -> str:
        word = re.search(r"--[\w-]+", message)
        known = [text for action in self._actions for text in action.option_strings if text.startswith("--")]
        plain = {text.removeprefix("--"): text for text in known}  # what all begin with says nothing
        close = nearest(word.group()[2:], [*plain]) if word and word.group() not in known else None
        return f"did you mean {plain[close]}?" if close else f"`{self.prog} --help` shows what it takes"


class Verbs:
    """The verbs of a noun command: `raftlog topic create` and so on, each with a parser of its own."""

    def __init__(self, noun: str, summary: str) -> None:
        self.noun = noun
        self.summary = summary
        self._verbs: dict[str, str] = {}

    def add(self, verb: str, summary: str) -> None:
        self._verbs[verb] = summary

    @property
    def summaries(self) -> dict[str, str]:
        """What each verb does."""
        return self._verbs

    def choose(self, arguments: list[str]) -> tuple[str, list[str]]:
        """The verb and what follows it; prints the help and raises SystemExit(0) when that was asked for."""
        if arguments and arguments[0] in self._verbs:
            return arguments[0], arguments[1:]
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            print(self.help_text())
            raise SystemExit(0 if arguments else 2)
        word = arguments[0]
        if word.startswith("-"):
            raise UsageError(f"option {word} stands before the verb", f"write `raftlog {self.noun} VERB {word} ...`")
        close = nearest(word, self._verbs)
        hint = f"did you mean `raftlog {self.noun} {close}`?" if close else f"it knows {', '.join(self._verbs)}"
        raise UsageError(f"`raftlog {self.noun}` has no verb {word!r}", hint)

    def parser(self, verb: str, description: str, example: str) -> Parser:
        """A parser for a verb, with the options that nearly all verbs have: --json and the connection's."""
        parser = Parser(prog=f"raftlog {self.noun} {verb}", description=description, epilog="example:\n  " + example)
        add_json(parser)
        add_connection(parser)
        return parser

    def help_text(self) -> str:
        lines = [f"usage: raftlog {self.noun} VERB [OPTION ...]", "", self.summary, ""]
        lines += [f"  {verb:<14} {summary}" for verb, summary in self._verbs.items()]
        lines += ["", f"`raftlog {self.noun} VERB --help` explains a verb."]
        return "\n".join(lines)


def add_json(parser: argparse.ArgumentParser, what: str = "print one line of JSON instead of a table") -> None:
    parser.add_argument("--json", action="store_true", help=what)


def add_connection(parser: argparse.ArgumentParser) -> None:
    """The options that say which brokers to talk to and how long to try."""
    default = os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    group = parser.add_argument_group("connection")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        dest="bootstrap_servers",
        metavar="HOST:PORT[,...]",
        default=default,
        help=f"brokers to ask first (now {default}; the environment's {BOOTSTRAP_VARIABLE} sets it)",
    )
    group.add_argument(  # as clients write it
        "--bootstrap-servers", dest="bootstrap_servers", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    group.add_argument(
        "--timeout",
        type=positive_seconds,
        default=DEFAULT_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="give up when a broker has not answered for so long (default %(default)g)",
    )


def positive(text: str, unit: str) -> float:
    """A number that `unit` can be counted with."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of {unit}")
    return number


def positive_seconds(text: str) -> float:
    return positive(text, "seconds")


def positive_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def not_negative(text: str) -> int:
    return _whole_number(text, NUMBER_MAX)


def not_negative_long(text: str) -> int:
    """As offsets and producer ids are."""
    return _whole_number(text, LONG_MAX)


def _whole_number(text: str, most: int) -> int:
    if not text.isdecimal() or int(text) > most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {most}")
    return int(text)


def key_values(pairs: list[str], option: str) -> dict[str, str]:
    """`["a=1", "b=2"]` as a mapping; a value may hold further equal signs and may be empty."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {pair!r} is not of the form key=value")
        found[key.strip()] = value.strip()
    return found


def partition_list(text: str) -> list[int]:
    """`0,3-5` as [0, 3, 4, 5]."""
    return _numbers(text, "partition", "`raftlog topic describe NAME`")


def broker_list(text: str) -> list[int]:
    """The same for brokers."""
    return _numbers(text, "broker", "`raftlog cluster status`")


def _numbers(text: str, what: str, command: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", part.strip())
        if match is None:
            raise UsageError(f"{text!r} is not a list of {what}s", "write it like 0,3-5")
        first = int(match[1])
        last = int(match[2] or first)
        if last < first:
            raise UsageError(f"{part.strip()!r} is no range of {what}s", f"write it like {last}-{first}")
        if last > PARTITION_MAX:
            raise UsageError(f"there is no {what} {last}", f"{command} shows those there are")
        found += range(first, last + 1)
    return sorted(set(found))
