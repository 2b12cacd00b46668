"""`raftlog demo`: what the log promises, shown on real data. Exit code 0 only when nothing is lost or there twice."""

from __future__ import annotations

import time

from raftlog.cli.arguments import Parser, positive_count, positive_seconds
from raftlog.cli.failure import CommandFailed, UsageError
from raftlog.demo.accounts import Accounts, report
from raftlog.demo.display import Display
from raftlog.demo.flights import load
from raftlog.demo.story import Deadline, Overdue, Story
from raftlog.testing.clusters import BROKERS_MAX, cluster
from raftlog.testing.process import BrokerDied

BROKERS = 3
SECONDS_MAX = 180.0


def build_parser() -> Parser:
    parser = Parser(
        prog="raftlog demo",
        description="Send a year of real flights through brokers of its own with unmodified confluent-kafka clients, "
        "kill the leaders with -9 meanwhile, and count what is missing or there twice.",
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=SECONDS_MAX,
        metavar="SECONDS",
        help="give up after (default %(default)g)",
    )
    parser.add_argument("--rows", type=positive_count, metavar="N", help="only the first N flights")
    parser.add_argument(
        "-n", "--brokers", type=positive_count, default=BROKERS, metavar="N", help="how many (default %(default)d)"
    )
    return parser


def run(arguments: list[str]) -> int:
    options = build_parser().parse(arguments)
    if options.brokers > BROKERS_MAX:
        raise UsageError(f"-n {options.brokers} is more than {BROKERS_MAX} brokers")
    try:
        accounts = play(options.rows, options.brokers, Deadline(options.timeout))
    except ImportError as error:
        raise CommandFailed(str(error), "pip install 'raftlog[demo]' brings what the demo needs") from error
    except (BrokerDied, Overdue) as error:
        raise CommandFailed(str(error)) from error
    print(report(accounts))
    print("nothing was lost" if accounts.balanced else "THE BOOKS DO NOT BALANCE")
    return 0 if accounts.balanced else 1


def play(rows: int | None, brokers: int, deadline: Deadline) -> Accounts:
    """The whole demo. Raises ImportError, BrokerDied or Overdue."""
    print("reading the flights ...", flush=True)
    flights = load(rows)
    began = time.monotonic()
    with cluster(brokers) as running:
        started = time.monotonic() - began
        with Display(["produced", "consumed"], len(flights)) as display:
            them = "broker" if brokers == 1 else f"{brokers} brokers"
            where = f"{them} at {running.bootstrap_servers}, ready {started * 1000:,.0f} ms after the start"
            display.say(f"{len(flights):,} flights; {where}")
            story = Story(flights, running, deadline, display.say)
            story.accounts.start = started
            story.run(display)
    return story.accounts
