"""`raftlog broker`: one broker in this process, until it is told to stop."""

from __future__ import annotations

import argparse
import errno
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from raftlog import __version__
from raftlog.cli.arguments import Parser, add_json, key_values, not_negative
from raftlog.cli.failure import CommandFailed, UsageError

if TYPE_CHECKING:
    from raftlog.broker.config import BrokerConfig

DEFAULT_LISTEN = "127.0.0.1:9092"
EPILOG = f"""\
examples:
  raftlog broker --id 1 --data-dir /var/lib/raftlog --listen 0.0.0.0:9092
  raftlog broker --id 1 --data-dir d1 --listen 127.0.0.1:9092 --peers 1@127.0.0.1:9192,2@127.0.0.1:9292,3@127.0.0.1:9392
  raftlog broker --config server.properties --set log.retention.hours=24

With --peers the brokers named there form a quorum; the list is the same for all of them. A broker that it does not name
joins as an observer, without a vote. Without --peers a broker runs alone.

Logs go to standard error. The environment's RAFTLOG_LOG_LEVEL says how much (DEBUG, INFO, WARNING, ERROR, CRITICAL);
while the broker runs `raftlog config set --logger ID raftlog.replication=DEBUG` changes that for one logger, and
`raftlog config list --logger ID` shows all.

Settings have Kafka's names. --set wins over the flags, flags win over the file. Clients are told the address that they
connected to, unless --advertise gives another. The default is to listen on {DEFAULT_LISTEN}, for this machine only:
there is no password yet. SIGTERM or Ctrl-C stops the broker in order. The line of --json is
{{"id": 1, "pid": 4711, "address": "127.0.0.1:9092"}}; a failure to start is the last line on standard error.
"""


def build_parser() -> Parser:
    parser = Parser(prog="raftlog broker", description="Run one broker until it is told to stop.", epilog=EPILOG)
    parser.add_argument("--node-id", "--id", type=not_negative, metavar="N", help="the number of this broker (node.id)")
    parser.add_argument("--data-dir", metavar="DIR", help="where its data lies (log.dirs); made if it is not there")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="where clients connect (listeners); port 0 takes a free one"
    )
    parser.add_argument("--advertise", metavar="HOST:PORT", help="the address clients are told (advertised.listeners)")
    parser.add_argument(
        "--peers", metavar="1@HOST:PORT,...", help="the brokers that form the quorum (controller.quorum.voters)"
    )
    parser.add_argument(
        "--peer-listen", metavar="HOST:PORT", help="where other brokers connect (default: the own entry of --peers)"
    )
    parser.add_argument("--observer", action="store_true", help="follow the quorum of --peers without a vote")
    parser.add_argument(
        "--health-listen", metavar="HOST:PORT", help="serve /health, /ready, /version and /metrics over HTTP here"
    )
    parser.add_argument("--metrics-listen", metavar="HOST:PORT", help="the same in one more place, for Prometheus")
    parser.add_argument("--log-format", choices=("text", "json"), help="how log lines look, on standard error")
    parser.add_argument("--config", metavar="FILE", help="a file of settings, as Kafka's server.properties")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated")
    add_json(parser, "print one line of JSON on standard output when it serves")
    # Whoever starts brokers as processes gives these: see raftlog.testing.process.
    parser.add_argument("--ready-fd", type=not_negative, help=argparse.SUPPRESS)
    parser.add_argument("--lifeline-fd", type=not_negative, help=argparse.SUPPRESS)
    parser.add_argument("--faults", metavar="DIR", help=argparse.SUPPRESS)
    return parser


def run(arguments: list[str]) -> int:
    # Neither the imports of a start nor requests make cycles worth looking for often; and what is young is never so
    # much that looking takes long: a request may leave several hundred thousand objects at once.
    gc.set_threshold(10_000, 4, 500)
    options = build_parser().parse(arguments)
    config = load_config(gather_settings(options))
    # Logs go to standard error.
    ready_fd = os.dup(sys.stdout.fileno()) if options.json else options.ready_fd
    return run_broker(config, ready_fd, options.lifeline_fd, options.faults)


