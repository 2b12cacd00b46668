"""`raftlog partition`: on which brokers partitions lie, and which of them lead."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from raftlog.cli.arguments import Parser, Verbs, add_connection, add_json, broker_list, partition_list, positive_count
from raftlog.cli.connected import connected, find_topic
from raftlog.cli.failure import CommandFailed, UsageError
from raftlog.cli.output import notice, plural, print_json, table
from raftlog.client import cluster
from raftlog.client.cluster import Outcome, Partition, Reassignment
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.reassignment import ImpossiblePlan, plan
from raftlog.client.sync import SyncClient
from raftlog.client.topics import ConfigSource, ResourceType
from raftlog.wire.errors import ErrorCode

VERBS = Verbs("partition", "Where partitions lie and who leads them.")
VERBS.add("reassign", "move partitions to other brokers, step by step")
VERBS.add("elect", "give partitions back to their preferred leaders")

LEADER_THROTTLE, FOLLOWER_THROTTLE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
EVERY_REPLICA = "*"


def run(arguments: list[str]) -> int:
    verb, rest = VERBS.choose(arguments)
    return {"reassign": reassign, "elect": elect}[verb](rest)


# -- moving ----------------------------------------------------------------------------------------------------------

EPILOG = """\
examples:
  raftlog partition reassign --plan --topics orders --brokers 1,2,4 > plan.json
  raftlog partition reassign --execute plan.json --throttle 20000000
  raftlog partition reassign --status
  raftlog partition reassign --cancel

A plan is a file as Kafka's own tool writes it. --execute prints the present state, which as a plan undoes the move.
A throttle (bytes per second and broker) is lifted by --status once nothing moves any more.
"""


def reassign(arguments: list[str]) -> int:
    options = reassign_parser().parse(arguments)
    if options.throttle is not None and options.execute is None:
        raise UsageError("--throttle goes with --execute")
    with connected(options) as client:
        if options.plan:
            return make_plan(client, options)
        if options.execute is not None:
            return execute(client, options)
        if options.cancel is not None:
            return cancel(client, options)
        return status(client, options)


def reassign_parser() -> Parser:
    parser = Parser(
        prog="raftlog partition reassign", description="Move partitions to other brokers, step by step.", epilog=EPILOG
    )
    step = parser.add_mutually_exclusive_group(required=True)
    step.add_argument("--plan", action="store_true", help="print a plan; nothing is moved")
    step.add_argument("--execute", metavar="FILE", help="begin what a plan says (- reads standard input)")
    step.add_argument("--status", action="store_true", help="show what is under way, and how far it is")
    step.add_argument("--cancel", nargs="?", const="", metavar="FILE", help="call off what is under way, or a plan")
    parser.add_argument("--topics", metavar="A,B", help="for --plan: these topics (default: all)")
    parser.add_argument("--brokers", type=broker_list, metavar="1,2-4", help="for --plan: these (default: all)")
    parser.add_argument(
        "--replication-factor", type=positive_count, metavar="N", help="for --plan: copies of each partition"
    )
    parser.add_argument(
        "--throttle", type=positive_count, metavar="BYTES", help="for --execute: bytes a second for each broker"
    )
    add_json(parser)
    add_connection(parser)
    return parser


def make_plan(client: SyncClient, options: argparse.Namespace) -> int:
    names = None if options.topics is None else [name.strip() for name in options.topics.split(",")]
    current = present_state(client, names)
    known = {each.broker_id: each for each in client.admin.describe_cluster().brokers}
    chosen = options.brokers or [number for number, each in known.items() if not each.is_fenced]
    refuse_unknown(client, chosen)
    try:
        wanted = plan(
            current,
            {number: known[number].rack for number in sorted(chosen)},
            replication_factor=options.replication_factor,
        )
    except ImpossiblePlan as error:
        raise CommandFailed(str(error), "name more with --brokers, or give a smaller --replication-factor") from error
    moved = {each: replicas for each, replicas in wanted.items() if list(current[each]) != replicas}
    print_json(document(moved))
    notice(f"{plural(len(moved), 'partition')} of {len(current):,} would change; --execute FILE begins it")
    return 0


def refuse_unknown(client: SyncClient, brokers: Sequence[int]) -> None:
    """Raises CommandFailed for the first broker that the cluster has not: before anything is changed."""
    known = {each.broker_id for each in client.admin.describe_cluster().brokers}
    for number in brokers:
        if number not in known:
            raise CommandFailed(f"there is no broker {number}", "`raftlog cluster status` shows the brokers there are")


def present_state(client: SyncClient, names: Sequence[str] | None) -> dict[Partition, list[int]]:
    if names is None:
        # The brokers' own with the rest: a broker that is to go holds them, too.
        topics = list(client.admin.metadata().topics)
    else:
        topics = [find_topic(client, name) for name in names]
    return {
        (topic.name or "", each.partition_index): list(each.replica_nodes)
        for topic in topics
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    }


def document(replicas: Mapping[Partition, Sequence[int]]) -> dict[str, Any]:
    """A plan in the form of Kafka's tool."""
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": index, "replicas": list(brokers)}
            for (topic, index), brokers in sorted(replicas.items())
        ],
    }


