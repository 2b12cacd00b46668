"""`raftlog verify`: a workload through real clients, faults, and whether what was promised was kept."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from raftlog.cli.arguments import Parser, add_json, positive_seconds
from raftlog.cli.check import EXIT_BROKEN, EXIT_CODES, EXIT_PAGE, EXIT_USAGE
from raftlog.cli.failure import CommandFailed, UsageError, nearest
from raftlog.cli.output import NO_PAGE, notice, print_json
from raftlog.cli.report import accounts_of, write_report
from raftlog.cli.signals import StopRequested, stop_signals_raise

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from raftlog.linearizability.harness.judge import Ruling
    from raftlog.linearizability.harness.settings import RunSettings

EXIT_NOT_SERVED = 69  # EX_UNAVAILABLE: the system did not start, so nothing was verified
RATE_MAX = 5000.0
BROKERS_MAX = 9
CLIENTS_MAX = 64
SHOWN_ANOMALIES = 5

EPILOG = """\
Exit codes: 0 valid, 1 invalid, 2 unknown (no error, but the run proves nothing), 64 the command line is wrong,
69 the system does not serve, 70 the harness broke, 73 the page cannot be written.

examples:
  raftlog verify --workload append --fault kill --time 60
  raftlog verify --workload transactions --fault everything --brokers 5 --seed 7 --html report.html
  RAFTLOG_KAFKA=~/kafka_2.13-4.3.1 raftlog verify --workload append --fault isr-of-one --system kafka"""


def run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    try:
        return _verify(_parser().parse(arguments))
    except UsageError as error:
        error.report(as_json=as_json)
        return EXIT_USAGE
    except CommandFailed as failure:
        failure.report(as_json=as_json)
        return EXIT_PAGE if failure.code in (NO_PAGE, "UNREADABLE") else EXIT_NOT_SERVED
    except BrokenPipeError:
        raise
    except Exception as bug:  # noqa: BLE001 - Python's own exit code 1 would say that the system is invalid
        traceback.print_exc()
        CommandFailed(f"no verdict: {type(bug).__name__}: {bug}", code="BROKEN").report(as_json=as_json)
        return EXIT_BROKEN


def _parser() -> Parser:
    from raftlog.linearizability.harness.faults import EVERYTHING, FAULTS
    from raftlog.linearizability.harness.workloads.catalogue import described

    faults = [(fault.name, fault.summary) for fault in FAULTS.values()]
    faults.append((EVERYTHING, "any of these, several at once"))
    lists = "\n\n".join(
        f"{title}:\n" + "\n".join(f"  {name:<26} {summary}" for name, summary in rows)
        for title, rows in (("workloads", described()), ("faults", faults))
    )
    parser = Parser(
        prog="raftlog verify",
        description="Run a workload against brokers while things go wrong, and judge what clients were told.",
        epilog=f"{lists}\n\n{EPILOG}",
    )
    parser.add_argument("--workload", required=True, metavar="NAME", help="what clients do")
    parser.add_argument(
        "--fault", default="none", metavar="NAME", help="what goes wrong (default none); several with commas take turns"
    )
    parser.add_argument("--time", type=positive_seconds, default=60.0, metavar="SECONDS", help="of load (default 60)")
    parser.add_argument("--brokers", type=_count(BROKERS_MAX), default=3, metavar="N", help="how many (default 3)")
    parser.add_argument(
        "--clients", type=_count(CLIENTS_MAX), metavar="N", help="client processes (default two for each broker)"
    )
    parser.add_argument(
        "--libraries", metavar="NAMES", help="which clients take part (default confluent,aiokafka,raftlog)"
    )
    parser.add_argument(
        "--rate", type=_rate, default=60.0, metavar="N", help="operations a second of all clients (default 60)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="what chance decides: faults and what clients do")
    parser.add_argument(
        "--system", default="raftlog", metavar="NAME", help="raftlog (default), kafka, or HOST:PORT of one that runs"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the brokers")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of the workload, see below")
    parser.add_argument(
        "--mutant", default="", metavar="NAME", help="a fault of docs/SIMULATOR.md in the code, which must be noticed"
    )
    parser.add_argument("--output", metavar="FOLDER", help="the run's folder (default verify/TIME-WORKLOAD-FAULT)")
    parser.add_argument("--html", metavar="FILE", help="write a page that shows the run")
    add_json(parser, "print the verdict as one line of JSON")
    return parser


def _verify(options: argparse.Namespace) -> int:
    from raftlog.linearizability.harness.judge import Ruling
    from raftlog.linearizability.harness.run import Run
    from raftlog.linearizability.harness.systems.system import CannotStart

    settings = settings_of(options)
    if options.html and not Path(options.html).absolute().parent.is_dir():
        raise UsageError(f"there is no directory for the page {options.html}")
    try:
        settings.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"the run's folder cannot be {settings.directory}: {error.strerror}"
        raise UsageError(what, "choose another with --output") from None
    notice(f"seed {settings.seed}; the run's folder is {settings.directory}")
    progress = _Progress()
    verification = Run(settings, progress.say)
    try:
        with stop_signals_raise(verification.stop):
            ruling = verification.verify()
    except FileExistsError as error:
        raise UsageError(str(error), "choose another folder, or a new one, with --output") from None
    except CannotStart as error:
        raise CommandFailed(str(error)) from None
    except StopRequested:
        notice("stopped: no verdict")
        if options.json:
            _print(options, settings, Ruling("unknown", "stopped: no verdict"))
        return EXIT_CODES["unknown"]
    finally:
        progress.end()
    _print(options, settings, ruling)
    if options.html:
        write_report(options.html, accounts_of([str(settings.directory)], None, None))
    return EXIT_CODES[ruling.status]


def settings_of(options: argparse.Namespace) -> RunSettings:
    """What was asked for. Raises UsageError for what does not go together."""
    from raftlog.client.core.addresses import parse_addresses
    from raftlog.linearizability.harness.faults import EVERYTHING, FAULTS, NAMES, faults_named
    from raftlog.linearizability.harness.settings import (
        CLIENTS_PER_BROKER,
        LIBRARIES,
        OUR_LIBRARIES,
        RunSettings,
    )
    from raftlog.linearizability.harness.systems import abilities_of
    from raftlog.linearizability.harness.workloads.catalogue import NOT_THERE, WORKLOADS

    if ":" in options.system and options.set:
        raise UsageError("--set is for brokers that are started here", "set what a cluster that runs has where it runs")
    if options.workload in NOT_THERE:
        raise UsageError(f"there is no workload {options.workload!r}", NOT_THERE[options.workload])
    workload = WORKLOADS[_known(options.workload, WORKLOADS, "workload")]
    fault = options.fault
    for each in fault.split(","):
        _known(each, [name for name in FAULTS if name != "none"] if "," in fault else NAMES, "fault")
    system = options.system
    if system not in ("raftlog", "kafka") and ":" not in system:
        raise UsageError(f"there is no system {system!r}", "it is raftlog, kafka, or the HOST:PORT of a Kafka")
    if ":" in system:
        try:
            parse_addresses(system)
        except ValueError as error:
            raise UsageError(f"bad address: {error}", "write --system HOST:PORT") from None
    abilities = abilities_of(system, options.brokers) | workload.abilities
    if not faults_named(fault, abilities):
        raise UsageError(f"nothing of {fault} can be put into workload {workload.name} at {system}", "see --help")
    for each in fault.split(",") if fault != EVERYTHING else ():
        if not FAULTS[each].needs <= abilities:
            raise UsageError(*_why_not(each, system, sorted(FAULTS[each].needs - abilities)))
    usual: tuple[str, ...] = LIBRARIES
    if any(FAULTS[each].only_our_client for each in fault.split(",") if each in FAULTS):
        usual = OUR_LIBRARIES
    libraries = tuple(
        _known(each, LIBRARIES, "client library") for each in (options.libraries or ",".join(usual)).split(",")
    )
    if workload.only and not set(libraries) & set(workload.only):
        raise UsageError(f"workload {workload.name} needs the client {' or '.join(workload.only)}")
    seed = Random().getrandbits(31) if options.seed is None else options.seed
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{workload.name}-{fault}"
    return RunSettings(
        workload=workload.name,
        fault=fault,
        system=system,
        seconds=options.time,
        brokers=options.brokers,
        clients=options.clients or CLIENTS_PER_BROKER * options.brokers,
        rate=options.rate,
        seed=seed,
        libraries=libraries,
        settings=_pairs(options.set),
        options=_workload_options(workload.options, _pairs(options.option), workload.name),
        mutant=_mutant(options.mutant, system),
        directory=Path(options.output) if options.output else Path("verify") / name,
    )


def _mutant(name: str, system: str) -> str:
    if name:
        from raftlog.linearizability.simulator.catalogue import mutants

        _known(name, mutants(), "mutant")
        if system != "raftlog":
            raise UsageError("--mutant is for the code of raftlog's brokers and clients")
    return name


def _why_not(fault: str, system: str, missing: list[str]) -> tuple[str, str]:
    if "transactions" in missing:
        return f"fault {fault} is about transactions", "take workload transactions, bank or list-append"
    if "partitions" in missing:
        return f"fault {fault} is about partitions", "take a workload that writes to some"
    if "replicas" in missing and system in ("raftlog", "kafka"):
        return f"fault {fault} takes a replica away, of three or more", "take --brokers 3 or more"
    if "coordinators" in missing:
        return f"fault {fault} is about coordinators", "take workload groups or one of transactions"
    where = system if system in ("raftlog", "kafka") else "a system that runs elsewhere"
    return f"fault {fault} cannot be put into {where}: it needs a hold of {', '.join(missing)}", "see --help"


def _known(name: str, names: Collection[str], what: str) -> str:
    if name in names:
        return name
    close = nearest(name, names)
    raise UsageError(f"there is no {what} {name!r}", f"did you mean {close}?" if close else f"it is {', '.join(names)}")


def _pairs(given: list[str]) -> dict[str, str]:
    found = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{pair!r} is not KEY=VALUE")
        found[key] = value
    return found


def _workload_options(known: dict[str, tuple[str, ...]], given: dict[str, str], name: str) -> dict[str, str]:
    for key, value in given.items():
        if key not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise UsageError(f"workload {name} has no option {key!r}", has)
        if value not in known[key]:
            raise UsageError(f"option {key} of workload {name} is {' or '.join(known[key])}, not {value!r}")
    if given.get("acks", "all") != "all" and given.setdefault("idempotence", "false") == "true":
        raise UsageError("an idempotent producer needs acks=all", "add --option idempotence=false")
    return given


def _count(most: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        number = int(text) if text.isdigit() else 0
        if not 1 <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {most}")
        return number

    return count


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.1 <= rate <= RATE_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate from 0.1 to {RATE_MAX:g} operations a second")
    return rate


def _print(options: argparse.Namespace, settings: RunSettings, ruling: Ruling) -> None:
    if options.json:
        print_json({"folder": str(settings.directory), "command": settings.command, **ruling.to_json()})
        return
    for anomaly in ruling.anomalies[:SHOWN_ANOMALIES]:
        print(f"{anomaly['name']}: {anomaly['count']:,} times. {anomaly['definition']}")
        print(f"  - {anomaly['examples'][0]['text']}")
    for doubt in ruling.doubts:
        print(f"doubt: {doubt}")
    if ruling.status != "valid":
        print(f"again: {settings.command}")
    print(f"{ruling.status.upper()}  {settings.workload} with {settings.fault}: {ruling.reason}")


class _Progress:
    """A line of standard error that is written over; a line now and then for a program that reads it."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._written = False
        self._next = 0.0

    def say(self, text: str) -> None:
        if self._is_terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._written = True
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + 10.0
            notice(text)

    def end(self) -> None:
        if self._written:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._written = False