def gather_settings(options: argparse.Namespace) -> dict[str, str]:
    """The settings of file, flags and --set, in Kafka's names. Raises CommandFailed."""
    settings = {} if options.config is None else read_file(options.config)
    if options.node_id is not None:
        settings["node.id"] = str(options.node_id)
    if options.data_dir is not None:
        if "," in options.data_dir:
            raise UsageError("--data-dir names one directory", "for several use --set log.dirs=A,B")
        settings["log.dirs"] = options.data_dir
    if options.listen is not None:
        settings["listeners"] = "PLAINTEXT://" + address(options.listen, "--listen")
    if options.advertise is not None:
        settings["advertised.listeners"] = "PLAINTEXT://" + address(options.advertise, "--advertise")
    settings.setdefault("listeners", f"PLAINTEXT://{DEFAULT_LISTEN}")
    add_peers(settings, options)
    if options.health_listen is not None:
        settings["raftlog.health.listener"] = address(options.health_listen, "--health-listen")
    if options.metrics_listen is not None:
        settings["raftlog.metrics.listener"] = address(options.metrics_listen, "--metrics-listen")
    if options.log_format is not None:
        settings["raftlog.log.format"] = options.log_format
    return settings | key_values(options.set, "--set")


def add_peers(settings: dict[str, str], options: argparse.Namespace) -> None:
    """What --peers, --peer-listen and --observer come to in Kafka's settings (KIP-595). Raises UsageError."""
    text = options.peers
    if text is None and (options.observer or options.peer_listen):
        text = settings.get("controller.quorum.voters")  # the list may be in the file
    if text is None:
        for option, given in (("--peer-listen", options.peer_listen), ("--observer", options.observer)):
            if given:
                raise UsageError(f"{option} needs --peers", "without --peers a broker runs alone: leave both out")
        return
    peers = parse_peers(text)
    settings["controller.quorum.voters"] = ",".join(f"{number}@{where}" for number, where in peers.items())
    own = peers.get(int(settings["node.id"])) if settings.get("node.id", "").isdecimal() else None
    if options.observer:
        if own is not None:
            raise UsageError(
                f"--observer contradicts --peers, which names broker {settings['node.id']}",
                "leave --observer out, or this broker out of --peers: the list is the same for all brokers",
            )
        settings["process.roles"] = "broker"
    where = own if options.peer_listen is None else address(options.peer_listen, "--peer-listen")
    if where is None:
        return
    settings["controller.listener.names"] = "CONTROLLER"
    if "CONTROLLER://" not in settings["listeners"]:
        settings["listeners"] += f",CONTROLLER://{where}"


def parse_peers(text: str) -> dict[int, str]:
    """`1@host:port,2@host:port` by number. Raises UsageError for what cannot be a quorum."""
    peers: dict[int, str] = {}
    for part in text.split(","):
        number, at, where = part.strip().partition("@")
        if "@" in where:
            raise UsageError(f"--peers has {part.strip()!r}", "write a comma between two peers")
        if not at or not number.isdecimal():
            raise UsageError(f"--peers has {part.strip()!r}", "write it like 1@127.0.0.1:9093,2@127.0.0.1:9094")
        if int(number) in peers:
            raise UsageError(f"--peers names broker {number} twice", "each broker has a number of its own")
        host, _, port = address(where, "--peers").rpartition(":")
        if not host or port == "0":
            raise UsageError(f"--peers has {part.strip()!r}", "other brokers need a host and a port to connect to")
        if where in peers.values():
            raise UsageError(f"--peers has the address {where} twice", "each broker listens for its peers on its own")
        peers[int(number)] = where
    return peers