def read_plan(path: str) -> dict[Partition, list[int]]:
    """Raises CommandFailed with what is wrong in the file."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
        listed = [
            ((str(each["topic"]), int(each["partition"])), [int(broker) for broker in list_of(each["replicas"])])
            for each in list_of(json.loads(text)["partitions"])
        ]
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else error
        raise CommandFailed(
            f"{path} is not a plan: {what}",
            'it looks like {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}',
        ) from error
    found = dict(listed)
    if not found:
        raise CommandFailed(f"{path} names no partitions", "there is nothing to move")
    if len(found) < len(listed):
        topic, index = next(each for each, times in Counter(each for each, _ in listed).items() if times > 1)
        raise CommandFailed(f"{path} names {topic}[{index}] twice", "leave out one of the two")
    return found


def list_of(value: Any) -> list[Any]:
    """Raises ValueError. A text would be taken for a list of its letters."""
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is no list")
    return value


def execute(client: SyncClient, options: argparse.Namespace) -> int:
    wanted = read_plan(options.execute)
    current = present_state(client, sorted({topic for topic, _ in wanted}))
    for topic, index in wanted:
        if (topic, index) not in current:
            raise CommandFailed(f"{topic} has no partition {index}", f"`raftlog topic describe {topic}` shows it")
    before = {each: current[each] for each in wanted}
    refuse_unknown(client, [broker for replicas in wanted.values() for broker in replicas])
    if options.throttle is not None:
        brokers = {broker for replicas in (*before.values(), *wanted.values()) for broker in replicas}
        set_throttle(client, sorted({topic for topic, _ in wanted}), sorted(brokers), options.throttle)
    outcomes = client.admin.reassign(wanted)
    begun = {each.partition: before[each.partition] for each in outcomes if each.error is ErrorCode.NONE}
    if options.json:
        print_json({"results": [result(each) for each in outcomes], "before": document(before)})
    elif begun:
        print(json.dumps(document(begun)))
        notice(f"{plural(len(begun), 'partition')} on the way; printed is the state before: a plan that undoes it")
    cluster.raise_first_failure(outcomes)
    return 0


def set_throttle(client: SyncClient, topics: Sequence[str], brokers: Sequence[int], rate: int | None) -> None:
    """Slow the copying down to `rate` bytes per second and broker; None lifts it (KIP-73)."""
    value = None if rate is None else str(rate)
    for broker in brokers:
        client.admin.alter_configs(ResourceType.BROKER, str(broker), {LEADER_THROTTLE: value, FOLLOWER_THROTTLE: value})
    replicas = None if rate is None else EVERY_REPLICA
    for topic in topics:
        client.admin.alter_configs(ResourceType.TOPIC, topic, {LEADER_REPLICAS: replicas, FOLLOWER_REPLICAS: replicas})


def cancel(client: SyncClient, options: argparse.Namespace) -> int:
    under_way = client.admin.reassignments()
    named = read_plan(options.cancel) if options.cancel else under_way
    called_off = dict.fromkeys(each for each in named if each in under_way)
    outcomes = client.admin.reassign(called_off) if called_off else []
    if options.json:
        print_json({"results": [result(each) for each in outcomes]})
    elif outcomes:
        print(f"{plural(len(outcomes), 'move')} called off")
    else:
        notice("nothing is under way")
    cluster.raise_first_failure(each for each in outcomes if each.error != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    return 0


def status(client: SyncClient, options: argparse.Namespace) -> int:
    under_way = client.admin.reassignments()
    if not under_way:
        lifted = lift_throttles(client)
        if options.json:
            print_json({"reassignments": [], "throttle_lifted": lifted})
        else:
            notice("nothing is under way" + ("; the throttle is lifted" if lifted else ""))
        return 0
    shown = [described(each, move, share) for (each, move), share in zip(*progress(client, under_way), strict=True)]
    if options.json:
        print_json({"reassignments": shown})
        return 0
    columns = ["TOPIC", "PARTITION", "ADDING", "REMOVING", "COPIED"]
    rows = [
        [
            each["topic"],
            each["partition"],
            ",".join(map(str, each["adding"])),
            ",".join(map(str, each["removing"])),
            "?" if each["copied"] is None else f"{each['copied']:.0%}",
        ]
        for each in shown
    ]
    print(table(columns, rows))
    return 0


def progress(
    client: SyncClient, under_way: Mapping[Partition, Reassignment]
) -> tuple[list[tuple[Partition, Reassignment]], list[float | None]]:
    """How much of each moving partition its new replicas have: bytes there ÷ bytes at the fullest replica."""
    sizes: dict[int, dict[Partition, int]] = {}
    for broker in sorted({broker for move in under_way.values() for broker in move.replicas}):
        try:
            sizes[broker] = client.admin.replica_sizes(broker)
        except KafkaError:
            sizes[broker] = {}  # a broker that is down: its share is not known

    def share(partition: Partition, move: Reassignment) -> float | None:
        whole = max(sizes[broker].get(partition, 0) for broker in move.replicas)
        if not move.adding or any(not sizes[broker] for broker in move.adding):
            return None
        return min(sizes[broker].get(partition, 0) for broker in move.adding) / whole if whole else 1.0

    moves = sorted(under_way.items())
    return moves, [share(partition, move) for partition, move in moves]


def described(partition: Partition, move: Reassignment, share: float | None) -> dict[str, Any]:
    return {
        "topic": partition[0],
        "partition": partition[1],
        "replicas": list(move.replicas),
        "adding": list(move.adding),
        "removing": list(move.removing),
        "copied": share,
    }


def lift_throttles(client: SyncClient) -> bool:
    """Take the throttles of `execute` away; whether there were any."""
    brokers = client.admin.describe_cluster().brokers
    kind = ResourceType.BROKER
    up = [each.broker_id for each in brokers if not each.is_fenced]
    throttled = [broker for broker in up if is_set(client, kind, str(broker), LEADER_THROTTLE)]
    if not throttled:
        return False
    topics = [topic.name or "" for topic in client.admin.metadata().topics]
    slowed = [name for name in topics if is_set(client, ResourceType.TOPIC, name, LEADER_REPLICAS)]
    # A broker that is down cannot be asked.
    set_throttle(client, slowed, [*throttled, *(each.broker_id for each in brokers if each.is_fenced)], None)
    return True


def is_set(client: SyncClient, kind: ResourceType, name: str, setting: str) -> bool:
    (resource,) = client.admin.describe_configs(kind, [name])
    sources = (ConfigSource.TOPIC, ConfigSource.DYNAMIC_BROKER)
    return any(each.name == setting and each.config_source in sources for each in resource.configs)


def result(outcome: Outcome) -> dict[str, Any]:
    (topic, index), error, message = outcome
    return {"topic": topic, "partition": index, "error": error.name, "message": message}


# -- electing --------------------------------------------------------------------------------------------------------


def elect(arguments: list[str]) -> int:
    parser = VERBS.parser(
        "elect",
        "Give partitions back to their preferred leaders, the first of their replicas.",
        "raftlog partition elect --topic orders --partitions 0-2",
    )
    parser.add_argument("--topic", metavar="NAME", help="only this topic's (default: all that need it)")
    parser.add_argument("--partitions", type=partition_list, metavar="0,3-5", help="only these of the topic")
    parser.add_argument(
        "--unclean",
        action="store_true",
        help="for partitions without a leader: elect a replica that may lack acknowledged records, which are then lost",
    )
    options = parser.parse(arguments)
    if options.partitions is not None and options.topic is None:
        raise UsageError("--partitions needs --topic")
    if options.unclean and options.topic is None:
        raise UsageError("--unclean needs --topic", "it can lose records: say whose")
    with connected(options) as client:
        wanted = None if options.topic is None else chosen(client, options.topic, options.partitions)
        outcomes = client.admin.elect(wanted, cluster.UNCLEAN if options.unclean else cluster.PREFERRED)
        elected = [each for each in outcomes if each.error == ErrorCode.NONE]
        if options.json:
            print_json({"results": [result(each) for each in outcomes]})
        elif elected:
            print(f"{plural(len(elected), 'leader')} elected")
        cluster.raise_first_failure(outcomes)
        if not (elected or options.json):
            notice("no election was needed")
    return 0


def chosen(client: SyncClient, topic: str, indexes: Iterable[int] | None) -> list[Partition]:
    found = sorted(each.partition_index for each in find_topic(client, topic).partitions)
    return [(topic, index) for index in (found if indexes is None else indexes)]
