"""`raftlog dev`: brokers for development, each a process of its own, until Ctrl-C."""

from __future__ import annotations

import argparse
import errno
import os
import select
import sys
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from raftlog.cli.arguments import Parser, add_json, key_values, not_negative, positive_count
from raftlog.cli.failure import CommandFailed, UsageError
from raftlog.cli.output import notice, print_json, table
from raftlog.cli.signals import StopRequested, stop_signals_raise
from raftlog.testing.clusters import BROKERS_MAX, Cluster, data_directory
from raftlog.testing.process import BrokerDied, BrokerProcess

if TYPE_CHECKING:
    from raftlog.testing.faults.supervisor import Supervisor

REPLACEMENT_CHECK_SECONDS = 1.0
"""How often to look whether a broker that was started by hand still serves, when all of ours are gone."""

EPILOG = """\
examples:
  raftlog dev                               a free port, data removed at the end
  raftlog dev --port 9092 --data-dir ./data a fixed port, data kept
  raftlog dev -n 3                          three brokers: replicated topics, and failover when one is killed
  raftlog dev --json                        one line of JSON when the brokers serve, for scripts
  raftlog dev --set num.partitions=6        any of Kafka's broker configs

Ctrl-C or SIGTERM stops the brokers. They also stop when this process is killed. A broker that is killed or stopped
stays down until it is started by hand: with --json, "command" says how.
"""


def build_parser() -> Parser:
    parser = Parser(
        prog="raftlog dev",
        description="Start a broker with settings that suit development, and stop it with Ctrl-C.",
        epilog=EPILOG,
    )
    parser.add_argument("-n", "--brokers", type=positive_count, default=1, metavar="N", help="how many (default 1)")
    parser.add_argument(
        "--data-dir", type=_directory, metavar="DIR", help="keep the data here (default: throw it away)"
    )
    parser.add_argument("--port", type=not_negative, default=0, help="the first broker's (default: any free)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a broker config; may be repeated"
    )
    parser.add_argument(
        "--faults", action="store_true", help="let faults happen to the brokers and their links (`raftlog fault`)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show what the brokers log")
    add_json(parser, "print exactly one line on standard output, when the brokers serve")
    return parser


def _directory(text: str) -> Path:
    if not text:  # a variable of the shell that is not set; for Path it is where we are
        raise argparse.ArgumentTypeError("it is empty")
    return Path(text)


def run(arguments: list[str]) -> int:
    options = build_parser().parse(arguments)
    if options.brokers > BROKERS_MAX:
        raise UsageError(
            f"-n {options.brokers} is more than {BROKERS_MAX} brokers", "start further ones with `raftlog broker`"
        )
    if options.port and options.port + options.brokers - 1 > 65535:
        last = options.port + options.brokers - 1
        raise UsageError(f"--port {options.port}: there is no port {last}", "ports are 1 to 65535, 0 takes a free one")
    settings = key_values(options.set, "--set")
    with stop_signals_raise(), suppress(StopRequested), ExitStack() as opened:
        directory = usable_directory(options.data_dir, opened)
        cluster = opened.enter_context(closing(make_cluster(options, directory, settings)))
        return serve(cluster, throw_away=options.data_dir is None, as_json=options.json)
    return 0


def usable_directory(given: Path | None, opened: ExitStack) -> Path:
    """The one that was given, or one that goes with `opened`. Raises CommandFailed."""
    try:
        directory = opened.enter_context(data_directory(given))
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is no directory" if isinstance(error, FileExistsError) else error.strerror
        raise CommandFailed(
            f"cannot use the data directory {error.filename}: {why}", "choose another with --data-dir"
        ) from error
    return directory


def make_cluster(options: argparse.Namespace, directory: Path, settings: dict[str, str]) -> Cluster:
    try:
        return Cluster(
            options.brokers,
            directory.absolute(),
            port=options.port,
            settings=settings,
            log_to_stderr=options.verbose,
            links=options.faults,
        )
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise CommandFailed(
                f"the brokers in {directory} cannot start: {(error.strerror or str(error)).lower()}",
                "choose another --port or --data-dir",
            ) from error
        raise CommandFailed(
            f"a port that the brokers in {directory} need is taken",
            "another cluster may be running there; stop it, or choose another --port or --data-dir",
            code="EADDRINUSE",
        ) from error