def address(text: str, option: str) -> str:
    """Check `host:port`, where the host may be empty (all addresses) and IPv6 stands in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{option} {text!r} is not an address", "write it like 127.0.0.1:9092")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise UsageError(f"{option} {text!r}: an IPv6 address stands in brackets", f"write {option} [{host}]:{port}")
    return text


def read_file(path: str) -> dict[str, str]:
    from raftlog.broker.config import parse_properties

    try:
        return parse_properties(Path(path).read_text())
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{path} is not a text file: {error}") from error


def load_config(settings: dict[str, str]) -> BrokerConfig:
    from raftlog.broker.config import BrokerConfig, ConfigError

    try:
        return BrokerConfig(settings)
    except ConfigError as error:
        problems = [named_by_flag(problem) for problem in error.problems]
        raise UsageError(problems[0], "\n  ".join(problems[1:]) or None) from error


def named_by_flag(problem: str) -> str:
    """Most people use the flags."""
    for setting, flag in (("node.id is missing", "--node-id"), ("log.dirs is missing", "--data-dir")):
        if problem.startswith(setting) and flag not in problem:
            return f"{problem} (give {flag})"
    return problem


def run_broker(config: BrokerConfig, ready_fd: int | None, lifeline_fd: int | None, faults: str | None = None) -> int:
    from raftlog.broker.main import CannotStart, Surroundings
    from raftlog.broker.main import run as run_until_stopped
    from raftlog.broker.store.data_directory import DataDirectoryInUse
    from raftlog.metadata.codec import MalformedRecord, UnsupportedRecord
    from raftlog.raft.core.errors import NewerVersion
    from raftlog.raft.journal import JournalFailed, JournalLocked, JournalOfQuorum
    from raftlog.raft.journal_recovery import JournalDamaged

    surroundings = Surroundings()
    if faults is not None:
        from raftlog.testing.faults.in_broker import surroundings as surroundings_with

        surroundings = surroundings_with(config, faults)
    try:
        return run_until_stopped(config, ready_fd=ready_fd, lifeline_fd=lifeline_fd, surroundings=surroundings)
    except (NewerVersion, UnsupportedRecord) as error:
        raise written_by_a_newer_version(error, config.metadata_directory) from error
    except (JournalDamaged, JournalFailed, MalformedRecord) as error:
        raise CommandFailed(str(error), code="METADATA_LOG_FAILED") from error
    except (CannotStart, JournalOfQuorum) as error:
        raise CommandFailed(str(error), code="CANNOT_START") from error
    except JournalLocked as error:
        hint = "stop the other broker, or choose another directory with --data-dir"
        raise CommandFailed(str(error), hint, code="DATA_DIRECTORY_IN_USE") from error
    except DataDirectoryInUse as error:
        raise CommandFailed(str(error), code="DATA_DIRECTORY_IN_USE") from error
    except OSError as error:
        raise worded(error) from error
    except refusals_of_a_quorum() as error:
        raise CommandFailed(str(error), code="CANNOT_START") from error


def written_by_a_newer_version(error: Exception, directory: str) -> CommandFailed:
    """Which file, who wrote it, and who can read it. `directory`: of the metadata log."""
    from raftlog.broker.runtime.version_note import read_version

    served = read_version(directory)
    # What came from another broker, or before its writer served, is of a version that nobody noted.
    is_known = served not in ("", __version__)
    writer = f"raftlog {served}" if is_known else "a newer version of raftlog"
    return CommandFailed(
        f"{getattr(error, 'path', '') or directory} was written by {writer}, and this is {__version__}: it has {error}",
        f"start the broker with {f'{writer} or newer' if is_known else 'that version again'}; nothing is damaged",
        code="NEWER_VERSION_NEEDED",
    )


def refusals_of_a_quorum() -> tuple[type[Exception], ...]:
    """Looked up only when something was raised: a broker alone starts without what a quorum needs."""
    from raftlog.raft.opening import NotYetAQuorum

    return (NotYetAQuorum,)


def worded(error: OSError) -> CommandFailed:
    """Why the broker could not start, with advice."""
    reason = (error.strerror or str(error)).lower()
    what = f"{error.filename}: {reason}" if error.filename else error.strerror or str(error)
    hint: str | None = None
    match error.errno:
        case errno.EADDRINUSE if "bind on address" in what:  # asyncio's words: it is not a listener of ours
            what = f"cannot listen for peers: {what.rpartition('address ')[2]}"
            hint = "another process has that port of --peers or --peer-listen; is this broker running already?"
        case errno.EADDRINUSE:
            option = "--health-listen or --metrics-listen" if "/metrics" in what else "--listen"
            hint = f"another process listens there: stop it, or choose another port with {option}"
        case errno.EADDRNOTAVAIL if "bind on address" in what:
            what = f"cannot listen for peers: {what.rpartition('address ')[2]}"
            hint = (
                "this machine has not the address that --peers gives for this broker: correct it, or use --peer-listen"
            )
        case errno.EADDRNOTAVAIL:
            hint = "this machine has no such address: --listen 0.0.0.0:PORT takes all it has"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            hint = "choose a place this user may write to with --data-dir, and a port from 1024 on"
        case errno.ENOSPC | errno.EDQUOT:
            hint = "make room, or choose another disk with --data-dir"
        case errno.ENOTDIR | errno.EEXIST | errno.ENOENT:
            hint = "there cannot be a directory there: choose another place with --data-dir"
        case int() as number if number < 0:  # from the resolver, which numbers its errors so
            hint = "check the host name given with --listen"
    return CommandFailed(what, hint, code=errno.errorcode.get(error.errno or 0, "FAILED"))
