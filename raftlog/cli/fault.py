"""`raftlog fault`: faults of a cluster that `raftlog dev --faults` runs, for tests in any language."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import time
from contextlib import nullcontext, suppress
from pathlib import Path

from raftlog.cli.arguments import Parser, Verbs, not_negative, positive_count, positive_seconds
from raftlog.cli.connected import connected
from raftlog.cli.failure import CommandFailed, UsageError, nearest
from raftlog.cli.output import print_json, table
from raftlog.client.sync import SyncClient
from raftlog.testing.faults.directory import FaultDirectory
from raftlog.testing.faults.faults import API_NAMES, APPLIED
from raftlog.testing.faults.link_faults import between
from raftlog.testing.faults.matching import ANY_API
from raftlog.testing.faults.spec import ALWAYS, CLIENTS, KINDS, LINKS, PROCESSES, PROTOCOL, FaultSpec, When, to_json
from raftlog.testing.faults.wiring import read_wiring
from raftlog.testing.pids import is_stopped, lives
from raftlog.testing.waiting import NotInTime, wait_until
from raftlog.wire.errors import ErrorCode

CLUSTER_VARIABLE = "RAFTLOG_FAULTS"
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGTERM, "freeze": signal.SIGSTOP}
BY_BROKERS = ("power", "tear")
KINDS_OF = {
    **dict.fromkeys(("api", "topic", "partition", "group", "transactional_id", "client", "applied"), PROTOCOL),
    **dict.fromkeys(("times", "always", "on_call"), PROTOCOL),
    "code": ("error",),
    "probability": (*PROTOCOL, "drop"),
    "link": LINKS,
    "seconds": ("delay", "slow-link", "slow-disk"),
    "jitter": ("slow-link", "clock"),
    "amount": ("bandwidth", "clock"),
}
"""Which faults an option is for."""
HERE = tuple(kind for kind in KINDS if kind != "rot")
END_SECONDS_MAX = 30.0
HOST = "127.0.0.1"

VERBS = Verbs("fault", "Faults of a cluster started with `raftlog dev --faults`; docs/TESTING.md tells what each does.")
VERBS.add("add", "put a fault in force, and print its number")
VERBS.add("list", "show all faults with what they have done")
VERBS.add("wait", "wait until a fault has had its effect")
VERBS.add("heal", "end faults; brokers that were down are started again")


def run(arguments: list[str]) -> int:
    verb, rest = VERBS.choose(arguments)
    return {"add": add, "list": list_, "wait": wait, "heal": heal}[verb](rest)


def _parser(verb: str, description: str, example: str) -> Parser:
    parser = VERBS.parser(verb, description, example)
    parser.add_argument(
        "--cluster",
        metavar="DIR",
        default=os.environ.get(CLUSTER_VARIABLE),
        help=f"the data directory of the cluster (the environment's {CLUSTER_VARIABLE} sets it)",
    )
    return parser


def _directory(options: argparse.Namespace) -> FaultDirectory:
    if options.cluster is None:
        hint = f"give --cluster DIR or set {CLUSTER_VARIABLE}: `raftlog dev --faults` says what to"
        raise UsageError("which cluster?", hint)
    directory = FaultDirectory(Path(options.cluster))
    if not directory.path.is_dir():
        raise CommandFailed(f"no faults can happen in {options.cluster}", "start it with `raftlog dev --faults`")
    return directory


# --- add


def add(arguments: list[str]) -> int:
    parser = _parser(
        "add",
        f"Put a fault in force. KIND is one of {', '.join(HERE)}.",
        "raftlog fault add error Produce NOT_LEADER_OR_FOLLOWER --topic orders --times 2\n"
        "  raftlog fault add delay Fetch --seconds 2 --always\n"
        "  raftlog fault add isolate --link clients:1\n"
        "  raftlog fault add freeze --broker leader:orders/0",
    )
    parser.add_argument("kind", metavar="KIND")
    parser.add_argument("api", nargs="?", default="", metavar="API", help="of requests, like Produce, or * for all")
    parser.add_argument("code", nargs="?", default="", metavar="CODE", help="of error, like NOT_LEADER_OR_FOLLOWER")
    which = parser.add_argument_group("which requests")
    which.add_argument("--topic", default="", metavar="NAME")
    which.add_argument("--partition", type=not_negative, default=-1, metavar="N")
    which.add_argument("--group", default="", metavar="NAME")
    which.add_argument("--transactional-id", default="", metavar="ID")
    which.add_argument("--client", default="", metavar="PATTERN", help="client ids, like billing*")
    which.add_argument("--applied", action="store_true", help="carry the request out, and spoil its answer alone")
    when = parser.add_argument_group("when (once, unless one of these is given)")
    when.add_argument("--times", type=positive_count, metavar="N")
    when.add_argument("--always", action="store_true")
    when.add_argument("--on-call", type=positive_count, default=1, metavar="N", help="from call N on (1 is the first)")
    when.add_argument("--probability", type=float, default=1.0, metavar="P", help="with --seed")
    when.add_argument("--seed", type=not_negative, default=None, metavar="N")
    where = parser.add_argument_group("where")
    roles = "or leader:TOPIC/N, coordinator:GROUP, quorum-leader"
    where.add_argument("--broker", action="append", default=[], metavar="ID", help=roles)
    where.add_argument("--link", action="append", default=[], metavar="A:B", help="brokers, or clients and a broker")
    much = parser.add_argument_group("how much")
    much.add_argument("--seconds", type=positive_seconds, default=0.0)
    jitter = "of slow-link: up to so many seconds more; of clock: so much faster (1.0: twice as fast)"
    much.add_argument("--jitter", type=float, default=0.0, help=jitter)
    much.add_argument("--amount", type=float, default=0.0, help="bytes a second of bandwidth, seconds of clock")
    options = parser.parse(arguments)
    directory = _directory(options)
    spec = _spec(parser, options)
    brokers = [number for number in options.broker if not number.isdecimal()]
    if brokers or spec.topic:
        with connected(options) as client:
            spec.brokers = [_broker(client, each) for each in options.broker]
            spec.topic_id = _topic_id(client, spec) if spec.topic else ""
    else:
        spec.brokers = [int(number) for number in options.broker]
    _place(spec, options, directory)
    _put_in_force(directory, spec)
    found = directory.read(spec.number)
    if options.json:
        print_json(to_json(found))
    else:
        print(found.number)
    return 0


def _spec(parser: Parser, options: argparse.Namespace) -> FaultSpec:
    kind, api, code = options.kind, options.api, options.code
    if kind not in HERE:
        close = nearest(kind, HERE)
        hint = f"did you mean {close}?" if close else f"there are {', '.join(HERE)}"
        raise UsageError(f"there is no fault {kind!r}", hint)
    if kind in PROTOCOL and kind != "blackhole" and not api:
        raise UsageError(f"{kind} of which API?", f"write `raftlog fault add {kind} Produce`, or '*' for all")
    if api not in ("", ANY_API, *API_NAMES):
        close = nearest(api, API_NAMES)
        raise UsageError(f"there is no API {api!r}", f"did you mean {close}?" if close else None)
    if kind == "error" and code not in ErrorCode.__members__:
        close = nearest(code, [*ErrorCode.__members__])
        raise UsageError(f"there is no error code {code!r}", f"did you mean {close}?" if close else None)
    for name, kinds in KINDS_OF.items():
        if kind not in kinds and getattr(options, name) != parser.get_default(name):
            option = name.upper() if name in ("api", "code") else f"--{name.replace('_', '-')}"
            raise UsageError(f"{kind} has no {option}", f"that is for {', '.join(kinds)}")
    if options.always and options.times:
        raise UsageError("--always and --times exclude each other")
    if options.probability < 1.0 and options.seed is None and kind != "drop":
        raise UsageError("--probability needs --seed", "with it the same calls are hit again")
    endless = options.always or kind in ("observe", "blackhole") or options.probability < 1.0
    when = When(options.times or (ALWAYS if endless else 1), options.on_call, options.probability, options.seed or 0)
    return FaultSpec(
        kind,
        api=api or (ANY_API if kind in PROTOCOL else ""),
        code=code,
        applied=options.applied or code in APPLIED,
        client=options.client,
        topic=options.topic,
        partition=options.partition,
        group=options.group,
        transactional_id=options.transactional_id,
        seconds=options.seconds,
        amount=options.amount,
        jitter=options.jitter,
        when=when,
        began=time.time(),
    )


def _topic_id(client: SyncClient, spec: FaultSpec) -> str:
    topic = client.admin.topic(spec.topic)
    if spec.partition >= len(topic.partitions):
        raise UsageError(f"topic {spec.topic!r} has no partition {spec.partition}")
    return topic.topic_id.hex()


def _broker(client: SyncClient, text: str) -> int:
    """The broker that somebody has in mind."""
    role, _, name = text.partition(":")
    if text.isdecimal():
        return int(text)
    if text == "quorum-leader":
        return client.admin.describe_quorum().leader
    if role == "coordinator" and name:
        return client.admin.coordinator(name)
    topic, _, partition = name.rpartition("/")
    if role == "leader" and topic and partition.isdecimal():
        partitions = client.admin.topic(topic).partitions
        leaders = {each.partition_index: each.leader_id for each in partitions}
        if int(partition) in leaders:
            return leaders[int(partition)]
    raise UsageError(f"--broker {text}: who is that?", "write 1, leader:TOPIC/N, coordinator:GROUP or quorum-leader")


def _place(spec: FaultSpec, options: argparse.Namespace, directory: FaultDirectory) -> None:
    """Where a fault of links happens. Raises UsageError, CommandFailed."""
    if spec.kind not in LINKS:
        if spec.kind not in PROTOCOL and not spec.brokers:
            raise UsageError(f"{spec.kind} of which broker?", "give --broker")
        return
    wiring = read_wiring(directory)
    if wiring is None:
        raise CommandFailed("this cluster has no links that could be cut", "start it with `raftlog dev --faults`")
    both = spec.kind not in ("cut", "deaf")
    for text in options.link:
        one, colon, other = (CLIENTS if end == "clients" else end for end in text.partition(":"))
        if not colon or not all(str(end).isdecimal() for end in (one, other)):
            raise UsageError(f"--link {text}: between whom?", "write 1:2 or clients:1")
        for end in (int(one), int(other)):
            if end not in (CLIENTS, *wiring.clients):
                raise CommandFailed(f"there is no broker {end} in this cluster")
        spec.links += between([int(one)], [int(other)]) if both else [(int(one), int(other))]
    others = [number for number in wiring.clients if number not in spec.brokers]
    if spec.brokers:
        pairs = between(spec.brokers, others)
        spec.links += pairs if both else pairs[: len(pairs) // 2] if spec.kind == "cut" else pairs[len(pairs) // 2 :]
        spec.brokers = []
    if not spec.links:
        hint = "give --link 1:2, --link clients:1, or --broker 1: to all others"
        raise UsageError(f"{spec.kind} of which link?", hint)


def _put_in_force(directory: FaultDirectory, spec: FaultSpec) -> None:
    pids = directory.pids()
    if missing := [broker for broker in spec.brokers if f"broker-{broker}" not in pids]:
        raise CommandFailed(f"there is no broker {missing[0]} in this cluster")
    for broker in spec.brokers if spec.kind in PROCESSES else ():
        # A process of that number may be a stranger's by now.
        if not directory.is_there(f"broker-{broker}"):
            raise _does_not_run(broker)
        if spec.kind in ("freeze", *BY_BROKERS) and is_stopped(pids[f"broker-{broker}"]):
            hint = "`raftlog fault list` shows what stopped it: heal that first"
            raise CommandFailed(f"broker {broker} stands still", hint)
    try:
        directory.add(spec)
    except ValueError as error:
        raise UsageError(str(error), "`raftlog fault add --help` shows how much it can be") from None
    directory.tell()
    for broker in spec.brokers:
        pid = pids[f"broker-{broker}"]
        if spec.kind in SIGNALS:
            _signal(directory, broker, pid, spec.kind)
            directory.change(spec.number, _count)
        elif spec.kind in BY_BROKERS:
            _await_effect(directory, broker, pid, stopped=False)


def _signal(directory: FaultDirectory, broker: int, pid: int, kind: str) -> None:
    try:
        with directory.held() if kind == "freeze" else nullcontext():
            os.kill(pid, SIGNALS[kind])
            _await_effect(directory, broker, pid, stopped=kind == "freeze")
    except ProcessLookupError:
        raise _does_not_run(broker) from None


def _does_not_run(broker: int) -> CommandFailed:
    return CommandFailed(f"broker {broker} does not run", "`raftlog fault list` shows what ended it")


def _await_effect(directory: FaultDirectory, broker: int, pid: int, *, stopped: bool) -> None:
    def is_seen() -> bool:
        if stopped:
            return is_stopped(pid)
        # A process whose first thread has ended has its ports until the last one has.
        return not lives(pid) and not directory.is_there(f"broker-{broker}")

    try:
        wait_until(is_seen, END_SECONDS_MAX, lambda: f"broker {broker}")
    except NotInTime as error:
        raise CommandFailed(f"the broker goes on: {error}") from None


def _count(spec: FaultSpec) -> None:
    spec.evidence.calls += 1
    spec.evidence.fired += 1


# --- list, wait, heal


def list_(arguments: list[str]) -> int:
    options = _parser("list", "Show all faults with what they have done.", "raftlog fault list --json").parse(arguments)
    specs = _directory(options).all()
    if options.json:
        print_json([to_json(spec) for spec in specs])
        return 0
    rows = [(spec.number, str(spec), *_shown(spec), "healed" if spec.is_healed else "in force") for spec in specs]
    print(table(["NUMBER", "FAULT", "FIRED", "BYTES", "CONNECTIONS", "MS", "STATE"], rows))
    return 0


def _shown(spec: FaultSpec) -> tuple[int, int, int, int]:
    seen = spec.evidence
    return seen.fired, seen.bytes, seen.connections, round(seen.ms)


def wait(arguments: list[str]) -> int:
    what = "Wait until a fault has had its effect; exit code 1 if it has not."
    parser = _parser("wait", what, "raftlog fault wait 1 --timeout 5")
    parser.add_argument("number", type=positive_count, metavar="NUMBER")
    parser.add_argument("--fired", type=positive_count, default=1, metavar="N", help="how often (default 1)")
    options = parser.parse(arguments)
    directory, number = _directory(options), options.number
    spec = _read(directory, number)
    try:
        wait_until(
            lambda: directory.read(number).evidence.fired >= options.fired, options.timeout, lambda: f"{spec}"
        )
    except NotInTime as error:
        raise CommandFailed(str(error), "--timeout gives it longer", code="NEVER_FIRED") from None
    found = directory.read(number)
    if options.json:
        print_json(to_json(found))
    else:
        print(f"{found}: {found.evidence}")
    return 0


def heal(arguments: list[str]) -> int:
    parser = _parser("heal", "End faults, all if no number is given.", "raftlog fault heal --check")
    parser.add_argument("numbers", nargs="*", type=positive_count, metavar="NUMBER")
    parser.add_argument("--check", action="store_true", help="exit code 1 if one of them has never had an effect")
    options = parser.parse(arguments)
    directory = _directory(options)
    numbers = options.numbers or [spec.number for spec in directory.all() if not spec.is_healed]
    specs = [_read(directory, number) for number in numbers]
    healed: list[FaultSpec] = []
    for spec in specs:
        healed.append(directory.change(spec.number, _end))
        for broker in spec.brokers if spec.kind == "freeze" else ():
            with suppress(ProcessLookupError):  # something else has ended it
                os.kill(directory.pids()[f"broker-{broker}"], signal.SIGCONT)
    directory.tell()
    for spec in healed:
        for broker in spec.brokers if spec.has_ended_brokers else ():
            _await_start(directory, broker, options.timeout)
    found = [directory.read(spec.number) for spec in specs]
    if options.json:
        print_json([to_json(spec) for spec in found])
    else:
        for spec in found:
            print(f"{spec.number} {spec}: {spec.evidence}")
    idle = [spec for spec in found if spec.kind != "observe" and not spec.evidence.fired]
    if options.check and idle:
        raise CommandFailed(f"without effect: {', '.join(map(str, idle))}", code="NEVER_FIRED")
    return 0


def _await_start(directory: FaultDirectory, broker: int, seconds: float) -> None:
    wiring = read_wiring(directory)
    port = wiring.clients[broker][1] if wiring is not None else 0

    def serves() -> bool:
        with socket.socket() as probe:
            return lives(directory.pids()[f"broker-{broker}"]) and (not port or not probe.connect_ex((HOST, port)))

    try:
        wait_until(serves, seconds, lambda: f"broker {broker} serves")
    except NotInTime as error:
        hint = "it is started where the cluster was: does that `raftlog dev` still run?"
        raise CommandFailed(str(error), hint) from None


def _read(directory: FaultDirectory, number: int) -> FaultSpec:
    try:
        return directory.read(number)
    except FileNotFoundError:
        raise CommandFailed(f"there is no fault {number}", "`raftlog fault list` shows those there are") from None


def _end(spec: FaultSpec) -> None:
    spec.ended = spec.ended or time.time()