def serve(cluster: Cluster, *, throw_away: bool, as_json: bool) -> int:
    """Start the brokers, say so, and wait until they are stopped (StopRequested) or have all died."""
    try:
        cluster.start()
        if as_json:
            print_json(description(cluster))
        else:
            print(welcome(cluster, throw_away))
        sys.stdout.flush()
        supervisor = None
        if cluster.has_faults:
            from raftlog.testing.faults.supervisor import Supervisor

            supervisor = Supervisor(cluster)
        watch(cluster.brokers, supervisor)
    except BrokerDied as died:
        raise CommandFailed(*what_the_broker_said(died), code="BROKER_DIED") from died
    except StopRequested:
        if not as_json:
            notice("stopping")
        cluster.stop()
        raise
    finally:
        cluster.kill()
    return 1


def what_the_broker_said(died: BrokerDied) -> tuple[str, str | None]:
    """The broker's own complaint, when its log ends with one, is worth more than ours."""
    message, _, log = str(died).partition("; the end of its log:\n")
    said = [line for line in log.splitlines() if line.strip()]
    for at in range(len(said) - 1, -1, -1):
        if said[at].startswith("raftlog: "):
            advice = "\n  ".join(line.strip() for line in said[at + 1 :]).replace("--listen", "--port")
            return said[at].removeprefix("raftlog: "), advice or None
    return message, "its log ends with:\n  " + "\n  ".join(said[-12:]) if said else None


def watch(brokers: list[BrokerProcess], supervisor: Supervisor | None = None) -> None:
    """Report each broker that dies; return when none is left, nor one that was started by hand in its place. With a
    supervisor, which starts them again, only Ctrl-C ends it.
    """
    alive = {broker.death_fd: broker for broker in brokers if broker.death_fd is not None}
    asked = [supervisor.fileno()] if supervisor is not None else []
    while alive or asked or any(is_served(broker) for broker in brokers):
        timeout = None if alive or asked else REPLACEMENT_CHECK_SECONDS
        for descriptor in select.select([*alive, *asked], [], [], timeout)[0]:
            if supervisor is not None and descriptor in asked:
                supervisor.look()
                alive = {each.death_fd: each for each in brokers if each.death_fd is not None}
                break
            broker = alive.pop(descriptor)
            pid = broker.pid
            broker.stop()
            notice(f"raftlog: broker {broker.node_id} (process {pid}) {broker.how_it_ended()}{broker.last_words()}")


def is_served(broker: BrokerProcess) -> bool:
    """Whether somebody listens where this broker did."""
    import socket

    with socket.socket(socket.AF_INET6 if ":" in broker.host else socket.AF_INET) as probe:
        return probe.connect_ex((broker.host, broker.port)) == 0


def description(cluster: Cluster) -> dict[str, object]:
    brokers = [
        {
            "id": broker.node_id,
            "pid": broker.pid,
            "address": address,
            "data_dir": str(broker.data_dir),
            "command": broker.command,
        }
        for broker, address in zip(cluster.brokers, cluster.addresses, strict=True)
    ]
    told: dict[str, object] = {"bootstrap_servers": cluster.bootstrap_servers, "brokers": brokers}
    return {**told, "faults": str(cluster.directory)} if cluster.has_faults else told


def welcome(cluster: Cluster, throw_away: bool) -> str:
    rows = [
        (broker.node_id, address, broker.pid, shortened(broker.data_dir))
        for broker, address in zip(cluster.brokers, cluster.addresses, strict=True)
    ]
    servers = cluster.bootstrap_servers
    return "\n".join(
        [
            table(["BROKER", "ADDRESS", "PID", "DATA" + (" (removed at the end)" if throw_away else "")], rows),
            "",
            "Copy and paste:",
            f"  export RAFTLOG_BOOTSTRAP_SERVERS={servers}",
            *([f"  export RAFTLOG_FAULTS={cluster.directory}"] if cluster.has_faults else []),
            "  raftlog topic create events --partitions 6",
            "  echo 'key:value' | raftlog produce events -K:",
            "  raftlog consume events -o beginning -e -f '%t[%p]@%o %k=%s\\n'",
            f"  kcat -b {servers} -L",
            f"  python -c \"from confluent_kafka import Producer; p = Producer({{'bootstrap.servers': '{servers}'}}); "
            "p.produce('events', 'hi'); p.flush()\"",
            "",
            "Ctrl-C stops it.",
        ]
    )


def shortened(path: Path) -> str:
    home = os.path.expanduser("~")
    text = str(path)
    return "~" + text[len(home) :] if home != "/" and text.startswith(home + "/") else text
